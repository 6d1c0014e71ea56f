"""Figures of a multi-label model: scores and thresholds of frequent and rare labels, and the heads tried."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ecrt.report.drawing import INK, count_scatter, head_panel, svg
from ecrt.report.rendering import Plots
from ecrt.report.summaries.labels import has_own_thresholds
from ecrt.runs.records import Measured

__all__ = ["label_plots"]


def label_plots(found: Measured) -> Plots:
    """Every figure of the page."""
    of = found.arrays
    scores = (("average_precision", "Average precision"), ("f1", "F1"))
    losses = {name: losses["held-out loss"] for name, losses in found.candidates.items()}
    return {
        "frequency": [svg(_drawer(found, of[key], title), f"labels-{key}") for key, title in scores],
        "thresholds": [svg(_thresholds(found), "thresholds")] if has_own_thresholds(found) else [],
        "heads": [head_panel(losses, found.chosen)],
    }


def _drawer(found: Measured, values: NDArray[np.float64], title: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        count_scatter(axes, found.arrays["counts"], values, found.arrays["minority"], found.names, title=title)
        axes.set_xlabel("training rows with the label (log scale)")

    return draw


def _thresholds(found: Measured) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        _drawer(found, found.arrays["threshold"], "Thresholds")(axes)
        axes.axhline(0.5, color=INK, linestyle=":", linewidth=0.8)
        axes.set_ylabel("predicted from this probability on")

    return draw
