"""Pure functions, one equation each; they return one value for each sample."""

from ecrt.losses.classification import (
    ClassificationLoss,
    classification_loss,
    cross_entropy,
    hinge,
    logit_adjusted,
)
from ecrt.losses.contrastive import dv_exact, fdv_in_batch, gcl_exact, gcl_in_batch, infonce_in_batch
from ecrt.losses.likelihood import flow_nll
from ecrt.losses.multilabel import label_odds, masked_bce, row_mass
from ecrt.losses.risk import ClassMass, class_mass, paper_augmentation_weight, sample_weights

__all__ = [
    "ClassMass",
    "ClassificationLoss",
    "class_mass",
    "classification_loss",
    "cross_entropy",
    "dv_exact",
    "fdv_in_batch",
    "flow_nll",
    "gcl_exact",
    "gcl_in_batch",
    "hinge",
    "infonce_in_batch",
    "label_odds",
    "logit_adjusted",
    "masked_bce",
    "paper_augmentation_weight",
    "row_mass",
    "sample_weights",
]
