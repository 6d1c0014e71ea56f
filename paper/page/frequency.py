"""Figures of the paper on label frequency: F1 and accuracy by it, strength of augmentation, and t-SNE of sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ecrt.report.drawing import GREY, INK, PALETTE, count_axis, legend_below, limits, svg
from paper.page.figure import FigureBlock
from paper.page.results import PaperResults
from paper.statistics import estimate

__all__ = [
    "SIZES",
    "averaged_by_class",
    "by_strength",
    "class_values",
    "frequency_figures",
    "mean_of_size",
    "recall_of_size",
    "sensitivity_entries",
    "size_entries",
    "size_name",
]

Row = dict[str, Any]
Array = NDArray[np.float64]

SHOWN = ("ERM", "LDAM", "LA", "ECRT")
"""The paper's three, and the rival that costs nothing."""

SHOWN_ARXIV = ("MLP ERM", "MLP LDAM", "MLP, logit-adjusted", "ECRT")
N_BINS = 8
SIZES = ((0, 20), (20, 50), (50, 120))
"""Minority classes by training rows, for the strength of augmentation; the paper's minority has fewer than 120."""

PLANKTON = "Plankton instead of iNaturalist: 121 classes, 96 principal components of EfficientNet-Lite0 features."


def frequency_figures(results: PaperResults) -> list[FigureBlock]:
    """All of these figures that there are results for."""
    made = [_by_frequency(results), _strengths(results), _pictures(results), *_others(results)]
    return [figure for figure in made if figure is not None]


def class_values(rows: Sequence[Row], method: str, metric: str) -> tuple[Array, Array]:
    """Frequency of each class, and its figure under a method, averaged over seeds; NaN where no seed has one."""
    found = [row["runs"][method]["by_class"] for row in rows if method in row.get("runs", {})]
    return averaged_by_class(found, metric)


