"""Errors of predicted numbers, overall and where training targets were many, medium or few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ecrt.data.minority import N_REGIONS, TargetRegions
from ecrt.metrics.predictions import FREQUENCY_GROUPS, frequency_group

Array = NDArray[np.float64]

LEAST_ERROR = 1e-10
"""An exact prediction would make the geometric mean of errors zero whatever the other errors."""


def target_groups(y_train: Array | TargetRegions, y: Array, n_regions: int = N_REGIONS) -> NDArray[np.str_]:
    """Group of each target: equal-width regions with more than 100 training rows are many, 20 to 100 medium, else few.

    The thresholds are those of the literature on imbalanced regression (Yang et al., 2021, Delving into deep imbalanced
    regression). Targets beyond the training range belong to the region next to them.
    """
    regions = y_train if isinstance(y_train, TargetRegions) else TargetRegions.learn(_columns(y_train), n_regions)
    return np.asarray(frequency_group(regions.counts)[regions.region_of(_columns(y))])


def regression_metrics(
    predicted: Array, y: Array, y_train: Array | TargetRegions, n_regions: int = N_REGIONS
) -> dict[str, dict[str, float]]:
    """MAE, RMSE and geometric mean error of all rows and of the many, medium and few regions, with their rows.

    The geometric mean asks that no row be far off (Yang et al., 2021).

    Parameters
    ----------
    predicted, y : predictions and truth, one output or several.
    y_train : targets of training, which say how many is many, or the regions that were learned from them.
    """
    group = target_groups(y_train, y, n_regions)
    error = _columns(predicted) - _columns(y)
    return {"all": _errors(error)} | {name: _errors(error[group == name]) for name in FREQUENCY_GROUPS}


def _errors(error: Array) -> dict[str, float]:
    if len(error) == 0:
        return {"mae": float("nan"), "rmse": float("nan"), "gm": float("nan"), "rows": 0.0}
    distance = np.abs(error)
    return {
        "mae": float(distance.mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "gm": float(np.exp(np.log(np.maximum(distance, LEAST_ERROR)).mean())),
        "rows": float(len(error)),
    }


def _columns(y: Array) -> Array:
    y = np.asarray(y, dtype=np.float64)
    return y[:, None] if y.ndim == 1 else y
