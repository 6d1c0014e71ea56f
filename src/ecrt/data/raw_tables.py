"""Tables as they stand in files: CSV of any encoding and separator, JSON, Excel, Parquet; packed or not.

Values of text files stay text here, so that nothing is lost before it is known what a column holds.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import re
import sys
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.api.types import is_float_dtype, is_integer_dtype

from ecrt.errors import InputError

KINDS = (
    "CSV or TSV (.csv, .tsv, .txt), JSON lines (.jsonl), JSON (.json), Excel (.xlsx), Parquet (.parquet), NumPy (.npz) "
    "and folders of images; text files may be packed (.gz, .bz2, .xz, .zip)"
)
TEXT, LINES, EXCEL, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson"), (".xlsx", ".xlsm"), (".parquet", ".pq")
OLD_EXCEL = (".xls", ".xlsb", ".ods")
UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress, ".xz": lzma.decompress}
PACKED = (*UNPACK, ".zip")

UNREADABLE = (
    OSError, EOFError, ValueError, RecursionError, csv.Error, zipfile.BadZipFile, zlib.error, lzma.LZMAError
)  # fmt: skip
"""What readers raise of a damaged file."""

SEPARATORS = ";\t|,"
"""Signs between the values of a line; if two fit equally well, the first is taken."""

LINES_TO_JUDGE = 200
SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class RawTable:
    """What stands in a table.

    Attributes
    ----------
    table : columns of text, or of what a typed file (Parquet, Excel, JSON) says they are; an empty cell is "" or NA.
    notes : sentences on what was done to read the file.
    separator : of a text file; else empty.
    """

    table: pd.DataFrame
    notes: tuple[str, ...] = ()
    separator: str = ""


def is_standard_input(path: Path) -> bool:
    """Whether ``-`` is named instead of a file."""
    return str(path) == "-"


def read_raw_table(path: Path, *, encoding: str | None = None) -> RawTable:
    """Read a table.

    Parameters
    ----------
    path : of the file; ``-`` for the standard input, which may hold CSV or JSON.
    encoding : of text files; found out from the file if not given.
    """
    try:
        return _read(path, encoding)
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error


def _read(path: Path, encoding: str | None) -> RawTable:
    if is_standard_input(path):
        content = sys.stdin.buffer.read()
        name = "stdin.json" if content.lstrip()[:1] in (b"{", b"[") else "stdin.csv"
    else:
        name = path.name
        for ending in PACKED:
            name = name.removesuffix(ending)
        suffix = Path(name).suffix.lower()
        if path.suffix.lower() != ".zip" and suffix in PARQUET:
            return _typed(_read_parquet(path), path)
        if path.suffix.lower() in OLD_EXCEL:
            raise InputError(f"{path.name}: this kind of sheet is not read. Save it as CSV UTF-8 or .xlsx.")
        if path.suffix.lower() != ".zip":
            _check_kind(suffix, path)  # before it is read: it may be a device, or large
        name, content = _unpack(path, name)
    suffix = Path(name).suffix.lower()
    _check_kind(suffix, path)
    if suffix in EXCEL:
        return _typed(_read_excel(content, path), path)
    text, notes = _decode(content, encoding, path)
    if suffix in TEXT:
        return _read_csv(text, notes, path)
    return _typed(_read_json(text, path, lines=suffix in LINES), path, notes)


def _check_kind(suffix: str, path: Path) -> None:
    if suffix not in (*EXCEL, *TEXT, *LINES, ".json"):
        raise InputError(f"{path.name}: cannot tell what kind of file it is. Known are {KINDS}.")


def _unpack(path: Path, name: str) -> tuple[str, bytes]:
    """The content of a file, or of the one file in it, with the name that says what it is."""
    ending = path.suffix.lower()
    if ending != ".zip":
        content = path.read_bytes()
        return name, UNPACK[ending](content) if ending in UNPACK else content
    with zipfile.ZipFile(path) as archive:
        members = [
            member for member in archive.namelist()
            if not member.endswith("/") and not member.startswith("__MACOSX") and Path(member).name[:1] != "."
        ]  # fmt: skip
        if len(members) != 1:
            raise InputError(
                f"{path.name} holds {len(members)} files ({', '.join(members[:5])}): unpack it and name one."
            )
        return Path(members[0]).name, archive.read(members[0])


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        table = pd.read_parquet(path)
        floats = [str(name) for name, kind in table.dtypes.items() if is_float_dtype(kind)]
        exact = pd.read_parquet(path, columns=floats, dtype_backend="numpy_nullable") if floats else table
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error
    whole = [name for name in floats if is_integer_dtype(exact[name].dtype)]  # a gap has made floats of them
    return table.assign(**{name: exact[name] for name in whole})


def _read_excel(content: bytes, path: Path) -> pd.DataFrame:
    try:
        sheets = pd.read_excel(
            io.BytesIO(content), sheet_name=None, dtype=object, keep_default_na=False, na_filter=False
        )
    except ImportError as error:
        raise InputError(
            f"{path.name}: Excel files need openpyxl (pip install 'ecrt[excel]'); or save the sheet as CSV UTF-8."
        ) from error
    except (KeyError, TypeError, zipfile.BadZipFile) as error:
        raise InputError(f"{path.name} cannot be read as an Excel file: {error}") from error
    filled = {name: sheet for name, sheet in sheets.items() if not sheet.empty}
    if len(filled) > 1:
        raise InputError(
            f"{path.name} has {len(filled)} sheets with rows ({', '.join(map(str, filled))}): save one as CSV."
        )
    return next(iter(filled.values()), pd.DataFrame())


def _read_json(text: str, path: Path, *, lines: bool) -> pd.DataFrame:
    """Records, one on each line or all in one list; a single file may be either."""
    if not lines:
        try:
            records = json.loads(text)
        except json.JSONDecodeError:
            lines = "\n" in text.strip()
            if not lines:
                raise
    if lines:
        records = []
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    records.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise InputError(f"{path.name} cannot be read: line {number} is no JSON: {error}") from error
    records = [records] if isinstance(records, dict) and lines else records
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path.name}: a list of records is needed, such as [{{'x': 1, 'label': 'a'}}, ...].")
    return pd.DataFrame(records, dtype=object)  # a gap must not make floats of long numbers


def _typed(table: pd.DataFrame, path: Path, notes: tuple[str, ...] = ()) -> RawTable:
    table.columns = table.columns.map(lambda name: str(name).strip())
    _check(table, path)
    index = [str(name) for name in table.index.names if name is not None]
    if index:
        notes = (*notes, f"{path.name}: the index ({', '.join(index)}) is left out. Make it columns to learn from it.")
    return RawTable(table=table.reset_index(drop=True), notes=notes)


def _check(table: pd.DataFrame, path: Path) -> None:
    if table.empty:
        raise InputError(f"{path.name} has no rows.")
    repeated = table.columns[table.columns.duplicated()].unique().tolist()
    if repeated:
        raise InputError(f"{path.name}: the column names {repeated} occur more than once. Give each column its own.")


def _decode(content: bytes, encoding: str | None, path: Path) -> tuple[str, tuple[str, ...]]:
    """Bytes to text, with the same line ends everywhere."""
    text, notes = _decoded(content, encoding, path)
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InputError(f"{path.name}: line {line} holds NUL bytes. It is damaged, no text, or needs --encoding.")
    return (text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text), notes


def _decoded(content: bytes, encoding: str | None, path: Path) -> tuple[str, tuple[str, ...]]:
    if encoding is not None:
        try:
            return content.decode(encoding), ()
        except LookupError:
            raise InputError(f"There is no encoding {encoding!r}; usual are utf-8, latin-1, cp1252, utf-16.") from None
        except UnicodeError as error:
            raise InputError(f"{path.name} is not written in {encoding}: {error}. Give another --encoding.") from error
    marks = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
    found = next((name for mark, name in marks.items() if content.startswith(mark)), None)
    start = content[:2000]
    if found is None and len(start) >= 4 and start.count(0) > len(start) / 3:
        found = "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
    try:
        return content.decode(found or "utf-8"), ()
    except UnicodeError as error:
        if found is not None:
            raise InputError(f"{path.name} cannot be read as {found}: {error}. Name its --encoding.") from error
    try:
        text = content.decode("cp1252")
    except UnicodeError as error:
        raise InputError(
            f"{path.name} is neither UTF-8 nor Western European text. Name its --encoding, such as cp1250 or utf-16."
        ) from error
    line = next(line for line in text.split("\n") if not line.isascii())
    return text, (
        f"{path.name} is not UTF-8 and is read as Western European text (cp1252), such as {line.strip()[:SHOWN]!r}. "
        "Use --encoding if letters are wrong.",
    )


# --- CSV ----------------------------------------------------------------------------------------------------------


def _read_csv(text: str, notes: tuple[str, ...], path: Path) -> RawTable:
    if not text.strip():
        raise InputError(f"{path.name} cannot be read: it is empty.")
    said = re.match(r"sep=(.)\n", text, re.IGNORECASE)  # the first line of some files from Excel
    text = "\n" + text[said.end() :] if said else text
    text, comments = _without_comments(text, path)
    separator = said[1] if said else _separator(text)
    text, title = _without_title(text, separator, path)
    table = _parse_csv(text, separator, path)
    _check(table, path)
    table, again = _without_names(table, path)
    return RawTable(table=table, notes=(*notes, *comments, *title, *again), separator=separator)


def _without_names(table: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table without rows that are the column names again, as files have that were put together."""
    found = table[table.iloc[:, 0].str.strip() == table.columns[0]]
    found = found[(found.apply(lambda column: column.str.strip()) == table.columns).all(axis=1)]
    if not len(found) or len(found) == len(table):
        return table, ()
    what = "1 row that repeats" if len(found) == 1 else f"{len(found)} rows that repeat"
    note = f"{path.name}: {what} the column names: left out."
    return table.drop(index=found.index).reset_index(drop=True), (note,)


