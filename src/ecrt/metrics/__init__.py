"""Measures of predictions and of sources."""

from ecrt.metrics.classification import (
    better_beyond_noise,
    classification_metrics,
    mean_over_classes,
    nll_per_sample,
    top_k_hits,
)
from ecrt.metrics.independence import hsic, max_abs_correlation, mean_correlation_coefficient

__all__ = [
    "better_beyond_noise",
    "classification_metrics",
    "hsic",
    "max_abs_correlation",
    "mean_correlation_coefficient",
    "mean_over_classes",
    "nll_per_sample",
    "top_k_hits",
]
