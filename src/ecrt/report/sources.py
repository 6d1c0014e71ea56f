"""Pictures of sources: on the page of a classifier, of the demonstration, and to look at in a notebook."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ecrt.arrays import Array, Labels
from ecrt.diagnostics import SourceMap
from ecrt.report import drawing
from ecrt.report.drawing import GREY, MINORITY, NAME, OTHERS, PALETTE, svg
from ecrt.report.rendering import short_label
from ecrt.runs.evaluation import Evaluation

Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]

MOST_COLOURED, MOST_RARE_PANELS = 20, 5
AROUND = [(0, 0), (0, 9), (0, -9), (2, 0), (-2, 0), (2, 9), (-2, -9), (0, 18), (0, -18)]
LAYERS: list[dict[str, Any]] = [
    {"s": 6, "color": GREY, "alpha": 0.3, "linewidths": 0},
    {"s": 12, "color": OTHERS, "alpha": 0.7, "linewidths": 0},
    {"s": 20, "color": MINORITY, "marker": "x", "linewidths": 1.2},
]


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
    shown = [colours[index] for index in points.real_y.tolist()]
    x, y = points.real.T
    axes.scatter(x, y, s=8, color=shown, alpha=0.7, linewidths=0, rasterized=True)
    if len(points.synthetic):
        shown = [colours[index] for index in points.synthetic_y.tolist()]
        x, y = points.synthetic.T
        axes.scatter(x, y, s=12, color=shown, alpha=0.6, marker="x", linewidths=0.8, label="synthetic")
    _frame(axes, bounds, title, points.names)
    if named:
        middles = np.array([np.median(points.real[points.real_y == index], axis=0) for index in present])
        drawing.place_labels(
            axes, middles, [short_label(str(names[index]), 12) for index in present], AROUND, fontsize=9, **NAME
        )
    return named


def draw_layers(axes: Axes, layers: Mapping[str, Array], bounds: Bounds, title: str, names: Sequence[str]) -> None:
    """Clouds over one another, by their names: grey dots, blue dots and red crosses."""
    for (label, points), style in zip(layers.items(), LAYERS, strict=True):
        axes.scatter(*points.T, label=label, rasterized=True, **style)
    _frame(axes, bounds, title, names)
    drawing.legend_below(axes)


def _frame(axes: Axes, bounds: Bounds, title: str, names: Sequence[str]) -> None:
    (left, bottom), (right, top) = bounds
    axes.set(xlim=(left, right), ylim=(bottom, top), xlabel=names[0], ylabel=names[1])
    axes.set_title(title, parse_math=False)  # it may be a label of the user's


def source_panels(evaluation: Evaluation) -> list[str]:
    """Test rows of all classes, then for some rare classes their test rows and their synthetic samples."""
    of = evaluation.arrays
    real, synthetic = (_two_columns(part) for part in (of["real"], of["synthetic"]))
    bounds = drawing.limits(np.concatenate([real, synthetic]))
    x, y, *_ = [f"source {column + 1}" for column in of["sources"]] + ["spread at random, no meaning"]
    panels = [svg(_all_sources, "sources", evaluation, real, bounds, (x, y))]
    if "map" in of:
        components = ("first principal component", "second principal component")
        panels.append(svg(_all_sources, "map", evaluation, of["map"], drawing.limits(of["map"]), components))
    for index in drawn_classes(evaluation).tolist():
        mine = of["real_y"] == index
        drawn = synthetic[of["synthetic_y"] == index]
        layers = {"other classes": real[~mine], "synthetic": drawn, "real, test": real[mine]}
        title = f"{short_label(str(of['labels'][index]), 20)}: {of['counts'][index]} in training"
        panels.append(svg(draw_layers, f"sources{index}", layers, bounds, title, (x, y)))
    return panels


def drawn_classes(evaluation: Evaluation) -> Labels:
    """Classes with synthetic samples that get their own panel: those with the fewest training samples."""
    drawn = np.unique(evaluation.arrays["synthetic_y"])
    order = np.argsort(evaluation.arrays["counts"][drawn], kind="stable")
    return np.sort(drawn[order[:MOST_RARE_PANELS]])


def _all_sources(axes: Axes, evaluation: Evaluation, real: Array, bounds: Bounds, names: tuple[str, str]) -> None:
    of = evaluation.arrays
    points = SourceMap(real, of["real_y"], real[:0], of["real_y"][:0], names)
    named = draw_classes(axes, points, of["labels"], of["minority"], of["counts"], bounds, "All classes, test rows")
    words = "each name stands at the middle of its class" if named else "red: rare classes"
    axes.text(0.5, -0.23, words, transform=axes.transAxes, ha="center", fontsize=9)


def _two_columns(points: Array) -> Array:
    """One source alone is spread out at random, so that points do not hide each other."""
    if points.shape[1] == 2:
        return points
    return np.column_stack([points[:, 0], np.random.default_rng(0).uniform(size=len(points))])


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


def toy_png(z: Array, s: Array, y: Labels, *, rare: int, train: Array, synthetic: Array) -> bytes:
    """Features, recovered sources, and the rare class with its synthetic samples, side by side on white.

    Parameters
    ----------
    z, s, y : features, recovered sources and labels of some test rows.
    rare : the rare class.
    train, synthetic : sources of its training samples, and of samples drawn from them.
    """
    classes, test = np.arange(y.max() + 1), s[y == rare]
    with mpl.rc_context(drawing.STYLE | drawing.inked("#222222")):
        figure = Figure(figsize=(11.4, 3.7), layout="constrained", facecolor="white")
        *clouds, right = figure.subplots(1, 3)
        for axes, points, title, symbol in zip(clouds, (z, s), ("Features", "Recovered sources"), "zs", strict=True):
            shown = SourceMap(points, y, points[:0], y[:0], (f"{symbol}₁", f"{symbol}₂"))
            draw_classes(axes, shown, classes.astype(str), classes == rare, classes, drawing.limits(points), title)
        layers = {"test, not used": test, "synthetic": synthetic, "training": train}
        bounds = drawing.limits(np.concatenate([test, train]))
        draw_layers(right, layers, bounds, "Minority class: real and synthetic", ("s₁", "s₂"))
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()
