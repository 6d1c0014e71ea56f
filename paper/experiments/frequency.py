"""How well classes are recognised, frequent or rare: figures of each class, to be drawn against its frequency."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.metrics import class_scores

__all__ = ["BY_CLASS", "by_class", "by_label"]

Row = dict[str, Any]

BY_CLASS = "by_class"
"""Key of these figures in a row of results."""


def by_class(found: Row) -> Row:
    """Frequency, recall and F1 of each class, from ``prediction_metrics``; short, most frequent first."""
    table = found["by_class"]
    return {
        "class": table["class"],
        "frequency": table["frequency"],
        **{name: _short(np.asarray(table[name], dtype=np.float64)) for name in ("recall", "f1")},
    }


def by_label(present: NDArray[np.bool_], predicted: NDArray[np.bool_], frequency: NDArray[np.int64]) -> Row:
    """The same where a row may have several labels: each is a problem of two classes."""
    order = np.argsort(-frequency, kind="stable")
    scores = [class_scores(present[:, k].astype(np.int64), predicted[:, k].astype(np.int64), 2) for k in order]
    return {
        "class": order.tolist(),
        "frequency": frequency[order].tolist(),
        **{name: _short(np.array([one[name][1] for one in scores])) for name in ("recall", "f1")},
    }


def _short(values: NDArray[np.float64]) -> list[float | None]:
    """Three decimals; nothing where there is none, since JSON has no word for it."""
    return [round(float(value), 3) if np.isfinite(value) else None for value in values]
