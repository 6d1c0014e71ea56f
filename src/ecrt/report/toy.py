"""The picture of the demonstration: features, sources and synthetic samples of the toy."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecrt.report import drawing
from ecrt.report.drawing import GREY, MINORITY, NAME, OTHERS, PALETTE, STYLE

Array = NDArray[np.float64]


def toy_png(z: Array, s: Array, y: NDArray[np.int64], *, rare: int, train: Array, synthetic: Array) -> bytes:
    """Features, recovered sources, and the rare class with its synthetic samples, side by side on white.

    Parameters
    ----------
    z, s, y : features, recovered sources and labels of some test rows.
    rare : the rare class.
    train, synthetic : sources of its training samples, and of samples drawn from them.
    """
    with mpl.rc_context(STYLE | drawing.inked("#222222")):
        figure = Figure(figsize=(11.4, 3.7), layout="constrained", facecolor="white")
        *clouds, right = figure.subplots(1, 3)
        shown = ((z, "Features", "z"), (s, "Recovered sources", "s"))
        for axes, (points, title, symbol) in zip(clouds, shown, strict=True):
            drawing.class_cloud(axes, points, y, dict(enumerate(PALETTE)))
            for label in np.unique(y).tolist():
                middle = tuple(np.median(points[y == label], axis=0))
                axes.annotate(str(label), middle, ha="center", va="center", fontsize=11, **NAME)
            drawing.frame(axes, *drawing.limits(points), title=title, xlabel=f"{symbol}₁", ylabel=f"{symbol}₂")
        test = s[y == rare]
        right.scatter(*test.T, s=10, color=GREY, alpha=0.6, linewidths=0, label="test, not used")
        right.scatter(*synthetic.T, s=10, color=OTHERS, alpha=0.75, linewidths=0, label="synthetic")
        right.scatter(*train.T, s=22, color=MINORITY, marker="x", linewidths=1.3, label="training")
        bounds = drawing.limits(np.concatenate([test, train]))
        drawing.frame(right, *bounds, title="Minority class: real and synthetic", xlabel="s₁", ylabel="s₂")
        drawing.legend_below(right)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()
