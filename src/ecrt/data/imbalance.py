"""Protocols that make a balanced training set imbalanced, and the stratified splits all stages share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


def thin_out(y: NDArray[Any], keep: dict[Any, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows that remain, in order, when every class in ``keep`` is cut to the number given there."""
    rows = [rng.permutation(np.flatnonzero(y == label))[: keep.get(label)] for label in np.unique(y).tolist()]
    return np.sort(np.concatenate(rows))


def step_imbalance(
    y: NDArray[Any], minority: Collection[Any], n_minority: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cut every minority class to ``n_minority`` samples and leave the others whole.

    >>> y = np.repeat([0, 1], 10)
    >>> rows = step_imbalance(y, minority=[1], n_minority=2, rng=np.random.default_rng(0))
    >>> np.bincount(y[rows]).tolist()
    [10, 2]
    """
    return thin_out(y, dict.fromkeys(minority, n_minority), rng)


def exponential_imbalance(y: NDArray[Any], ratio: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Cut class k of M to ``n * ratio ** (-k / (M - 1))`` samples: a long tail whose ends differ by ``ratio``."""
    classes, counts = np.unique(y, return_counts=True)
    shares = ratio ** (-np.arange(len(classes)) / max(len(classes) - 1, 1))
    # The small term keeps a whole number whole: 98 / 49 comes out of the power as 1.999...
    sizes = np.maximum(1, np.floor(counts * shares + 1e-9)).astype(int)
    return thin_out(y, dict(zip(classes.tolist(), sizes.tolist(), strict=True)), rng)


def stratified_holdout(
    y: NDArray[np.int64],
    fraction: float,
    rng: np.random.Generator,
    *,
    both_sides: bool = False,
    eligible: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows class by class; a class always keeps at least one row on the first side.

    The held-out number of each class is rounded at random with the right expectation, so that a fifth of many classes
    of three is a fifth of all rows. If all numbers are rounded to zero, one row of the largest class is held out.
    scikit-learn's stratified split refuses classes of one sample.

    Parameters
    ----------
    both_sides : whether a class of two rows or more has at least one on the second side as well.
    eligible : rows that may be held out, ``None`` for all.
    """
    held_out = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        size = min(max(int(fraction * len(rows) + rng.random()), int(both_sides)), len(rows) - 1)
        held_out[rng.permutation(rows if eligible is None else rows[eligible[rows]])[:size]] = True
    if fraction > 0 and not held_out.any():
        counts = np.bincount(y)
        able = (counts[y] > 1) if eligible is None else (counts[y] > 1) & eligible
        held_out[np.flatnonzero(able)[np.argsort(-counts[y[able]], kind="stable")[:1]]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def indicator_of(y: NDArray[np.int64], rows: NDArray[np.bool_] | None = None) -> sparse.csr_array:
    """Rows by classes, with a one for the class of each row (of ``rows`` alone, if they are given)."""
    chosen = np.arange(len(y)) if rows is None else np.flatnonzero(rows)
    ones = np.ones(len(chosen), dtype=np.int64)
    return sparse.csr_array((ones, (chosen, y[chosen])), shape=(len(y), int(y.max(initial=-1)) + 1))


def with_lost_groups(rows: NDArray[np.int64], groups: sparse.csr_array) -> NDArray[np.int64]:
    """Rows that a stage learns from, and all rows of the groups that have none among them.

    This is the one rule by which no class, label or rare region is lost between two stages.

    Parameters
    ----------
    groups : rows by groups, an indicator of what has to be learned.

    >>> with_lost_groups(np.array([0, 1]), indicator_of(np.array([5, 6, 5, 7]))).tolist()
    [0, 1, 3]
    """
    lost = np.asarray(groups[rows].sum(axis=0)).ravel() == 0
    theirs = np.asarray(groups[:, np.flatnonzero(lost)].sum(axis=1)).ravel() > 0
    return np.union1d(rows, np.flatnonzero(theirs))
