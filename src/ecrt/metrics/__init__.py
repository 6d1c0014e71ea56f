"""Measures of predictions and of sources."""

from ecrt.metrics.calibration import expected_calibration_error, fit_temperature, reliability_bins, scale_by_temperature
from ecrt.metrics.classification import (
    better_beyond_noise,
    better_under_weights,
    mean_over_classes,
    nll_per_sample,
    top_k_hits,
)
from ecrt.metrics.independence import hsic, hsic_test, max_abs_correlation, mean_correlation_coefficient
from ecrt.metrics.multilabel import (
    bce_per_row,
    best_thresholds,
    label_average_precision,
    label_f1,
    micro_f1,
    multilabel_metrics,
    top_k_accuracy,
)
from ecrt.metrics.prediction_files import Predictions, read_prediction_table, read_predictions
from ecrt.metrics.predictions import measure_predictions, prediction_metrics, single_numbers
from ecrt.metrics.priors import PRIORS, PriorName, class_prior_of, shift_prior
from ecrt.metrics.significance import holm

__all__ = [
    "PRIORS",
    "Predictions",
    "PriorName",
    "bce_per_row",
    "best_thresholds",
    "better_beyond_noise",
    "better_under_weights",
    "class_prior_of",
    "expected_calibration_error",
    "fit_temperature",
    "holm",
    "hsic",
    "hsic_test",
    "label_average_precision",
    "label_f1",
    "max_abs_correlation",
    "mean_correlation_coefficient",
    "mean_over_classes",
    "measure_predictions",
    "micro_f1",
    "multilabel_metrics",
    "nll_per_sample",
    "prediction_metrics",
    "read_prediction_table",
    "read_predictions",
    "reliability_bins",
    "scale_by_temperature",
    "shift_prior",
    "single_numbers",
    "top_k_accuracy",
    "top_k_hits",
]
