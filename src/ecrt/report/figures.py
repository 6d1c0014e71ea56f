"""Panels of the demonstration's page as inline SVG, and one PNG."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from ecrt.experiments.demo_results import DataResult, DigitImages, ToyPicture
from ecrt.experiments.summary import Metric
from ecrt.report.drawing import INK, MINORITY, OTHERS, PALETTE, STYLE, inked, limits, svg

__all__ = ["digit_panels", "overview_png", "score_panel", "source_panels", "synthetic_panels"]

Array = NDArray[np.float64]
Draw = Callable[[Axes], None]


def source_panels(toy: ToyPicture) -> list[str]:
    """Features, recovered sources and true sources, coloured by class."""
    panels: list[tuple[str, Array, str]] = [
        ("Features", toy.z, "z"),
        ("Recovered sources", toy.found_s, "s"),
        ("True sources", toy.true_s, "s"),
    ]
    return [
        svg(_drawer(_draw_classes, points, toy.y, title, symbol), f"classes{i}")
        for i, (title, points, symbol) in enumerate(panels)
    ]


def synthetic_panels(toy: ToyPicture) -> list[str]:
    """Real and synthetic minority samples, first as sources, then as features."""
    rare = np.isin(toy.y, toy.minority)
    spaces = [
        ("source", "s", toy.found_s[rare], toy.train_s, toy.parametric_s, toy.permutation_s),
        ("feature", "z", toy.z[rare], toy.train_z, toy.parametric_z, toy.permutation_z),
    ]
    panels = []
    for space, symbol, test, train, parametric, permutation in spaces:
        bounds = limits(np.concatenate([test, train]))
        for kind, points in (("parametric", parametric), ("permutation", permutation)):
            draw = _drawer(_draw_synthetic, test, train, points, f"{kind.capitalize()}, {space} space", symbol, bounds)
            panels.append(svg(draw, f"{kind}{symbol}"))
    return panels


def score_panel(data: DataResult, metric: Metric) -> str:
    """A dot for each seed and a bar at the mean, one line for each method."""

    def draw(axes: Axes) -> None:
        for line, method in enumerate(reversed(data.methods)):
            values = data.values(method, metric.key)
            colour = MINORITY if method == data.methods[-1] else OTHERS
            axes.plot(values, np.full(len(values), line), "o", color=colour, alpha=0.7, markersize=6)
            axes.plot([np.mean(values)], [line], "|", color=INK, markersize=16, markeredgewidth=2)
        if data.limit is not None:
            axes.axvline(data.limit[metric.key], color=INK, linestyle=":", linewidth=1)
            axes.annotate(
                "Bayes limit", (data.limit[metric.key], 1), xycoords=("data", "axes fraction"), fontsize=9,
                ha="right" if metric.higher_is_better else "left", va="bottom", color=INK,
            )  # fmt: skip
        axes.set_yticks(
            range(len(data.methods)), [name.replace(" without", "\nwithout") for name in reversed(data.methods)]
        )
        axes.set_ylim(-0.6, len(data.methods) - 0.4)
        axes.set_xlabel(f"{metric.label} ({'higher' if metric.higher_is_better else 'lower'} is better)")

    return svg(draw, f"{data.name}-{metric.key}", size=(4.2, 2.4))


def digit_panels(digits: DigitImages) -> list[str]:
    """Sheets of training digits and of synthetic ones."""
    panels = []
    for name, images in (("Training samples", digits.real), ("Synthetic samples", digits.synthetic)):
        panels.append(svg(_drawer(_draw_sheet, images, digits.classes, name), name.split()[0].lower()))
    return panels


def overview_png(toy: ToyPicture) -> bytes:
    """Features, recovered sources and synthetic minority samples side by side, on white."""
    rare = np.isin(toy.y, toy.minority)
    with mpl.rc_context(STYLE | inked("#222222")):
        figure = Figure(figsize=(11.4, 3.7), layout="constrained", facecolor="white")
        left, middle, right = figure.subplots(1, 3)
        _draw_classes(left, toy.z, toy.y, "Features", "z")
        _draw_classes(middle, toy.found_s, toy.y, "Recovered sources", "s")
        bounds = limits(np.concatenate([toy.found_s[rare], toy.train_s]))
        _draw_synthetic(
            right, toy.found_s[rare], toy.train_s, toy.parametric_s, "Minority class: real and synthetic", "s", bounds
        )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=90, metadata={"Software": None})
    return file.getvalue()


def _drawer(function: Callable[..., None], *arguments: Any) -> Draw:
    return lambda axes: function(axes, *arguments)


def _draw_classes(axes: Axes, points: Array, y: NDArray[np.int64], title: str, symbol: str) -> None:
    low, high = limits(points)
    for label in np.unique(y):
        mine = points[y == label]
        colour = PALETTE[label % len(PALETTE)]
        axes.scatter(mine[:, 0], mine[:, 1], s=8, color=colour, alpha=0.7, linewidths=0, rasterized=True)
    for label in np.unique(y):
        axes.annotate(
            str(label), np.median(points[y == label], axis=0), ha="center", va="center", fontsize=11, color="black",
            fontweight="bold", path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
    _frame(axes, title, symbol, low, high)


def _draw_synthetic(
    axes: Axes, test: Array, train: Array, synthetic: Array, title: str, symbol: str, bounds: tuple[Array, Array]
) -> None:
    axes.scatter(
        test[:, 0], test[:, 1], s=10, color=PALETTE[6], alpha=0.6, linewidths=0, rasterized=True, label="test, not used"
    )
    axes.scatter(
        synthetic[:, 0],
        synthetic[:, 1],
        s=10,
        color=OTHERS,
        alpha=0.75,
        linewidths=0,
        rasterized=True,
        label="synthetic",
    )
    axes.scatter(
        train[:, 0], train[:, 1], s=22, color=MINORITY, marker="x", linewidths=1.3, rasterized=True, label="training"
    )
    _frame(axes, title, symbol, *bounds)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, handletextpad=0.1, columnspacing=0.8, fontsize=9
    )


def _draw_sheet(axes: Axes, images: Array, classes: NDArray[np.int64], title: str) -> None:
    sheet = np.block([[np.pad(image, 1, constant_values=0.0) for image in row] for row in images])
    axes.imshow(np.clip(sheet, 0, 16), cmap="gray", vmin=0, vmax=16)
    side = images.shape[-1] + 2
    axes.set_yticks(side * np.arange(len(classes)) + side / 2 - 0.5, [str(label) for label in classes])
    axes.set_xticks([])
    axes.set_ylabel("class")
    axes.set_title(title)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _frame(axes: Axes, title: str, symbol: str, low: Array, high: Array) -> None:
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    axes.set_title(title)
    axes.set_xlabel(f"{symbol}₁")
    axes.set_ylabel(f"{symbol}₂")
