"""The method, step by step: encode, de-mix, augment, predict. Each stage is a function beside its configuration.

All modules of this room are imported here, so that a new augmenter is one new file, without an entry in any list.
"""

import pkgutil
from importlib import import_module

from ecrt.stages.augmenting import (
    AUGMENTATION,
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
)
from ecrt.stages.blending import Member
from ecrt.stages.choosing import HeadChoice
from ecrt.stages.demixing import DEMIXING, Demixing, DemixResult, Flow, Linear, NoDemixing, Restart, demix, sources_of
from ecrt.stages.encoding import ENCODER, Encoder, EncodeResult, encode, features_of
from ecrt.stages.heads import GaussianHead, Head, LinearHead, MLPHead, TreesHead, head_outputs
from ecrt.stages.parts import Part, Role
from ecrt.stages.targets import ClassTarget, Labelled, LabelTarget

__all__ = [
    "AUGMENTATION",
    "DEMIXING",
    "ENCODER",
    "Augmentation",
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
    "demix",
    "encode",
    "features_of",
    "head_outputs",
    "sources_of",
]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
