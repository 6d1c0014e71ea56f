"""Data from files: tables of every kind, packed or not, NPZ files, and folders of images.

A ``TableFile`` gives a table as it stands in its file. Values of text files stay text there, so that nothing is lost
before it is known what a column holds. ``read_data`` makes X, y and ids of it.
"""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import io
import json
import lzma
import re
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_float_dtype, is_integer_dtype

from ecrt.data.column_decisions import decide_columns, read_target_column
from ecrt.data.columns import PLAIN, ColumnReading, ReadOptions, as_text, read_columns, signs_not_found
from ecrt.data.images import Images, load_images
from ecrt.data.tables import holds_nested, refuse_extremes
from ecrt.errors import InputError, warn_user

KINDS = (
    "CSV or TSV (.csv, .tsv, .txt), JSON lines (.jsonl), JSON (.json), Excel (.xlsx), Parquet (.parquet), NumPy (.npz) "
    "and folders of images; text files may be packed (.gz, .bz2, .xz, .zip)"
)
TEXT, LINES, EXCEL, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson"), (".xlsx", ".xlsm"), (".parquet", ".pq")
OLD_EXCEL = (".xls", ".xlsb", ".ods")
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""How text of some encodings begins."""

UNREADABLE = (
    OSError, EOFError, ValueError, RuntimeError, csv.Error, zipfile.BadZipFile, zlib.error, lzma.LZMAError
)  # fmt: skip
"""What readers raise of a damaged file, or of one with a password."""

MERGED = re.compile(rb'<mergeCell ref="[A-Z]+([0-9]+):[A-Z]+([0-9]+)"')
"""The first and last row of merged cells in a sheet."""

SEPARATORS = ";\t|,"
"""Signs between the values of a line; if two fit equally well, the first is taken."""

LINES_TO_JUDGE = 200
SHOWN = 60


@dataclass
class TableFile:
    """A file with a table.

    Attributes
    ----------
    path : of the file; ``-`` for the standard input, which may hold CSV or JSON.
    encoding : of text files; found out from the file if not given.
    notes : sentences on what was done to read the file.
    separator : of a text file; else empty.
    """

    path: Path
    encoding: str | None = None
    notes: list[str] = field(default_factory=list)
    separator: str = ""

    def read(self) -> pd.DataFrame:
        """Columns of text, or of what a typed file (Parquet, Excel, JSON) says they are; an empty cell is "" or NA."""
        try:
            table = self._read()
        except InputError:
            raise
        except UNREADABLE as error:
            raise self._error(f" cannot be read: {error}") from error
        if table.empty:
            raise self._error(" has no rows.")
        table = table.set_axis([str(name).strip() for name in table.columns], axis=1)
        repeated = table.columns[table.columns.duplicated()].unique().tolist()
        if repeated:
            raise self._error(f": the column names {repeated} occur more than once. Give each column its own.")
        index = [str(name) for name in table.index.names if name is not None]
        if index:
            self._note(f"the index ({', '.join(index)}) is left out. Make it columns to learn from it.")
        return table.reset_index(drop=True)

    def _error(self, what: str) -> InputError:
        return InputError(f"{self.path.name}{what}")

    def _note(self, what: str) -> None:
        self.notes.append(f"{self.path.name}: {what}")

    def _read(self) -> pd.DataFrame:
        if str(self.path) == "-":
            content = sys.stdin.buffer.read()
            return self._parse(".json" if content.lstrip()[:1] in (b"{", b"[") else ".csv", content)
        suffix = packing = self.path.suffix.lower()
        if packing in OLD_EXCEL:
            raise self._error(": this kind of sheet is not read. Save it as CSV UTF-8 or .xlsx.")
        if packing == ".zip":
            with zipfile.ZipFile(self.path) as archive:
                found = [name for name in archive.namelist() if not name.startswith("__MACOSX") and name[-1:] != "/"]
                found = [name for name in found if Path(name).name[:1] != "."]
                if len(found) != 1:
                    raise self._error(f" holds {len(found)} files ({', '.join(found[:5])}): unpack it and name one.")
                return self._parse(Path(found[0]).suffix.lower(), archive.read(found[0]))
        if packing in UNPACK:
            suffix = Path(self.path.stem).suffix.lower()
        if suffix in PARQUET:
            return _read_parquet(self.path)
        self._check_kind(suffix)  # before it is read: it may be a device, or large
        content = self.path.read_bytes()
        return self._parse(suffix, UNPACK[packing](content) if packing in UNPACK else content)

    def _check_kind(self, suffix: str) -> None:
        if suffix not in (*EXCEL, *TEXT, *LINES, ".json"):
            raise self._error(f": cannot tell what kind of file it is. Known are {KINDS}.")

    def _parse(self, suffix: str, content: bytes) -> pd.DataFrame:
        self._check_kind(suffix)
        if suffix in EXCEL:
            return self._read_excel(content)
        text = self._decode(content).removeprefix("\ufeff")
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise self._error(f": line {line} holds NUL bytes. It is damaged, not text, or needs --encoding.")
        text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        return self._read_csv(text) if suffix in TEXT else self._read_json(text, suffix in LINES)

    def _decode(self, content: bytes) -> str:
        start = content[:2000]
        found = self.encoding or next((name for mark, name in MARKS.items() if content.startswith(mark)), "")
        if not found and len(start) >= 4 and start.count(0) > len(start) / 3:
            found = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
        try:
            return content.decode(found or "utf-8")
        except LookupError:
            raise InputError(f"There is no encoding {found!r}; usual are utf-8, latin-1, cp1252, utf-16.") from None
        except UnicodeError as error:
            if found:
                raise self._error(f" is not written in {found}: {error}. Give another --encoding.") from error
        try:
            text = content.decode("cp1252")
        except UnicodeError as error:
            raise self._error(
                " is neither UTF-8 nor Western European text. Name its --encoding, such as cp1250 or utf-16."
            ) from error
        line = next(line for line in text.split("\n") if not line.isascii())
        self.notes.append(
            f"{self.path.name} is not UTF-8 and is read as Western European text (cp1252), such as "
            f"{line.strip()[:SHOWN]!r}. Use --encoding if letters are wrong."
        )
        return text

    def _read_excel(self, content: bytes) -> pd.DataFrame:
        try:
            sheets = pd.read_excel(
                io.BytesIO(content), sheet_name=None, header=None, dtype=object, keep_default_na=False, na_filter=False
            )
        except ImportError as error:
            raise self._error(
                ": Excel files need openpyxl (pip install 'ecrt[excel]'); or save the sheet as CSV UTF-8."
            ) from error
        except (KeyError, TypeError, zipfile.BadZipFile) as error:
            raise self._error(f" cannot be read as an Excel file: {error}") from error
        filled = {name: sheet for name, sheet in sheets.items() if len(sheet) > 1}
        if len(filled) > 1:
            raise self._error(f" has {len(filled)} sheets with rows ({', '.join(map(str, filled))}): save one as CSV.")
        sheet = next(iter(filled.values()), pd.DataFrame())
        if sheet.empty:
            return sheet
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            merged = [found for name in book.namelist() if "sheet" in name for found in MERGED.findall(book.read(name))]
        if any(first != last for first, last in merged):
            self._note("merged cells hold their value in the first row alone and count as missing below. Fill them in.")
        names = [name or f"Unnamed: {place}" for place, name in enumerate(as_text(sheet.iloc[0]))]
        return self._without_names(sheet.iloc[1:].set_axis(names, axis=1))

    def _read_json(self, text: str, lines: bool) -> pd.DataFrame:
        """Records, one on each line or all in one list; a single file may be either."""
        records: Any = []
        if not lines:
            try:
                records = json.loads(text, object_pairs_hook=_record)
            except json.JSONDecodeError:
                lines = "\n" in text.strip()
                if not lines:
                    raise
        for number, line in enumerate(text.split("\n") if lines else (), start=1):
            if line.strip():
                try:
                    records.append(json.loads(line, object_pairs_hook=_record))
                except json.JSONDecodeError as error:
                    raise self._error(f" cannot be read: line {number} is not JSON: {error}") from error
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            raise self._error(": a list of records is needed, such as [{'x': 1, 'label': 'a'}, ...].")
        return pd.DataFrame(records, dtype=object)  # a gap must not make floats of long numbers

    # --- CSV ------------------------------------------------------------------------------------------------------

    def _read_csv(self, text: str) -> pd.DataFrame:
        if not text.strip():
            raise self._error(" cannot be read: it is empty.")
        said = re.match(r"sep=(.)\n", text, re.IGNORECASE)  # the first line of some files from Excel
        text = self._without_comments("\n" + text[said.end() :] if said else text)
        self.separator = said[1] if said else _separator(text)
        return self._without_names(self._parse_csv(self._without_title(text)))

    def _without_names(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table without rows that repeat the column names, as in files that were put together."""
        if table.empty:
            return table
        again = table[as_text(table.iloc[:, 0]) == table.columns[0]]
        again = again[
            (again.apply(lambda column: pd.Series(as_text(column), again.index)) == table.columns).all(axis=1)
        ]
        if not 0 < len(again) < len(table):
            return table
        what = "1 row that repeats" if len(again) == 1 else f"{len(again)} rows that repeat"
        self._note(f"{what} the column names: left out.")
        return table.drop(index=again.index)

    def _without_comments(self, text: str) -> str:
        """The text without lines that begin with ``#``, if it starts with one; the last of these may name the columns.

        Empty lines stand for them, so that errors name the lines of the file.
        """
        if not text.lstrip("\n").startswith("#"):
            return text
        lines = text.split("\n")
        kept = ["" if line.startswith("#") else line for line in lines]
        place, first = next(((place, line) for place, line in enumerate(kept) if line.strip()), (0, ""))
        last = max((number for number, line in enumerate(lines[:place]) if line.startswith("#")), default=0)
        above, separator = lines[last], _separator(first)
        holds_number = any(re.fullmatch(r"\s*[+-]?[0-9][0-9.,]*\s*", cell) for cell in first.split(separator))
        if above.count(separator) == first.count(separator) > 0 and holds_number:
            kept[last] = above.lstrip("#").strip()
        else:
            comments = [line for line in lines if line.startswith("#")]
            self._note(f"{len(comments)} lines that begin with # are left out, the first is {comments[0][:SHOWN]!r}.")
        return "\n".join(kept)

    def _without_title(self, text: str) -> str:
        """The text without lines above the column names: those that have one value, where later lines have more."""
        title: list[str] = []
        above = 0
        reader = _records(text, self.separator)
        for record in reader:
            values = [cell for cell in record if cell.strip()]
            if len(values) > 1 or (values and not record[0].strip()):
                if title:
                    self._note(f"lines above the column names are left out: {' / '.join(title)[:SHOWN]!r}.")
                    return "\n" * above + text.split("\n", above)[above]
                break
            title += values
            above = reader.line_num
            if above >= LINES_TO_JUDGE:
                break
        return text

    def _widths(self, text: str) -> list[tuple[int, int]]:
        """Line number and number of values of every record.

        A value over several lines must end where its quotes end; else a quote was left open, and rows would be lost.
        """
        lines = text.split("\n")
        if '"' not in text:
            counts = ((number, line.count(self.separator) + 1) for number, line in enumerate(lines, 1) if line.strip())
            return list(counts)
        found, start = [], 1
        reader = _records(text, self.separator)
        try:
            for record in reader:
                if record:
                    found.append((start, len(record)))
                if reader.line_num > start:
                    try:
                        next(_records("\n".join(lines[start - 1 : reader.line_num]), self.separator, strict=True))
                    except csv.Error as error:
                        raise self._error(
                            f": a quote that is opened in line {start} is not closed there. Close it, or remove it."
                        ) from error
                start = reader.line_num + 1
        except csv.Error as error:
            raise self._error(f" cannot be read: line {start}: {error}.") from error
        return found

    def _parse_csv(self, text: str) -> pd.DataFrame:
        (_, named), *widths = self._widths(text)
        if not widths:
            raise self._error(" has no rows.")
        width = max(named, *(count for _, count in widths))
        short = next(((line, count) for line, count in widths if count < named), None)
        if short is not None:
            raise self._error(
                f": line {short[0]} has {short[1]} values, but there are {named} columns. Correct the line."
            )
        try:
            table = pd.read_csv(
                io.StringIO(text), sep=self.separator, header=None, names=list(range(width)), dtype=str,
                keep_default_na=False, na_filter=False, skipinitialspace=True, index_col=False,
            )  # fmt: skip
        except pd.errors.ParserError as error:
            raise self._error(f" cannot be read: {error}") from error
        names = [str(name).strip() for name in table.iloc[0, :named]]
        table = table.iloc[1:].reset_index(drop=True)
        one_more = all(names) and all(count == named + 1 for _, count in widths) and table[named].str.strip().any()
        if one_more and table[0].is_unique:  # R writes the names of rows, which all differ, and no name above them
            names = ["", *names]
            self._note(
                "lines have one value more than there are column names: the first is read as the name of the row. "
                f"If values hold {self.separator!r}, put them in quotes."
            )
        names += [""] * (width - len(names))
        empty = [place for place, name in enumerate(names) if not name and not table[place].str.strip().any()]
        beyond = [place for place in range(named, width) if place not in empty and not names[place]]
        if beyond:
            line = next(line for line, count in widths if count > beyond[0])
            raise self._error(
                f": line {line} has {width} values, but there are {named} columns. Correct the line, or put values "
                f"that hold {self.separator!r} in quotes."
            )
        table.columns = pd.Index([name or f"Unnamed: {place}" for place, name in enumerate(names)])
        return table.drop(columns=table.columns[empty])


