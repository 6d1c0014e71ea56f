"""Tables of a fitted model's page: rows of text, with the numbers they are sorted by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ecrt.data import HEADINGS
from ecrt.metrics import PRIORS
from ecrt.metrics.classification import FREQUENCY_GROUPS, class_scores, confused_pairs, frequency_group
from ecrt.report.model_figures import MOST_MATRIX_CLASSES
from ecrt.report.model_findings import chance_correlation
from ecrt.report.model_words import METRIC_TEXTS, percent, taken_for, weakest_first
from ecrt.report.rendering import short, short_label
from ecrt.runs.records import Evaluation

__all__ = [
    "GROUP_TEXTS",
    "Entry",
    "SheetTable",
    "class_table",
    "column_table",
    "count_entry",
    "group_table",
    "independence_table",
    "label_entry",
    "metric_table",
    "number_entry",
    "pair_table",
]

MOST_ROWS = 500
MOST_PAIRS = 15
GROUP_TEXTS = {
    "many": "more than 100 training samples",
    "medium": "20 to 100",
    "few": "fewer than 20",
}


@dataclass(frozen=True)
class Entry:
    """A cell: its text, the number it is sorted by, a remark, all of a text that was cut, and whether it is a label."""

    text: str
    value: float | None = None
    note: str = ""
    full: str = ""
    label: bool = False


@dataclass(frozen=True)
class SheetTable:
    """Rows of cells; the first cell of a row names it."""

    key: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    sortable: bool = False
    summary: str = ""
    """What is said on the fold of a long table."""


def column_table(columns: tuple[tuple[str, ...], ...]) -> SheetTable | None:
    """How columns were read; nothing where there was no table."""
    rows = [
        (Entry(short(name, 120), full=short(name, 400) if len(name) > 120 else "", label=True), *map(Entry, cells))
        for name, *cells in columns
    ]
    used = [place for place in range(len(HEADINGS)) if place < 2 or any(row[place].text for row in rows)]
    picked = tuple(tuple(row[place] for place in used) for row in rows)
    return SheetTable("columns", tuple(HEADINGS[place] for place in used), picked) if rows else None


def metric_table(evaluation: Evaluation) -> SheetTable:
    """Every metric under both priors, beside guessing."""
    columns = (*PRIORS, "guessing")
    rows = []
    for key, (name, meaning) in METRIC_TEXTS.items():
        if key in evaluation.metrics["balanced"]:
            values = [evaluation.metrics[column][key] for column in columns]
            rows.append((Entry(name, note=meaning), *(number_entry(value) for value in values)))
    return SheetTable("metrics", ("Metric", "Balanced prior", "Training prior", "Guessing"), tuple(rows))


def group_table(evaluation: Evaluation) -> SheetTable:
    """Mean recall of classes with many, medium and few training samples."""
    rows = []
    for name in FREQUENCY_GROUPS:
        groups = [evaluation.groups[prior][name] for prior in PRIORS]
        tested, n_classes = groups[0]["n_tested"], groups[0]["n_classes"]
        note = GROUP_TEXTS[name] + (f"; {n_classes - tested:.0f} without test rows" if tested < n_classes else "")
        cells = (number_entry(group["recall"]) for group in groups)
        rows.append((Entry(name.capitalize(), note=note), Entry(f"{n_classes:,.0f}", n_classes), *cells))
    columns = ("Training samples", "Classes", "Recall, balanced prior", "Recall, training prior")
    return SheetTable("groups", columns, tuple(rows))


def class_table(evaluation: Evaluation, prior: str) -> SheetTable:
    """Every class, the weakest first; those without test rows last."""
    classes = evaluation.classes
    scores = class_scores(evaluation.y, evaluation.predicted[prior], len(classes.labels))
    group, target = frequency_group(classes.counts), taken_for(evaluation, prior)
    order = weakest_first(scores)
    order = np.concatenate([order, np.setdiff1d(np.arange(len(classes.labels)), order)])
    rows = []
    for index in order[:MOST_ROWS].tolist():
        rows.append(
            (
                label_entry(str(classes.labels[index]), "rare" if classes.minority[index] else ""),
                count_entry(classes.counts[index]),
                Entry(str(group[index])),
                count_entry(scores["support"][index]),
                *(number_entry(scores[key][index]) for key in ("recall", "precision", "f1")),
                label_entry(str(classes.labels[target[index]])) if index in target else Entry("–"),
            )
        )
    n = len(classes.labels)
    summary = f"All {n:,} classes" if n <= MOST_ROWS else f"The {MOST_ROWS} weakest of {n:,} classes"
    columns = ("Class", "Training rows", "Group", "Test rows", "Recall", "Precision", "F1", "Mostly taken for")
    return SheetTable(f"classes-{prior}", columns, tuple(rows), sortable=True, summary=summary)


def pair_table(evaluation: Evaluation, prior: str) -> SheetTable:
    """Which class is taken for which, most rows first."""
    labels, y = evaluation.classes.labels, evaluation.y
    pairs = confused_pairs(y, evaluation.predicted[prior])
    support = np.bincount(y[y >= 0], minlength=len(labels))
    few = MOST_PAIRS if len(labels) > MOST_MATRIX_CLASSES else 5
    rows = []
    for true, wrong, n in zip(*(pairs[key][:few].tolist() for key in ("true", "predicted", "rows")), strict=True):
        share = n / support[true]
        rows.append(
            (
                label_entry(str(labels[true])),
                label_entry(str(labels[wrong])),
                count_entry(n),
                Entry(percent(share), share),
            )
        )
    columns = ("True class", "Taken for", "Rows", "Of its rows")
    return SheetTable(f"pairs-{prior}", columns, tuple(rows), sortable=True)


def independence_table(evaluation: Evaluation) -> SheetTable:
    """Dependence left between the sources of each class, beside what chance gives."""
    classes, n_sources = evaluation.classes, evaluation.model.n_sources
    rows = []
    for index in range(min(len(classes.labels), MOST_ROWS)):
        n = int(classes.n_examples[index])
        chance = chance_correlation(n, n_sources)
        rows.append(
            (
                label_entry(str(classes.labels[index])),
                Entry("yes" if classes.demixed_on[index] else "no"),
                count_entry(n),
                number_entry(float(classes.max_correlation[index]), 2),
                number_entry(chance, 2),
                number_entry(float(classes.hsic[index]), 2),
                number_entry(float(classes.log_likelihood[index]), 1),
            )
        )
    columns = ("Class", "Learned from", "Samples", "Correlation", "By chance", "HSIC", "Log-likelihood")
    summary = f"Measured for each class ({len(rows)})"
    return SheetTable("independence", columns, tuple(rows), sortable=True, summary=summary)


def number_entry(value: float, decimals: int = 3) -> Entry:
    """A number, or a dash for one that is not finite."""
    return Entry(f"{value:.{decimals}f}", float(value)) if np.isfinite(value) else Entry("–", float("nan"))


def count_entry(value: float) -> Entry:
    """A number of rows."""
    return Entry(f"{value:,.0f}", float(value))


def label_entry(label: str, note: str = "") -> Entry:
    """A label of the user's, cut to fit."""
    text = short_label(label, 48)
    return Entry(text, note=note, full=short(label, 400) if text != label else "", label=True)
