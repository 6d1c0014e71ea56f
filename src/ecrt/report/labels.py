"""The page of a multi-label model: which labels are found, frequent or rare."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ecrt.report.drawing import DOTTED, count_scatter, svg
from ecrt.report.rendering import Plots, column_table
from ecrt.runs.evaluation import Evaluation


def summarise_labels(found: Evaluation) -> dict[str, Any]:
    """What the page shows: the figures of a multi-label model, and what follows from them."""
    counts, present = found.arrays["counts"], found.y
    return vars(found) | {
        "columns": column_table(found.columns),
        "unknown_in": found.unknown_in,
        "labels_per_row": float(present.sum(axis=1).mean()),
        "weakest": _weakest(found),
        "never_seen": [name for name, count in zip(found.names, counts, strict=True) if count == 0],
        "untested": int((present.sum(axis=0) == 0).sum()),
        "notes": np.where(counts > 0, np.where(found.arrays["minority"], "rare", ""), "never seen"),
        "thresholds": np.where(counts > 0, found.arrays["threshold"], np.nan),
        "order": np.argsort(found.arrays["average_precision"], kind="stable"),  # NaN comes last
    }


def _weakest(found: Evaluation) -> list[dict[str, Any]]:
    """Labels with the lowest average precision."""
    counts = found.arrays["counts"]
    score = np.where(counts > 0, found.arrays["average_precision"], np.nan)
    order = [at for at in np.argsort(score, kind="stable")[:3].tolist() if np.isfinite(score[at])]
    return [{"label": found.names[at], "score": float(score[at]), "rows": int(counts[at])} for at in order]


def label_plots(found: Evaluation) -> Plots:
    """Every figure of the page."""
    of = found.arrays
    own_thresholds = not np.allclose(of["threshold"][of["counts"] > 0], 0.5)
    return {
        "frequency": [
            svg(_scores, "labels-average_precision", found, "average_precision", "Average precision"),
            svg(_scores, "labels-f1", found, "f1", "F1"),
        ],
        "thresholds": [svg(_thresholds, "thresholds", found)] if own_thresholds else [],
    }


def _scores(axes: Axes, found: Evaluation, key: str, title: str) -> None:
    of = found.arrays
    count_scatter(axes, of["counts"], of[key], of["minority"], found.names, title=title)
    axes.set_xlabel("training rows with the label (log scale)")


def _thresholds(axes: Axes, found: Evaluation) -> None:
    _scores(axes, found, "threshold", "Thresholds")
    axes.axhline(0.5, **DOTTED)
    axes.set_ylabel("predicted from this probability on")