def _record(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = Counter(name for name, _ in pairs)
    if len(names) < len(pairs):
        repeated = [name for name, count in names.items() if count > 1]
        raise ValueError(f"a record has the names {repeated} more than once")
    return dict(pairs)


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
        floats = [str(name) for name, kind in table.dtypes.items() if is_float_dtype(kind)]
        exact = pd.read_parquet(path, columns=floats, dtype_backend="numpy_nullable") if floats else table
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error
    whole = [name for name in floats if is_integer_dtype(exact[name].dtype)]  # a gap has made floats of them
    return table.assign(**{name: exact[name] for name in whole})


def _records(text: str, separator: str, *, strict: bool = False) -> Any:
    return csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=strict)


def _separator(text: str) -> str:
    """The sign that splits most of the first lines into the same number of values."""
    start = "\n".join(text.split("\n", LINES_TO_JUDGE)[:LINES_TO_JUDGE])

    def fitness(separator: str) -> float:
        try:
            counts = Counter(len(record) for record in _records(start, separator) if record)
        except csv.Error:
            return 0.0
        width, times = counts.most_common(1)[0] if counts else (1, 0)
        return 0.0 if width < 2 else times / counts.total()

    found = {separator: fitness(separator) for separator in SEPARATORS}
    return max(found, key=lambda separator: found[separator]) if any(found.values()) else ","


