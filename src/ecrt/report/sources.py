"""A picture of sources: classes in colours, on the page of a classifier and to look at in a notebook."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecrt.diagnostics import SourceMap
from ecrt.report import drawing
from ecrt.report.drawing import GREY, MINORITY, NAME, PALETTE
from ecrt.report.rendering import short_label

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]

MOST_COLOURED = 20
AROUND = [(0, 0), (0, 9), (0, -9), (2, 0), (-2, 0), (2, 9), (-2, -9), (0, 18), (0, -18)]


def draw_classes(
    axes: Axes, points: SourceMap, names: NDArray[np.str_], rare: NDArray[np.bool_], counts: NDArray[np.int64],
    bounds: Bounds, title: str,
) -> bool:  # fmt: skip
    """Rows as dots and synthetic samples as crosses, in the colours of their classes; whether classes are named.

    Few classes have their own colours, the rarest by ``counts`` red, and their names; of many the ``rare`` are red.
    """
    present = np.unique(points.real_y)
    named = len(present) <= MOST_COLOURED
    if named:
        order = np.argsort(counts, kind="stable").tolist()
        colours = {index: PALETTE[rank % len(PALETTE)] for rank, index in enumerate(order)}
    else:
        colours = {index: MINORITY if is_rare else GREY for index, is_rare in enumerate(rare)}
    drawing.class_cloud(axes, points.real, points.real_y, colours)
    if len(points.synthetic):
        shown = [colours[index] for index in points.synthetic_y.tolist()]
        x, y = points.synthetic.T
        axes.scatter(x, y, s=12, color=shown, alpha=0.6, marker="x", linewidths=0.8, label="synthetic")
    drawing.frame(axes, *bounds, title=title, xlabel=points.names[0], ylabel=points.names[1])
    if named:
        middles = np.array([np.median(points.real[points.real_y == index], axis=0) for index in present])
        drawing.place_labels(
            axes, middles, [short_label(str(names[index]), 12) for index in present], AROUND, fontsize=9, **NAME
        )
    return named


def plot_source_map(points: SourceMap, classes: NDArray[np.str_], minority: Sequence[int], axes: Axes | None) -> Axes:
    """A picture to look at, on these axes or on those of a new figure.

    Parameters
    ----------
    classes : names of the classes.
    minority : indices of the minority classes.
    """
    counts = np.bincount(points.real_y, minlength=len(classes))
    bounds = drawing.limits(np.concatenate([points.real, points.synthetic]))
    with mpl.rc_context(drawing.STYLE | drawing.inked("#222222")):
        if axes is None:
            axes = Figure(figsize=(6.4, 5.4), layout="constrained").subplots()
        draw_classes(axes, points, classes, np.isin(np.arange(len(classes)), minority), counts, bounds, "Sources")
        drawing.legend_below(axes)
    return axes
