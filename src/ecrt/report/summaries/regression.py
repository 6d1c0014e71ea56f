"""What the page of a regression shows: errors where training targets are frequent and rare."""

from __future__ import annotations

from typing import Any

import numpy as np

from ecrt.metrics.classification import FREQUENCY_GROUPS
from ecrt.report.rendering import short, units
from ecrt.report.tables import Cell, Table, column_table, count_cell, number_cell
from ecrt.runs.records import Measured

__all__ = ["MOST_OUTPUTS", "summarise_regression"]

MOST_OUTPUTS, WORST = 4, 10


def summarise_regression(found: Measured) -> dict[str, Any]:
    """Turn the figures of a regression into what its page shows."""
    error = found.arrays["predicted"] - found.y
    few = error[found.arrays["group"] == "few"]
    return {
        "title": found.title,
        "subject": found.subject,
        "facts": found.facts,
        "versions": found.versions,
        "columns": column_table(found.columns),
        "test": found.metrics["all"],
        "guessing": found.metrics["guessing"],
        "few": found.metrics["few"],
        "few_mean_error": float(few.mean()) if len(few) else None,
        "n_outputs": found.y.shape[1],
        "shown_outputs": min(found.y.shape[1], MOST_OUTPUTS),
        "errors": _error_table(found),
        "worst": _worst_table(found),
        "tried": _tried_table(found),
    }


def _error_table(found: Measured) -> Table:
    error, groups = found.arrays["predicted"] - found.y, found.arrays["group"]
    rows = []
    for name in ("all", *FREQUENCY_GROUPS, "guessing"):
        mine = error if name == "all" else error[groups == name]
        figures = found.metrics[name]
        rows.append((
            Cell(name), count_cell(figures["rows"]), *(_cell(figures[key]) for key in ("mae", "rmse", "gm")),
            _cell(mine.mean() if len(mine) else np.nan),
        ))  # fmt: skip
    return Table(("Training targets", "Test rows", "MAE ↓", "RMSE ↓", "GM ↓", "Mean error"), tuple(rows), "errors")


def _worst_table(found: Measured) -> Table:
    truth, predicted = found.y, found.arrays["predicted"]
    size = np.abs(predicted - truth)
    row, output = np.unravel_index(np.argsort(-size, axis=None, kind="stable")[:WORST], size.shape)
    counts = found.arrays["counts"][found.arrays["region"]]
    several = truth.shape[1] > 1
    rows = tuple(
        (
            count_cell(at + 1), *([Cell(short(found.names[to], 40))] if several else []),
            *map(_cell, (truth[at, to], predicted[at, to], predicted[at, to] - truth[at, to])), count_cell(counts[at]),
        )
        for at, to in zip(row.tolist(), output.tolist(), strict=True)
    )  # fmt: skip
    columns = ("Test row", *(["Target"] if several else []), "True", "Predicted", "Error", "Training rows nearby")
    return Table(columns, rows, "worst", sortable=True)


def _tried_table(found: Measured) -> Table:
    rows = tuple(
        (
            Cell(name, note="chosen" if name == found.chosen else ""),
            *(number_cell(losses.get(key), 4) for key in ("all", "rare")),
        )
        for name, losses in found.candidates.items()
    )
    return Table(("Tried", "Held-out loss ↓", "Rare targets ↓"), rows, "tried", sortable=True)


def _cell(value: float) -> Cell:
    return Cell(units(float(value)), float(value))
