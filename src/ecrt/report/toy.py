"""The picture of the demonstration: features, sources and synthetic samples of the toy."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ecrt.report import drawing
from ecrt.report.drawing import GREY, MINORITY, NAME, OTHERS, PALETTE, STYLE
from ecrt.runs.demo import ToyPicture


def toy_png(toy: ToyPicture) -> bytes:
    """Features, recovered sources, and the rare class with its synthetic samples, side by side on white."""
    with mpl.rc_context(STYLE | drawing.inked("#222222")):
        figure = Figure(figsize=(11.4, 3.7), layout="constrained", facecolor="white")
        *clouds, right = figure.subplots(1, 3)
        shown = ((toy.z, "Features", "z"), (toy.s, "Recovered sources", "s"))
        for axes, (points, title, symbol) in zip(clouds, shown, strict=True):
            drawing.class_cloud(axes, points, toy.y, dict(enumerate(PALETTE)))
            for label in np.unique(toy.y).tolist():
                middle = tuple(np.median(points[toy.y == label], axis=0))
                axes.annotate(str(label), middle, ha="center", va="center", fontsize=11, **NAME)
            drawing.frame(axes, *drawing.limits(points), title=title, xlabel=f"{symbol}₁", ylabel=f"{symbol}₂")
        test = toy.s[toy.y == toy.rare]
        right.scatter(*test.T, s=10, color=GREY, alpha=0.6, linewidths=0, label="test, not used")
        right.scatter(*toy.synthetic.T, s=10, color=OTHERS, alpha=0.75, linewidths=0, label="synthetic")
        right.scatter(*toy.train.T, s=22, color=MINORITY, marker="x", linewidths=1.3, label="training")
        bounds = drawing.limits(np.concatenate([test, toy.train]))
        drawing.frame(right, *bounds, title="Minority class: real and synthetic", xlabel="s₁", ylabel="s₂")
        drawing.legend_below(right)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()
