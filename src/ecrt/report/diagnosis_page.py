"""The page of a diagnosis: every question with its answer, a picture, and what to do. Never trains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from rich.table import Table

from ecrt.disk import write_text
from ecrt.report.diagnosis_figures import (
    dependence_panel,
    gap_panel,
    gaussianity_panel,
    grid_panel,
    memorisation_panel,
    null_panel,
    projection_panel,
    stability_panel,
    theory_panel,
    transfer_panel,
)
from ecrt.report.model_tables import Entry, SheetTable, column_table
from ecrt.report.rendering import FigureBlock, fill, short, short_label
from ecrt.report.tables import summary_table
from ecrt.runs.diagnosis import Diagnosis
from ecrt.runs.findings import Finding

__all__ = [
    "DiagnosisPage",
    "diagnosis_table",
    "render_diagnosis",
    "summarise_diagnosis",
    "write_diagnosis_page",
]


@dataclass(frozen=True)
class QuestionBlock:
    """A question with its answer and its figure."""

    key: str
    finding: Finding
    figure: FigureBlock | None
    table: SheetTable | None = None


@dataclass(frozen=True)
class DiagnosisPage:
    """Everything on the page."""

    title: str
    recommendation: str
    facts: tuple[tuple[str, str], ...]
    questions: tuple[QuestionBlock, ...]
    columns: SheetTable | None = None


def write_diagnosis_page(found: Diagnosis, folder: str | Path) -> Path:
    """Write ``report.html`` and ``diagnosis.json`` to a folder; gives the path of the page."""
    path = found.write(folder).with_name("report.html")
    write_text(path, render_diagnosis(summarise_diagnosis(found)), errors="xmlcharrefreplace")
    return path


def render_diagnosis(page: DiagnosisPage) -> str:
    """The page as text."""
    return fill("diagnosis.html", page)


def diagnosis_table(found: Diagnosis) -> Table:
    """Questions and answers for the terminal."""
    rows: list[dict[str, object]] = [
        {"question": finding.question, "answer": finding.answer} for finding in found.findings.values()
    ]
    return summary_table("", rows)


def summarise_diagnosis(found: Diagnosis) -> DiagnosisPage:
    """Turn a diagnosis into what the page shows."""
    return DiagnosisPage(
        title=f"Diagnosis of {short(found.title, 100)}" if found.title else "Diagnosis",
        recommendation=found.recommendation,
        facts=_facts(found),
        questions=tuple(
            QuestionBlock(
                key=name.replace(" ", "-"),
                finding=finding,
                figure=FIGURES[name](found),
                table=_dependence_table(found) if name == "dependence" else None,
            )
            for name, finding in found.findings.items()
        ),
        columns=column_table(found.columns),
    )


def _facts(found: Diagnosis) -> tuple[tuple[str, str], ...]:
    rare = [str(label) for label in found.labels[found.minority]]
    shown = ", ".join(short_label(label, 24) for label in rare[:8]) + (f" and {len(rare) - 8} more" if rare[8:] else "")
    options = ", ".join(f"{name}={value}" for name, value in found.options.items())
    return (
        ("Data", f"{found.counts.sum():,} rows, {len(found.labels):,} classes of {found.counts.min():,} to "
                 f"{found.counts.max():,} rows"),
        ("Called rare", shown or "no class"),
        ("Examined", f"the best transfer that was tried ({options}), with {found.n_sources} sources by "
                     f"{found.demixing} de-mixing, whether it is recommended or not"),
        ("Selection", f"{found.selection.fits} fits of {len(found.selection.tried)} candidates"),
    )  # fmt: skip


def _dependence_table(found: Diagnosis) -> SheetTable | None:
    if not found.dependence.classes:
        return None
    rows = []
    for one in found.dependence.classes:
        label = str(one.label)
        name = Entry(short_label(label, 48), note="rare" if one.minority else "", full=short(label, 400), label=True)
        values = [
            Entry(f"{v:.3f}", v) if np.isfinite(v) else Entry("–", float("nan")) for v in (one.hsic_z, one.hsic_s)
        ]
        chances = [
            Entry(f"{p:.3f}", p) if np.isfinite(p) else Entry("too few to tell", float("nan"))
            for p in (one.p_z, one.p_s)
        ]
        rows.append((name, Entry(str(one.n_rows), float(one.n_rows)), values[0], chances[0], values[1], chances[1]))
    columns = ("Class", "Rows tested", "HSIC, features", "p", "HSIC, sources", "p")
    return SheetTable("dependence-table", columns, tuple(rows), sortable=True, summary=f"Class by class ({len(rows)})")


def _transfer(found: Diagnosis) -> FigureBlock | None:
    if len(found.selection.tried) < 2:
        return None
    return FigureBlock(
        "What transfer saves", (Markup(transfer_panel(found)),),
        "Right of the line the transfer that was settled on is better than plain logit adjustment, on the same rows. "
        "The bar is its 90 % interval.",
    )  # fmt: skip


def _theory(found: Diagnosis) -> FigureBlock | None:
    return FigureBlock(
        "Classes for the theorem", (Markup(theory_panel(found)),),
        "The theorem asks for two classes for each source, and one more.",
    )  # fmt: skip


def _dependence(found: Diagnosis) -> FigureBlock | None:
    if not found.dependence.told:
        return None
    return FigureBlock(
        "Dependence within classes", (Markup(dependence_panel(found.dependence)),),
        f"Each line is a class, with a star if it is rare. Filled dots are dependent beyond chance. Blue dots should "
        f"lie left of grey ones, and be hollow. The {found.dependence.n_columns} features and sources that tell "
        "classes apart best were tested, on up to 100 rows of a class.",
    )  # fmt: skip


def _gaussianity(found: Diagnosis) -> FigureBlock | None:
    if not found.gaussianity.sources:
        return None
    return FigureBlock(
        "Quantiles of sources", (Markup(gaussianity_panel(found.gaussianity)),),
        "The three sources furthest from Gaussian. A line that bends away from the dotted one at its ends has tails "
        "that are heavier or lighter than a Gaussian's; one that is bent throughout is skewed.",
    )  # fmt: skip


def _stability(found: Diagnosis) -> FigureBlock | None:
    if not found.stability.pairs:
        return None
    return FigureBlock(
        "Alike over seeds",
        (Markup(stability_panel(found.stability)),),
        "Each dot is a pair of fits; all should be near 1.",
    )


def _gridding(found: Diagnosis) -> FigureBlock | None:
    if not any(np.isfinite(grid.gap) for grid in found.grids):
        return None
    return FigureBlock(
        "Gaps between values", (Markup(grid_panel(found)),),
        "Each dot is a rare class. Above the dotted line shuffling its values gives a grid that is plain to see.",
    )  # fmt: skip


def _memorisation(found: Diagnosis) -> FigureBlock | None:
    if found.memorisation is None:
        return None
    return FigureBlock(
        "Distances from class means", (Markup(memorisation_panel(found.memorisation)),),
        "Both should look alike. Seen rows that crowd at the left have been memorised.",
    )  # fmt: skip


def _unique(found: Diagnosis) -> FigureBlock | None:
    if found.unique is None:
        return None
    return FigureBlock(
        "What rare classes vary in", tuple(Markup(panel(found.unique)) for panel in (projection_panel, null_panel)),
        "Left: rows along the direction in which rare classes vary most; their cloud should be about as wide as that "
        "of the frequent classes. Right: the ratio of variances, measured on rows that the direction was not found on, "
        "beside what frequent classes give that are treated as if they were rare.",
    )  # fmt: skip


def _gap(found: Diagnosis) -> FigureBlock | None:
    if found.gap is None:
        return None
    return FigureBlock(
        "Sources against features", (Markup(gap_panel(found.gap)),),
        "Right of the line sources serve rare classes better than features do, left of it worse.",
    )  # fmt: skip


FIGURES: dict[str, Callable[[Diagnosis], FigureBlock | None]] = {
    "transfer": _transfer,
    "theory": _theory,
    "dependence": _dependence,
    "gaussianity": _gaussianity,
    "stability": _stability,
    "gridding": _gridding,
    "memorisation": _memorisation,
    "unique feature": _unique,
    "features or sources": _gap,
}
