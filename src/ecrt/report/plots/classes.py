"""Figures of a classifier: what it predicts, its sources, and how it was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from ecrt.metrics import PRIORS, reliability_bins
from ecrt.metrics.classification import class_scores, confusion
from ecrt.report.drawing import (
    GREY,
    INK,
    MINORITY,
    OTHERS,
    PALETTE,
    SMALL,
    count_axis,
    count_scatter,
    head_panel,
    legend_below,
    limits,
    place_labels,
    svg,
    svg_figure,
)
from ecrt.report.rendering import Plots, short_label
from ecrt.report.summaries.classes import (
    MOST_MATRIX_CLASSES,
    MOST_NUMBERED,
    chance_correlation,
    dependence_is_known,
    drawn_classes,
    frequency_bands,
)
from ecrt.runs.records import Curve, Evaluation

__all__ = ["class_plots"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_CURVES, MOST_COLOURED = 6, 20
AROUND: list[tuple[float, float, Literal["left", "center", "right"]]] = [
    (x, y, "center") for x, y in [(0, 0), (0, 9), (0, -9), (12, 0), (-12, 0), (12, 9), (-12, -9), (0, 18), (0, -18)]
]


def class_plots(evaluation: Evaluation) -> Plots:
    """Every figure of the page."""
    model = evaluation.model
    plots: dict[str, list[str]] = {
        "sources": source_panels(evaluation),
        "curves": curve_panels(evaluation),
        "heads": [head_panel(model.head_candidates, f"{model.head} {model.head_setting:g}")],
        "dependence": [dependence_panel(evaluation)] if dependence_is_known(evaluation) else [],
    }
    for prior in PRIORS:
        plots[f"frequency-{prior}"] = frequency_panels(evaluation, prior)
        plots[f"confusion-{prior}"] = confusion_panels(evaluation, prior)
        plots[f"reliability-{prior}"] = [reliability_panel(evaluation, prior)]
    return plots


def frequency_panels(evaluation: Evaluation, prior: str) -> list[str]:
    """Recall and F1 of every class against its training samples."""
    classes, labels = evaluation.classes, evaluation.classes.labels.tolist()
    scores = {
        name: class_scores(evaluation.y, predicted, len(classes.labels))
        for name, predicted in evaluation.predicted.items()
    }
    lowest = np.nanmin([found[key] for found in scores.values() for key in ("recall", "f1")])
    floor = max(np.floor(10 * lowest) / 10 - 0.1, 0.0) if lowest > 0.5 else 0.0  # the same under every prior

    def drawer(values: Array, title: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            count_scatter(axes, classes.counts, values, classes.minority, labels, title=title, floor=floor)
            axes.set_xlabel("training samples of the class (log scale)")
            low, high = axes.get_xlim()
            for edge in (20, 100):
                if low < edge < high:
                    axes.axvline(edge, color=INK, linestyle=":", linewidth=0.8, alpha=0.6)
            for left, right, name in ((0, 20, "few"), (20, 100, "medium"), (100, np.inf, "many")):
                start, end = max(left, low), min(right, high)
                if end > 1.25 * start:
                    axes.text(
                        np.sqrt(start * end), 0.01, name, transform=axes.get_xaxis_transform(), ha="center",
                        va="bottom", fontsize=SMALL, alpha=0.8,
                    )  # fmt: skip

        return draw

    return [
        svg(drawer(scores[prior][key], title), f"{key}-{prior}") for key, title in (("recall", "Recall"), ("f1", "F1"))
    ]


def confusion_panels(evaluation: Evaluation, prior: str) -> list[str]:
    """Where rows of each class go; with many classes, rows of bands of classes (none if all are equally frequent)."""
    if len(evaluation.classes.labels) <= MOST_MATRIX_CLASSES:
        return [_matrix_panel(evaluation, prior)]
    bands = frequency_bands(evaluation.classes.counts)
    return [_band_panel(evaluation, prior, bands)] if bands.max() > 0 else []


def _matrix_panel(evaluation: Evaluation, prior: str) -> str:
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
            _write_in(axes, share, [[str(count) if count else "" for count in line] for line in rows.tolist()])
        upright = max(map(len, names)) * 0.62 * SMALL > 0.7 * 72 * side / n
        axes.set_xticks(range(n), names, parse_math=False, fontsize=SMALL, rotation=90 if upright else 0)
        axes.set_yticks(range(n), names, parse_math=False, fontsize=SMALL)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")

    return svg(draw, f"confusion-{prior}", size=(side + 0.4, side))


def _band_panel(evaluation: Evaluation, prior: str, bands: Labels) -> str:
    counts, y, predicted = evaluation.classes.counts, evaluation.y, evaluation.predicted[prior]
    n_bands = int(bands.max()) + 1
    known = y >= 0
    column = np.where(predicted == y, 0, 1 + bands[predicted])[known]
    rows = np.zeros((n_bands, n_bands + 1))
    np.add.at(rows, (bands[y[known]], column), 1)
    share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    names = [f"{counts[bands == b].min()}–{counts[bands == b].max()}" for b in range(n_bands)]

    def draw(axes: Axes) -> None:
        right = np.zeros(share.shape, dtype=bool)
        right[:, 0] = True
        _shade(axes, share, right)
        _write_in(axes, share, [[f"{100 * value:.0f}" for value in line] for line in share.tolist()])
        axes.set_xticks(range(n_bands + 1), ["right", *names], fontsize=SMALL, rotation=35, ha="right")
        axes.set_yticks(range(n_bands), names, fontsize=SMALL)
        axes.set_xlabel("right, or training samples of the wrong class")
        axes.set_ylabel("training samples of the true class")

    return svg(draw, f"bands-{prior}", size=(4.6, 4.0))


def _shade(axes: Axes, share: Array, right: NDArray[np.bool_]) -> None:
    """Cells as full as their share, so that an empty one shows the page, light or dark."""
    image = np.empty((*share.shape, 4))
    image[..., :3] = np.where(right[..., None], to_rgb(OTHERS), to_rgb(MINORITY))
    image[..., 3] = np.sqrt(share)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.5)


def _write_in(axes: Axes, share: Array, texts: list[list[str]]) -> None:
    for row, line in enumerate(texts):
        for column, text in enumerate(line):
            colour = "white" if share[row, column] > 0.45 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)


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


def _wilson(share: Array, n: Array, z: float = 1.96) -> tuple[Array, Array]:
    """95 % interval of a share."""
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return centre - half, centre + half


def source_panels(evaluation: Evaluation) -> list[str]:
    """Test rows of all classes, then for some rare classes their test rows and their synthetic samples."""
    points, labels = evaluation.points, evaluation.classes.labels
    real, synthetic = (_two_columns(part) for part in (points.real, points.synthetic))
    low, high = limits(np.concatenate([real, synthetic]))
    names = [f"source {column + 1}" for column in points.columns] + ["spread at random, no meaning"]

    def frame(axes: Axes, title: str) -> None:
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
        axes.set_title(title, parse_math=False)
        axes.set_xlabel(names[0])
        axes.set_ylabel(names[1])
        if len(points.columns) == 1:
            axes.set_yticks([])

    def draw_all(axes: Axes) -> None:
        present = np.unique(points.real_y)
        if len(present) <= MOST_COLOURED:
            rank = np.argsort(np.argsort(evaluation.classes.counts, kind="stable"))  # red for the rarest
            colours = [PALETTE[rank[index] % len(PALETTE)] for index in points.real_y]
        else:
            colours = [MINORITY if rare else GREY for rare in evaluation.classes.minority[points.real_y]]
        axes.scatter(real[:, 0], real[:, 1], s=8, color=colours, alpha=0.7, linewidths=0, rasterized=True)
        frame(axes, "All classes, test rows")
        words = "red: rare classes"
        if len(present) <= MOST_COLOURED:
            words = "each name stands at the middle of its class"
            place_labels(
                axes, np.array([np.median(real[points.real_y == index], axis=0) for index in present]),
                [short_label(str(labels[index]), 12) for index in present], AROUND, fontsize=9, color="black",
                fontweight="bold", path_effects=[withStroke(linewidth=3, foreground="white")],
            )  # fmt: skip
        axes.text(0.5, -0.23, words, transform=axes.transAxes, ha="center", fontsize=9)

    def draw_class(index: int) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            dots: dict[str, Any] = {"alpha": 0.7, "linewidths": 0, "rasterized": True}
            others, mine = real[points.real_y != index], real[points.real_y == index]
            drawn = synthetic[points.synthetic_y == index]
            axes.scatter(others[:, 0], others[:, 1], s=6, color=GREY, label="other classes", **dots | {"alpha": 0.3})
            axes.scatter(drawn[:, 0], drawn[:, 1], s=12, color=OTHERS, label="synthetic", **dots)
            axes.scatter(
                mine[:, 0], mine[:, 1], s=20, color=MINORITY, marker="x", linewidths=1.2, rasterized=True,
                label="real, test",
            )  # fmt: skip
            count = evaluation.classes.counts[index]
            frame(axes, f"{short_label(str(labels[index]), 20)}: {count} in training")
            legend_below(axes)

        return draw

    rare = drawn_classes(evaluation)
    return [svg(draw_all, "sources")] + [svg(draw_class(int(index)), f"sources{index}") for index in rare]


def curve_panels(evaluation: Evaluation) -> list[str]:
    """Training and held-out loss of the encoder and of every flow, the kept one first."""
    panels: list[str] = []
    n_flows = 0
    for curve in evaluation.curves:
        n_flows += curve.stage == "flow"
        if len(curve.train_loss) == 0 or len(panels) == MOST_CURVES:
            continue
        title = "Encoder"
        if curve.stage == "flow":
            title = f"Flow {n_flows}{', kept' if n_flows == 1 else ''}: {curve.n_blocks} block"
            title += "s" if curve.n_blocks > 1 else ""
        panels.append(svg(_curve_drawer(curve, title), f"curve{len(panels)}", size=(4.2, 3.2)))
    return panels


def _curve_drawer(curve: Curve, title: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        for losses, colour, name in (
            (curve.train_loss, OTHERS, "training"),
            (curve.held_out_loss, MINORITY, "held out"),
        ):
            if len(losses):
                axes.plot(np.arange(1, len(losses) + 1), losses, color=colour, linewidth=1.6, label=name)
        axes.axvline(curve.best_epoch + 1, color=INK, linestyle=":", linewidth=1, label="kept epoch")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.set_ylabel("loss")
        legend_below(axes)

    return draw


def dependence_panel(evaluation: Evaluation) -> str:
    """Largest correlation between two sources within each class, beside what chance alone gives."""
    classes = evaluation.classes
    told = np.isfinite(classes.max_correlation)
    n, value = classes.n_examples, classes.max_correlation

    def draw(axes: Axes) -> None:
        groups = ((classes.demixed_on, OTHERS, "o", "learned from"), (~classes.demixed_on, MINORITY, "s", "not seen"))
        for mask, colour, marker, name in groups:
            if (mask & told).any():
                axes.scatter(
                    n[mask & told], value[mask & told], s=26, color=colour, marker=marker, alpha=0.75, linewidths=0,
                    label=name, clip_on=False, zorder=3, rasterized=len(n) > 500,
                )  # fmt: skip
        count_axis(axes, n[told])
        grid = np.unique(np.geomspace(*axes.get_xlim(), 60).round())
        grid = grid[grid >= 3]
        chance = [chance_correlation(int(size), evaluation.model.n_sources) for size in grid]
        axes.plot(grid, chance, color=INK, linestyle=":", linewidth=1.2, label="by chance")
        axes.set_ylim(0, 1.02)
        axes.set_title("Dependence left between sources")
        axes.set_xlabel("training samples measured on (log scale)")
        axes.set_ylabel("largest correlation of two sources")
        legend_below(axes)

    return svg(draw, "dependence")


def _two_columns(points: Array) -> Array:
    """One source alone is spread out at random, so that points do not hide each other."""
    if points.shape[1] == 2:
        return points
    return np.column_stack([points[:, 0], np.random.default_rng(0).uniform(size=len(points))])