# --- X, y and ids -----------------------------------------------------------------------------------------------------

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
    """

    X: pd.DataFrame | NDArray[Any] | Images
    y: Labels | None
    ids: pd.DataFrame
    aside: pd.DataFrame = field(default_factory=pd.DataFrame)
    columns: tuple[ColumnReading, ...] = ()

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
    if str(path) != "-" and not path.exists():
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
    uses = {"the target": target, "an id (--id)": ids, "group, time, seen or weight": aside, "dropped (--drop)": drop}
    check_uses(path, list(table.columns), types, uses)
    known = {reading.name: reading for reading in columns or () if reading.role == "target"}
    labels = [
        read_target_column(table[name], options, separator=file.separator, reading=known.get(name)) for name in target
    ]
    targets = [reading for _, reading in labels]
    if columns is None:
        left = table.drop(columns=list({*target, *ids, *drop}))
        _refuse_nested(left, path.name)
        readings, typed = decide_columns(left, options, separator=file.separator, aside=aside)
        unused = signs_not_found(table, options.na)
        signs = [f"--na {unused}: no cell of {path.name} holds that."] if unused else []
        _warn(file.notes + signs, _notes((*readings, *targets)))
        if target and not any(reading.is_used for reading in readings):
            said = "; ".join(f"{reading.name!r}: {reading.note}" for reading in readings[:5])
            raise InputError(f"{path.name} has no column to learn from beside the target. {said}")
    else:
        typed, readings, notes = read_again(
            table, columns, path.name, decimal=options.decimal, allow_unreadable=allow_unreadable
        )
        _warn(file.notes, notes)
    read: list[tuple[Any, Any]] = [*typed.items(), *zip(target, (values for values, _ in labels), strict=True)]
    for name, values in read:
        if values.dtype.kind == "f":  # refused before rows are split, and counted anew
            refuse_extremes(np.asarray(values)[:, None], [str(name)], of=path.name)
    empty = [name for name in aside if name not in typed]
    if empty:
        raise InputError(f"{path.name}: the columns {empty} hold nothing.")
    kept = [ColumnReading(name=name, kind="identifier", role="id") for name in ids]
    return DataFile(
        X=typed[[reading.name for reading in readings if reading.is_used]],
        y=_side_by_side([values for values, _ in labels]),
        ids=table[list(ids)] if ids else pd.DataFrame({"row": np.arange(len(table))}),
        aside=typed[list(aside)],
        columns=(*readings, *targets, *kept),
    )


def read_again(
    table: pd.DataFrame,
    columns: Sequence[ColumnReading],
    name: str,
    *,
    decimal: str | None = None,
    allow_unreadable: bool = False,
) -> tuple[pd.DataFrame, tuple[ColumnReading, ...], list[str]]:
    """Columns read as those of an earlier file, with how they are now, and notes on what is other than there.

    Parameters
    ----------
    columns : how the columns of that file were read.
    name : of this file, for errors.
    decimal, allow_unreadable : as for ``read_data``.
    """
    before = [reading for reading in columns if reading.is_used]
    lacking = [reading.name for reading in before if reading.name not in table.columns]
    if lacking:
        raise InputError(f"{name} lacks the columns {lacking} that the model was fitted on.")
    _refuse_nested(table[[reading.name for reading in before]], name)
    typed, readings = read_columns(table, before, decimal=decimal)
    bad = [one for one in readings if one.unreadable > (len(table) - one.missing) / 2]
    if bad and not allow_unreadable:
        said = "; ".join(f"{one.name!r}: {one.note}" for one in bad[:5])
        raise InputError(
            f"{name} differs from the file of the fit: {said}. Correct the file, give its --decimal or --encoding, or "
            "add --allow-unreadable."
        )
    changed = [one for one, was in zip(readings, before, strict=True) if one.note or one.missing > was.missing == 0]
    shares = {one.name: one.note or f"{one.missing / len(table):.0%} missing" for one in changed}
    return typed, readings, [f"Column {name!r}: {share}." for name, share in shares.items()]


def check_uses(path: Path, known: list[str], types: Iterable[str], uses: dict[str, Sequence[str]]) -> None:
    """Each column must be there, and have one use: two options with the same column cannot both be meant."""
    for name in [*chain(*uses.values()), *types]:
        if name not in known:
            raise InputError(f"{path.name} has no column {name!r}{_suggestion(name, known)}")
        found = [use for use, names in uses.items() for one in names if one == name]
        if len(found) > 1:
            raise InputError(f"{path.name}: column {name!r} is given as {' and '.join(found)}. Name it once.")
        if name in types and any("--" in use for use in found):
            raise InputError(f"--types {name} has no effect: the column is named by --id or --drop.")


def _side_by_side(targets: list[Labels]) -> Labels | None:
    if not targets:
        return None
    return targets[0] if len(targets) == 1 else np.column_stack(targets)


def _refuse_nested(table: pd.DataFrame, file: str) -> None:
    nested = [name for name in table if holds_nested(table[name])]
    if nested:
        raise InputError(f"{file}: columns {nested} hold lists or objects. Give each value its own column.")


def _notes(readings: Sequence[ColumnReading]) -> list[str]:
    """Notes on columns, those on the target last; columns with the same note share a line."""
    same: dict[tuple[str, str], list[str]] = {}
    for reading in readings:
        if reading.note and reading.role != "target":
            same.setdefault((_KIND_WORDS[reading.kind], reading.note), []).append(repr(reading.name))
    said = [
        f"Column {names[0]} is {what}. {note}" if len(names) == 1
        else f"{_listed(names)} are {what}. {re.sub('^It ', 'Each ', note)}"
        for (what, note), names in same.items()
    ]  # fmt: skip
    return said + [f"Target {one.name!r}: {one.note}" for one in readings if one.note and one.role == "target"]


def _warn(notes: list[str], on_columns: list[str]) -> None:
    if len(on_columns) > MOST_NOTES:
        on_columns = [*on_columns[:MOST_NOTES], f"There are {len(on_columns) - MOST_NOTES} more notes on columns."]
    for note in notes + on_columns:
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
    if found["X"].dtype.kind == "f":
        refuse_extremes(found["X"], of=path.name)
    ids = pd.DataFrame({"id": found["ids"]} if "ids" in found else {"row": np.arange(len(found["X"]))})
    return DataFile(X=found["X"], y=_side_by_side([found[name] for name in target]), ids=ids)
