"""Measures of predictions and of sources."""

from ecrt.metrics.classification import (
    better_beyond_noise,
    better_under_weights,
    classification_metrics,
    mean_over_classes,
    nll_per_sample,
    top_k_hits,
)
from ecrt.metrics.independence import hsic, max_abs_correlation, mean_correlation_coefficient
from ecrt.metrics.multilabel import (
    bce_per_row,
    best_thresholds,
    label_average_precision,
    label_f1,
    micro_f1,
    multilabel_metrics,
    top_k_accuracy,
)

__all__ = [
    "bce_per_row",
    "best_thresholds",
    "better_beyond_noise",
    "better_under_weights",
    "classification_metrics",
    "hsic",
    "label_average_precision",
    "label_f1",
    "max_abs_correlation",
    "mean_correlation_coefficient",
    "mean_over_classes",
    "micro_f1",
    "multilabel_metrics",
    "nll_per_sample",
    "top_k_accuracy",
    "top_k_hits",
]
