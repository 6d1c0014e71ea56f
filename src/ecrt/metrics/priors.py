"""The class prior that probabilities assume, and the same predictions under another one."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from ecrt.errors import InputError

Array = NDArray[np.float64]
PriorName = Literal["balanced", "training"]

PRIORS: tuple[PriorName, PriorName] = ("balanced", "training")
"""Class priors that everything is reported under: a method should not win by its prior alone."""


def class_prior_of(prior: PriorName | ArrayLike, counts: NDArray[np.int64]) -> Array:
    """Share of each class: equal, as in training, or as given; they sum to one.

    >>> class_prior_of("training", np.array([30, 10])).tolist()
    [0.75, 0.25]
    """
    if isinstance(prior, str):
        if prior not in PRIORS:
            raise InputError(f"There is no class prior {prior!r}: use {PRIORS}, or one number for each class.")
        shares: Array = np.ones(len(counts)) if prior == "balanced" else np.asarray(counts, dtype=np.float64)
    else:
        shares = np.asarray(prior, dtype=np.float64)
    if shares.shape != (len(counts),):
        raise InputError(f"The class prior has the shape {shares.shape}, but there are {len(counts)} classes.")
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError("A class prior needs numbers of at least zero that do not all vanish.")
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
    change = _log(wanted) - np.where(assumed > 0, _log(assumed), 0.0)
    moved = np.where(impossible, -np.inf, log_proba + change)
    nothing = np.isneginf(moved).all(axis=1)
    if nothing.any():
        raise InputError(
            f"Row {int(np.flatnonzero(nothing)[0])} gives no probability to any class that the prior allows."
        )
    return np.asarray(log_softmax(moved, axis=1))


def _log(shares: Array) -> Any:
    return np.log(shares, where=shares > 0, out=np.full(len(shares), -np.inf))
