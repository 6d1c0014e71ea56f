"""The method, step by step: encode, de-mix, augment, predict. Each stage is a function beside its configuration.

All modules of this room are imported here, so that a new augmenter is one new file, without an entry in any list.
"""

import pkgutil
from importlib import import_module

from ecrt.stages.augmenting import (
    AUGMENTATION,
    TARGET_AUGMENTATION,
    Augmentation,
    Borrowed,
    ByFunction,
    Donors,
    Interpolated,
    Kernel,
    NoAugmentation,
    Pairs,
    Parametric,
    Permutation,
    Synthetic,
    augment_classes,
    class_sources,
    draw_classes,
    label_sources,
)
from ecrt.stages.blending import Attempt, Blend, Member, transfer, transfer_again
from ecrt.stages.choosing import HeadChoice, choose_head, fit_head
from ecrt.stages.demixing import (
    DEMIXING,
    Demixing,
    DemixResult,
    Flow,
    Linear,
    NoDemixing,
    Restart,
    demix,
    sources_of,
)
from ecrt.stages.encoding import ENCODER, Encoder, EncodeResult, encode, features_of
from ecrt.stages.heads import (
    HEAD,
    TARGET_HEAD,
    GaussianHead,
    Head,
    LinearHead,
    MLPHead,
    TreesHead,
    head_outputs,
)
from ecrt.stages.parts import Part, Role
from ecrt.stages.regression import regress
from ecrt.stages.targets import ClassTarget, Labelled, LabelTarget

__all__ = [
    "AUGMENTATION",
    "DEMIXING",
    "ENCODER",
    "HEAD",
    "TARGET_AUGMENTATION",
    "TARGET_HEAD",
    "Attempt",
    "Augmentation",
    "Blend",
    "Borrowed",
    "ByFunction",
    "ClassTarget",
    "DemixResult",
    "Demixing",
    "Donors",
    "EncodeResult",
    "Encoder",
    "Flow",
    "GaussianHead",
    "Head",
    "HeadChoice",
    "Interpolated",
    "Kernel",
    "LabelTarget",
    "Labelled",
    "Linear",
    "LinearHead",
    "MLPHead",
    "Member",
    "NoAugmentation",
    "NoDemixing",
    "Pairs",
    "Parametric",
    "Part",
    "Permutation",
    "Restart",
    "Role",
    "Synthetic",
    "TreesHead",
    "augment_classes",
    "choose_head",
    "class_sources",
    "demix",
    "draw_classes",
    "encode",
    "features_of",
    "fit_head",
    "head_outputs",
    "label_sources",
    "regress",
    "sources_of",
    "transfer",
    "transfer_again",
]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
