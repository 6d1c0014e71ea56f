"""The page of a diagnosis: every question with its answer, the numbers behind it, and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ecrt.arrays import Array
from ecrt.diagnostics import Gaussianity, Memorisation, UniqueFeature
from ecrt.report import drawing
from ecrt.report.drawing import DOTTED, GREY, MINORITY, OTHERS, PALETTE, svg
from ecrt.report.rendering import Plots, Table, column_table, paragraphs, short_label
from ecrt.runs.diagnosis import Diagnosis

WORDS = "diagnosis_words.html"


def summarise_diagnosis(found: Diagnosis) -> dict[str, Any]:
    """What the page shows: the diagnosis, and what follows from it."""
    selection = found.selection
    return vars(found) | {
        "recommendation": found.recommendation,
        "harmed": found.harmed,
        "columns": column_table(found.columns),
        "questions": {name.replace(" ", "-"): finding for name, finding in found.findings.items()},
        "rare": [str(label) for label in found.labels[found.minority]],
        "was_measured": selection.low != selection.high
        and any(one["options"].get("demixing") != "none" for one in selection.tried),
        "notes": np.where(found.dependence["minority"], "rare", ""),
    }


def recommendation_text(found: Diagnosis) -> str:
    """Whether to use ECRT on these data, and why, in a few sentences."""
    return " ".join(paragraphs(WORDS, "recommendation", summarise_diagnosis(found)))


def diagnosis_table(found: Diagnosis) -> Table:
    """Questions and answers."""
    questions = [paragraphs(WORDS, "question", name.replace(" ", "-"))[0] for name in found.findings]
    return Table.of({"question": questions, "answer": [finding.answer for finding in found.findings.values()]})


def diagnosis_plots(found: Diagnosis) -> Plots:
    """Every figure of the page, by the key of its question."""
    tested, unique, memorisation = found.dependence.dropna(subset="p_s"), found.unique, found.memorisation
    size = (4.8, 0.24 * len(tested) + 1.0)
    return {
        "dependence": [svg(_dependence, "dependence", tested, size=size)] if len(tested) else [],
        "gaussianity": [svg(_gaussianity, "gaussianity", found.gaussianity)] if found.gaussianity.n_rows else [],
        "memorisation": [svg(_memorisation, "memorisation", memorisation, size=(4.8, 3.0))] if memorisation else [],
        "unique-feature": [svg(_projections, "projection", unique), svg(_chance, "chance", unique)] if unique else [],
    }


def _dependence(axes: Axes, classes: pd.DataFrame) -> None:
    """HSIC of each class before and after; filled where it is beyond chance."""
    stars = np.where(classes["minority"], " *", "")
    names = [short_label(str(label), 16) + star for label, star in zip(classes["label"], stars, strict=True)]
    lines = drawing.name_lines(axes, names)
    for side, colour in (("z", GREY), ("s", OTHERS)):
        for line, value, p in zip(lines, classes[f"hsic_{side}"], classes[f"p_{side}"], strict=True):
            axes.plot(value, line, "o", color=colour, markerfacecolor=colour if p < 0.05 else "none", markersize=6)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("Largest normalised HSIC of two coordinates")
    for colour, name in ((GREY, "features"), (OTHERS, "sources")):
        axes.plot([], [], "o", color=colour, label=name)
    drawing.legend_below(axes)


def _gaussianity(axes: Axes, result: Gaussianity) -> None:
    """Quantiles of the sources furthest from Gaussian against those of a Gaussian."""
    expected, *quantiles = result.quantiles.T
    axes.plot(expected, expected, **DOTTED)
    for source, colour, values in zip(result.sources["source"], PALETTE, quantiles, strict=False):
        axes.plot(expected, values, color=colour, linewidth=1.6, label=f"source {source + 1}")
    axes.set(xlabel="Quantile of a Gaussian", ylabel="Quantile of the residuals")
    axes.legend(loc="upper left", fontsize=9)


def _memorisation(axes: Axes, result: Memorisation) -> None:
    """Distances from class means of rows seen in training and of others."""
    top = float(np.quantile(np.concatenate([result.seen, result.held_out]), 0.99))
    bins = np.linspace(0, max(top, 1e-9), 40)
    groups = ((result.seen, GREY, "seen by the encoder"), (result.held_out, OTHERS, "not seen"))
    _outlines(axes, groups, bins, "Squared distance from the class mean (seen: mean 1)")


def _projections(axes: Axes, result: UniqueFeature) -> None:
    """Rows along the direction in which rare classes vary most, class means taken off."""
    edge = float(np.quantile(np.abs(result.projections), 0.995))
    rare = result.minority
    groups = ((~rare, OTHERS, "frequent classes"), (rare, MINORITY, "rare classes"))
    shown = [(result.projections[mask], colour, label) for mask, colour, label in groups]
    _outlines(axes, shown, np.linspace(-edge, edge, 50), "Deviation from the class mean, sd of frequent classes")


def _chance(axes: Axes, result: UniqueFeature) -> None:
    """The ratio of variances beside what chance gives."""
    axes.hist(result.null, bins=12, color=GREY, label="by chance")
    axes.axvline(result.ratio, color=MINORITY, linewidth=2.5, label="rare classes")
    axes.set_xlim(left=0)
    axes.set(yticks=[], xlabel="Variance on the other half, majority = 1")
    drawing.legend_below(axes)


def _outlines(axes: Axes, groups: Sequence[tuple[Array, str, str]], bins: Array, xlabel: str) -> None:
    for values, colour, label in groups:
        axes.hist(values, bins=list(bins), density=True, histtype="stepfilled", color=colour, alpha=0.35)
        axes.hist(values, bins=list(bins), density=True, histtype="step", color=colour, linewidth=1.6, label=label)
    axes.set(yticks=[], xlabel=xlabel)
    drawing.legend_below(axes)
