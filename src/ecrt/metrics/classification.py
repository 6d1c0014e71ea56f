"""Hits and losses row by row, scores class by class, and their means.

Everywhere ``y`` and ``predicted`` are class indices; a ``y`` of -1 is a label that training never saw: never right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FREQUENCY_GROUPS = ("many", "medium", "few")


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


def frequency_group(counts: Labels) -> NDArray[np.str_]:
    """Name of each class's group by training samples: many (above 100), medium (20 to 100), few (below 20).

    >>> frequency_group(np.array([101, 100, 20, 19])).tolist()
    ['many', 'medium', 'medium', 'few']
    """
    return np.select([counts > 100, counts >= 20], ["many", "medium"], default="few")


def class_scores(y: Labels, predicted: Labels, n_classes: int) -> dict[str, Array]:
    """Precision, recall, F1, support and number of predictions of each class.

    NaN where there is nothing to divide by: recall without test rows, precision without predictions, F1 without either.
    """
    precision, recall, f1, support = precision_recall_fscore_support(
        y, predicted, labels=np.arange(n_classes), zero_division=np.nan
    )
    n_predicted = np.bincount(predicted, minlength=n_classes)
    columns = {"precision": precision, "recall": recall, "f1": f1, "support": support, "predicted": n_predicted}
    return {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}


def group_recalls(y: Labels, predicted: Labels, counts: Labels) -> dict[str, dict[str, float]]:
    """Mean recall of the classes with many, medium and few training samples.

    ``n_classes`` are all classes of a group, ``n_tested`` those with test rows: the recall is a mean over the latter.
    """
    recall = class_scores(y, predicted, len(counts))["recall"]
    group = frequency_group(counts)
    found = {}
    for name in FREQUENCY_GROUPS:
        mine = recall[group == name]
        found[name] = {
            "recall": mean_of_finite(mine),
            "n_classes": float(len(mine)),
            "n_tested": float(np.isfinite(mine).sum()),
        }
    return found


def confusion(y: Labels, predicted: Labels, n_classes: int) -> Labels:
    """Rows of each true class (down) by predicted class (across); unknown labels are left out."""
    known = y >= 0
    if not known.any():
        return np.zeros((n_classes, n_classes), dtype=np.int64)
    return np.asarray(confusion_matrix(y[known], predicted[known], labels=np.arange(n_classes)), dtype=np.int64)


def confused_pairs(y: Labels, predicted: Labels) -> dict[str, Labels]:
    """Each true class with each wrong one it was taken for, and how many rows; most rows first.

    Of pairs with as many rows the one that is the larger share of its true class comes first. No matrix is made, so
    that ten thousand classes cost no more than their rows.
    """
    wrong = (y >= 0) & (y != predicted)
    pairs, rows = np.unique(np.stack([y[wrong], predicted[wrong]]), axis=1, return_counts=True)
    support = np.bincount(y[y >= 0], minlength=int(pairs.max(initial=0)) + 1)
    order = np.lexsort((support[pairs[0]], -rows))
    return {"true": pairs[0][order], "predicted": pairs[1][order], "rows": rows[order]}


def mean_of_finite(values: Array) -> float:
    """Mean of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