def _without_comments(text: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """The text without lines that begin with ``#``, if it starts with one; the last of these may name the columns.

    Empty lines stand for them, so that errors name the lines of the file.
    """
    if not text.lstrip("\n").startswith("#"):
        return text, ()
    lines = text.split("\n")
    kept = ["" if line.startswith("#") else line for line in lines]
    place, first = next(((place, line) for place, line in enumerate(kept) if line.strip()), (0, ""))
    last = max((number for number, line in enumerate(lines[:place]) if line.startswith("#")), default=0)
    above, separator = lines[last], _separator(first)
    holds_number = any(re.fullmatch(r"\s*[+-]?[0-9][0-9.,]*\s*", cell) for cell in first.split(separator))
    if above.count(separator) == first.count(separator) > 0 and holds_number:
        kept[last] = above.lstrip("#").strip()
        return "\n".join(kept), ()
    comments = [line for line in lines if line.startswith("#")]
    note = f"{path.name}: {len(comments)} lines that begin with # are left out, the first is {comments[0][:SHOWN]!r}."
    return "\n".join(kept), (note,)


def _without_title(text: str, separator: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """The text without lines above the column names: those that have one value, where later lines have more."""
    title: list[str] = []
    above = 0
    reader = _records(text, separator)
    for record in reader:
        values = [cell for cell in record if cell.strip()]
        if len(values) > 1 or (values and not record[0].strip()):
            break
        title += values
        above = reader.line_num
        if above >= LINES_TO_JUDGE:
            return text, ()
    else:
        return text, ()
    if not title:
        return text, ()
    note = f"{path.name}: lines above the column names are left out: {' / '.join(title)[:SHOWN]!r}."
    return "\n" * above + text.split("\n", above)[above], (note,)


def _records(text: str, separator: str) -> Any:
    return csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)


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


def _widths(text: str, separator: str, path: Path) -> list[tuple[int, int]]:
    """Line number and number of values of every record."""
    if '"' not in text:
        lines = enumerate(text.split("\n"), start=1)
        return [(number, line.count(separator) + 1) for number, line in lines if line.strip()]
    found, start, written = [], 1, text.split("\n")
    reader = _records(text, separator)
    try:
        for record in reader:
            if record:
                found.append((start, len(record)))
            if reader.line_num > start:
                _refuse_open_quote("\n".join(written[start - 1 : reader.line_num]), separator, start, path)
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path.name} cannot be read: line {start}: {error}.") from error
    return found


