"""What class probabilities assume, whether their confidence can be trusted, and how to change both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from ecrt.errors import InputError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
PriorName = Literal["balanced", "training"]

PRIORS: tuple[PriorName, PriorName] = ("balanced", "training")
"""Class priors that everything is reported under: a method should not win by its prior alone."""

N_BINS = 15
LEAST_LOG_PROBABILITY = float(np.log(np.finfo(np.float64).eps))
"""scikit-learn's ``log_loss`` takes no probability below this one, so that a single zero does not make it infinite."""

COLDEST, HOTTEST = 1e-2, 1e2


def nll_per_sample(log_proba: Array, y: Labels) -> Array:
    """Negative log-probability of the true class (an index into the columns)."""
    return -log_proba[np.arange(len(y)), y]


def class_prior_of(prior: PriorName | ArrayLike, counts: NDArray[np.int64]) -> Array:
    """Share of each class: equal, as in training, or as given; they sum to one.

    >>> class_prior_of("training", np.array([30, 10])).tolist()
    [0.75, 0.25]
    """
    if isinstance(prior, str) and prior not in PRIORS:
        raise InputError(f"There is no class prior {prior!r}: use {PRIORS}, or one number for each class.")
    named = {"balanced": np.ones(len(counts)), "training": counts}
    shares = np.asarray(named[prior] if isinstance(prior, str) else prior, dtype=np.float64)
    if shares.shape != (len(counts),):
        raise InputError(f"The class prior has the shape {shares.shape}, but there are {len(counts)} classes.")
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError("A class prior needs numbers of at least 0, not all of them 0.")
    return np.asarray(shares / shares.sum())


def shift_prior(log_proba_nm: ArrayLike, from_prior_m: ArrayLike, to_prior_m: ArrayLike) -> Array:
    """What the same model says if classes are as frequent as ``to_prior_m``: p(m | x) to(m) / from(m), normalised.

    Bayes' rule with unchanged p(x | m), so that predictions of methods with different priors can be compared under one.
    A probability of zero stays zero under every prior.

    Parameters
    ----------
    log_proba_nm : log-probabilities, or logits, of rows by classes.
    from_prior_m, to_prior_m : the prior that they assume and the one wanted; they need not sum to one.

    References
    ----------
    Saerens, Latinne and Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities.

    >>> np.exp(shift_prior(np.log([[0.9, 0.1]]), [9, 1], [1, 1])).round(6).tolist()
    [[0.5, 0.5]]
    """
    log_proba = np.asarray(log_proba_nm, dtype=np.float64)
    counts = np.zeros(log_proba.shape[1], dtype=np.int64)
    assumed, wanted = class_prior_of(from_prior_m, counts), class_prior_of(to_prior_m, counts)
    impossible = np.isneginf(log_proba)
    lost = (assumed == 0) & (wanted > 0) & ~impossible.all(axis=0)
    if lost.any():
        raise InputError(
            f"Class {int(np.flatnonzero(lost)[0])} has probabilities although the prior they assume gives it none: "
            "from_prior_m does not belong to these predictions."
        )
    with np.errstate(divide="ignore"):
        change = np.log(wanted) - np.log(np.where(assumed > 0, assumed, 1.0))
    moved = np.where(impossible, -np.inf, log_proba + change)
    nothing = np.isneginf(moved).all(axis=1)
    if nothing.any():
        raise InputError(
            f"Row {int(np.flatnonzero(nothing)[0])} gives no probability to any class that the prior allows."
        )
    return np.asarray(log_softmax(moved, axis=1))


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
