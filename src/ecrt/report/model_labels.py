"""The page of a model of several labels a row: which labels are found, frequent or rare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ecrt.metrics.classification import FREQUENCY_GROUPS
from ecrt.report.drawing import INK, MINORITY, OTHERS, count_axis, legend_below, place_labels, svg
from ecrt.report.inside_figures import candidate_panel
from ecrt.report.model_figures import BESIDE, MOST_NAMED_POINTS
from ecrt.report.model_tables import (
    GROUP_TEXTS,
    Entry,
    SheetTable,
    column_table,
    count_entry,
    label_entry,
    number_entry,
)
from ecrt.report.model_words import candidate_name, listed, percent, quoted, versions_text
from ecrt.report.rendering import FigureBlock, short, short_label
from ecrt.runs.records import Measured

__all__ = ["LabelsPage", "summarise_labels"]

Array = NDArray[np.float64]

METRICS = {
    "accuracy": ("Accuracy ↑", "of a row's k labels, the share among its k most probable ones"),
    "subset_accuracy": ("Rows all right ↑", "share of rows with every label right"),
    "macro_f1": ("Macro F1 ↑", "mean F1 over the labels: a rare one counts like a frequent one"),
    "micro_f1": ("Micro F1 ↑", "F1 over all rows and labels at once"),
    "mean_average_precision": ("Mean average precision ↑", "mean over the labels; needs no threshold"),
    "bce": ("Binary cross-entropy ↓", "mean over rows and labels: being sure and wrong costs most"),
}


@dataclass(frozen=True)
class LabelsPage:
    """Everything on the page of a model of several labels a row."""

    title: str
    facts: tuple[tuple[str, str], ...]
    sentences: tuple[str, ...]
    subject: str
    columns: SheetTable | None
    metrics: SheetTable
    groups: SheetTable
    frequency: FigureBlock
    thresholds: FigureBlock | None
    labels: SheetTable
    heads: FigureBlock

    @property
    def figures(self) -> dict[str, FigureBlock]:
        """Figures by the name of their file."""
        figures = {"frequency": self.frequency, "thresholds": self.thresholds, "heads": self.heads}
        return {name: figure for name, figure in figures.items() if figure is not None}


def summarise_labels(found: Measured) -> LabelsPage:
    """Turn the figures of a model of several labels a row into what its page shows."""
    return LabelsPage(
        title=short(found.title, 120) if found.title else "A fitted ECRT model of several labels a row",
        facts=(*found.facts.items(), ("Versions", versions_text(found.versions))),
        sentences=tuple(_sentences(found)),
        subject=found.subject,
        columns=column_table(found.columns),
        metrics=_metric_table(found),
        groups=_group_table(found),
        frequency=_frequency_block(found),
        thresholds=_threshold_block(found),
        labels=_label_table(found),
        heads=_head_block(found),
    )


def _sentences(found: Measured) -> list[str]:
    test, guess = found.metrics["test"], found.metrics["guessing"]
    counts, names, present = found.arrays["counts"], np.array(found.names, dtype=object), found.arrays["y"]
    told = [
        f"{len(names):,} labels, on {counts.min():,} to {counts.max():,} training rows each; tested on "
        f"{len(present):,} rows with {present.sum(axis=1).mean():.2f} labels on average.",
        f"Of a row's labels {percent(test['accuracy'])} are among its most probable ones (going by frequency alone: "
        f"{percent(guess['accuracy'])}). Mean average precision is {test['mean_average_precision']:.3f} "
        f"({guess['mean_average_precision']:.3f}), macro F1 {test['macro_f1']:.3f}.",
    ]
    score = np.where(counts > 0, found.arrays["average_precision"], np.nan)
    weakest = [index for index in np.argsort(score, kind="stable")[:3].tolist() if np.isfinite(score[index])]
    if weakest:
        said = [f"{quoted(names[index])} ({score[index]:.2f}, {counts[index]:,} training rows)" for index in weakest]
        told.append(f"Lowest average precision: {listed(said)}.")
    never = [quoted(name) for name in names[counts == 0]]
    if never:
        told.append(f"Never seen in training, so never predicted: {listed(never)}.")
    if found.unknown_labels:
        told.append(
            f"The model does not know the labels {listed([_with_rows(*one) for one in found.unknown_labels.items()])}: "
            "they count as missed, and are left out where a probability is needed."
        )
    untested = int((present.sum(axis=0) == 0).sum())
    if untested:
        told.append(f"{untested:,} of the labels {'has' if untested == 1 else 'have'} no test row: no score for them.")
    return told


def _with_rows(label: str, rows: int) -> str:
    return f"{quoted(label)} ({rows:,} {'row' if rows == 1 else 'rows'})"


def _metric_table(found: Measured) -> SheetTable:
    rows = [
        (Entry(name, note=meaning), *(number_entry(found.metrics[column][key]) for column in ("test", "guessing")))
        for key, (name, meaning) in METRICS.items()
    ]
    return SheetTable("metrics", ("Metric", "Model", "Guessing"), tuple(rows))


def _group_table(found: Measured) -> SheetTable:
    keys = ("average_precision", "f1", "recall", "precision")
    rows = [
        (
            Entry(name.capitalize(), note=GROUP_TEXTS[name]), count_entry(found.groups[name]["labels"]),
            *(number_entry(found.groups[name][key]) for key in keys),
        )
        for name in FREQUENCY_GROUPS
    ]  # fmt: skip
    columns = ("Training rows", "Labels", "Average precision", "F1", "Recall", "Precision")
    return SheetTable("groups", columns, tuple(rows))


def _frequency_block(found: Measured) -> FigureBlock:
    panels = [
        svg(_frequency_drawer(found, found.arrays[key], title), f"labels-{key}")
        for key, title in (("average_precision", "Average precision"), ("f1", "F1"))
    ]
    return FigureBlock(
        "Average precision and F1 of each label against its training rows",
        _panels(panels),
        "Each dot is a label with test rows. Rare labels stand on the left: if the dots fall off there, what is rare "
        "is missed. A label with high average precision and low F1 is ranked well, but its threshold does not suit it.",
    )


def _frequency_drawer(found: Measured, values: Array, title: str) -> Callable[[Axes], None]:
    counts, minority = found.arrays["counts"], found.arrays["minority"]

    def draw(axes: Axes) -> None:
        told = np.isfinite(values) & (counts > 0)
        _dots(axes, counts, values, told, minority)
        axes.set_ylim(0, 1.02)
        count_axis(axes, counts[told] if told.any() else np.array([1], dtype=np.int64))
        if told.sum() <= MOST_NAMED_POINTS:
            points = np.column_stack([counts[told], values[told]])
            names = [short_label(found.names[at], 14) for at in np.flatnonzero(told)]
            place_labels(axes, points, names, BESIDE, marks=points)
        axes.set_title(title, pad=10)
        axes.set_xlabel("training rows with the label (log scale)")
        axes.set_ylabel(f"{title} on test rows")
        _legend(axes, minority)

    return draw


def _threshold_block(found: Measured) -> FigureBlock | None:
    """Probability from which each label is predicted; none where it is one half for all."""
    cuts, counts, minority = (found.arrays[name] for name in ("threshold", "counts", "minority"))
    seen = counts > 0
    if np.allclose(cuts[seen], 0.5):
        return None

    def draw(axes: Axes) -> None:
        _dots(axes, counts, cuts, seen, minority)
        axes.axhline(0.5, color=INK, linestyle=":", linewidth=0.8)
        axes.set_ylim(0, 1.02)
        count_axis(axes, counts[seen])
        axes.set_title("Thresholds", pad=10)
        axes.set_xlabel("training rows with the label (log scale)")
        axes.set_ylabel("predicted from this probability on")
        _legend(axes, minority)

    return FigureBlock(
        "Threshold of each label",
        _panels([svg(draw, "thresholds")]),
        "The probability from which a label is predicted, where its F1 was highest on held-out rows. Low thresholds "
        "are usual for rare labels: their probabilities seldom reach one half (dotted).",
    )


def _dots(
    axes: Axes, counts: NDArray[np.int64], values: Array, told: NDArray[np.bool_], minority: NDArray[np.bool_]
) -> None:
    for mask, colour, name in ((~minority, OTHERS, "others"), (minority, MINORITY, "rare")):
        if (mask & told).any():
            axes.scatter(
                counts[mask & told], values[mask & told], s=26, color=colour, linewidths=0, label=name, alpha=0.8,
                clip_on=False, zorder=3, rasterized=len(values) > 500,
            )  # fmt: skip


def _legend(axes: Axes, minority: NDArray[np.bool_]) -> None:
    if minority.any() and not minority.all():
        legend_below(axes)


def _label_table(found: Measured) -> SheetTable:
    """Every label, the lowest average precision first; those without a score last."""
    of = found.arrays
    order = np.argsort(of["average_precision"], kind="stable")  # NaN comes last
    rows = [
        (
            label_entry(found.names[at], _remark(found, at)),
            count_entry(of["counts"][at]),
            count_entry(of["support"][at]),
            *(number_entry(of[key][at]) for key in ("average_precision", "f1", "recall", "precision")),
            number_entry(of["threshold"][at]) if of["counts"][at] else Entry("–", float("nan")),
        )
        for at in order.tolist()
    ]
    columns = (
        "Label", "Training rows", "Test rows", "Average precision", "F1", "Recall", "Precision", "Threshold"
    )  # fmt: skip
    return SheetTable("labels", columns, tuple(rows), sortable=True, summary=f"All {len(rows):,} labels")


def _remark(found: Measured, at: int) -> str:
    if found.arrays["counts"][at] == 0:
        return "never seen"
    return "rare" if found.arrays["minority"][at] else ""


def _head_block(found: Measured) -> FigureBlock:
    names = list(found.candidates)
    losses = [losses["held-out loss"] for losses in found.candidates.values()]
    chosen = names.index(found.chosen) if found.chosen in names else -1
    return FigureBlock(
        "Heads tried",
        _panels([candidate_panel([candidate_name(name) for name in names], losses, chosen)]),
        "Binary cross-entropy on held-out rows, every label counted alike: lower is better; red is the chosen one. A "
        "later kind must be better beyond noise, so the chosen one need not be the lowest.",
    )


def _panels(panels: list[str]) -> tuple[Markup, ...]:
    return tuple(Markup(panel) for panel in panels)