def averaged_by_class(tables: Sequence[Row], metric: str) -> tuple[Array, Array]:
    """The same from tables of figures by class."""
    if not tables:
        return np.empty(0), np.empty(0)
    n = len(tables[0]["class"])
    frequency, values = np.zeros((len(tables), n)), np.full((len(tables), n), np.nan)
    for place, table in enumerate(tables):
        frequency[place, table["class"]] = table["frequency"]
        values[place, table["class"]] = [np.nan if value is None else value for value in table[metric]]
    known = np.isfinite(values)
    means = np.where(known, values, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return frequency.mean(axis=0), np.where(known.any(axis=0), means, np.nan)


def mean_of_size(frequency: Array, values: Array, low: float, high: float) -> float:
    """Mean over classes with ``low`` to ``high`` training rows, the upper end left out; NaN without any."""
    mine = values[(frequency >= low) & (frequency < high) & np.isfinite(values)]
    return float(mine.mean()) if len(mine) else float("nan")


def _binned(frequency: Array, values: Array) -> tuple[Array, Array]:
    """Means over classes of like frequency, as many classes in each bin; of the same one, where there are few."""
    order = np.argsort(frequency, kind="stable")
    order = order[np.isfinite(values[order])]
    starts = np.unique(frequency[order], return_index=True)[1]
    few = len(starts) <= N_BINS
    parts = np.array_split(order, starts[1:] if few else min(N_BINS, max(1, len(order) // 2)))
    return (
        np.array([np.exp(np.log(np.maximum(frequency[part], 1)).mean()) for part in parts]),
        np.array([values[part].mean() for part in parts]),
    )


def _curves(found: dict[str, tuple[Array, Array]], title: str, label: str) -> Callable[[Axes], None]:
    def draw(axes: Axes) -> None:
        all_counts = np.concatenate([frequency for frequency, _ in found.values()])
        count_axis(axes, all_counts.astype(np.int64))
        for place, (method, (frequency, values)) in enumerate(found.items()):
            x, y = _binned(frequency, values)
            axes.plot(x, y, color=PALETTE[place], label=method, marker="o", markersize=3.5, linewidth=1.4)
        one = next(iter(found.values()))[0]
        axes.plot(one, np.zeros(len(one)), "|", color=GREY, markersize=7, clip_on=False)
        axes.set_ylim(bottom=0)
        axes.set_title(title)
        axes.set_xlabel(label)
        legend_below(axes)

    return draw


def _panel(draw: Callable[[Axes], None], name: str) -> Markup:
    return Markup(svg(draw, name))


def _by_frequency(results: PaperResults) -> FigureBlock | None:
    rows = results.rows("inaturalist")
    panels = []
    for metric, title in (("f1", "F1"), ("recall", "Accuracy within classes")):
        found = {method: class_values(rows, method, metric) for method in SHOWN}
        found = {method: values for method, values in found.items() if len(values[0])}
        if len(found) < 2:
            return None
        panels.append(_panel(_curves(found, title, "training rows of a class"), f"inaturalist-{metric}"))
    return FigureBlock(
        "iNaturalist: F1 and accuracy by label frequency (Figure 1, supplement E)",
        tuple(panels),
        f"{_said(rows)} Every point is a mean over equally many classes; the marks below are the classes. ECRT is "
        "linear de-mixing without a flow. All methods but ERM predict as if classes were equally frequent.",
    )


def _said(rows: Sequence[Row]) -> str:
    return PLANKTON if rows and rows[0].get("data") == "plankton" else "iNaturalist 2019."


def by_strength(results: PaperResults, kind: str) -> dict[float, list[Row]]:
    """Runs on iNaturalist with such augmentation, one of each split, by its strength; 0 is of every kind."""
    found: dict[float, list[Row]] = {}
    for row in results.rows("inaturalist", part="ECRT"):
        of_kind = (one for one in row.get("strengths", ()) if one["kind"] == kind or one["weight"] == 0)
        for weight, one in {one["weight"]: one for one in of_kind}.items():
            found.setdefault(weight, []).append(one)
    return dict(sorted(found.items()))


def recall_of_size(run: Row, low: float, high: float) -> float:
    """Mean recall of classes with ``low`` to ``high`` training rows in a run."""
    return mean_of_size(*averaged_by_class([run["by_class"]], "recall"), low, high)


def size_entries(rows: Sequence[Row]) -> list[Row]:
    """F1 and recall of every run, as means over minority classes and over the others."""
    limit = SIZES[-1][1]
    found = []
    for row in rows:
        for what, run in row.get("runs", {}).items():
            for classes, low, high in (("minority", 0.0, limit), ("majority", limit, np.inf)):
                means = {
                    metric: mean_of_size(*averaged_by_class([run["by_class"]], metric), low, high)
                    for metric in ("f1", "recall")
                }
                found.append({"what": what, "seed": row["cell"]["seed"], "classes": classes, **means})
    return found


def sensitivity_entries(results: PaperResults) -> list[Row]:
    """By size of minority classes, what the best strength of augmentation has over the worst one, on every split.

    Which these are is decided by the means over splits.
    """
    runs = [mine for kind in ("permutation", "parametric") for mine in by_strength(results, kind).values()]
    found: list[Row] = []
    for low, high in SIZES if runs else ():
        recalls = [np.array([recall_of_size(run, low, high) for run in mine]) for mine in runs]
        means = [float(of.mean()) for of in recalls]
        if np.isfinite(means).all():
            gaps = recalls[int(np.argmax(means))] - recalls[int(np.argmin(means))]
            found += [{"size": size_name(low, high), "seed": seed, "sensitivity": gap} for seed, gap in enumerate(gaps)]
    return found


def size_name(low: int, high: int) -> str:
    """Classes of a size, in words.

    >>> size_name(0, 20)
    '1 to 19 rows'
    """
    return f"{max(low, 1)} to {high - 1} rows"


def _strengths(results: PaperResults) -> FigureBlock | None:
    rows = results.rows("inaturalist", part="ECRT")
    kinds = {"--": by_strength(results, "permutation"), "-": by_strength(results, "parametric")}
    if not any(kinds.values()):
        return None

    def drawer(measures: dict[str, Callable[[Row], float]], title: str) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for style, found in kinds.items():
                for place, (name, measure) in enumerate(measures.items()):
                    estimates = [estimate([measure(run) for run in runs]) for runs in found.values()]
                    axes.errorbar(
                        list(found), [one.mean for one in estimates], [one.half_width or 0.0 for one in estimates],
                        linestyle=style, color=PALETTE[place], marker="o", markersize=3.5, linewidth=1.4,
                        elinewidth=0.8, label=name if style == "-" else None,
                    )  # fmt: skip
            axes.set_title(title)
            axes.set_xlabel("share of synthetic samples, λ")
            legend_below(axes)

        return draw

    sizes: dict[str, Callable[[Row], float]] = {
        size_name(low, high): partial(recall_of_size, low=low, high=high) for low, high in SIZES
    }
    return FigureBlock(
        "iNaturalist: sensitivity to λ by minority size (figure “Sensitivity analysis”, supplement E)",
        (
            _panel(drawer(sizes, "Accuracy of minority classes"), "strength-size"),
            _panel(drawer({"all classes": lambda run: float(run["top1"])}, "Mean accuracy"), "strength-all"),
        ),
        f"{_said(rows)} Full: parametric; dashed: permutation. Means over {len(rows)} splits with 95 % intervals; the "
        "weight decay of the head stays as chosen at λ = 0.5.",
    )


def _pictures(results: PaperResults) -> FigureBlock | None:
    rows = results.rows("inaturalist", part="picture")
    if not rows:
        return None
    row = rows[0]
    points, classes = np.asarray(row["points"]), np.asarray(row["classes"])
    synthetic = np.asarray(row["synthetic"], dtype=bool)
    low, high = limits(points)

    def drawer(with_synthetic: bool) -> Callable[[Axes], None]:
        def draw(axes: Axes) -> None:
            for place, (label, frequency) in enumerate(row["frequency"].items()):
                mine = classes == int(label)
                colour = PALETTE[place % (len(PALETTE) - 1)]
                marker = "^" if row["minority"][label] else "o"
                if with_synthetic:
                    xy = points[mine & synthetic]
                    axes.scatter(
                        xy[:, 0], xy[:, 1], s=9, facecolors="none", edgecolors=colour, linewidths=0.6, rasterized=True
                    )
                xy = points[mine & ~synthetic]
                axes.scatter(xy[:, 0], xy[:, 1], s=16, color=colour, marker=marker, linewidths=0, rasterized=True)
                axes.annotate(f"{frequency:,}", np.median(xy, axis=0), fontsize=10, color=INK, ha="center", va="center")
            axes.set_xlim(low[0], high[0])
            axes.set_ylim(low[1], high[1])
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title("With augmentation" if with_synthetic else "Without augmentation")

        return draw

    return FigureBlock(
        "iNaturalist: t-SNE of sources (figure “ECRT source representation”)",
        (_panel(drawer(False), "tsne-without"), _panel(drawer(True), "tsne-with")),
        f"{_said(rows)} Eight classes drawn at random, triangles: minority; numbers: training rows. Rings: synthetic "
        "samples of the minority. Sources are those of linear de-mixing, without a flow. One embedding of all points, "
        "so that both panels have the same places.",
    )


def _others(results: PaperResults) -> list[FigureBlock]:
    """The same of other data, where their results hold figures of each class."""
    blocks = []
    for name, title, label, shown in (
        ("arxiv", "arXiv: F1 and recall by label frequency", "training rows of a label", SHOWN_ARXIV),
        ("tinyimagenet", "Tiny-ImageNet: F1 and accuracy by label frequency", "training rows of a class", SHOWN),
    ):
        found = {
            method: [row["by_class"] for row in results.rows(name, method=method) if "by_class" in row]
            for method in shown
        }
        tables = {method: of for method, of in found.items() if of}
        if len(tables) < 2:
            continue
        panels = [
            _panel(
                _curves({method: averaged_by_class(of, metric) for method, of in tables.items()}, heading, label),
                f"{name}-{metric}",
            )
            for metric, heading in (("f1", "F1"), ("recall", "Recall"))
        ]
        blocks.append(
            FigureBlock(
                title,
                tuple(panels),
                "Every point is a mean over equally many classes; the marks below are the classes. ECRT is linear "
                "de-mixing without a flow.",
            )
        )
    return blocks
