"""The method, step by step: encode, de-mix, augment, predict."""

from ecrt.stages.augment import AugmentConfig, Synthetic, augment_classes
from ecrt.stages.demix import DemixConfig, DemixResult, Restart, demix, sources_of
from ecrt.stages.encode import EncodeConfig, EncodeResult, encode, features_of
from ecrt.stages.heads import HeadName
from ecrt.stages.predict import HeadConfig, HeadResult, balanced_logits, fit_head
from ecrt.stages.transfer import TransferResult, transfer

__all__ = [
    "AugmentConfig",
    "DemixConfig",
    "DemixResult",
    "EncodeConfig",
    "EncodeResult",
    "HeadConfig",
    "HeadName",
    "HeadResult",
    "Restart",
    "Synthetic",
    "TransferResult",
    "augment_classes",
    "balanced_logits",
    "demix",
    "encode",
    "features_of",
    "fit_head",
    "sources_of",
    "transfer",
]
