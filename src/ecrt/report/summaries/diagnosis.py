"""What the page of a diagnosis shows: every question with its answer and the numbers behind it."""

from __future__ import annotations

from typing import Any

from ecrt.report.rendering import words
from ecrt.report.tables import Cell, Table, column_table, count_cell, label_cell, number_cell
from ecrt.runs.diagnosis import Diagnosis

__all__ = ["diagnosis_table", "recommendation_text", "summarise_diagnosis"]

WORDS = "diagnosis_words.html"


def summarise_diagnosis(found: Diagnosis) -> dict[str, Any]:
    """Turn a diagnosis into what the page shows."""
    selection = found.selection
    return {
        "title": found.title,
        "columns": column_table(found.columns),
        "recommendation": found.recommendation,
        "harmed": found.harmed,
        "unique_found": found.unique is not None and found.unique.found,
        "questions": {name.replace(" ", "-"): finding for name, finding in found.findings.items()},
        "rows": int(found.counts.sum()),
        "n_classes": len(found.labels),
        "smallest": int(found.counts.min()),
        "largest": int(found.counts.max()),
        "rare": [str(label) for label in found.labels[found.minority]],
        "options": found.options,
        "demixing": found.demixing,
        "n_sources": found.n_sources,
        "augmentation": found.augmentation,
        "selection": selection,
        "was_measured": selection.low != selection.high
        and any(one["options"].get("demixing") != "none" for one in selection.tried),
        "n_tested_columns": found.dependence.n_columns,
        "gaussianity": found.gaussianity,
        "memorisation": found.memorisation,
        "memorisation_of": found.memorisation_of,
        "unique": found.unique,
        "gap": found.gap,
        "dependence": _dependence_table(found),
    }


def recommendation_text(found: Diagnosis) -> str:
    """Whether to use ECRT on these data, and why, in a few sentences."""
    return words(WORDS, "recommendation", summarise_diagnosis(found))


def diagnosis_table(found: Diagnosis) -> Table:
    """Questions and answers."""
    rows = tuple(
        (Cell(words(WORDS, "question", name.replace(" ", "-"))), Cell(finding.answer))
        for name, finding in found.findings.items()
    )
    return Table(("question", "answer"), rows)


def _dependence_table(found: Diagnosis) -> Table | None:
    rows = tuple(
        (
            label_cell(str(one.label), "rare" if one.minority else ""), count_cell(one.n_rows),
            number_cell(one.hsic_z), number_cell(one.p_z), number_cell(one.hsic_s), number_cell(one.p_s),
        )
        for one in found.dependence.classes
    )  # fmt: skip
    columns = ("Class", "Rows tested", "HSIC, features", "p", "HSIC, sources", "p")
    return Table(columns, rows, "dependence-table", sortable=True) if rows else None
