"""Pure functions, one equation each; they return one value for each sample."""

from ecrt.losses.classification import (
    LOSS_OPTIONS,
    ClassLoss,
    LossName,
    LossRule,
    check_loss,
    cross_entropy,
    effective_number_weights,
    effective_prior,
    focal,
    hinge,
    importance_weights,
    ldam,
    ldam_margins,
    logit_adjusted,
    loss_rule,
    make_class_loss,
)
from ecrt.losses.contrastive import dv_exact, fdv_in_batch, fdv_own_label, gcl_exact, gcl_in_batch, infonce_in_batch
from ecrt.losses.likelihood import flow_nll
from ecrt.losses.multilabel import label_odds, masked_bce, row_mass
from ecrt.losses.risk import ClassMass, class_mass, paper_augmentation_weight, sample_weights

__all__ = [
    "LOSS_OPTIONS",
    "ClassLoss",
    "ClassMass",
    "LossName",
    "LossRule",
    "check_loss",
    "class_mass",
    "cross_entropy",
    "dv_exact",
    "effective_number_weights",
    "effective_prior",
    "fdv_in_batch",
    "fdv_own_label",
    "flow_nll",
    "focal",
    "gcl_exact",
    "gcl_in_batch",
    "hinge",
    "importance_weights",
    "infonce_in_batch",
    "label_odds",
    "ldam",
    "ldam_margins",
    "logit_adjusted",
    "loss_rule",
    "make_class_loss",
    "masked_bce",
    "paper_augmentation_weight",
    "row_mass",
    "sample_weights",
]
