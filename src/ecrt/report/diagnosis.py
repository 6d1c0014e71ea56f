"""The page of a diagnosis: every question with its answer, the numbers behind it, and a figure."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from ecrt.diagnostics import COARSE, ClassDependence, ClassGrid, Gaussianity, Memorisation, MinorityGap, UniqueFeature
from ecrt.report import drawing
from ecrt.report.drawing import DOTTED, GREY, LOW_PANEL, MINORITY, OTHERS, PALETTE, svg
from ecrt.report.rendering import Plots, paragraphs, short, short_label
from ecrt.report.tables import Table, column_table, label_cell
from ecrt.runs.diagnosis import Diagnosis

WORDS = "diagnosis_words.html"
SHOWN = (
    "title", "recommendation", "harmed", "options", "demixing", "n_sources", "selection", "gaussianity", "memorisation",
    "memorisation_of", "unique", "gap",
)  # fmt: skip
"""What the page takes from a diagnosis as it is."""


def summarise_diagnosis(found: Diagnosis) -> dict[str, Any]:
    """Turn a diagnosis into what the page shows."""
    selection = found.selection
    return {name: getattr(found, name) for name in SHOWN} | {
        "columns": column_table(found.columns),
        "unique_found": found.unique is not None and found.unique.found,
        "questions": {name.replace(" ", "-"): finding for name, finding in found.findings.items()},
        "rows": int(found.counts.sum()),
        "n_classes": len(found.labels),
        "smallest": int(found.counts.min()),
        "largest": int(found.counts.max()),
        "rare": [str(label) for label in found.labels[found.minority]],
        "was_measured": selection.low != selection.high
        and any(one["options"].get("demixing") != "none" for one in selection.tried),
        "n_tested_columns": found.dependence.n_columns,
        "dependence": _dependence_table(found),
    }


def recommendation_text(found: Diagnosis) -> str:
    """Whether to use ECRT on these data, and why, in a few sentences."""
    return " ".join(paragraphs(WORDS, "recommendation", summarise_diagnosis(found)))


def diagnosis_table(found: Diagnosis) -> Table:
    """Questions and answers."""
    questions = [paragraphs(WORDS, "question", name.replace(" ", "-"))[0] for name in found.findings]
    return Table.of({"question": questions, "answer": [finding.answer for finding in found.findings.values()]})


def _dependence_table(found: Diagnosis) -> Table | None:
    classes = found.dependence.classes
    numbers = {"HSIC, features": "hsic_z", "p, features": "p_z", "HSIC, sources": "hsic_s", "p, sources": "p_s"}
    columns: dict[str, list[Any]] = {
        "Class": [label_cell(one.label, "rare" if one.minority else "") for one in classes],
        "Rows tested": [one.n_rows for one in classes],
        **{heading: [getattr(one, name) for one in classes] for heading, name in numbers.items()},
    }
    return Table.of(columns, "dependence-table", sortable=True) if classes else None


def diagnosis_plots(found: Diagnosis) -> Plots:
    """Every figure of the page, by the key of its question."""
    grids = [grid for grid in found.grids if np.isfinite(grid.gap)]
    tested, unique, memorisation = found.dependence.tested, found.unique, found.memorisation
    return {
        "transfer": [svg(_transfer, "transfer", found, size=LOW_PANEL)] if len(found.selection.tried) > 1 else [],
        "theory": [svg(_theory, "theory", found, size=LOW_PANEL)],
        "dependence": [svg(_dependence, "dependence", tested, size=(4.8, 0.24 * len(tested) + 1.0))] if tested else [],
        "gaussianity": [svg(_gaussianity, "gaussianity", found.gaussianity)] if found.gaussianity.sources else [],
        "stability": [svg(_stability, "stability", found, size=LOW_PANEL)] if found.stability else [],
        "gridding": [svg(_grids, "gridding", grids, size=(4.8, 2.6))] if grids else [],
        "memorisation": [svg(_memorisation, "memorisation", memorisation, size=(4.8, 3.0))] if memorisation else [],
        "unique-feature": [svg(_projections, "projection", unique), svg(_chance, "chance", unique)] if unique else [],
        "features-or-sources": [svg(_gap, "gap", found.gap, size=LOW_PANEL)] if found.gap else [],
    }


def _transfer(axes: Axes, found: Diagnosis) -> None:
    """What the transfer that was settled on saves on plain logit adjustment, with its interval."""
    chosen = found.selection
    error = [[chosen.gain - chosen.low], [chosen.high - chosen.gain]]
    drawing.interval_lines(axes, [_options(found.options)], [(chosen.gain, error, True)], "Nats saved")


def _gap(axes: Axes, gap: MinorityGap) -> None:
    """What sources save on held-out rows of the minority, with its interval."""
    value = (gap.gain, [[gap.gain - gap.low], [gap.high - gap.gain]], True)
    drawing.interval_lines(axes, ["h(s) over h(z)"], [value], "Nats saved on held-out rare rows", MINORITY)


def _options(options: dict[str, object]) -> str:
    """Options in few words; the name of an option is left out where its value speaks for itself."""
    if options.get("augmentation") == "none":
        options = {name: value for name, value in options.items() if not name.startswith("augmentation")}
    words = [str(value) if isinstance(value, str) else f"{name} {value}" for name, value in options.items()]
    return short(", ".join(words).replace("__", " ").replace("_", " "), 36)


def _theory(axes: Axes, found: Diagnosis) -> None:
    """Classes that there are, beside those that the theorem asks for."""
    values = [found.n_demixed, 2 * found.n_sources + 1]
    lines = drawing.name_lines(axes, ["Classes learned from", "Asked for"])
    axes.bar_label(axes.barh(lines, values, color=[OTHERS, GREY], height=0.6), padding=3)
    axes.set(xlim=(0, 1.15 * max(values)), xlabel="Classes")


def _dependence(axes: Axes, classes: list[ClassDependence]) -> None:
    """HSIC of each class before and after; filled where it is beyond chance."""
    lines = drawing.name_lines(
        axes, [short_label(str(one.label), 16) + (" *" if one.minority else "") for one in classes]
    )
    for line, one in zip(lines, classes, strict=True):
        for value, p, colour in ((one.hsic_z, one.p_z, GREY), (one.hsic_s, one.p_s, OTHERS)):
            axes.plot(value, line, "o", color=colour, markerfacecolor=colour if p < 0.05 else "none", markersize=6)
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel("Largest normalised HSIC of two coordinates")
    for colour, name in ((GREY, "features"), (OTHERS, "sources")):
        axes.plot([], [], "o", color=colour, label=name)
    axes.legend(loc="lower right", fontsize=9)


def _gaussianity(axes: Axes, result: Gaussianity) -> None:
    """Quantiles of the sources furthest from Gaussian against those of a Gaussian."""
    expected, *quantiles = result.quantiles.T
    axes.plot(expected, expected, **DOTTED)
    for shape, colour, values in zip(result.sources, PALETTE, quantiles, strict=False):
        axes.plot(expected, values, color=colour, linewidth=1.6, label=f"source {shape.source + 1}")
    axes.set(xlabel="Quantile of a Gaussian", ylabel="Quantile of the residuals")
    axes.legend(loc="upper left", fontsize=9)


def _stability(axes: Axes, found: Diagnosis) -> None:
    """MCC of every pair of fits."""
    pairs = found.stability
    axes.plot(pairs, np.zeros(len(pairs)), "o", color=OTHERS, alpha=0.6, markersize=7)
    axes.axvline(1.0, **DOTTED)
    axes.set(xlim=(0, 1.05), yticks=[], xlabel="MCC of two fits (1: the same sources)")
    axes.spines["left"].set_visible(False)


def _grids(axes: Axes, grids: list[ClassGrid]) -> None:
    """Gap between neighbouring values of each rare class against its rows."""
    rows = np.array([grid.n_rows for grid in grids], dtype=np.int64)
    drawing.count_axis(axes, rows)
    axes.plot(rows, [grid.gap for grid in grids], "o", color=MINORITY, alpha=0.7)
    axes.axhline(COARSE, **DOTTED)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="Rows of the class", ylabel="Gap, standard deviations")


def _memorisation(axes: Axes, result: Memorisation) -> None:
    """Distances from class means of rows seen in training and of others."""
    top = float(np.quantile(np.concatenate([result.seen, result.held_out]), 0.99))
    bins = np.linspace(0, max(top, 1e-9), 40)
    _outline(axes, result.seen, bins, GREY, "seen by the encoder")
    _outline(axes, result.held_out, bins, OTHERS, "not seen")
    axes.set(yticks=[], xlabel="Squared distance from the class mean (seen: mean 1)")
    drawing.legend_below(axes)


def _projections(axes: Axes, result: UniqueFeature) -> None:
    """Rows along the direction in which rare classes vary most, class means taken off."""
    edge = float(np.quantile(np.abs(result.projections), 0.995))
    bins = np.linspace(-edge, edge, 50)
    _outline(axes, result.projections[~result.minority], bins, OTHERS, "frequent classes")
    _outline(axes, result.projections[result.minority], bins, MINORITY, "rare classes")
    axes.set(yticks=[], xlabel="Deviation from the class mean, sd of frequent classes")
    drawing.legend_below(axes)


def _chance(axes: Axes, result: UniqueFeature) -> None:
    """The ratio of variances beside what chance gives."""
    axes.hist(result.null, bins=12, color=GREY, label="by chance")
    axes.axvline(result.ratio, color=MINORITY, linewidth=2.5, label="rare classes")
    axes.set_xlim(left=0)
    axes.set(yticks=[], xlabel="Variance on the other half, majority = 1")
    drawing.legend_below(axes)


def _outline(axes: Axes, values: NDArray[np.float64], bins: NDArray[np.float64], colour: str, label: str) -> None:
    axes.hist(values, bins=list(bins), density=True, histtype="stepfilled", color=colour, alpha=0.35)
    axes.hist(values, bins=list(bins), density=True, histtype="step", color=colour, linewidth=1.6, label=label)
