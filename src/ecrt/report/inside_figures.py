"""What a fitted model is made of, as inline SVG: its sources, how it was trained, the dependence left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from ecrt.report.drawing import (
    GREY,
    INK,
    MINORITY,
    OTHERS,
    PALETTE,
    SMALL,
    count_axis,
    legend_below,
    limits,
    place_labels,
    svg,
)
from ecrt.report.model_findings import chance_correlation
from ecrt.report.rendering import short_label
from ecrt.runs.records import Curve, Evaluation

__all__ = ["candidate_panel", "curve_panels", "dependence_panel", "drawn_rare_classes", "source_panels"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_RARE_PANELS, MOST_CURVES = 5, 6
MOST_COLOURED = 20
AROUND: list[tuple[float, float, Literal["left", "center", "right"]]] = [
    (x, y, "center") for x, y in [(0, 0), (0, 9), (0, -9), (12, 0), (-12, 0), (12, 9), (-12, -9), (0, 18), (0, -18)]
]


def drawn_rare_classes(evaluation: Evaluation) -> Labels:
    """Classes with synthetic samples that get a panel of their own: those with the fewest training samples."""
    drawn = np.unique(evaluation.points.synthetic_y)
    order = np.argsort(evaluation.classes.counts[drawn], kind="stable")
    return np.sort(drawn[order[:MOST_RARE_PANELS]])


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

    rare = drawn_rare_classes(evaluation)
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


def candidate_panel(names: Sequence[str], losses: Sequence[float], chosen: int) -> str:
    """Held-out loss of every head that was tried, the chosen one in red."""

    def draw(axes: Axes) -> None:
        lines = np.arange(len(names))[::-1]
        for line, loss, mine in zip(lines, losses, np.arange(len(names)) == chosen, strict=True):
            axes.plot([loss], [line], "o", color=MINORITY if mine else OTHERS, markersize=8 if mine else 6)
        axes.hlines(lines, 0, 1, color=INK, linewidth=0.4, alpha=0.25, transform=axes.get_yaxis_transform())
        name = "held-out loss"
        if min(losses) > 0 and max(losses) > 5 * min(losses):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if max(losses) > 100 * min(losses) else (1.0, 3.0)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            name += ", log scale"
        axes.set_yticks(lines, names, fontsize=SMALL)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.set_title("Heads tried")
        axes.set_xlabel(name)

    return svg(draw, "heads", size=(4.6, max(2.0, 0.9 + 0.2 * len(names))))


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
