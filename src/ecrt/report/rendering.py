"""How a page is made: a summary and its figures fill a template. The templates hold all words.

One kind of table serves pages and the terminal.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from ecrt.data import HEADINGS

Plots = Mapping[str, Sequence[str]]
"""SVG panels of each figure, by the name of its file."""

MOST_COLUMNS, MOST_ENTRIES = 6, 3
"""Entries with more keys than that become columns in the terminal, where they are as few as this."""


def environment() -> Environment:
    """Templates of this package; whatever is filled in is escaped, and nothing may be missing."""
    made = Environment(
        loader=PackageLoader("ecrt.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    filters = (
        cells, commas, counted, listed, marked, member_name, number, percent, pick, quoted, short, short_label, units,
    )  # fmt: skip
    made.filters |= {function.__name__: function for function in filters}
    made.globals["table"] = Table.of
    return made


def fill(template: str, page: Mapping[str, Any], plots: Plots) -> str:
    """A page with our own script, the only one that may run in it; nothing may be loaded."""
    templates = environment()
    script = templates.get_template("page.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    drawn = {name: [Markup(panel) for panel in panels] for name, panels in plots.items()}
    return templates.get_template(template).render(page=page, plots=drawn, script=Markup(script), digest=digest)


def paragraphs(template: str, name: str, *arguments: Any) -> list[str]:
    """What a macro of a template says, as plain text: a line for each paragraph."""
    said = str(getattr(environment().get_template(template).module, name)(*arguments))
    return [text for part in said.split("</p>") if (text := Markup(part).striptags())]


def short(text: str, length: int = 60) -> str:
    """Text on one line, without what cannot be printed, cut with an ellipsis.

    >>> short("a rather long label", 9)
    'a rather…'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split()) or "(empty)"
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def short_label(label: str, length: int) -> str:
    """The same with the middle cut out: many labels differ only at the end.

    >>> short_label("species of bird 17", 12)
    'species…d 17'
    """
    line = short(label, len(label) + 8)
    tail = (length - 1) // 3 + 1
    return line if len(line) <= length else line[: length - 1 - tail].rstrip() + "…" + line[-tail:].lstrip()


def commas(value: float) -> str:
    """A whole number for readers.

    >>> commas(12345)
    '12,345'
    """
    return f"{value:,.0f}"


def counted(value: float, one: str, many: str) -> str:
    """A number with its noun.

    >>> counted(1, "row", "rows"), counted(2000, "row", "rows")
    ('1 row', '2,000 rows')
    """
    return f"{value:,.0f} {one if value == 1 else many}"


def listed(names: Sequence[str], most: int = 8) -> str:
    """Join with commas and an "and"; many are cut short.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    kept = [*names[:most], f"{len(names) - most} more"] if len(names) > most else list(names)
    return " and ".join([", ".join(kept[:-1]), kept[-1]]) if len(kept) > 1 else "".join(kept)


def number(value: float, decimals: int = 3) -> str:
    """A number, or a dash for one that is not finite."""
    return f"{value:.{decimals}f}" if np.isfinite(value) else "–"


def percent(share: float) -> str:
    """A share for readers; a digit more where it matters.

    >>> percent(0.917), percent(0.9954), percent(float("nan"))
    ('92 %', '99.5 %', '–')
    """
    if not np.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share in (0, 1) or 0.01 <= share <= 0.99 else f"{100 * share:.1f} %"


def quoted(label: str) -> str:
    """A label within a sentence: numbers as they are, text in quotes."""
    label = short_label(str(label), 40)
    return label if label.replace(".", "").isdigit() else f"“{label}”"


def units(value: float) -> str:
    """A number in the units of a target: four digits that count.

    >>> units(12345.6), units(0.0123456), units(0.0), units(float("nan"))
    ('12,346', '0.01235', '0', '–')
    """
    if not np.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def member_name(name: str) -> str:
    """What predicts, by its de-mixing and its head.

    >>> member_name("none, linear"), member_name("flow, mlp (2)")
    ('plain logit adjustment', 'MLP (2) after flow de-mixing')
    """
    kinds_of, space, number = name.partition(" (")
    demixing, _, head = kinds_of.partition(", ")
    if name == "none, linear":
        return "plain logit adjustment"
    kinds = {"linear": "linear head", "mlp": "MLP", "gaussian": "Gaussian head", "trees": "boosted trees"}
    kind = kinds.get(head, head) + space + number
    return f"{kind} on plain features" if demixing == "none" else f"{kind} after {demixing} de-mixing"


# --- tables -----------------------------------------------------------------------------------------------------------


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
        """A table from the values under each heading: cells, texts, yes or no, numbers of rows and other numbers."""
        cells = [[_cell(value) for value in values] for values in columns.values()]
        return cls(tuple(columns), tuple(zip(*cells, strict=True)), key, sortable)


def _cell(value: Any) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, (bool, np.bool_)):
        return Cell("yes" if value else "no")
    if isinstance(value, str):
        return Cell(value)
    return number_cell(value, "{:,.0f}" if isinstance(value, (int, np.integer)) else "{:.3f}")


def number_cell(value: float | None, form: str = "{:.3f}", note: str = "") -> Cell:
    """A number in a format, as a "percent" or in "units"; a dash for one that is missing or not finite."""
    value = float("nan") if value is None else float(value)
    write = {"percent": percent, "units": units}.get(form, form.format)
    return Cell(write(value) if np.isfinite(value) else "–", value, note)


def label_cell(label: object, note: str = "", length: int = 48) -> Cell:
    """A label of the user's, cut to fit; a dash where there is none."""
    if label is None:
        return Cell("–")
    text = short_label(str(label), length)
    return Cell(text, note=note, full=short(str(label), 400) if text != str(label) else "", is_label=True)


def cells(values: Iterable[Any], form: str, notes: Iterable[str] | None = None) -> list[Cell]:
    """Values as labels ("label"), or in a form of numbers; maybe with notes."""
    shown = label_cell if form == "label" else partial(number_cell, form=form)
    remarks = repeat("") if notes is None else notes
    return [shown(value, note=note) for value, note in zip(values, remarks, strict=False)]


def marked(names: Iterable[str], chosen: str) -> list[Cell]:
    """Names of what was tried, and which of them was chosen."""
    return [Cell(name, note="chosen" if name == chosen else "") for name in names]


def pick(values: Mapping[str, Any], keys: Iterable[str]) -> list[Any]:
    """Values of some keys."""
    return [values[key] for key in keys]


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
