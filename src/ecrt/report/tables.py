"""Results as rows of text, and those rows as a table for the terminal."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from ecrt.experiments.demo_results import DataResult
from ecrt.experiments.summary import METRICS, best_methods

__all__ = [
    "Cell",
    "ResultTable",
    "Row",
    "markdown_table",
    "rich_table",
    "seeds_note",
    "summarise",
    "summary_table",
]

MOST_COLUMNS = 6
MOST_ENTRIES = 3
"""So many entries at most may become columns."""

LIMIT = "Bayes limit (knows the truth)"


@dataclass(frozen=True)
class Cell:
    """A value as it is shown: its mean, its interval (empty when there is none), and whether it leads its column."""

    mean: str
    interval: str = ""
    best: bool = False

    @property
    def text(self) -> str:
        """Mean and interval in one."""
        return f"{self.mean} {self.interval}".rstrip()


@dataclass(frozen=True)
class Row:
    """A method with its values; a reference is no method and never leads."""

    name: str
    cells: tuple[Cell, ...]
    reference: bool = False


@dataclass(frozen=True)
class ResultTable:
    """A table of results, ready to be drawn anywhere."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str


def summarise(data: DataResult) -> ResultTable:
    """Turn results into rows of text, marking the best mean of each column."""
    means = {
        metric.key: {method: data.estimate(method, metric.key).mean for method in data.methods} for metric in METRICS
    }
    best = {metric.key: best_methods(means[metric.key], metric) for metric in METRICS}
    rows = []
    for method in data.methods:
        cells = []
        for metric in METRICS:
            mean, _, half_width = data.estimate(method, metric.key).text(metric.decimals).partition(" ± ")
            cells.append(Cell(mean, f"± {half_width}" if half_width else "", method in best[metric.key]))
        rows.append(Row(method, tuple(cells)))
    if data.limit is not None:
        limit = tuple(Cell(f"{data.limit[metric.key]:.{metric.decimals}f}") for metric in METRICS)
        rows.append(Row(LIMIT, limit, reference=True))
    columns = tuple(f"{metric.label} {'↑' if metric.higher_is_better else '↓'}" for metric in METRICS)
    return ResultTable(data.title, columns, tuple(rows), seeds_note(data.n_seeds))


def seeds_note(n_seeds: int) -> str:
    """What the intervals are, and over how many seeds."""
    if n_seeds < 2:
        return "One seed, so no interval."
    few = " With so few seeds a t-interval is wide." if n_seeds < 4 else ""
    return (
        f"Mean ± 95 % t-interval over {n_seeds} seeds, each with its own data. Differences are paired by seed; "
        f"one is beyond noise when its interval excludes zero.{few}"
    )


def rich_table(table: ResultTable) -> Table:
    """Draw a table of results for the terminal, the best of each column bold."""
    drawn = Table(title=table.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    drawn.add_column("Method")
    for column in table.columns:
        drawn.add_column(column.replace(" recall", "\nrecall"), justify="right", no_wrap=True)
    for row in table.rows:
        style = "dim" if row.reference else ""
        drawn.add_row(
            Text(row.name, style=style), *(Text(cell.text, style="bold" if cell.best else style) for cell in row.cells)
        )
    return drawn


def markdown_table(table: ResultTable) -> str:
    """Draw a table of results as Markdown, the best of each column bold."""
    lines = [f"| {table.title} | " + " | ".join(table.columns) + " |", "| --- |" + " ---: |" * len(table.columns)]
    for row in table.rows:
        cells = [f"**{cell.text}**" if cell.best else cell.text for cell in row.cells]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def summary_table(title: str, summary: list[dict[str, object]]) -> Table:
    """Draw any list of dictionaries: one row for each, or one column for each when they are few with many keys."""
    keys = list(dict.fromkeys(key for entry in summary for key in entry))
    rows = [[entry.get(key) for key in keys] for entry in summary]
    if len(keys) > MOST_COLUMNS and len(summary) <= MOST_ENTRIES:
        rows = [[key, *(entry.get(key) for entry in summary)] for key in keys[1:]]
        keys = [keys[0], *(_shown(entry.get(keys[0])) for entry in summary)]
    drawn = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column, key in enumerate(keys):
        numbers = any(_is_number(row[column]) for row in rows)
        drawn.add_column(Text(key), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(_shown(value)) for value in row))
    return drawn


def _is_number(value: object) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or " ± " in str(value)


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
