"""What a fitted model predicts, as inline SVG. Labels are the user's: cut to fit, never read as formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from ecrt.metrics import reliability_bins
from ecrt.metrics.classification import class_scores, confusion
from ecrt.report.drawing import (
    GREY,
    INK,
    MINORITY,
    OTHERS,
    SMALL,
    count_axis,
    legend_below,
    place_labels,
    svg,
    svg_figure,
)
from ecrt.report.rendering import short_label
from ecrt.runs.records import Evaluation

__all__ = [
    "BESIDE",
    "MOST_MATRIX_CLASSES",
    "MOST_NAMED_POINTS",
    "MOST_NUMBERED",
    "band_panel",
    "class_panels",
    "confusion_panel",
    "reliability_panel",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_MATRIX_CLASSES = 30
MOST_NUMBERED, MOST_NAMED_POINTS = 12, 15
BESIDE: list[tuple[float, float, Literal["left", "center", "right"]]] = [
    (x, y, "left" if x > 0 else "right") for y in (0, -6, 6, -11, 11) for x in (6, -6)
]


def class_panels(evaluation: Evaluation, prior: str) -> list[str]:
    """Recall and F1 of every class against its training samples."""
    n_classes = len(evaluation.classes.labels)
    scores = {
        name: class_scores(evaluation.y, predicted, n_classes) for name, predicted in evaluation.predicted.items()
    }
    lowest = np.nanmin([found[key] for found in scores.values() for key in ("recall", "f1")])
    floor = max(np.floor(10 * lowest) / 10 - 0.1, 0.0) if lowest > 0.5 else 0.0  # the same under every prior
    return [
        svg(_frequency_drawer(evaluation, scores[prior][key], title, floor), f"{key}-{prior}")
        for key, title in (("recall", "Recall"), ("f1", "F1"))
    ]


def _frequency_drawer(evaluation: Evaluation, values: Array, title: str, floor: float) -> Callable[[Axes], None]:
    classes = evaluation.classes

    def draw(axes: Axes) -> None:
        for mask, colour, name in ((~classes.minority, OTHERS, "others"), (classes.minority, MINORITY, "rare")):
            if mask.any():
                axes.scatter(
                    classes.counts[mask], values[mask], s=26, color=colour, linewidths=0, label=name,
                    alpha=0.9 if len(values) < 60 else 0.7, clip_on=False, zorder=3, rasterized=len(values) > 500,
                )  # fmt: skip
        axes.set_ylim(floor, 1 + 0.02 * (1 - floor))
        count_axis(axes, classes.counts)
        low, high = axes.get_xlim()
        for edge in (20, 100):
            if low < edge < high:
                axes.axvline(edge, color=INK, linestyle=":", linewidth=0.8, alpha=0.6)
        for left, right, name in ((0, 20, "few"), (20, 100, "medium"), (100, np.inf, "many")):
            start, end = max(left, low), min(right, high)
            if end > 1.25 * start:
                axes.text(
                    np.sqrt(start * end), 0.01, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                    fontsize=SMALL, alpha=0.8,
                )  # fmt: skip
        told = np.flatnonzero(np.isfinite(values))
        if len(values) <= MOST_NAMED_POINTS:
            points = np.column_stack([classes.counts[told], values[told]])
            names = [short_label(str(label), 14) for label in classes.labels[told]]
            place_labels(axes, points, names, BESIDE, marks=points)
        axes.set_title(title, pad=10)
        axes.set_xlabel("training samples of the class (log scale)")
        axes.set_ylabel(f"{title} on test rows")
        if classes.minority.any() and not classes.minority.all():
            legend_below(axes)

    return draw


def confusion_panel(evaluation: Evaluation, prior: str) -> str:
    """Share of each true class (a row) given to each class (a column); right in blue, wrong in red."""
    labels = evaluation.classes.labels
    n = len(labels)
    rows = confusion(evaluation.y, evaluation.predicted[prior], n)
    share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    names = [short_label(str(label), 12) for label in labels]
    side = float(np.clip(2.6 + 0.2 * n, 3.4, 7.2))

    def draw(axes: Axes) -> None:
        _shade(axes, share, np.eye(n, dtype=bool))
        if n <= MOST_NUMBERED:
            _number(axes, share, [[str(count) if count else "" for count in line] for line in rows.tolist()])
        upright = max(map(len, names)) * 0.62 * SMALL > 0.7 * 72 * side / n
        axes.set_xticks(range(n), names, parse_math=False, fontsize=SMALL, rotation=90 if upright else 0)
        axes.set_yticks(range(n), names, parse_math=False, fontsize=SMALL)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")

    return svg(draw, f"confusion-{prior}", size=(side + 0.4, side))


def band_panel(evaluation: Evaluation, prior: str, most_bands: int = 6) -> str | None:
    """For many classes: where rows of frequent and of rare classes go; ``None`` if all are equally frequent."""
    counts, y, predicted = evaluation.classes.counts, evaluation.y, evaluation.predicted[prior]
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, most_bands + 1)[1:-1], method="lower"))
    band = np.unique(np.searchsorted(edges, counts, side="left"), return_inverse=True)[1]
    n_bands = int(band.max()) + 1
    if n_bands < 2:
        return None
    known = y >= 0
    column = np.where(predicted == y, 0, 1 + band[predicted])[known]
    rows = np.zeros((n_bands, n_bands + 1))
    np.add.at(rows, (band[y[known]], column), 1)
    share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    names = [f"{counts[band == b].min()}–{counts[band == b].max()}" for b in range(n_bands)]

    def draw(axes: Axes) -> None:
        right = np.zeros(share.shape, dtype=bool)
        right[:, 0] = True
        _shade(axes, share, right)
        _number(axes, share, [[f"{100 * value:.0f}" for value in line] for line in share.tolist()])
        axes.set_xticks(range(n_bands + 1), ["right", *names], fontsize=SMALL, rotation=35, ha="right")
        axes.set_yticks(range(n_bands), names, fontsize=SMALL)
        axes.set_xlabel("right, or training samples of the wrong class")
        axes.set_ylabel("training samples of the true class")

    return svg(draw, f"bands-{prior}", size=(4.6, 4.0))


def reliability_panel(evaluation: Evaluation, prior: str) -> str:
    """Accuracy against confidence with 95 % intervals, over the number of rows at each confidence."""
    known = evaluation.y >= 0
    hit = (evaluation.predicted[prior] == evaluation.y)[known]
    bins = reliability_bins(evaluation.confidence[prior][known], hit)
    n_bins = len(bins["count"])

    def draw(figure: Figure) -> None:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
        filled = bins["count"] > 0
        x, accuracy, n = bins["confidence"][filled], bins["accuracy"][filled], bins["count"][filled]
        low, high = _wilson(accuracy, n)
        upper.plot([0, 1], [0, 1], color=INK, linestyle=":", linewidth=1)
        upper.text(0.99, 0.03, "dotted: as sure as right", fontsize=SMALL, ha="right", alpha=0.8)
        upper.vlines(x, low, high, color=OTHERS, linewidth=1.5, alpha=0.7)
        upper.plot(x, accuracy, "o", color=OTHERS, markersize=5, clip_on=False)
        upper.set_ylim(0, 1)
        upper.set_xlim(0, 1)
        upper.set_ylabel("accuracy")
        lower.bar((np.arange(n_bins) + 0.5) / n_bins, bins["count"], width=0.9 / n_bins, color=GREY)
        lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        lower.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        lower.set_ylabel("rows")
        lower.set_xlabel("confidence: probability of the predicted class")

    return svg_figure(draw, f"reliability-{prior}", size=(4.2, 4.2))


def _shade(axes: Axes, share: Array, right: NDArray[np.bool_]) -> None:
    """Cells as full as their share, so that none shows the page, light or dark."""
    image = np.empty((*share.shape, 4))
    image[..., :3] = np.where(right[..., None], to_rgb(OTHERS), to_rgb(MINORITY))
    image[..., 3] = np.sqrt(share)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.5)


def _number(axes: Axes, share: Array, texts: list[list[str]]) -> None:
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            colour = "white" if share[row, column] > 0.45 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)


def _wilson(share: Array, n: Array, z: float = 1.96) -> tuple[Array, Array]:
    """95 % interval of a share."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return centre - half, centre + half
