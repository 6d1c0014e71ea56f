"""The page of a regression: errors where training targets are frequent and rare."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ecrt.metrics import FREQUENCY_GROUPS, frequency_group
from ecrt.report.drawing import DOTTED, GREY, MINORITY, OTHERS, PALETTE, count_axis, legend_below, scatter_groups, svg
from ecrt.report.rendering import Plots, short, units
from ecrt.report.tables import Cell, Table, column_table, number_cell
from ecrt.runs.evaluation import Evaluation

MOST_OUTPUTS, WORST, MOST_POINTS = 4, 10, 4000
COLOURS = {"many": OTHERS, "medium": PALETTE[3], "few": MINORITY}


def summarise_regression(found: Evaluation) -> dict[str, Any]:
    """Turn the figures of a regression into what its page shows."""
    error = found.arrays["predicted"] - found.y
    few = error[found.arrays["group"] == "few"]
    return {
        "title": found.title,
        "subject": found.subject,
        "facts": found.facts,
        "versions": found.facts["versions"],
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


def _error_table(found: Evaluation) -> Table:
    error, groups = found.arrays["predicted"] - found.y, found.arrays["group"]
    names = ("all", *FREQUENCY_GROUPS, "guessing")
    rows = [error if name == "all" else error[groups == name] for name in names]
    figures = [found.metrics[name] for name in names]
    columns = {
        "Training targets": names,
        "Test rows": [int(one["rows"]) for one in figures],
        **{f"{key.upper()} ↓": [_cell(one[key]) for one in figures] for key in ("mae", "rmse", "gm")},
        "Mean error": [_cell(mine.mean() if len(mine) else np.nan) for mine in rows],
    }
    return Table.of(columns, "errors")


def _worst_table(found: Evaluation) -> Table:
    truth, predicted = found.y, found.arrays["predicted"]
    size = np.abs(predicted - truth)
    at = np.unravel_index(np.argsort(-size, axis=None, kind="stable")[:WORST], size.shape)
    names = [short(found.names[output], 40) for output in at[1]]
    columns = {
        "Test row": at[0] + 1,
        **({"Target": names} if truth.shape[1] > 1 else {}),
        "True": map(_cell, truth[at]),
        "Predicted": map(_cell, predicted[at]),
        "Error": map(_cell, (predicted - truth)[at]),
        "Training rows nearby": found.arrays["counts"][found.arrays["region"][at[0]]],
    }
    return Table.of(columns, "worst", sortable=True)


def _tried_table(found: Evaluation) -> Table:
    tried = found.facts["candidates"]
    names = [Cell(name, note="chosen" if name == found.facts["chosen"] else "") for name in tried]
    losses = {
        heading: [number_cell(losses.get(key), 4) for losses in tried.values()]
        for heading, key in (("Held-out loss ↓", "all"), ("Rare targets ↓", "rare"))
    }
    return Table.of({"Tried": names, **losses}, "tried", sortable=True)


def _cell(value: float) -> Cell:
    return Cell(units(float(value)), float(value))


def regression_plots(found: Evaluation) -> Plots:
    """Every figure of the page."""
    outputs = range(min(found.y.shape[1], MOST_OUTPUTS))
    return {
        "predicted": [svg(_agreement, f"predicted{at}", found, at) for at in outputs],
        "density": [
            svg(_by_rows, "by-density", found),
            svg(_along_target, "along-target", found, size=(4.2, 4.2), heights=(2.4, 1)),
        ],
    }


def _agreement(axes: Axes, found: Evaluation, output: int) -> None:
    """Predicted against true targets of one output."""
    some = np.sort(np.random.default_rng(0).permutation(len(found.y))[:MOST_POINTS])
    truth, predicted = (found.arrays[name][some, output] for name in ("y", "predicted"))
    ends = [min(truth.min(), predicted.min()), max(truth.max(), predicted.max())]
    axes.plot(ends, ends, **DOTTED)
    groups = [(found.arrays["group"][some] == name, colour, name) for name, colour in COLOURS.items()]
    scatter_groups(axes, truth, predicted, groups, s=9, alpha=0.6, rasterized=True)
    axes.set_title(short(found.names[output], 24), parse_math=False)
    axes.set(xlabel="true", ylabel="predicted")
    legend_below(axes)


def _region_errors(found: Evaluation) -> tuple[Any, Any, Any]:
    """Regions of the target with test rows, their mean absolute errors, and their colours."""
    counts, region = found.arrays["counts"], found.arrays["region"]
    error = np.abs(found.arrays["predicted"] - found.y).mean(axis=1)
    rows = np.bincount(region, minlength=len(counts))
    tested = np.flatnonzero(rows)
    mae = np.bincount(region, weights=error, minlength=len(counts))[tested] / rows[tested]
    return tested, mae, [COLOURS[name] for name in frequency_group(counts[tested]).tolist()]


def _by_rows(axes: Axes, found: Evaluation) -> None:
    tested, mae, colours = _region_errors(found)
    counts = np.maximum(found.arrays["counts"][tested], 1)
    axes.scatter(counts, mae, s=26, color=colours, linewidths=0, zorder=3)
    count_axis(axes, counts)
    axes.set_ylim(bottom=0)
    axes.set(title="By training rows", xlabel="training rows in the region (log scale)", ylabel="mean absolute error")


def _along_target(upper: Axes, lower: Axes, found: Evaluation) -> None:
    tested, mae, colours = _region_errors(found)
    counts, edges = found.arrays["counts"], found.arrays["edges"]
    middle, width = (edges[1:] + edges[:-1]) / 2, 0.9 * (edges[1] - edges[0])
    upper.bar(middle[tested], mae, width=width, color=colours)
    upper.set(title="Along the target", ylabel="mean absolute error")
    lower.bar(middle, counts, width=width, color=GREY)
    lower.set_yscale("symlog", linthresh=1)
    lower.set_ylabel("training rows")
    target = short(found.names[0], 40) if len(found.names) == 1 else "first direction of the targets"
    lower.set_xlabel(target, parse_math=False)
