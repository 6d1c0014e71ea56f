"""Data from files: tables of every kind, NPZ files, and folders of images."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.data.column_decisions import decide_columns, read_target_column
from ecrt.data.columns import ColumnProblem, ColumnReading, ReadOptions, read_columns, signs_not_found
from ecrt.data.images import Images, load_images
from ecrt.data.raw_tables import TableFile, is_standard_input
from ecrt.data.written import PLAIN
from ecrt.errors import InputError, warn_user

Labels = NDArray[Any]

LABEL_SEPARATOR = ";"
"""Between the labels of a row, where they are one text."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """What a file holds.

    Attributes
    ----------
    X : a table, an array (of embeddings or images), or images of a folder. Columns of a table are numbers (float64),
        categories (Categorical of strings) or dates (datetime64); what names rows or says nothing is not among them.
    y : the target, if it was asked for.
    ids : what names each row in the output: the columns asked for, as they are written, else the row number, or the
        path of an image.
    aside : further columns that are not learned from, typed like those of ``X``.
    columns : how each column of a table was read, ``role`` saying what for; they read further files in the same way.
    problems : of a table that was read by stored columns: what is missing, unreadable or new in each of them.
    """

    X: pd.DataFrame | NDArray[Any] | Images
    y: Labels | None
    ids: pd.DataFrame
    aside: pd.DataFrame = field(default_factory=pd.DataFrame)
    columns: tuple[ColumnReading, ...] = ()
    problems: tuple[ColumnProblem, ...] = ()

    def take(self, rows: NDArray[np.int64]) -> DataFile:
        """Some of the rows."""
        X: Any = self.X
        if isinstance(X, Images):
            X = Images(X.values[rows], None if X.labels is None else X.labels[rows])
        else:
            X = X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]
        y = None if self.y is None else self.y[rows]
        aside = self.aside.iloc[rows] if len(self.aside.columns) else self.aside
        return replace(self, X=X, y=y, ids=self.ids.iloc[rows], aside=aside)


def read_data(
    path: Path,
    *,
    target: Sequence[str] = (),
    ids: Sequence[str] = (),
    aside: Sequence[str] = (),
    drop: Sequence[str] = (),
    image_size: int = 32,
    options: ReadOptions | None = None,
    columns: Sequence[ColumnReading] | None = None,
    allow_unreadable: bool = False,
) -> DataFile:
    """Read a file or a folder.

    Parameters
    ----------
    path : of the file or folder; ``-`` for a table on the standard input.
    target : column with the target, or several; of an NPZ, the array; none where there is none to read. A folder of
        images has the names of its subfolders as labels, if any target is asked for.
    ids, aside, drop : columns to keep for the output as they are written, to keep by their kind, and to leave out.
    image_size : images are cut to a square and resized to this many pixels a side.
    options : what is known of how a table is written.
    columns : how the columns of an earlier file were read; they are read in the same way, and nothing is decided anew.
    allow_unreadable : with ``columns``, whether more than half of a column may be unreadable or new.
    """
    if not is_standard_input(path):
        if not path.exists():
            raise InputError(f"There is no file or folder {path}.")
        if path.is_dir():
            images, names = load_images(path, labelled=bool(target), size=image_size)
            return DataFile(X=images, y=images.labels, ids=pd.DataFrame({"file": names}))
        if path.suffix == ".npz":
            return _read_npz(path, target)
    options = options or ReadOptions()
    file = TableFile(path, options.encoding)
    table = file.read()
    types = options.types if columns is None else {}
    _check_uses(path, list(table.columns), types, target=target, ids=ids, aside=aside, drop=drop)
    known = {reading.name: reading for reading in columns or () if reading.role == "target"}
    labels = [
        read_target_column(table[name], options, separator=file.separator, reading=known.get(name)) for name in target
    ]
    targets = [reading for _, reading in labels]
    problems: tuple[ColumnProblem, ...] = ()
    if columns is None:
        left = table.drop(columns=list({*target, *ids, *drop}))
        _refuse_nested(left, path)
        readings, typed = decide_columns(left, options, separator=file.separator, aside=aside)
        unused = signs_not_found(table, options.na)
        signs = (f"--na {unused}: no cell of {path.name} holds that.",) if unused else ()
        _warn_of_notes((*readings, *targets), (*file.notes, *signs))
    else:
        readings = tuple(reading for reading in columns if reading.is_used or reading.name in aside)
        lacking = [reading.name for reading in readings if reading.name not in table.columns]
        if lacking:
            raise InputError(f"{path.name} lacks the columns {lacking} that the model was fitted on.")
        _refuse_nested(table[[reading.name for reading in readings]], path)
        typed, problems = read_columns(table, readings, decimal=options.decimal)
        bad = [str(problem) for problem in problems if problem.share > 0.5]
        if bad and not allow_unreadable:
            raise InputError(
                f"{path.name} differs from the file of the fit: {'; '.join(bad[:5])}. Correct the file, give its "
                "--decimal or --encoding, or add --allow-unreadable."
            )
        _warn_of_notes((), file.notes)
    used = [reading.name for reading in readings if reading.is_used]
    if target and columns is None and not used:
        said = "; ".join(f"{reading.name!r}: {reading.note}" for reading in readings[:5])
        raise InputError(f"{path.name} has no column to learn from beside the target. {said}")
    empty = [name for name in aside if name not in typed]
    if empty:
        raise InputError(f"{path.name}: the columns {empty} hold nothing.")
    kept = [ColumnReading(name=name, kind="identifier", role="id") for name in ids]
    return DataFile(
        X=typed[used],
        y=_side_by_side([values for values, _ in labels]),
        ids=table[list(ids)] if ids else pd.DataFrame({"row": np.arange(len(table))}),
        aside=typed[list(aside)],
        columns=(*readings, *targets, *kept),
        problems=problems,
    )


def _check_uses(
    path: Path,
    known: list[str],
    types: Iterable[str],
    *,
    target: Sequence[str],
    ids: Sequence[str],
    aside: Sequence[str],
    drop: Sequence[str],
) -> None:
    """Each column must be there, and have one use: two options with the same column cannot both be meant."""
    uses = {"the target": target, "an id (--id)": ids, "group, time or seen": aside, "dropped (--drop)": drop}
    for name in [*target, *ids, *aside, *drop, *types]:
        if name not in known:
            raise InputError(f"{path.name} has no column {name!r}{_suggestion(name, known)}")
        found = [use for use, names in uses.items() for one in names if one == name]
        if len(found) > 1:
            raise InputError(f"{path.name}: column {name!r} is given as {' and '.join(found)}. Name it once.")
    without = sorted({*types} & {*ids, *drop})
    if without:
        raise InputError(f"--types {without[0]} has no effect: the column is named by --id or --drop.")


def _side_by_side(targets: list[Labels]) -> Labels | None:
    if not targets:
        return None
    return targets[0] if len(targets) == 1 else np.column_stack(targets)


def _refuse_nested(table: pd.DataFrame, path: Path) -> None:
    nested = [
        name for name in table
        if table[name].dtype == object and any(isinstance(one, (dict, list, np.ndarray)) for one in table[name])
    ]  # fmt: skip
    if nested:
        raise InputError(f"{path.name}: columns {nested} hold lists or objects. Give each value its own column.")


def _warn_of_notes(readings: Sequence[ColumnReading], notes: Sequence[str]) -> None:
    """Warn the user of notes on the file and its columns; columns with the same note share a line."""
    same: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        if reading.note and reading.role != "target":
            same.setdefault((_KIND_WORDS[reading.kind], reading.note), []).append(repr(reading.name))
    said = [
        f"Column {names[0]} is {what}. {note}" if len(names) == 1
        else f"{_listed(names)} are {what}. {re.sub('^It ', 'Each ', note)}"
        for (what, note), names in same.items()
    ]  # fmt: skip
    said += [f"Target {one.name!r}: {one.note}" for one in readings if one.note and one.role == "target"]
    if len(said) > MOST_NOTES:
        said = [*said[:MOST_NOTES], f"There are {len(said) - MOST_NOTES} more notes on columns."]
    for note in (*notes, *said):
        warn_user(note)


def _listed(names: list[str]) -> str:
    if len(names) <= MOST_NAMES:
        return f"Columns {', '.join(names[:-1])} and {names[-1]}"
    return f"{len(names):,} columns, such as {', '.join(names[:MOST_NAMES])},"


MOST_NAMES = 6
MOST_NOTES = 12
_KIND_WORDS = {
    "number": "read as numbers", "category": "read as a category", "date": "read as dates",
    "identifier": "left out", "left out": "left out",
}  # fmt: skip


def _suggestion(name: str, known: list[str]) -> str:
    if sum(PLAIN.fullmatch(one.replace(",", ".")) is not None for one in known) > len(known) / 2:
        return f": its first line holds {known[:5]}, which look like values. Put the names of columns above them."
    if len(known) == 1 and name in known[0].split():
        return f": its only column is {known[0]!r}. Separate columns by commas, semicolons or tabs, not by spaces."
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {known[:20]}{' and more' if len(known) > 20 else ''}."


def _read_npz(path: Path, target: Sequence[str]) -> DataFile:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
    if "X" not in found:
        raise InputError(f"{path.name} has no array 'X'; it holds {sorted(found)}.")
    for name in target:
        if name not in found:
            raise InputError(f"{path.name} has no array {name!r}{_suggestion(name, sorted(found))}")
    rows = {len(found[name]) for name in {"X", *target, "ids"} & set(found)}
    if len(rows) > 1:
        raise InputError(f"{path.name}: 'X', {list(target)} and 'ids' differ in length.")
    ids = pd.DataFrame({"id": found["ids"]} if "ids" in found else {"row": np.arange(len(found["X"]))})
    return DataFile(X=found["X"], y=_side_by_side([found[name] for name in target]), ids=ids)
