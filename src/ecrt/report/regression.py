"""The page of a regression: errors where training targets are frequent and rare."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ecrt.metrics import FREQUENCY_GROUPS, frequency_group
from ecrt.report.drawing import DOTTED, GREY, MINORITY, OTHERS, PALETTE, legend_below, scatter_groups, svg
from ecrt.report.rendering import Plots, Table, cells, column_table, short
from ecrt.runs.evaluation import Evaluation

MOST_OUTPUTS, WORST, MOST_POINTS = 4, 10, 4000
COLOURS = {"many": OTHERS, "medium": PALETTE[3], "few": MINORITY}


def summarise_regression(found: Evaluation) -> dict[str, Any]:
    """What the page shows: the figures of a regression, and what follows from them."""
    error, groups = found.arrays["predicted"] - found.y, found.arrays["group"]
    of_groups = {"all": error, **{name: error[groups == name] for name in FREQUENCY_GROUPS}}
    means = {name: float(of.mean()) if len(of) else np.nan for name, of in of_groups.items()}
    return vars(found) | {
        "columns": column_table(found.columns),
        "mean_error": means | {"guessing": np.nan},
        "worst": _worst_table(found),
    }


def _worst_table(found: Evaluation) -> Table:
    truth, predicted = found.y, found.arrays["predicted"]
    size = np.abs(predicted - truth)
    at = np.unravel_index(np.argsort(-size, axis=None, kind="stable")[:WORST], size.shape)
    names = [short(found.names[output], 40) for output in at[1]]
    columns = {
        "Test row": at[0] + 1,
        **({"Target": names} if truth.shape[1] > 1 else {}),
        "True": cells(truth[at], "units"),
        "Predicted": cells(predicted[at], "units"),
        "Error": cells((predicted - truth)[at], "units"),
        "Training rows nearby": found.arrays["counts"][found.arrays["region"][at[0]]],
    }
    return Table.of(columns, "worst", sortable=True)


def regression_plots(found: Evaluation) -> Plots:
    """Every figure of the page."""
    outputs = range(min(found.y.shape[1], MOST_OUTPUTS))
    return {
        "predicted": [svg(_agreement, f"predicted{at}", found, at) for at in outputs],
        "density": [svg(_along_target, "along-target", found, size=(4.2, 4.2), heights=(2.4, 1))],
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


def _along_target(upper: Axes, lower: Axes, found: Evaluation) -> None:
    """Mean absolute error in each region of the target that has test rows, over the training rows there."""
    counts, edges, region = (found.arrays[name] for name in ("counts", "edges", "region"))
    error = pd.Series(np.abs(found.arrays["predicted"] - found.y).mean(axis=1)).groupby(region).mean()
    tested = error.index.to_numpy()
    colours = [COLOURS[name] for name in frequency_group(counts[tested]).tolist()]
    middle, width = (edges[1:] + edges[:-1]) / 2, 0.9 * (edges[1] - edges[0])
    upper.bar(middle[tested], error.to_numpy(), width=width, color=colours)
    upper.set(title="Along the target", ylabel="mean absolute error")
    lower.bar(middle, counts, width=width, color=GREY)
    lower.set_yscale("symlog", linthresh=1)
    lower.set_ylabel("training rows")
    target = short(found.names[0], 40) if len(found.names) == 1 else "first direction of the targets"
    lower.set_xlabel(target, parse_math=False)
