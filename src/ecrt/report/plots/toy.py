"""The picture of the demonstration: features, sources and synthetic samples of the toy."""

from __future__ import annotations

import io

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from ecrt.report.drawing import GREY, MINORITY, OTHERS, PALETTE, STYLE, inked, limits
from ecrt.runs.demo import ToyPicture

__all__ = ["toy_png"]

Array = NDArray[np.float64]


def toy_png(toy: ToyPicture) -> bytes:
    """Features, recovered sources, and the rare class with its synthetic samples, side by side on white."""
    with mpl.rc_context(STYLE | inked("#222222")):
        figure = Figure(figsize=(11.4, 3.7), layout="constrained", facecolor="white")
        left, middle, right = figure.subplots(1, 3)
        _classes(left, toy.z, toy.y)
        _frame(left, "Features", "z", toy.z)
        _classes(middle, toy.s, toy.y)
        _frame(middle, "Recovered sources", "s", toy.s)
        test = toy.s[toy.y == toy.rare]
        right.scatter(*test.T, s=10, color=GREY, alpha=0.6, linewidths=0, label="test, not used")
        right.scatter(*toy.synthetic.T, s=10, color=OTHERS, alpha=0.75, linewidths=0, label="synthetic")
        right.scatter(*toy.train.T, s=22, color=MINORITY, marker="x", linewidths=1.3, label="training")
        _frame(right, "Minority class: real and synthetic", "s", np.concatenate([test, toy.train]))
        right.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, handletextpad=0.1, columnspacing=0.8, fontsize=9
        )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()


def _classes(axes: Axes, points: Array, y: NDArray[np.int64]) -> None:
    for label in np.unique(y).tolist():
        colour = PALETTE[label % len(PALETTE)]
        mine = points[y == label]
        axes.scatter(mine[:, 0], mine[:, 1], s=8, color=colour, alpha=0.7, linewidths=0)
    for label in np.unique(y).tolist():
        axes.annotate(
            str(label), tuple(np.median(points[y == label], axis=0)), ha="center", va="center", fontsize=11,
            color="black", fontweight="bold", path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip


def _frame(axes: Axes, title: str, symbol: str, points: Array) -> None:
    low, high = limits(points)
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_title(title)
    axes.set_xlabel(f"{symbol}₁")
    axes.set_ylabel(f"{symbol}₂")
