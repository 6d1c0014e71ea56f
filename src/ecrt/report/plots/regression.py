"""Figures of a regression: predictions against the truth, and errors where training targets are many and few."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ecrt.metrics.classification import frequency_group
from ecrt.report.drawing import GREY, INK, MINORITY, OTHERS, PALETTE, count_axis, legend_below, svg, svg_figure
from ecrt.report.rendering import Plots, short
from ecrt.report.summaries.regression import MOST_OUTPUTS
from ecrt.runs.records import Measured

__all__ = ["regression_plots"]

MOST_POINTS = 4000
COLOURS = {"many": OTHERS, "medium": PALETTE[3], "few": MINORITY}


def regression_plots(found: Measured) -> Plots:
    """Every figure of the page."""
    outputs = range(min(found.y.shape[1], MOST_OUTPUTS))
    return {"predicted": [svg(_agreement(found, at), f"predicted{at}") for at in outputs], "density": _density(found)}


def _agreement(found: Measured, output: int) -> Callable[[Axes], None]:
    """Predicted against true targets of one output."""
    some = np.sort(np.random.default_rng(0).permutation(len(found.y))[:MOST_POINTS])
    truth, predicted = (found.arrays[name][some, output] for name in ("y", "predicted"))
    group = found.arrays["group"][some]

    def draw(axes: Axes) -> None:
        low, high = min(truth.min(), predicted.min()), max(truth.max(), predicted.max())
        axes.plot([low, high], [low, high], color=INK, linestyle=":", linewidth=1)
        for name, colour in COLOURS.items():
            mine = group == name
            if mine.any():
                axes.scatter(
                    truth[mine], predicted[mine], s=9, color=colour, alpha=0.6, linewidths=0, rasterized=True,
                    label=name,
                )  # fmt: skip
        axes.set_title(short(found.names[output], 24), parse_math=False)
        axes.set_xlabel("true")
        axes.set_ylabel("predicted")
        legend_below(axes)

    return draw


def _density(found: Measured) -> list[str]:
    """Error of each region against its training rows, and along the target above a histogram of training."""
    counts, region, edges = (found.arrays[name] for name in ("counts", "region", "edges"))
    error = np.abs(found.arrays["predicted"] - found.y).mean(axis=1)
    rows = np.bincount(region, minlength=len(counts))
    mae = np.bincount(region, weights=error, minlength=len(counts)) / np.maximum(rows, 1)
    tested = rows > 0
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    colours = np.array([COLOURS[name] for name in frequency_group(counts).tolist()])

    def against_rows(axes: Axes) -> None:
        axes.scatter(np.maximum(counts[tested], 1), mae[tested], s=26, color=colours[tested], linewidths=0, zorder=3)
        count_axis(axes, np.maximum(counts[tested], 1))
        axes.set_ylim(bottom=0)
        axes.set_title("By training rows")
        axes.set_xlabel("training rows in the region (log scale)")
        axes.set_ylabel("mean absolute error")

    def along_target(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
        upper.bar(middle[tested], mae[tested], width=0.9 * width, color=colours[tested])
        upper.set_title("Along the target")
        upper.set_ylabel("mean absolute error")
        lower.bar(middle, np.maximum(counts, 0), width=0.9 * width, color=GREY)
        lower.set_yscale("symlog", linthresh=1)
        lower.set_ylabel("training rows")
        lower.set_xlabel(short(found.names[0], 40) if len(found.names) == 1 else "first direction of the targets")

    return [svg(against_rows, "by-density"), svg_figure(along_target, "along-target", size=(4.2, 4.2))]
