"""Which classes are recognised, frequent or rare, and can the confidence be trusted? Functions of plain arrays.

Everywhere ``y`` and ``predicted`` are class indices; a ``y`` of -1 is a label that training never saw: never right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)

from ecrt.metrics.classification import mean_over_classes, nll_per_sample, top_k_hits

__all__ = [
    "FREQUENCY_GROUPS",
    "class_scores",
    "confused_pairs",
    "confusion",
    "expected_calibration_error",
    "frequency_group",
    "group_recalls",
    "prediction_metrics",
    "reliability_bins",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FREQUENCY_GROUPS = ("many", "medium", "few")
N_BINS = 15


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
            "recall": _mean(mine),
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
    """Mean over rows of the distance between accuracy and mean confidence of their bin."""
    bins = reliability_bins(confidence, hit, n_bins)
    distance = np.nan_to_num(np.abs(bins["accuracy"] - bins["confidence"]))
    return float(distance @ bins["count"] / bins["count"].sum()) if len(confidence) else float("nan")


def prediction_metrics(log_proba: Array, y: Labels, counts: Labels) -> dict[str, float]:
    """Everything in one number each: how often right, for classes alike, and how well the probabilities are.

    Unknown labels count as wrong in accuracy and top-5 and cost precision; they have no probability and are left out
    of the rest. Top-5 is given for more than five classes; for two, average precision and ROC AUC of the rarer one.
    """
    predicted, known = log_proba.argmax(axis=1), y >= 0
    scores = class_scores(y, predicted, len(counts))
    log_known, y_known = log_proba[known], y[known]
    nll = nll_per_sample(log_known, y_known)
    found = {
        "accuracy": float((predicted == y).mean()),
        "balanced_accuracy": _mean(scores["recall"]),
        "macro_f1": _mean(scores["f1"]),
    }
    if len(counts) > 5:
        found["top5"] = float(top_k_hits(log_known, y_known, 5).sum() / len(y))
    found["nll"] = float(nll.mean()) if len(nll) else float("nan")
    found["balanced_nll"] = mean_over_classes(nll, y_known) if len(nll) else float("nan")
    found["ece"] = expected_calibration_error(np.exp(log_known.max(axis=1)), predicted[known] == y_known)
    if len(counts) == 2:
        found |= _rarer_class_ranking(log_known, y_known, counts)
    return found


def _rarer_class_ranking(log_proba: Array, y: Labels, counts: Labels) -> dict[str, float]:
    """How well the rarer of two classes is ranked first: a prior shifts all scores alike and changes nothing."""
    rare = 0 if counts[0] < counts[1] else 1
    score = log_proba[:, rare] - log_proba[:, 1 - rare]
    if len(np.unique(y)) < 2:
        return {"average_precision": float("nan"), "roc_auc": float("nan")}
    return {
        "average_precision": float(average_precision_score(y == rare, score)),
        "roc_auc": float(roc_auc_score(y == rare, score)),
    }


def _mean(values: Array) -> float:
    """Mean of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")
