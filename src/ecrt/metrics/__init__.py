"""Measures of predictions and of sources.

``predictions`` measures class probabilities as a whole; ``probabilities`` changes their prior or their temperature.
``multilabel`` and ``regression`` do the same for other tasks, ``independence`` for sources. ``significance`` says which
differences are more than noise.
"""

from ecrt.metrics.independence import hsic, hsic_test, max_abs_correlation, mean_correlation_coefficient
from ecrt.metrics.multilabel import (
    bce_per_row,
    best_thresholds,
    label_average_precision,
    label_f1,
    multilabel_metrics,
    top_k_accuracy,
)
from ecrt.metrics.predictions import (
    FREQUENCY_GROUPS,
    Predictions,
    class_scores,
    confused_pairs,
    confusion,
    frequency_group,
    mean_of_finite,
    mean_over_classes,
    measure_predictions,
    prediction_metrics,
    read_prediction_table,
    read_predictions,
    single_numbers,
    top_k_hits,
)
from ecrt.metrics.probabilities import (
    PRIORS,
    PriorName,
    class_prior_of,
    fit_temperature,
    nll_per_sample,
    reliability_bins,
    shift_prior,
)
from ecrt.metrics.regression import regression_metrics, target_groups
from ecrt.metrics.significance import LEVEL, Estimate, Pair, corrected_estimate, half_width, holm, paired

__all__ = [
    "FREQUENCY_GROUPS",
    "LEVEL",
    "PRIORS",
    "Estimate",
    "Pair",
    "Predictions",
    "PriorName",
    "bce_per_row",
    "best_thresholds",
    "class_prior_of",
    "class_scores",
    "confused_pairs",
    "confusion",
    "corrected_estimate",
    "fit_temperature",
    "frequency_group",
    "half_width",
    "holm",
    "hsic",
    "hsic_test",
    "label_average_precision",
    "label_f1",
    "max_abs_correlation",
    "mean_correlation_coefficient",
    "mean_of_finite",
    "mean_over_classes",
    "measure_predictions",
    "multilabel_metrics",
    "nll_per_sample",
    "paired",
    "prediction_metrics",
    "read_prediction_table",
    "read_predictions",
    "regression_metrics",
    "reliability_bins",
    "shift_prior",
    "single_numbers",
    "target_groups",
    "top_k_accuracy",
    "top_k_hits",
]
