"""How columns were read, as rows of one small table: for the terminal, the page and the card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ecrt.data.columns import ColumnReading
from ecrt.data.tables import MISSING, TableEncoder

HEADINGS = ("Column", "Kind", "Written", "Missing", "Levels", "Note")
MOST_ROWS = 30
"""Columns that are listed one by one; of more, those that were read in the same way share a row."""

MOST_NAMES = 3


class ColumnRow(NamedTuple):
    """A column, or several that were read in the same way, in words: a cell for each of ``HEADINGS``."""

    column: str
    kind: str = ""
    written: str = ""
    missing: str = ""
    levels: str = ""
    note: str = ""


def column_rows(columns: Sequence[ColumnReading], most: int = MOST_ROWS) -> list[ColumnRow]:
    """A row for each column; of more than ``most`` columns, inputs that were read in the same way share one."""
    if len(columns) <= most:
        return [_row([column]) for column in columns]
    groups: dict[tuple[str, ...], list[ColumnReading]] = {}
    for column in columns:
        same = (_kind(column), _written(column), column.note)
        groups.setdefault(("", *same) if column.role == "input" else (column.name,), []).append(column)
    rows = [_row(group) for group in groups.values()]
    return rows if len(rows) <= most else [*rows[:most], ColumnRow(f"and {len(rows) - most:,} more")]


def rows_of_table(table: TableEncoder, most: int = MOST_ROWS) -> list[ColumnRow]:
    """The same of a table that was given in Python and not read from a file; missing values were not counted."""
    readings = [
        ColumnReading(
            name=column.name, kind=column.kind, missing=int(column.flagged),
            levels=(*(level for level in column.levels if level != MISSING), *column.rare),
        )
        for column in table.columns
    ]  # fmt: skip
    return [row._replace(missing="some" if row.missing else "") for row in column_rows(readings, most)]


def _row(group: list[ColumnReading]) -> ColumnRow:
    names = [column.name for column in group]
    shown = ", ".join(names)
    if len(names) > MOST_NAMES:
        shown = f"{', '.join(names[: MOST_NAMES - 1])}, …, {names[-1]} ({len(names):,} columns)"
    levels = [len(column.levels) for column in group if column.kind == "category" and column.levels]
    return ColumnRow(
        shown, _kind(group[0]), _written(group[0]), _range([column.missing for column in group]), _range(levels),
        group[0].note,
    )  # fmt: skip


def _kind(column: ColumnReading) -> str:
    kind = "left out" if column.kind == "identifier" else column.kind
    return {"id": "id", "target": f"target ({kind})", "aside": f"kept aside ({kind})"}.get(column.role, kind)


def _written(column: ColumnReading) -> str:
    """How values are written, in a few words."""
    if column.kind == "category":
        return {"truth": "yes or no", "lists": "lists"}.get(column.writing, "")
    if column.kind not in ("number", "date"):
        return ""
    decimal, thousands = "decimal comma" * (column.decimal == ","), "thousands separated" * bool(column.thousands)
    return ", ".join(filter(None, (column.writing, decimal, thousands, column.unit)))


def _range(counts: list[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return "" if high == 0 else f"{high:,}" if low == high else f"{low:,} to {high:,}"
