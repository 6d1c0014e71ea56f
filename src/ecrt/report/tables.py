"""One kind of table, for the terminal and for pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from ecrt.data import HEADINGS
from ecrt.report.rendering import commas, number, short, short_label

MOST_COLUMNS, MOST_ENTRIES = 6, 3
"""Entries with more keys than that become columns, where they are as few as this."""


@dataclass(frozen=True)
class Cell:
    """A value as it is shown.

    Attributes
    ----------
    text : what is shown.
    value : the number that the column is sorted by; ``None`` for text, NaN for a number that is missing.
    note : a remark beside it, such as an interval.
    full : all of a text that was cut.
    is_label : a label of the user's.
    best : leads its column.
    """

    text: str
    value: float | None = None
    note: str = ""
    full: str = ""
    is_label: bool = False
    best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first cell of a row names it.

    Attributes
    ----------
    key : its id on a page, where each has its own.
    sortable : whether a click on a heading sorts it.
    title : stands above it in the terminal.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    key: str = ""
    sortable: bool = False
    title: str = ""

    @classmethod
    def of(cls, columns: Mapping[str, Iterable[object]], key: str = "", *, sortable: bool = False) -> Table:
        """A table from the values under each heading: cells, texts, numbers of rows and other numbers."""
        cells = [[_cell(value) for value in values] for values in columns.values()]
        return cls(tuple(columns), tuple(zip(*cells, strict=True)), key, sortable)


def _cell(value: Any) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value)
    return count_cell(int(value)) if isinstance(value, (int, np.integer)) else number_cell(value)


def number_cell(value: float | None, decimals: int = 3, note: str = "") -> Cell:
    """A number, or a dash for one that is missing or not finite."""
    value = float("nan") if value is None else float(value)
    return Cell(number(value, decimals), value, note)


def count_cell(value: float) -> Cell:
    """A number of rows."""
    return Cell(commas(value), float(value))


def label_cell(label: object, note: str = "", length: int = 48) -> Cell:
    """A label of the user's, cut to fit."""
    text = short_label(str(label), length)
    return Cell(text, note=note, full=short(str(label), 400) if text != str(label) else "", is_label=True)


def column_table(columns: Sequence[Sequence[str]]) -> Table | None:
    """How columns were read, cells of ``ecrt.data.column_rows``; nothing where there was no table."""
    if not columns:
        return None
    (_, names), (_, kinds), *others = zip(HEADINGS, zip(*columns, strict=True), strict=True)
    cells = {HEADINGS[0]: [label_cell(name, length=120) for name in names], HEADINGS[1]: kinds}
    return Table.of(cells | {name: texts for name, texts in others if any(texts)}, "columns")


def rich_table(table: Table) -> RichTable:
    """Draw a table for the terminal, the best of each column bold."""
    drawn = RichTable(title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for place, column in enumerate(table.columns):
        numbers = any(row[place].value is not None for row in table.rows)
        drawn.add_column(Text(column), justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(f"{cell.text} {cell.note}".rstrip(), "bold" if cell.best else "") for cell in row))
    return drawn


def summary_table(title: str, summary: Sequence[dict[str, object]]) -> RichTable:
    """Draw any list of dictionaries: one row for each, or one column for each when they are few with many keys."""
    keys = list(dict.fromkeys(key for entry in summary for key in entry))
    rows = [[_plain_cell(entry.get(key)) for key in keys] for entry in summary]
    if len(keys) > MOST_COLUMNS and len(summary) <= MOST_ENTRIES:
        heads, *rows = ([Cell(key), *cells] for key, *cells in zip(keys, *rows, strict=True))
        keys = [cell.text for cell in heads]
    return rich_table(Table(tuple(keys), tuple(map(tuple, rows)), title=title))


def _plain_cell(value: object) -> Cell:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), float(value))
    text = "" if value is None else str(value)
    return Cell(text, np.nan if " ± " in text else None)
