"""Can the confidence be trusted, and by how much would one temperature mend it?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ecrt.errors import InputError
from ecrt.metrics.classification import nll_per_sample

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

N_BINS = 15
LEAST_LOG_PROBABILITY = float(np.log(np.finfo(np.float64).eps))
"""scikit-learn's ``log_loss`` takes no probability below this one, so that a single zero does not make it infinite."""

COLDEST, HOTTEST = 1e-2, 1e2


def clip_log_proba(log_proba: Array) -> Array:
    """Log-probabilities of at least log(2.2e-16), as in scikit-learn's ``log_loss``: an impossible class costs 36."""
    return np.maximum(log_proba, LEAST_LOG_PROBABILITY)


def reliability_bins(confidence: Array, hit: NDArray[np.bool_], n_bins: int = N_BINS) -> dict[str, Array]:
    """Rows in equal bins of the top class's probability: how many, their mean confidence and their accuracy.

    NaN in empty bins. A bin holds its lower edge; the last one also holds 1.
    """
    index = np.clip((confidence * n_bins).astype(np.int64), 0, n_bins - 1)
    count = np.bincount(index, minlength=n_bins).astype(np.float64)
    divisor = np.where(count > 0, count, np.nan)
    return {
        "count": count,
        "confidence": np.bincount(index, weights=confidence, minlength=n_bins) / divisor,
        "accuracy": np.bincount(index, weights=hit, minlength=n_bins) / divisor,
    }


def expected_calibration_error(confidence: Array, hit: NDArray[np.bool_], n_bins: int = N_BINS) -> float:
    """Mean over rows of the distance between accuracy and mean confidence of their bin.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
    """
    bins = reliability_bins(confidence, hit, n_bins)
    distance = np.nan_to_num(np.abs(bins["accuracy"] - bins["confidence"]))
    return float(distance @ bins["count"] / bins["count"].sum()) if len(confidence) else float("nan")


def scale_by_temperature(log_proba: Array, temperature: float) -> Array:
    """Probabilities to the power 1 / temperature, normalised: above 1 less sure, below 1 surer."""
    return np.asarray(log_softmax(log_proba / temperature, axis=1))


def fit_temperature(log_proba: Array, y: Labels, weight: Array | None = None) -> float:
    """The temperature with the lowest NLL on these rows, which must not be those that are measured afterwards.

    Parameters
    ----------
    log_proba : of rows by classes; zeros count as 2.2e-16.
    weight : of each row; without it all rows have the same weight.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
    """
    if len(y) == 0:
        raise InputError("A temperature needs validation rows with labels that were in training; there are none.")
    weight = np.ones(len(y)) if weight is None else weight
    clipped = clip_log_proba(log_proba)

    return lowest_temperature(
        lambda temperature: float(weight @ nll_per_sample(scale_by_temperature(clipped, temperature), y))
    )


def lowest_temperature(loss: Callable[[float], float]) -> float:
    """The temperature at which a loss, which has one minimum, is lowest."""
    found = minimize_scalar(
        lambda log_temperature: loss(float(np.exp(log_temperature))),
        bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded", options={"xatol": 1e-6},
    )  # fmt: skip
    return float(np.exp(found.x))
