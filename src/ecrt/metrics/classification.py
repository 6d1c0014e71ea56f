"""Hits and losses row by row, averaged over rows or over classes, and whether one lot is better than another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "better_beyond_noise",
    "better_under_weights",
    "mean_over_classes",
    "nll_per_sample",
    "top_k_hits",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def nll_per_sample(log_proba: Array, y: Labels) -> Array:
    """Negative log-probability of the true class (an index into the columns)."""
    return -log_proba[np.arange(len(y)), y]


def top_k_hits(scores: Array, y: Labels, k: int) -> NDArray[np.bool_]:
    """Whether the true class is among the k best scored; fewer than k classes always hit.

    Of equal scores the first counts as the best, as in ``argmax``; a true class whose score is NaN comes last.
    """
    true = scores[np.arange(len(y)), y][:, None]
    earlier = np.arange(scores.shape[1]) < y[:, None]
    ahead = ~(scores <= true) | ((scores == true) & earlier)
    return np.asarray(ahead.sum(axis=1) < k)


def mean_over_classes(values: Array, y: Labels) -> float:
    """Average within each class first, then over the classes present: every class counts the same."""
    counts = np.bincount(y)
    sums = np.bincount(y, weights=values)
    return float((sums[counts > 0] / counts[counts > 0]).mean())


def better_beyond_noise(challenger: Array, champion: Array, y: Labels) -> bool:
    """Whether the challenger's losses are lower than the champion's, row by row, by more than one standard error.

    Every class counts alike.
    """
    return better_under_weights(challenger, champion, (1 / np.maximum(np.bincount(y), 1))[y])


def better_under_weights(challenger: Array, champion: Array, weight: Array) -> bool:
    """The same with a weight for each row."""
    gain = champion - challenger
    weight = weight / weight.sum()
    mean = float(weight @ gain)
    return mean > float(np.sqrt(weight**2 @ (gain - mean) ** 2))
