"""The method, step by step: encode, de-mix, augment, predict."""

from ecrt.stages.augment import AugmentConfig, Synthetic, augment_classes
from ecrt.stages.demix import DemixConfig, DemixResult, Incidences, Restart, demix, sources_of
from ecrt.stages.encode import EncodeConfig, EncodeResult, encode, features_of
from ecrt.stages.heads import HeadName, head_outputs
from ecrt.stages.multilabel import Labelled, augment_labels, choose_label_head, demix_labels, transfer_labels
from ecrt.stages.predict import HeadChoice, HeadConfig, choose_head
from ecrt.stages.transfer import TransferResult, transfer

__all__ = [
    "AugmentConfig",
    "DemixConfig",
    "DemixResult",
    "EncodeConfig",
    "EncodeResult",
    "HeadChoice",
    "HeadConfig",
    "HeadName",
    "Incidences",
    "Labelled",
    "Restart",
    "Synthetic",
    "TransferResult",
    "augment_classes",
    "augment_labels",
    "choose_head",
    "choose_label_head",
    "demix",
    "demix_labels",
    "encode",
    "features_of",
    "head_outputs",
    "sources_of",
    "transfer",
    "transfer_labels",
]
