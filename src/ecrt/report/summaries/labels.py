"""What the page of a multi-label model shows: which labels are found, frequent or rare."""

from __future__ import annotations

from typing import Any

import numpy as np

from ecrt.metrics.classification import FREQUENCY_GROUPS
from ecrt.report.tables import Cell, Table, column_table, count_cell, label_cell, number_cell
from ecrt.runs.records import Measured

__all__ = ["has_own_thresholds", "summarise_labels"]

METRICS = ("accuracy", "subset_accuracy", "macro_f1", "micro_f1", "mean_average_precision", "bce")
SCORES = ("average_precision", "f1", "recall", "precision")


def summarise_labels(found: Measured) -> dict[str, Any]:
    """Turn the figures of a multi-label model into what its page shows."""
    counts, present = found.arrays["counts"], found.y
    return {
        "title": found.title,
        "subject": found.subject,
        "facts": found.facts,
        "versions": found.versions,
        "columns": column_table(found.columns),
        "n_labels": len(found.names),
        "smallest": int(counts.min()),
        "largest": int(counts.max()),
        "test_rows": len(present),
        "labels_per_row": float(present.sum(axis=1).mean()),
        "test": found.metrics["test"],
        "guessing": found.metrics["guessing"],
        "weakest": _weakest(found),
        "never_seen": [name for name, count in zip(found.names, counts, strict=True) if count == 0],
        "untested": int((present.sum(axis=0) == 0).sum()),
        "unknown": found.unknown_labels,
        "metrics": _metric_table(found),
        "groups": _group_table(found),
        "labels": _label_table(found),
    }


def has_own_thresholds(found: Measured) -> bool:
    """Whether the probability from which a label is predicted is not one half for all of them."""
    return not np.allclose(found.arrays["threshold"][found.arrays["counts"] > 0], 0.5)


def _weakest(found: Measured) -> list[dict[str, Any]]:
    """Labels with the lowest average precision."""
    counts = found.arrays["counts"]
    score = np.where(counts > 0, found.arrays["average_precision"], np.nan)
    order = [at for at in np.argsort(score, kind="stable")[:3].tolist() if np.isfinite(score[at])]
    return [{"label": found.names[at], "score": float(score[at]), "rows": int(counts[at])} for at in order]


def _metric_table(found: Measured) -> Table:
    both = ("test", "guessing")
    rows = tuple((Cell(key), *(number_cell(found.metrics[column][key]) for column in both)) for key in METRICS)
    return Table(("Metric", "Model", "Guessing"), rows, "metrics")


def _group_table(found: Measured) -> Table:
    rows = tuple(
        (
            Cell(name),
            count_cell(found.groups[name]["labels"]),
            *(number_cell(found.groups[name][key]) for key in SCORES),
        )
        for name in FREQUENCY_GROUPS
    )
    return Table(("Training rows", "Labels", "Average precision", "F1", "Recall", "Precision"), rows, "groups")


def _label_table(found: Measured) -> Table:
    """Every label, the lowest average precision first; those without a score last."""
    of = found.arrays
    rows = []
    for at in np.argsort(of["average_precision"], kind="stable").tolist():  # NaN comes last
        seen = of["counts"][at] > 0
        rows.append((
            label_cell(found.names[at], "never seen" if not seen else "rare" if of["minority"][at] else ""),
            count_cell(of["counts"][at]),
            count_cell(of["support"][at]),
            *(number_cell(of[key][at]) for key in SCORES),
            number_cell(of["threshold"][at] if seen else None),
        ))  # fmt: skip
    columns = ("Label", "Training rows", "Test rows", "Average precision", "F1", "Recall", "Precision", "Threshold")
    return Table(columns, tuple(rows), "labels", sortable=True)
