"""What figures share: colours, style, common panels, and inline SVG whose axes take the text colour of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from ecrt.arrays import Array
from ecrt.report.rendering import short_label

PALETTE = ("#EE6677", "#4477AA", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#999999")
"""Paul Tol's bright scheme: distinct with any colour vision, on white and on black."""

MINORITY, OTHERS, GREY = PALETTE[0], PALETTE[1], PALETTE[6]

INK = "#010203"
"""Stands for the page's text colour until the SVG is written."""

STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ecrt",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "legend.frameon": False,
}
DOTTED: Any = {"color": INK, "linewidth": 1, "linestyle": ":"}
NAME: Any = {"color": "black", "fontweight": "bold", "path_effects": [withStroke(linewidth=3, foreground="white")]}
"""Style of a name that is written over dots."""

PANEL_SIZE = (4.2, 3.7)

SMALL = 8.5
"""Font size of labels inside a panel."""

MOST_NAMED_POINTS = 15
BESIDE = [(x, y) for y in (0, -6, 6, -11, 11) for x in (6, -6)]


def svg(
    draw: Callable[..., None],
    name: str,
    *data: Any,
    size: tuple[float, float] = PANEL_SIZE,
    heights: Sequence[float] = (1,),
) -> str:
    """Draw one panel as an ``<svg>`` element that can stand in a page beside others.

    Parameters
    ----------
    draw : is given the axes, one for each of the heights, and then the data.
    name : begins every id in the panel, so that no two panels share one.
    data : what is drawn.
    size : in inches.
    heights : of axes above each other, which share the horizontal axis.
    """
    with mpl.rc_context(STYLE | inked(INK)), warnings.catch_warnings():
        # The page is shown in the reader's fonts, so a glyph that ours lack is no loss.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
        draw(*axes, *data)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=160, transparent=True)
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # The style sheet inside would apply to the whole page, and so would ids that two panels share.
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{name}-", text)
    text = re.sub(r' (?:width|height)="[^"]*"', "", text, count=2)  # those of the whole: the page sets its size
    return text.replace(INK, "currentColor")


def inked(colour: str) -> Any:
    """Style with text and axes of one colour."""
    keys = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    return dict.fromkeys(keys, colour)


def limits(points: Array) -> tuple[Array, Array]:
    """Bounds that leave a few outliers out, with a margin."""
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    margin = 0.08 * (high - low)
    return low - margin, high + margin


def count_axis(axes: Axes, counts: NDArray[np.int64]) -> None:
    """A logarithmic axis with whole numbers on it, however short."""
    axes.set_xscale("log")
    low, high = max(counts.min(), 1), max(counts.max(), 1)
    margin = max((high / low) ** 0.08, 1.3)
    axes.set_xlim(low / margin, high * margin)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,), numticks=12))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def name_lines(axes: Axes, names: Sequence[str], **style: Any) -> list[int]:
    """A line for each name, the first on top; gives their heights."""
    lines = list(range(len(names)))[::-1]
    axes.set_yticks(lines, list(names), parse_math=False, **style)
    axes.set_ylim(-0.65, len(names) - 0.35)
    return lines


def scatter_groups(axes: Axes, x: NDArray[Any], y: Array, groups: Iterable[tuple[Any, str, str]], **style: Any) -> None:
    """Dots of groups, given as a mask, a colour and a name; empty ones are left out."""
    for mask, colour, name in groups:
        if mask.any():
            axes.scatter(x[mask], y[mask], color=colour, label=name, linewidths=0, **style)


def count_scatter(
    axes: Axes, counts: Any, values: Array, rare: Any, names: Sequence[str], *, title: str, floor: float = 0.0
) -> None:
    """A score between 0 and 1 of each class or label against its training samples; few of them are named."""
    shown = np.isfinite(values) & (counts > 0)
    style = {"s": 26, "alpha": 0.9 if len(values) < 60 else 0.7, "zorder": 3, "rasterized": len(values) > 500}
    groups = ((~rare & shown, OTHERS, "others"), (rare & shown, MINORITY, "rare"))
    scatter_groups(axes, counts, values, groups, clip_on=False, **style)
    axes.set_ylim(floor, 1 + 0.02 * (1 - floor))
    count_axis(axes, counts[counts > 0] if shown.any() else np.array([1], dtype=np.int64))
    if 0 < shown.sum() <= MOST_NAMED_POINTS:
        points = np.column_stack([counts[shown], values[shown]])
        labels = [short_label(str(names[place]), 14) for place in np.flatnonzero(shown).tolist()]
        place_labels(axes, points, labels, BESIDE, marks=points)
    axes.set_title(title, pad=10)
    axes.set_ylabel(f"{title} on test rows")
    if rare.any() and not rare.all():
        legend_below(axes)


def legend_below(axes: Axes) -> None:
    """A legend under the label of the horizontal axis."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, handletextpad=0.3, columnspacing=0.9, fontsize=9,
        handlelength=1.2,
    )  # fmt: skip


def place_labels(
    axes: Axes,
    points: Array,
    texts: Sequence[str],
    offsets: Sequence[tuple[float, float]],
    marks: Array | None = None,
    **style: Any,
) -> None:
    """Write each text at the first offset where it covers no other text and no mark; where none is free, leave it out.

    The axes must have their scales and limits already. Widths are estimates: the reader's font is not known here.

    Parameters
    ----------
    points : where the texts belong, in data coordinates.
    offsets : in points, the best first; a text begins, ends or has its middle there, by the sign of the first number.
    marks : points that no text but their own may cover.
    """
    size = style.setdefault("fontsize", SMALL)
    scale = 72 / axes.figure.dpi
    spots = axes.transData.transform(points) * scale
    covered = np.empty((0, 2)) if marks is None else axes.transData.transform(marks) * scale
    taken = [Bbox.from_bounds(x - 2, y - 2, 4, 4) for x, y in covered]
    low, high = axes.bbox.get_points() * scale
    for (x, y), point, text in zip(spots, points, texts, strict=True):
        width, height = 0.62 * size * len(text), 1.05 * size
        for dx, dy in offsets:
            align = "left" if dx > 0 else "right" if dx < 0 else "center"
            left = x + dx - {"left": 0.0, "center": 0.5, "right": 1.0}[align] * width
            box = Bbox.from_bounds(left, y + dy - height / 2, width, height)
            inside = box.x0 > low[0] - 4 and box.x1 < high[0] + 30 and box.y0 > low[1] - 4
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                axes.annotate(
                    text, (point[0], point[1]), xytext=(dx, dy), textcoords="offset points", ha=align, va="center",
                    parse_math=False, annotation_clip=False, **style,
                )  # fmt: skip
                break
