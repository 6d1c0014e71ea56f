"""A picture of the sources that a classifier has found, to look at in a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecrt.report.drawing import GREY, MINORITY, NAME, PALETTE, STYLE, class_cloud, frame, inked, legend_below, limits
from ecrt.report.rendering import short_label

if TYPE_CHECKING:
    from ecrt.diagnostics import SourceMap

MOST_NAMED = len(PALETTE)


def plot_source_map(points: SourceMap, classes: NDArray[np.str_], minority: Sequence[int], axes: Axes | None) -> Axes:
    """Rows as dots, synthetic samples as crosses, in the colours of their classes, the rarest first.

    Parameters
    ----------
    points : places and class indices.
    classes : names of the classes.
    minority : indices of the minority classes; if there are more classes than colours, these are red.
    axes : to draw on; ``None`` for a new figure.
    """
    present = np.unique(np.concatenate([points.real_y, points.synthetic_y])).tolist()
    named = len(present) <= MOST_NAMED
    order = sorted(present, key=lambda index: int((points.real_y == index).sum()))
    colours = dict(zip(order, PALETTE, strict=False))
    if not named:
        colours = {index: MINORITY if index in minority else GREY for index in present}
    with mpl.rc_context(STYLE | inked("#222222")):
        if axes is None:
            axes = Figure(figsize=(6.4, 5.4), layout="constrained").subplots()
        class_cloud(axes, points.real, points.real_y, colours)
        if len(points.synthetic):
            shown = [colours[index] for index in points.synthetic_y.tolist()]
            x, height = points.synthetic.T
            axes.scatter(x, height, s=12, color=shown, alpha=0.6, marker="x", linewidths=0.8, label="synthetic")
        if named:
            for index in np.unique(points.real_y).tolist():
                middle = tuple(np.median(points.real[points.real_y == index], axis=0))
                axes.annotate(short_label(str(classes[index]), 12), middle, ha="center", va="center", **NAME)
        bounds = limits(np.concatenate([points.real, points.synthetic]))
        frame(axes, *bounds, title="Sources", xlabel=points.names[0], ylabel=points.names[1])
        legend_below(axes)
    return axes
