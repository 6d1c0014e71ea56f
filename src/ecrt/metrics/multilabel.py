"""Measures of multi-label predictions. ``present`` is the true indicator, rows by labels, of booleans."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, f1_score

from ecrt.metrics.predictions import mean_of_finite

Array = NDArray[np.float64]
Indicator = NDArray[np.bool_]


def top_k_accuracy(scores: Array, present: Indicator) -> Array:
    """The paper's accuracy of each row: the share of its k true labels among its k best scored ones.

    Of equal scores the first label counts as the best. NaN for a row without labels.
    """
    k = present.sum(axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = np.take_along_axis(present, order, axis=1) & (np.arange(scores.shape[1]) < k[:, None])
    return np.divide(hits.sum(axis=1), k, out=np.full(len(k), np.nan), where=k > 0)


def bce_per_row(log_odds: Array, present: Indicator) -> Array:
    """Binary cross-entropy of each row, its mean over labels."""
    return np.asarray((np.logaddexp(0.0, log_odds) - np.where(present, log_odds, 0.0)).mean(axis=1))


def label_f1(predicted: Indicator, present: Indicator) -> Array:
    """F1 of each label; NaN for a label that neither occurs nor is predicted."""
    return np.asarray(f1_score(present, predicted, average=None, zero_division=np.nan))


def label_average_precision(scores: Array, present: Indicator) -> Array:
    """Average precision of each label; NaN for a label that does not occur."""
    return np.array([
        average_precision_score(present[:, label], scores[:, label]) if present[:, label].any() else np.nan
        for label in range(present.shape[1])
    ])  # fmt: skip


def best_thresholds(scores: Array, present: Indicator, fallback: Array, least_positives: int = 2) -> Array:
    """For each label the cut, half-way between two scores, above which F1 is highest.

    Parameters
    ----------
    fallback : the cut of labels with fewer than ``least_positives`` rows.
    """
    cuts = np.array(fallback, dtype=np.float64)
    for label in np.flatnonzero(present.sum(axis=0) >= least_positives):
        order = np.argsort(-scores[:, label], kind="stable")
        ranked, hits = scores[order, label], np.cumsum(present[order, label])
        f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + hits[-1])
        last_of_ties = np.append(ranked[1:] < ranked[:-1], True)  # a cut cannot part equal scores
        best = int(np.argmax(np.where(last_of_ties, f1, -1.0)))
        cuts[label] = ranked[best] if best + 1 == len(ranked) else (ranked[best] + ranked[best + 1]) / 2
    return cuts


def multilabel_metrics(
    log_odds: Array, present: Indicator, predicted: Indicator, unknown: Indicator | None = None
) -> dict[str, float]:
    """Top-k accuracy, BCE, macro- and micro-F1, mean average precision of the labels, and subset accuracy.

    Parameters
    ----------
    unknown : an indicator of further labels, which the model does not know. They count as missed, and are left out
        where a probability is needed (BCE and average precision).
    """
    if unknown is None:
        unknown = np.zeros((len(present), 0), dtype=bool)
    every = np.hstack([present, unknown])
    predicted = np.hstack([predicted, np.zeros_like(unknown)])
    scores = np.hstack([log_odds, np.full(unknown.shape, -np.inf)])
    return {
        "accuracy": mean_of_finite(top_k_accuracy(scores, every)),
        "bce": float(bce_per_row(log_odds, present).mean()),
        "macro_f1": mean_of_finite(label_f1(predicted, every)),
        "micro_f1": float(f1_score(every, predicted, average="micro", zero_division=np.nan)),
        "mean_average_precision": mean_of_finite(label_average_precision(log_odds, present)),
        "subset_accuracy": float((predicted == every).all(axis=1).mean()),
    }