def _refuse_open_quote(record: str, separator: str, line: int, path: Path) -> None:
    """A value over several lines must end where its quotes end; else a quote was left open, and rows would be lost."""
    try:
        next(csv.reader(io.StringIO(record), delimiter=separator, skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InputError(
            f"{path.name}: a quote that is opened in line {line} is not closed there. Close it, or remove it."
        ) from error


def _parse_csv(text: str, separator: str, path: Path) -> pd.DataFrame:
    (_, named), *widths = _widths(text, separator, path)
    if not widths:
        raise InputError(f"{path.name} has no rows.")
    width = max(named, *(count for _, count in widths))
    for line, count in widths:
        if count < named:
            raise InputError(
                f"{path.name}: line {line} has {count} values, but {named} columns are named. Mend or remove the line."
            )
    try:
        table = pd.read_csv(
            io.StringIO(text), sep=separator, header=None, names=list(range(width)), dtype=str, keep_default_na=False,
            na_filter=False, skipinitialspace=True, index_col=False,
        )  # fmt: skip
    except pd.errors.ParserError as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
    names = [str(name).strip() for name in table.iloc[0, :named]]
    table = table.iloc[1:].reset_index(drop=True)
    if all(names) and all(count == named + 1 for _, count in widths) and table[named].str.strip().any():
        names = ["", *names]  # R writes the names of rows, and no name above them
    names += [""] * (width - len(names))
    empty = [place for place, name in enumerate(names) if not name and not table[place].str.strip().any()]
    beyond = [place for place in range(named, width) if place not in empty and not names[place]]
    if beyond:
        line = next(line for line, count in widths if count > beyond[0])
        raise InputError(
            f"{path.name}: line {line} has {width} values, but {named} columns are named. Mend the line, or put values "
            f"that hold {separator!r} in quotes."
        )
    table.columns = pd.Index([name or f"Unnamed: {place}" for place, name in enumerate(names)])
    return table.drop(columns=table.columns[empty])
