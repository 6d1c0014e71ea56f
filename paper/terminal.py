"""The summary of a recipe as tables for the terminal."""

from __future__ import annotations

from itertools import accumulate

from rich.table import Table

from ecrt.report import summary_table

__all__ = ["experiment_tables"]

MOST_ENTRIES = 3
"""So few entries have a column each, and then all of their figures are shown."""

NARROWEST_NAME = 20
ASIDE = ("seeds", "runs", "seconds")
HALF_WIDTH = "_half_width"


def experiment_tables(title: str, summary: list[dict[str, object]], width: int) -> list[Table]:
    """A table for each kind of entry; intervals stand beside their figures, and columns that do not fit are named.

    Entries that hold curves are left to the page of figures.
    """
    plain = [entry for entry in summary if not any(isinstance(value, dict) for value in entry.values())]
    shown = [_with_intervals(entry) for entry in plain]
    known = sorted(dict.fromkeys(map(tuple, shown)), key=len, reverse=True)
    kinds: dict[tuple[str, ...], list[dict[str, object]]] = {}
    for entry in shown:
        kinds.setdefault(next(keys for keys in known if entry.keys() <= set(keys)), []).append(entry)
    tables = []
    for place, (keys, entries) in enumerate(kinds.items()):
        kept = list(keys) if len(entries) <= MOST_ENTRIES else _fitting(keys, entries, width)
        table = summary_table("" if place else title, [{key: entry.get(key) for key in kept} for entry in entries])
        if len(kept) < len(keys):
            table.caption = f"In the file alone: {', '.join(keys[len(kept) :])}."
            table.caption_justify = "left"
        tables.append(table)
    return tables


def _with_intervals(entry: dict[str, object]) -> dict[str, object]:
    """Half-widths go to their figures, and how it was measured to the end; lists are no part of a table."""
    found: dict[str, object] = {}
    for key, value in sorted(entry.items(), key=lambda item: item[0] in ASIDE):
        if key.endswith(HALF_WIDTH) or isinstance(value, list):
            continue
        half = entry.get(key + HALF_WIDTH)
        found[key] = value if half is None else f"{_shown(value)} ± {half:.2g}"
    return found


def _fitting(keys: tuple[str, ...], entries: list[dict[str, object]], width: int) -> list[str]:
    """Columns from the left, as many as the terminal is wide; the first may be broken into lines."""
    widths = [max(len(key), *(len(_shown(entry.get(key))) for entry in entries)) + 3 for key in keys]
    widths[0] = min(widths[0], NARROWEST_NAME + 3)
    total = list(accumulate(widths, initial=2))[1:]
    return [key for key, end in zip(keys, total, strict=True) if end <= max(width, total[0])]


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
