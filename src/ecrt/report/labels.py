"""The page of a multi-label model: which labels are found, frequent or rare."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ecrt.metrics import FREQUENCY_GROUPS
from ecrt.report.drawing import DOTTED, count_scatter, head_panel, svg
from ecrt.report.rendering import Plots
from ecrt.report.tables import Table, column_table, count_cell, label_cell
from ecrt.runs.evaluation import Evaluation

METRICS = ("accuracy", "subset_accuracy", "macro_f1", "micro_f1", "mean_average_precision", "bce")
SCORES = {"average_precision": "Average precision", "f1": "F1", "recall": "Recall", "precision": "Precision"}


def summarise_labels(found: Evaluation) -> dict[str, Any]:
    """Turn the figures of a multi-label model into what its page shows."""
    counts, present = found.arrays["counts"], found.y
    return {
        "title": found.title,
        "subject": found.subject,
        "facts": found.facts,
        "versions": found.facts["versions"],
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


def _weakest(found: Evaluation) -> list[dict[str, Any]]:
    """Labels with the lowest average precision."""
    counts = found.arrays["counts"]
    score = np.where(counts > 0, found.arrays["average_precision"], np.nan)
    order = [at for at in np.argsort(score, kind="stable")[:3].tolist() if np.isfinite(score[at])]
    return [{"label": found.names[at], "score": float(score[at]), "rows": int(counts[at])} for at in order]


def _metric_table(found: Evaluation) -> Table:
    model, guessing = ([found.metrics[name][key] for key in METRICS] for name in ("test", "guessing"))
    return Table.of({"Metric": METRICS, "Model": model, "Guessing": guessing}, "metrics")


def _group_table(found: Evaluation) -> Table:
    """Mean scores of labels with many, medium and few training rows."""
    groups = [found.groups[name] for name in FREQUENCY_GROUPS]
    scores = {heading: [one[key] for one in groups] for key, heading in SCORES.items()}
    return Table.of(
        {"Training rows": FREQUENCY_GROUPS, "Labels": [int(one["labels"]) for one in groups], **scores}, "groups"
    )


def _label_table(found: Evaluation) -> Table:
    """Every label, the lowest average precision first; those without a score last."""
    order = np.argsort(found.arrays["average_precision"], kind="stable")  # NaN comes last
    of = {name: values[order] for name, values in found.arrays.items() if values.shape == order.shape}
    seen = of["counts"] > 0
    notes = np.where(seen, np.where(of["minority"], "rare", ""), "never seen")
    columns = {
        "Label": map(label_cell, np.array(found.names)[order], notes),
        "Training rows": of["counts"],
        "Test rows": map(count_cell, of["support"]),
        **{heading: of[key] for key, heading in SCORES.items()},
        "Threshold": np.where(seen, of["threshold"], np.nan),
    }
    return Table.of(columns, "labels", sortable=True)


def label_plots(found: Evaluation) -> Plots:
    """Every figure of the page."""
    of = found.arrays
    losses = {name: losses["held-out loss"] for name, losses in found.facts["candidates"].items()}
    own_thresholds = not np.allclose(of["threshold"][of["counts"] > 0], 0.5)
    return {
        "frequency": [svg(_scores, f"labels-{key}", found, key, SCORES[key]) for key in ("average_precision", "f1")],
        "thresholds": [svg(_thresholds, "thresholds", found)] if own_thresholds else [],
        "heads": [head_panel(losses, found.facts["chosen"])],
    }


def _scores(axes: Axes, found: Evaluation, key: str, title: str) -> None:
    of = found.arrays
    count_scatter(axes, of["counts"], of[key], of["minority"], found.names, title=title)
    axes.set_xlabel("training rows with the label (log scale)")


def _thresholds(axes: Axes, found: Evaluation) -> None:
    _scores(axes, found, "threshold", "Thresholds")
    axes.axhline(0.5, **DOTTED)
    axes.set_ylabel("predicted from this probability on")
