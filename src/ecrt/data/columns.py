"""What the columns of a table hold, decided once on the whole file: numbers, categories, dates, or names of rows.

The decision is a ``ColumnReading`` for each column. It can be stored, and later files are read by it, so that the same
cell means the same in all of them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

from ecrt.errors import InputError

Array = NDArray[np.float64]
ColumnKind = Literal["number", "category", "date", "identifier", "left out"]
Role = Literal["input", "target", "aside", "id"]
TYPES = ("number", "category", "date")

ABSENT = {
    "", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "null",
    "nan", "none", "?", "<null>", "-", "--", ".", "n.a.", "k.a.", "#div/0!", "#value!", "#ref!", "#name?", "#num!",
}  # fmt: skip
"""Signs for a missing value in a column that is learned from, small and capital letters alike."""

ROWS_TO_JUDGE = 20
"""With fewer rows distinct values say nothing: no column is taken for text or for an identifier."""

FEW = 0.1
"""Up to this share of unreadable values a column is still one of numbers or dates; they count as missing."""

FEW_WORDS = 3
"""Different words beside more than 20 different numbers that are signs for missing values, up to half of the rows."""

MANY_LEVELS = 40
WORDS_IN_TEXT = 4
MOST_STORED_LEVELS = 10_000
"""Of categories with more levels none are stored, so that new ones cannot be told."""

REPEATS_EXPECTED = 7
"""Whole numbers without a repetition name rows if drawing them at random would give more than this many of them."""

LARGEST_WHOLE = 2**53
"""Whole numbers beyond are not exact as floats: they are codes."""

ID_NAME = re.compile(
    r"(?:.*[\W_]|)(?:id|ids|idx|index|uuid|guid|nr|no|row|rowid|rownum)\.?|.*[a-z](?:ID|Id)|Unnamed: \d+|level_\d+"
)
REPEATED_ID = re.compile(r"(?:.*[\W_]|)(?:id|ID|Id)|.*[a-z](?:ID|Id)|index|idx|row|rowid|rownum|level_\d+|Unnamed: \d+")
UNNAMED = re.compile(r"Unnamed: \d+")
CODE_NAME = re.compile(
    r"(?:.*[\W_]|)(?:zip|zip ?code|zip_code|post ?code|postal_?code|plz|phone|phone_?number|telephone|telefon|tel|fax|"
    r"mobile|ssn|iban)"
)
TRUTH = [
    {"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"ja", "nein"}, {"j", "n"}, {"oui", "non"}, {"o", "n"},
    {"wahr", "falsch"}, {"vrai", "faux"}, {"on", "off"}, {"si", "no"}, {"sí", "no"},
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a user says of how a table is written; what is not said is told from the file.

    Attributes
    ----------
    encoding : of a text file, such as ``"latin-1"``.
    decimal : decimal sign, ``"."`` or ``","``, for columns that could be read with either; of a file that is read like
        an earlier one, its own sign.
    na : further signs for a missing value. In a target only they and an empty cell are missing ones.
    types : of some columns, ``"number"``, ``"category"`` or ``"date"``.
    """

    encoding: str | None = None
    decimal: str | None = None
    na: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise InputError(f"--decimal {self.decimal}: use a point or a comma.")
        for name, kind in self.types.items():
            if kind not in TYPES:
                raise InputError(f"--types {name}={kind}: use {', '.join(TYPES)}.")


class ColumnReading(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a column was read, and how the same column of a new file is to be read.

    Attributes
    ----------
    kind : numbers, categories and dates are learned from; what names or counts rows, or says nothing, is not.
    role : input, target, or what is kept beside them: ids as they are written, other columns by their kind.
    missing, unreadable : rows without a value, and rows whose value could not be read and counts as missing.
    levels : of a category.
    decimal, thousands, unit : how numbers are written: the decimal sign, signs between thousands, and what stands
        beside the number.
    writing : order of a date's parts; ``"time"`` or ``"hexadecimal"`` of numbers; ``"truth"`` of categories whose
        capital letters say nothing.
    na : further signs for a missing value.
    note : a sentence on what the user should know.
    """

    name: str
    kind: ColumnKind
    role: Role = "input"
    missing: int = 0
    unreadable: int = 0
    levels: tuple[str, ...] = ()
    decimal: str = ""
    thousands: str = ""
    unit: str = ""
    writing: str = ""
    na: tuple[str, ...] = ()
    note: str = ""

    @property
    def form(self) -> str:
        """How values are written, in a few words."""
        parts = [
            "" if self.kind == "category" else self.writing,
            "decimal comma" if self.decimal == "," else "",
            "thousands separated" if self.thousands else "",
            self.unit,
            f"{len(self.levels)} levels" if self.kind == "category" and self.role != "target" else "",
        ]
        return ", ".join(part for part in parts if part)

    @property
    def is_used(self) -> bool:
        """Whether the column is learned from."""
        return self.role == "input" and self.kind in ("number", "category", "date")

    def check(self) -> None:
        """Refuse a reading that came from a file, and that no table could have given."""
        writings = {"number": ("", *SPECIAL), "date": (*DATES,), "category": ("", "truth", "lists")}
        if (
            min(self.missing, self.unreadable) < 0
            or self.writing not in writings.get(self.kind, (self.writing,))
            or self.decimal not in ("", ".", ",")
            or not set(self.thousands) <= set(",. '")
            or len(set(self.levels)) < len(self.levels)
        ):
            raise InputError(f"Column {self.name!r} is not read in a way that is known.")


@dataclass(frozen=True, kw_only=True)
class ColumnProblem:
    """What in a column of a new file is not as it was when the model was fitted.

    Attributes
    ----------
    rows : of the file.
    missing, unreadable, unseen : how many values are missing, cannot be read, or are levels that were not there.
    example : one that cannot be read or was not there.
    """

    name: str
    rows: int
    missing: int
    unreadable: int
    unseen: int
    example: str

    @property
    def share(self) -> float:
        """Share of the values present that cannot be used."""
        return (self.unreadable + self.unseen) / max(self.rows - self.missing, 1)

    def __str__(self) -> str:
        parts = [
            f"{count / self.rows:.0%} {word}"
            for count, word in ((self.unseen, "new levels"), (self.unreadable, "unreadable"), (self.missing, "missing"))
            if count
        ]
        return f"{self.name!r}: {', '.join(parts)}" + (f", such as {self.example!r}" if self.example else "")


@dataclass(frozen=True)
class _Hints:
    """What the rest of the file says where a column alone does not: the decimal sign, and whether days come first."""

    decimal: str = ""
    day_first: bool | None = None


def decide_columns(
    table: pd.DataFrame, options: ReadOptions, *, separator: str = "", aside: Sequence[str] = ()
) -> tuple[tuple[ColumnReading, ...], pd.DataFrame]:
    """Say what each column holds, and give those that hold something by their type.

    Parameters
    ----------
    separator : between the values of the file; a semicolon makes a decimal comma and days before months likelier.
    aside : columns that are not learned from: names of rows are no matter there.
    """
    given, na = options.types, options.na
    cells: dict[str, _Cells] = {}
    found: dict[str, tuple[ColumnReading, str]] = {}
    for name, column in table.items():
        quick = None if name in given else _plain_number(str(name), column, na)
        if quick is None:
            cells[str(name)] = _Cells.of(column, na)
            found[str(name)] = _decide(str(name), cells[str(name)], _Hints(), given.get(str(name)), na, name in aside)
        else:
            found[str(name)] = quick, ""
    signs = Counter(reading.decimal for reading, unsure in found.values() if reading.decimal and not unsure)
    orders = Counter(
        reading.writing == _ORDERS[0] for reading, unsure in found.values()
        if reading.writing in _ORDERS and not unsure
    )  # fmt: skip
    likely = options.decimal or (signs.most_common(1)[0][0] if signs else "," if separator == ";" else ".")
    hints = _Hints(likely, orders.most_common(1)[0][0] if orders else (likely == ","))
    readings: list[ColumnReading] = []
    for name, (reading, unsure) in found.items():
        if unsure:
            settled = bool(orders) if reading.kind == "date" else options.decimal is not None or bool(signs)
            reading, unsure = _decide(name, cells[name], hints, given.get(name), na, name in aside)
            reading = reading if settled else replace(reading, note=" ".join((reading.note, unsure)).strip())
        readings.append(replace(reading, role="aside") if name in aside else reading)
    return tuple(readings), read_columns(table, readings, cells=cells)[0]


def read_columns(
    table: pd.DataFrame,
    readings: Iterable[ColumnReading],
    *,
    decimal: str | None = None,
    cells: Mapping[str, _Cells] | None = None,
) -> tuple[pd.DataFrame, tuple[ColumnProblem, ...]]:
    """The columns that readings name, typed: floats, Categoricals of strings, dates; and what is not as it was.

    Parameters
    ----------
    decimal : decimal sign of this file, if it is another than that of the readings.
    cells : of columns that have been looked at.
    """
    typed: dict[str, Any] = {}
    problems: list[ColumnProblem] = []
    for reading in readings:
        name = reading.name
        if reading.kind not in ("number", "category", "date"):
            continue
        if decimal and reading.kind == "number":
            reading = _with_decimal(reading, decimal)
        values = None if name in (cells or {}) else _quick_numbers(table[name], reading)
        if values is not None:
            typed[name] = values
            unreadable, unseen, missing, example = 0, 0, int(np.isnan(values).sum()), ""
        else:
            one = cells[name] if cells and name in cells else _Cells.of(table[name], reading.na)
            typed[name], bad, new = one.read(reading)
            unreadable, unseen, missing = one.count(bad), one.count(new), one.count(one.absent)
            example = one.example(bad | new)
        if missing or unreadable or unseen:
            problems.append(ColumnProblem(
                name=name, rows=len(table), missing=missing, unreadable=unreadable, unseen=unseen, example=example
            ))  # fmt: skip
    return pd.DataFrame(typed, index=table.index), tuple(problems)


def _with_decimal(reading: ColumnReading, decimal: str) -> ColumnReading:
    """The reading of a file with another decimal sign, which then stood between thousands."""
    if reading.decimal in ("", decimal):
        return replace(reading, decimal=decimal)
    swapped = "".join({",": ".", ".": ","}.get(sign, sign) for sign in reading.thousands)
    return replace(reading, decimal=decimal, thousands=swapped)


def read_target_column(
    column: pd.Series[Any], options: ReadOptions, *, separator: str = "", reading: ColumnReading | None = None
) -> tuple[NDArray[Any], ColumnReading]:
    """Targets as whole numbers, numbers, or labels as they are written; ``None`` or NaN where there is none.

    Only an empty cell, or a sign of ``na``, is missing: a class may be called ``NA``.

    Parameters
    ----------
    separator : between the values of the file; a semicolon makes a decimal comma likelier.
    reading : of the target when the model was fitted.
    """
    name = str(column.name)
    if column.map(lambda value: isinstance(value, (list, tuple, np.ndarray))).any():
        lists = column.map(lambda value: list(value) if isinstance(value, np.ndarray) else value)
        return lists.to_numpy(dtype=object), ColumnReading(name=name, kind="category", role="target", writing="lists")
    cells = _Cells.of(column, options.na if reading is None else reading.na, signs={""})
    if reading is None:
        likely = options.decimal or ("," if separator == ";" else ".")
        found = _decide_target(name, cells, options.types.get(name), likely, options.na)
        reading = replace(found, missing=cells.count(cells.absent))
    if reading.kind == "category":
        words = cells.text.to_numpy(dtype=object).copy()
        words[cells.absent] = None
        return words[cells.codes], reading
    numbers, unreadable, _ = cells.read(replace(reading, decimal=options.decimal or reading.decimal))
    if unreadable.any():  # a label that was not there
        values = numbers.astype(object)
        whole = [int(value) if value == value and float(value).is_integer() else value for value in values]
        text = cells.text.to_numpy(dtype=object)[cells.codes]
        mixed = np.array([word if bad else value for word, bad, value in
                          zip(text, unreadable[cells.codes], whole, strict=True)], dtype=object)  # fmt: skip
        return mixed, reading
    present = numbers[~np.isnan(numbers)]
    if len(present) == len(numbers) and (present == np.round(present)).all() and (abs(present) < LARGEST_WHOLE).all():
        return numbers.astype(np.int64), reading
    return numbers, reading


def _decide_target(name: str, cells: _Cells, kind: str | None, decimal: str, na: Sequence[str]) -> ColumnReading:
    blank = [repr(label) for label in cells.levels() if label.lower() in ABSENT]
    what = "is read as a class" if len(blank) == 1 else "are read as classes"
    said = f"{', '.join(blank)} {what}. Use --na where the label is missing instead." if blank else ""
    labels = ColumnReading(
        name=name, kind="category", role="target", levels=cells.levels(), na=tuple(na),
        note=" ".join(filter(None, (_capitals(cells.present, "classes"), said))),
    )  # fmt: skip
    if kind == "category" or not len(cells.present):
        return labels
    reading, unsure = _as_number(cells, _Hints())
    if unsure:
        reading, _ = _as_number(cells, _Hints(decimal))
    if reading is None or reading.unreadable or reading.writing:
        if kind == "number":
            raise InputError(f"Target {name!r} holds values that are no numbers, such as {cells.words()!r}.")
        return labels
    dressed = bool(reading.unit or reading.thousands)
    if kind is None and (cells.are_codes(name="") or (dressed and len(cells.present) <= ROWS_TO_JUDGE)):
        return labels
    return replace(reading, name=name, role="target", na=tuple(na))


# --- cells ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cells:
    """A column: its distinct values as text, which of them are signs for missing ones, and where each stands."""

    codes: NDArray[np.int64]
    text: pd.Series[Any]
    counts: NDArray[np.int64]
    absent: NDArray[np.bool_]
    typed: pd.Series[Any] | None = None  # numbers, dates or categories that the file itself knows as such

    @classmethod
    def of(cls, column: pd.Series[Any], na: Sequence[str], signs: set[str] = ABSENT) -> _Cells:
        if isinstance(column.dtype, pd.CategoricalDtype):
            return cls._from_text(_as_text(column), na, {""}, column)
        if is_timedelta64_dtype(column.dtype):
            column = column.dt.total_seconds()
        if is_datetime64_any_dtype(column.dtype) or (
            is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype)
        ):
            return cls._from_text(_as_text(column), na, signs, column)
        return cls._from_text(_as_text(column), na, signs, None)

    @classmethod
    def _from_text(
        cls, column: pd.Series[Any], na: Sequence[str], signs: set[str], typed: pd.Series[Any] | None
    ) -> _Cells:
        codes, distinct = pd.factorize(column)
        text = pd.Series(distinct, dtype=column.dtype)
        absent = text.str.lower().isin(signs) | _said_missing(text, na)
        counts = np.bincount(codes, minlength=len(text))
        return cls(codes, text, counts, absent.to_numpy(dtype=bool), typed)

    @property
    def present(self) -> pd.Series[Any]:
        """Distinct values that are no signs for missing ones."""
        return self.text[~self.absent]

    @cached_property
    def numbers(self) -> _Numbers:
        """Distinct values as numbers."""
        return _Numbers.of(self)

    @property
    def n_present(self) -> int:
        return int(self.counts[~self.absent].sum())

    @property
    def all_differ(self) -> bool:
        return len(self.present) == self.n_present

    def count(self, which: NDArray[np.bool_]) -> int:
        """Rows with one of some distinct values."""
        return int(self.counts[which].sum())

    def example(self, which: NDArray[np.bool_]) -> str:
        return str(self.text[which].iloc[0])[:60] if which.any() else ""

    def words(self) -> str:
        """A value that is no plain number."""
        return self.example(~self.absent & ~self.text.str.fullmatch(PLAIN).to_numpy(dtype=bool)) or self.example(
            ~self.absent
        )

    def levels(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.present.tolist())))

    def are_codes(self, name: str) -> str:
        """Why whole numbers are codes and no amounts; nothing if they are none."""
        present, counts = self.present, self.counts[~self.absent]
        zeros = present.str.fullmatch("0[0-9]+").to_numpy(dtype=bool)
        if zeros.any() and (present.str.len().nunique() == 1 or counts[zeros].sum() > FEW * counts.sum()):
            return "codes with leading zeros"
        if present.str.fullmatch("[+-]?[0-9]{16,}").any():
            return "whole numbers too long to be amounts"
        if name and CODE_NAME.fullmatch(name.lower()) and present.str.fullmatch("[0-9 +()/-]+").all():
            return "codes, by the column's name"
        return ""

    def read(self, reading: ColumnReading) -> tuple[Any, NDArray[np.bool_], NDArray[np.bool_]]:
        """Values by a reading; which distinct ones cannot be read, and which are new levels."""
        nothing = np.zeros(len(self.text), dtype=bool)
        if reading.kind == "category":
            text = self.text.str.lower() if reading.writing == "truth" else self.text
            known = set(reading.levels)
            unseen = ~self.absent & ~text.isin(known).to_numpy(dtype=bool) if known else nothing
            words = text.astype(object).where(~self.absent, None)
            levels = [*reading.levels, *sorted(set(words[unseen if known else ~self.absent]))]
            return (
                pd.Categorical(words.to_numpy()[self.codes], categories=pd.Index(levels, dtype=object)),
                nothing,
                unseen,
            )
        if reading.kind == "date":
            dates = _parse_dates(self.text, "year-month-day" if self.holds_dates else reading.writing)
            return dates[self.codes], np.isnat(dates) & ~self.absent, nothing
        numbers = _special_numbers(self.text, reading.writing) if reading.writing else self.numbers.read(reading)
        unreadable = ~np.isfinite(numbers) & ~self.absent
        numbers[~np.isfinite(numbers)] = np.nan
        return numbers[self.codes], unreadable, nothing

    @property
    def holds_dates(self) -> bool:
        """Whether the file itself has dates here."""
        return self.typed is not None and is_datetime64_any_dtype(self.typed.dtype)


def _said_missing(text: pd.Series[Any], na: Sequence[str]) -> pd.Series[Any]:
    """Which values are further signs for a missing one; a number is one also where zeros follow it, as in -999.0."""
    signs = [sign.strip() for sign in na]
    whole = [re.escape(TAIL.sub("", sign)) for sign in signs if re.fullmatch(rf"-?[0-9]+(?:{TAIL.pattern})?", sign)]
    found = text.isin(signs)
    return found | text.str.fullmatch(f"(?:{'|'.join(whole)})(?:{TAIL.pattern})?") if whole else found


TAIL = re.compile("[.,]0{1,2}$")


def signs_not_found(table: pd.DataFrame, na: Sequence[str]) -> list[str]:
    """Those of the further signs for a missing value that no cell holds."""
    left = list(na)
    for _, column in table.items():
        if not left:
            break
        text = pd.Series(_as_text(column).unique(), dtype="str")
        left = [sign for sign in left if not _said_missing(text, [sign]).any()]
    return left


def _as_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Values as strings without spaces around them; whole floats as whole numbers, a missing value as an empty cell."""
    if isinstance(column.dtype, pd.StringDtype):
        return column.fillna("").str.strip()
    missing = column.isna().to_numpy(dtype=bool)
    words = [_word(value) for value in column.astype(object).to_numpy()]
    return pd.Series(np.where(missing, "", np.array(words, dtype=object)), dtype="str", index=column.index)


def _word(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return str(int(value)) if math.isfinite(value) and float(value).is_integer() else repr(float(value))
    return str(value).strip()


# --- deciding ------------------------------------------------------------------------------------------------------


def _decide(
    name: str, cells: _Cells, hints: _Hints, given: str | None, na: Sequence[str], aside: bool
) -> tuple[ColumnReading, str]:
    """What a column holds; and, if that could be otherwise, a sentence that says so."""
    reading, unsure = _judge(name, cells, hints, given, aside)
    reading = replace(reading, name=name, na=tuple(na), missing=cells.count(cells.absent))
    if reading.kind == "category" and not reading.levels and len(cells.present) <= MOST_STORED_LEVELS:
        text = cells.present.str.lower() if reading.writing == "truth" else cells.present
        reading = replace(reading, levels=tuple(sorted(set(text.tolist()))))
    if reading.unreadable and reading.kind in ("number", "date"):
        _, unreadable, _ = cells.read(reading)
        example = repr(cells.example(unreadable))
        said = f"{reading.unreadable} values such as {example} are read as missing."
        said = f"1 value, {example}, is read as missing." if reading.unreadable == 1 else said
        reading = replace(reading, note=" ".join((reading.note, said)).strip())
    return reading, unsure


def _judge(name: str, cells: _Cells, hints: _Hints, given: str | None, aside: bool) -> tuple[ColumnReading, str]:
    category = ColumnReading(name=name, kind="category")
    if given is not None:
        return _as_given(name, cells, hints, given)
    if len(cells.present) == 0:
        return replace(category, kind="left out", note="It holds nothing."), ""
    if len(cells.present) == 1 and not cells.absent.any() and not aside:
        return replace(category, kind="left out", note="It is the same in every row."), ""
    if cells.holds_dates:
        known = ColumnReading(name=name, kind="date", writing="year-month-day")
        return replace(known, note="" if aside else _grows(cells, known)), ""
    if isinstance(getattr(cells.typed, "dtype", None), pd.CategoricalDtype):
        return category, ""
    date, unsure = _as_date(cells, hints)
    if date is not None:
        return replace(date, note="" if aside else _grows(cells, date)), unsure
    number, unsure = _as_number(cells, hints)
    codes = cells.are_codes(name) if number is not None and not number.unit and number.decimal in ("", ".") else ""
    if number is not None and not codes:
        why = "" if aside else _names_rows(name, cells, number)
        if why:
            return replace(number, kind="identifier", note=why), ""
        notes = (_repeated_id(name, number), _filler(cells, number), _grows(cells, number))
        return replace(number, note="" if aside else " ".join(filter(None, notes))), unsure
    if set(cells.present.str.lower()) in [*TRUTH] or any(set(cells.present.str.lower()) < pair for pair in TRUTH):
        return replace(category, writing="truth"), ""
    units = _mixed_units(cells)
    if units:
        return replace(category, kind="left out", note=units), ""
    why = "" if aside else _names_rows(name, cells, None)
    if why:
        return replace(category, kind="identifier", note=why), ""
    return replace(category, note="" if aside else _many_levels(name, cells, codes)), ""


def _as_given(name: str, cells: _Cells, hints: _Hints, given: str) -> tuple[ColumnReading, str]:
    if given == "category":
        return ColumnReading(name=name, kind="category"), ""
    reading, unsure = (_as_number if given == "number" else _as_date)(cells, hints, 0.5)
    if reading is None:
        raise InputError(f"Column {name!r} cannot be read as a {given}: it holds {cells.words()!r}.")
    return reading, unsure


def _many_levels(name: str, cells: _Cells, codes: str) -> str:
    """What to say of a category that is hardly one; text is refused."""
    present = cells.present
    if codes:
        return f"Read as a category: {codes}."
    mostly_distinct = cells.n_present >= ROWS_TO_JUDGE and len(present) > cells.n_present / 2
    if mostly_distinct and present.str.count(r"\S+").mean() >= WORDS_IN_TEXT:
        raise InputError(
            f"Column {name!r} holds text, such as {present.iloc[0][:60]!r}. Leave it out (--drop), or turn it to "
            "numbers first, for example with ecrt embed, a sentence encoder or skrub.StringEncoder."
        )
    if len(present) > ROWS_TO_JUDGE and REPEATED_ID.fullmatch(name):
        return (
            f"Its name is that of an id, and its {len(present)} values occur more than once: rows of one id may be "
            "both learned from and tested on. Use --id if it names persons or things."
        )
    if len(present) > MANY_LEVELS:
        digits = present.str.contains("[0-9]").mean() > 0.5
        hint = " If these are numbers or dates, use --na, --decimal or --types, or mend the file." if digits else ""
        return f"It has {len(present)} levels, such as {present.iloc[0][:60]!r}.{hint}"
    return _capitals(present, "levels")


def _capitals(present: pd.Series[Any], what: str) -> str:
    """What to say of words that are the same but for capital letters."""
    small = present.str.lower()
    alike = present[small.isin(small[small.duplicated()])]
    if not len(alike):
        return ""
    shown = sorted(alike[alike.str.lower() == alike.iloc[0].lower()])[:3]
    return f"{', '.join(map(repr, shown))} differ in capital letters only; they are read as different {what}."


def _grows(cells: _Cells, reading: ColumnReading) -> str:
    """What to say of dates or numbers that go with the order of the rows, as those of a log do."""
    if cells.n_present < ROWS_TO_JUDGE or cells.absent.any() or len(cells.present) <= cells.n_present / 2:
        return ""
    values = cells.read(reading)[0]
    if reading.unreadable or not _is_sorted(values.astype(np.int64) if reading.kind == "date" else values):
        return ""
    if reading.kind == "number":
        return (
            "Rows are sorted by it. If it only says when or in which order they came, figures may be too good for "
            "later rows: use --drop to leave it out."
        )
    return (
        "Rows are sorted by it, and test rows are drawn from among them, so figures may be too good for rows of "
        "another time. Use --drop to leave it out."
    )


def _is_sorted(numbers: NDArray[Any]) -> bool:
    steps = np.diff(numbers)
    return bool((steps >= 0).all() or (steps <= 0).all())


def _counts_on(numbers: Array) -> bool:
    """Whether numbers go up, or down, by one from nearly each row to the next."""
    steps = np.diff(numbers)
    return len(steps) >= ROWS_TO_JUDGE - 1 and bool(max((steps == 1).mean(), (steps == -1).mean()) >= 1 - FEW)


def _repeated_id(name: str, number: ColumnReading) -> str:
    """What to say of whole numbers under the name of an id that do occur twice."""
    if not REPEATED_ID.fullmatch(name) or number.unit or number.writing or number.decimal:
        return ""
    return (
        "Its name is that of an id, but values occur more than once, so it is learned from as an amount. Use --id if "
        "it names persons or things, or --types to read it as a category."
    )


def _filler(cells: _Cells, number: ColumnReading) -> str:
    """What to say of a number such as -999 far from all others, which may stand for a missing value."""
    if number.unit or number.writing:
        return ""
    values, _, _ = cells.read(number)
    values = values[~np.isnan(values)]
    for value in (values.min(), values.max()):
        others = values[values != value]
        rows = len(values) - len(others)
        if value not in FILLERS or rows < 3 or not len(others):
            continue
        away = min(abs(value - others.min()), abs(value - others.max()))
        if (value < 0 <= others.min() and value <= -99) or away > 2 * (others.max() - others.min()) > 0:
            return (
                f"{value:g} stands in {rows} rows, and all other values are from {others.min():g} to "
                f"{others.max():g}. Use --na={value:g} if it means that a value is missing."
            )
    return ""


FILLERS = {sign * value for sign in (1, -1) for value in (99, 999, 9999, 99999, 999999)}
"""Numbers that often stand for a missing value."""


def _names_rows(name: str, cells: _Cells, number: ColumnReading | None) -> str:
    """Why a column is one that counts or names rows; nothing if it is none."""
    present = cells.n_present
    named = ID_NAME.fullmatch(name) is not None or ID_NAME.fullmatch(name.lower()) is not None
    if number is not None and (number.unit or number.writing or number.unreadable):
        return ""
    if number is None:
        if not cells.all_differ:
            return ""
        if present < ROWS_TO_JUDGE and not (named and present > 2):
            return ""
        texts = cells.present
        if not named and texts.str.count(r"\S+").mean() >= WORDS_IN_TEXT:
            return ""
        return "It names rows: no value occurs twice."
    numbers, _, _ = cells.read(number)
    numbers = numbers[~np.isnan(numbers)]
    if not (numbers == np.round(numbers)).all():
        return ""
    if not cells.all_differ:
        unnamed = UNNAMED.fullmatch(name) is not None and numbers.min() >= 0 and numbers.max() <= len(cells.codes)
        if unnamed or (_counts_on(numbers) and (named or len(cells.present) > present / 2)):
            return "It counts rows, some numbers more than once. Use --types to keep it."
        return ""
    span = float(numbers.max() - numbers.min()) + 1
    counts = span == present
    if counts and (
        present >= ROWS_TO_JUDGE or (present > 2 and numbers[0] in (0, 1) and (np.diff(numbers) == 1).all())
    ):
        return "It counts rows."
    if named and present > 2:
        return "It names rows: no value occurs twice."
    if _counts_on(numbers):
        return "It counts rows, with gaps. Use --types to keep it."
    if present < ROWS_TO_JUDGE or cells.absent.any():
        return ""
    if _is_sorted(numbers):
        return "It counts rows: whole numbers that grow, or fall, from row to row. Use --types to keep it."
    if present**2 / (2 * span) > REPEATS_EXPECTED:
        return "It names rows: whole numbers close together, and none occurs twice. Use --types to keep it."
    return ""


# --- plain numbers, which most wide tables are full of -----------------------------------------------------------


def _plain_floats(column: pd.Series[Any], sign: str) -> tuple[NDArray[Any], Array] | None:
    """Words and numbers of a column that holds plain numbers and empty cells only."""
    words = column.to_numpy(dtype=object)
    blank = words == ""
    values = np.full(len(words), np.nan)
    present = words[~blank]
    try:
        if sign == ",":
            if any("." in word for word in present):
                return None
            values[~blank] = np.array([word.replace(",", ".") for word in present], dtype=object).astype(np.float64)
        else:
            values[~blank] = present.astype(np.float64)
    except (ValueError, TypeError, AttributeError):
        return None
    if len(present) == 0 or not np.isfinite(values[~blank]).all() or any("_" in word for word in present):
        return None
    return present, values


def _plain_number(name: str, column: pd.Series[Any], na: Sequence[str]) -> ColumnReading | None:
    """The reading of a column that is plainly one of numbers, and nothing else it could be; ``None`` of others."""
    if na or not isinstance(column.dtype, pd.StringDtype) or CODE_NAME.fullmatch(name.lower()):
        return None
    start = next((word for word in column.iloc[:SAMPLE] if word), "")
    sign = "," if "," in start else "."
    found = _plain_floats(column, sign)
    if found is None:
        return None
    words, values = found
    missing = len(values) - len(words)
    numbers = values[~np.isnan(values)]
    if UNNAMED.fullmatch(name) or _is_sorted(numbers) or _counts_on(numbers):
        return None
    if (numbers == np.floor(numbers)).all():
        could_be_code = any(
            len(word) > 15 or (word[0] == "0" and len(word) > 1) or not word.isdigit() for word in words
        )
        could_be_date = numbers.min() >= 19000101 and numbers.max() <= 20991231
        odd = REPEATED_ID.fullmatch(name) or numbers.min() in FILLERS or numbers.max() in FILLERS
        if could_be_code or could_be_date or odd or len(np.unique(numbers)) == len(numbers):
            return None
        return ColumnReading(name=name, kind="number", missing=missing)
    if numbers.min() in FILLERS or numbers.max() in FILLERS:
        return None
    certain = any(sign in word and not re.fullmatch(THOUSANDS, word) for word in words[:SAMPLE])
    return ColumnReading(name=name, kind="number", decimal=sign, missing=missing) if certain else None


def _quick_numbers(column: pd.Series[Any], reading: ColumnReading) -> Array | None:
    """Numbers by a reading, if the column holds plain ones only and nothing needs to be looked at."""
    if reading.kind != "number" or reading.na or reading.unit or reading.writing:
        return None
    if is_numeric_dtype(column.dtype) and not is_bool_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return None if np.isinf(values).any() else values
    if not isinstance(column.dtype, pd.StringDtype) or column.isna().any():
        return None
    found = _plain_floats(column, reading.decimal)
    return None if found is None else found[1]


# --- numbers -------------------------------------------------------------------------------------------------------

EXPONENT = "(?:[eE][+-]?[0-9]+)?"
PLAIN = rf"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+){EXPONENT}"
PLAIN_COMMA = rf"[+-]?(?:[0-9]+,?[0-9]*|,[0-9]+){EXPONENT}"
GROUPS = r"[1-9][0-9]{{0,2}}(?P<mark>{})[0-9]{{3}}(?:(?P=mark)[0-9]{{3}})*"
POINT_NUMBER = re.compile("(?:[0-9]*|" + GROUPS.format("[, ']") + r")(?:\.[0-9]*)?" + EXPONENT)
COMMA_NUMBER = re.compile("(?:[0-9]*|" + GROUPS.format("[. ']") + r")(?:,[0-9]*)?" + EXPONENT)
THOUSANDS = r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+"
TIME = re.compile(r"([0-9]{1,3}):([0-9]{2})(?::([0-9]{2}(?:[.,][0-9]+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?")
CURRENCIES = {
    "$", "€", "£", "¥", "₹", "us$", "usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "fr.", "r$", "brl", "kr", "zł",
    "pln", "czk", "sek", "nok", "dkk", "cad", "aud", "ca$", "a$",
}  # fmt: skip
WRITTEN = re.compile(
    r"(?P<open>\()?(?P<sign>[+-])?\s*(?P<prefix>[^\W\d_]{0,3}[$€£¥₹.]?)\s*(?P<inner>[+-])?"
    rf"(?P<number>[0-9.,](?:[0-9.,' ]*[0-9.,])?{EXPONENT})\s*"
    r"(?P<suffix>[^\d\s+(),;:_-][^\d+(),;:_-]{0,11})?(?P<minus>-)?\)?"
)
SPELLINGS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Distinct values as numbers with a decimal point and with a decimal comma, NaN where they are none.

    Attributes
    ----------
    point_marks, comma_marks : the sign between thousands that was used for it.
    unit : what stands beside the number.
    """

    point: Array
    comma: Array
    point_marks: NDArray[Any]
    comma_marks: NDArray[Any]
    unit: NDArray[Any]

    @classmethod
    def of(cls, cells: _Cells) -> _Numbers:
        text, n = cells.text, len(cells.text)
        empty = np.full(n, "", dtype=object)
        found = cls(np.full(n, np.nan), np.full(n, np.nan), empty, empty.copy(), empty.copy())
        if cells.typed is not None and is_numeric_dtype(cells.typed.dtype):
            found.point[~cells.absent] = _floats(text[~cells.absent])
            found.comma[:] = found.point
            return found
        plain = text.str.fullmatch(PLAIN).to_numpy(dtype=bool) & ~cells.absent
        found.point[plain] = _floats(text[plain])
        comma = text.str.fullmatch(PLAIN_COMMA).to_numpy(dtype=bool) & ~cells.absent
        found.comma[comma] = _floats(text[comma].str.replace(",", ".", regex=False))
        either = np.flatnonzero((plain ^ comma) & text.str.fullmatch(THOUSANDS).to_numpy(dtype=bool))
        for place in either:
            word = text.iloc[place]
            other, marks = (found.comma, found.comma_marks) if plain[place] else (found.point, found.point_marks)
            marks[place] = "." if plain[place] else ","
            other[place] = float(word.replace(marks[place], ""))
        for place in np.flatnonzero(~plain & ~comma & ~cells.absent):
            found._parse(int(place), text.iloc[place])
        return found

    def _parse(self, place: int, word: str) -> None:
        found = WRITTEN.fullmatch(word.translate(SPELLINGS))
        if found is None or (found["open"] is not None) != word.endswith(")"):
            return
        prefix, suffix = found["prefix"].lower(), (found["suffix"] or "").strip()
        if prefix and prefix not in CURRENCIES:
            return
        negative = sum(found[part] in ("-", "(") for part in ("open", "sign", "inner", "minus")) % 2
        self.unit[place] = found["prefix"].strip() or suffix
        for pattern, values, marks, sign in (
            (POINT_NUMBER, self.point, self.point_marks, "."), (COMMA_NUMBER, self.comma, self.comma_marks, ","),
        ):  # fmt: skip
            read = pattern.fullmatch(found["number"])
            if read is not None and any(letter.isdigit() for letter in found["number"]):
                marks[place] = read["mark"] or ""
                number = found["number"].replace(marks[place], "") if marks[place] else found["number"]
                values[place] = float(number.replace(sign, ".")) * (-1 if negative else 1)

    def with_decimal(self, decimal: str) -> tuple[Array, NDArray[Any]]:
        return (self.comma, self.comma_marks) if decimal == "," else (self.point, self.point_marks)

    def read(self, reading: ColumnReading) -> Array:
        """Distinct values as numbers by a reading."""
        values, marks = self.with_decimal(reading.decimal)
        allowed = np.array([mark in reading.thousands for mark in marks], dtype=bool)
        bare_too = reading.unit != "%"
        fits = np.array([_same_unit(unit, reading.unit) or (bare_too and not unit) for unit in self.unit], dtype=bool)
        return np.where(allowed & fits, values, np.nan)


def _mixed_units(cells: _Cells) -> str:
    """What to say of numbers that are written with several units; nothing of other columns."""
    numbers = cells.numbers
    readable = np.isfinite(numbers.point) | np.isfinite(numbers.comma)
    units = sorted({str(unit) or "none" for unit in numbers.unit[readable]})
    if len(units) < 2 or cells.count(readable) < (1 - FEW) * cells.n_present or readable.sum() <= ROWS_TO_JUDGE:
        return ""
    return f"Its numbers have several units ({', '.join(units[:5])}). Write them in one to learn from them."


def _same_unit(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _floats(text: pd.Series[Any]) -> Array:
    return text.to_numpy(dtype=object).astype(np.float64)


def _as_number(cells: _Cells, hints: _Hints, needed: float = 1 - FEW) -> tuple[ColumnReading | None, str]:
    """How a column of numbers is read, if it is one; and, if its decimal sign is not certain, a sentence on it."""
    special = _as_special_number(cells, needed)
    if special is not None:
        return special, ""
    numbers = cells.numbers
    present = np.where(cells.absent, 0, cells.counts)
    readable = np.isfinite(numbers.point) | np.isfinite(numbers.comma)
    unreadable = int((present * ~readable).sum())
    odd = int((~cells.absent & ~readable).sum())
    # Numbers, and a word or two that say why there is none.
    most = 0.5 if odd <= FEW_WORDS and readable.sum() > ROWS_TO_JUDGE else 1 - needed
    if unreadable > most * present.sum() or not readable.any():
        return None, ""
    units: Counter[str] = Counter()
    for unit, weight in zip(numbers.unit[readable], present[readable], strict=True):
        units[unit] += int(weight)
    bare = ColumnReading(name="", kind="number", unit=units.most_common(1)[0][0], thousands=",. '")
    weights = {}
    for sign in ".,":
        weights[sign] = (present * np.isfinite(numbers.read(replace(bare, decimal=sign)))).sum()
    unsure = ""
    same = np.array_equal(numbers.point, numbers.comma, equal_nan=True)
    if weights["."] != weights[","]:
        decimal = "." if weights["."] > weights[","] else ","
    else:
        decimal = "" if same else hints.decimal or "."
        if not same:
            place = np.flatnonzero(np.isfinite(numbers.point) & (numbers.point != numbers.comma))[0]
            value = numbers.with_decimal(decimal)[0][place]
            unsure = f"{cells.text.iloc[place]!r} is read as {value:.15g}; use --decimal if that is wrong."
    values, marks = numbers.with_decimal(decimal)
    used = "".join(sorted({mark for mark in marks[np.isfinite(values)] if mark}))
    reading = replace(bare, decimal=decimal, thousands=used)
    otherwise = int(present[readable & ~np.isfinite(numbers.read(reading))].sum())
    if otherwise > (1 - needed) * present.sum():
        return None, ""
    return replace(reading, unreadable=unreadable + otherwise), unsure


def _as_special_number(cells: _Cells, needed: float) -> ColumnReading | None:
    """Times such as 12:30, read as seconds, and hexadecimal numbers such as 0x1F."""
    present = np.where(cells.absent, 0, cells.counts)
    for writing in SPECIAL:
        if not SPECIAL[writing].fullmatch(cells.present.iloc[0]) and not SPECIAL[writing].fullmatch(
            cells.present.iloc[-1]
        ):
            continue
        unreadable = int(present[np.isnan(_special_numbers(cells.text, writing))].sum())
        if unreadable <= (1 - needed) * present.sum():
            return ColumnReading(name="", kind="number", writing=writing, unreadable=unreadable)
    return None


SPECIAL = {"time": TIME, "hexadecimal": re.compile("0[xX][0-9a-fA-F]{1,13}")}


def _special_numbers(text: pd.Series[Any], writing: str) -> Array:
    def number(word: str) -> float:
        found = SPECIAL[writing].fullmatch(word)
        if found is None:
            return np.nan
        if writing == "hexadecimal":
            return float(int(word, 16))
        hours, minutes, seconds, half = found.groups()
        hour = int(hours) if half is None else int(hours) % 12 + 12 * (half in "pP")
        return 3600.0 * hour + 60 * int(minutes) + float((seconds or "0").replace(",", "."))

    return np.array([number(word) for word in text], dtype=np.float64)


# --- dates ---------------------------------------------------------------------------------------------------------

CLOCK = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?"
)
NUMBERS = r"(?P<{}>\d{{1,2}})(?P<mark>[./-])(?P<{}>\d{{1,2}})(?P=mark)(?P<year>\d{{4}}|\d{{2}})" + CLOCK.replace(
    "{", "{{"
).replace("}", "}}")
DATES = {
    "year-month-day": re.compile(r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})" + CLOCK),
    "day.month.year": re.compile(NUMBERS.format("day", "month")),
    "month/day/year": re.compile(NUMBERS.format("month", "day")),
    "day month year": re.compile(
        r"(?:[^\W\d_]{2,}\.?,?\s+)?(?P<day>\d{1,2})(?:\.|st|nd|rd|th)?[\s-]*(?P<name>[^\W\d_]{3,})\.?[\s,-]*(?P<year>\d{4})"
        + CLOCK
    ),
    "month day year": re.compile(
        r"(?:[^\W\d_]{3,},?\s+)?(?P<name>[^\W\d_]{3,})\.?\s*(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})"
        + CLOCK
    ),
    "yearmonthday": re.compile(r"(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])"),
    "year-month": re.compile(r"(?P<year>(?:19|20)\d{2})[-/](?P<month>\d{1,2})"),
    "month/year": re.compile(r"(?P<month>0[1-9]|1[0-2])[./](?P<year>(?:19|20)\d{2})"),
}
_ORDERS = ("day.month.year", "month/day/year")
MONTHS = [
    ("jan", "ene"), ("feb", "fév", "fev"), ("mar", "mär", "maer", "mrz"), ("apr", "avr", "abr"), ("may", "mai"),
    ("jun", "juin"), ("jul", "juil"), ("aug", "aoû", "aou", "ago"), ("sep",), ("oct", "okt"), ("nov",),
    ("dec", "dez", "déc", "dic"),
]  # fmt: skip
"""How names of months begin in English, German, French and Spanish."""

CENTURY_FROM = 69
"""Years of two digits from here on are of the last century, as in C and Python."""


def _as_date(cells: _Cells, hints: _Hints, needed: float = 1 - FEW) -> tuple[ColumnReading | None, str]:
    """How a column of dates is read, if it is one; and, if day and month may be swapped, a sentence on it."""
    present = np.where(cells.absent, 0, cells.counts)
    sample = cells.present.iloc[:: max(len(cells.present) // SAMPLE, 1)]
    found: dict[str, int] = {}
    for writing, pattern in DATES.items():
        if sum(pattern.fullmatch(word) is not None for word in sample) >= needed * len(sample):
            found[writing] = int(present[np.isnat(_parse_dates(cells.text, writing))].sum())
    if "yearmonthday" in found and (found["yearmonthday"] or len(cells.present) < 2):
        del found["yearmonthday"]  # whole numbers, a few of which could be dates
    if not found:
        return None, ""
    writing = min(found, key=lambda one: found[one])
    if found[writing] > (1 - needed) * present.sum():
        return None, ""
    unsure = ""
    day_first, month_first = (found.get(order, -1) for order in _ORDERS)
    word = str(cells.present.iloc[0])
    if writing in _ORDERS and day_first == month_first:
        first = hints.day_first is True or "." in word.split()[0]
        writing = _ORDERS[0] if first else _ORDERS[1]
        if "." not in word.split()[0]:
            unsure = (
                f"{word!r} is read as {'day, month' if first else 'month, day'}, year: no value tells which is which."
            )
    return ColumnReading(name="", kind="date", writing=writing, unreadable=found[writing]), unsure


SAMPLE = 100


def _parse_dates(text: pd.Series[Any], writing: str) -> NDArray[Any]:
    pattern = DATES[writing]
    return np.array([_date(pattern.fullmatch(word)) for word in text], dtype="datetime64[us]")


def _date(found: re.Match[str] | None) -> datetime | None:
    """The date, in universal time if it has a zone."""
    if found is None:
        return None
    parts = found.groupdict()
    year = int(parts["year"])
    year += 0 if len(parts["year"]) == 4 else 1900 if year >= CENTURY_FROM else 2000
    if parts.get("name"):
        name = parts["name"].lower()
        month = next((number for number, starts in enumerate(MONTHS, 1) if name.startswith(starts)), 0)
    else:
        month = int(parts["month"])
    hour, half = int(parts.get("hour") or 0), parts.get("half")
    if half:
        hour = hour % 12 + 12 * (half in "pP")
    second, fraction = int(parts.get("second") or 0), (parts.get("fraction") or "0").ljust(6, "0")[:6]
    try:
        date = datetime(
            year, month, int(parts.get("day") or 1), hour, int(parts.get("minute") or 0), second, int(fraction)
        )
    except ValueError:
        return None
    zone = parts.get("zone")
    if zone and zone[0] in "+-":
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        try:
            date = date - away if zone[0] == "+" else date + away
        except OverflowError:
            return None
    return date
