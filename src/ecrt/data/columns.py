"""How columns of a table are read: as numbers, categories or dates.

Numbers, times and dates come as people write them: 1,234.50 EUR, (3.5), 12 %, 0x1F, 12:30, 3. März 2021. A
``ColumnReading`` says for each column how it is written. It can be stored, and later files are read by it, so that the
same cell means the same in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec.structs import replace
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_numeric_dtype, is_timedelta64_dtype

from ecrt.arrays import Array
from ecrt.errors import InputError

Words = NDArray[np.object_]

# --- numbers -------------------------------------------------------------------------------------------------------

OTHER_SIGN = {".": ",", ",": "."}
"""The decimal signs, and what then stands between thousands."""

SWAP = str.maketrans(OTHER_SIGN)
EXPONENT = "(?:[eE][+-]?[0-9]+)?"
PLAIN = re.compile(rf"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+){EXPONENT}")
NUMBER = re.compile(
    rf"(?=\.?[0-9])(?:[0-9]*(?:\.[0-9]*)?{EXPONENT}|"
    r"[1-9][0-9]{0,2}(?P<mark>[, '])[0-9]{3}(?:(?P=mark)[0-9]{3})*(?:\.[0-9]*)?)"
)
INDIAN = re.compile(r"[1-9][0-9]?(?P<mark>,)(?:[0-9]{2},)+[0-9]{3}(?:\.[0-9]*)?")
"""A number with commas as in 10,06,286."""

THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")
"""A number that may have signs between thousands."""

CURRENCIES = {
    "$", "€", "£", "¥", "₹", "us$", "usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "fr.", "r$", "brl", "kr", "zł",
    "pln", "czk", "sek", "nok", "dkk", "cad", "aud", "ca$", "a$", "rub", "krw", "mxn", "zar", "sgd", "hkd",
    "nzd", "twd", "thb", "huf", "ron", "uah", "ils", "idr", "rs.", "rp.",
}  # fmt: skip
SIZES = {
    "k": 1e3, "tsd": 1e3, "thousand": 1e3, "lakh": 1e5, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6, "crore": 1e7,
    "b": 1e9, "bn": 1e9, "mrd": 1e9, "billion": 1e9, "tn": 1e12, "trillion": 1e12,
}  # fmt: skip
"""What stands behind a number for its last zeros, in small letters."""

SIZE = re.compile(
    rf"(?P<size>{'|'.join(SIZES)})\.?(?:\s*(?P<currency>{'|'.join(map(re.escape, sorted(CURRENCIES)))}))?",
    re.IGNORECASE,
)
SCALED = "K, M, bn"
"""The unit of a column whose numbers have these behind them, and no currency."""

PREFIXED = re.compile(
    r"[mp](?:|wh?|hz|pa|va?|ah?|[gmlbsjnt]|bits?|bps|bar|mol|ev|\u03c9|ohm)(?:[/²³^ ].*)?", re.IGNORECASE
)
"""Units in which a small and a capital first letter differ: mW is not MW."""

WITH_UNIT = re.compile(
    r"(?P<open>\()?(?P<sign>[+-])?\s*"
    r"(?P<prefix>[^\W\d_]{1,3}\.?|[^\W\d_]{0,3}[$£¥\u20a0-\u20bf]|)\s*(?P<inner>[+-])?"
    rf"(?P<number>[0-9.,](?:[0-9.,' ]*[0-9.,])?{EXPONENT})\s*"
    r"(?:(?<=[.,])(?:--?|\u2014)\s*)?(?P<suffix>[^\d\s+(),;:_\u00b2\u00b3\u00b9\u00bc-\u00be\u2070-\u209f\u2150-\u215f-][^\d+(),;:_-]{0,11})?(?P<minus>-)?\)?"
)
"""A number and what stands around it; 5,- has no cents. Fractions such as ½ and powers are no units."""


def size_of(unit: str) -> float | None:
    """What K, M or bn behind a number means, if it is that; a small m or b alone may be metres or bits."""
    return None if unit in ("m", "b") else SIZES.get(unit.lower().removesuffix("."))


def _unit_key(unit: str) -> str:
    """The same for units that differ in capital letters only, unless these matter."""
    return unit[:1] + unit[1:].lower() if PREFIXED.fullmatch(unit) else unit.lower()


SPELLINGS = str.maketrans({
    "\u2212": "-", "\u2013": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u066b": ".",
    "\u066c": ",", "\uff0e": ".", "\uff0c": ",", "\uff0d": "-", "\uff0b": "+", "\uff05": "%", "\uffe5": "¥",
    **{chr(zero + digit): str(digit) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for digit in range(10)},
})  # fmt: skip
"""Signs and digits of other scripts and fonts."""


@dataclass(frozen=True, eq=False)
class WrittenNumbers:
    """Words as numbers, for each decimal sign.

    Attributes
    ----------
    values : NaN where a word is not a number.
    marks : the sign between thousands in each word.
    units : what stands beside each number. With a currency, numbers are already multiplied by what K, M or bn means.
    """

    values: dict[str, Array]
    marks: dict[str, Words]
    units: Words

    @classmethod
    def of(cls, words: Words) -> WrittenNumbers:
        """Read words as numbers; an empty one is no number."""
        n = len(words)
        values = {sign: np.full(n, np.nan) for sign in OTHER_SIGN}
        marks = {sign: np.full(n, "", object) for sign in OTHER_SIGN}
        found = cls(values, marks, np.full(n, "", object))
        for place in np.flatnonzero(words != "").tolist():
            found._read(place, words[place])
        return found

    def _read(self, place: int, word: str) -> None:
        found = WITH_UNIT.fullmatch(word.translate(SPELLINGS))
        if found is None or (found["open"] is not None) != word.endswith(")"):
            return
        prefix = found["prefix"]
        if prefix and prefix.lower() not in CURRENCIES and prefix.rstrip(".").isalpha():  # NT$ is one, too
            return
        signs = [found["open"], found["sign"], found["inner"], found["minus"]]
        negative = (signs.count("-") + signs.count("(")) % 2
        suffix, factor = (found["suffix"] or "").strip(), -1.0 if negative else 1.0
        size = SIZE.fullmatch(suffix)
        if size is not None and (prefix or size["currency"]):
            suffix, factor = size["currency"] or "", factor * SIZES[size["size"].lower()]
        self.units[place] = f"{prefix} {suffix}".strip()
        for sign in OTHER_SIGN:
            number = found["number"] if sign == "." else found["number"].translate(SWAP)
            read = NUMBER.fullmatch(number) or (INDIAN.fullmatch(number) if sign == "." else None)
            if read is not None:
                mark = read["mark"] or ""
                self.marks[sign][place] = mark if sign == "." else mark.translate(SWAP)
                self.values[sign][place] = float(number.replace(mark, "")) * factor

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Which words are numbers with one decimal sign or the other."""
        return np.isfinite(self.values["."]) | np.isfinite(self.values[","])

    def read(self, decimal: str, thousands: str, unit: str) -> Array:
        """Words as numbers that are written in this way; without the unit too, unless it changes the amount."""
        values, marks = self.values[decimal or "."].copy(), self.marks[decimal or "."]
        for mark in set(marks) - {"", *thousands}:
            values[marks == mark] = np.nan
        scaled = unit == SCALED or unit.lower() in CURRENCIES
        for found in set(self.units):
            if scaled and size_of(found):
                values[self.units == found] *= size_of(found)
            elif _unit_key(found) != _unit_key(unit) and (found or unit == "%" or size_of(unit)):
                values[self.units == found] = np.nan
        return values

    def doubtful(self, decimal: str, thousands: str) -> NDArray[np.bool_]:
        """Which words may be written the other way round, as 5.022 in a file where thousands were written 5,022.

        A number with its thousands separated as expected, or with a fraction of other than three digits, settles it.
        """
        sign = decimal or "."
        other = OTHER_SIGN[sign]
        swapped = np.asarray(self.marks[other] == sign, dtype=bool)
        fractions = np.isfinite(self.values[sign]) & (self.values[sign] % 1 != 0)
        settled = (self.marks[sign] == other) | (fractions & np.isnan(self.values[other]))
        return swapped if other in thousands and not settled.any() else np.zeros(len(swapped), dtype=bool)


def plain_numbers(words: Words) -> tuple[str, Array] | None:
    """The decimal sign and the numbers, if all words are digits with the same decimal sign or without.

    This is a quick answer for most columns of numbers. It is ``None`` where there is more to them, or where each such
    sign may stand between thousands.
    """
    letters = set("".join(words))
    sign = "," if "," in letters else "."
    certain = sign not in letters or any(sign in word and not THOUSANDS.fullmatch(word) for word in words)
    if certain and letters <= {*"0123456789+-eE", sign}:
        text = words if sign == "." else np.array([word.replace(sign, ".") for word in words], dtype=object)
        with suppress(ValueError):
            return sign if sign in letters else "", text.astype(np.float64)
    return None


# --- times and dates ------------------------------------------------------------------------------------------------


def _hour(hour: str, half: str | None) -> int:
    return int(hour) if half is None else int(hour) % 12 + 12 * (half in "pP")


def _seconds(time: re.Match[str]) -> float:
    hour, minute, second, half = time.groups()
    return 3600.0 * _hour(hour, half) + 60 * int(minute) + float((second or "0").replace(",", "."))


def _minutes_first(time: re.Match[str]) -> float:
    first, second, third, half = time.groups()
    return _seconds(time) if third or half else 60.0 * int(first) + float(second.replace(",", "."))


_REST = r"(?::([0-9]{2}(?:[.,][0-9]+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?"
TIME = re.compile("([0-9]{1,3}):([0-9]{2})" + _REST)
LAP = re.compile("([0-9]{1,3}):([0-9]{2}(?:[.,][0-9]+$)?)" + _REST)
"""A time, or minutes and seconds with a fraction."""

SPECIAL: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], float]]] = {
    "time": (TIME, _seconds),
    "minutes:seconds": (LAP, _minutes_first),
    "hexadecimal": (re.compile("0[xX][0-9a-fA-F]{1,13}"), lambda found: float(int(found[0], 16))),
}
"""Numbers of another kind: times such as 12:30, read as seconds, and 0x1F.

In a column of minutes and seconds, such as 42:16 or 3:13.5, values of three parts have hours, too.
"""

CLOCK = (
    r"(?:(?:T|:|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?\s*(?P<zone>Z|(?:UTC|GMT)?(?:[+-]\d{1,2}(?::?\d{2})?)?))?"
)
ZONE = re.compile(r"([+-])(\d{1,2}):?(\d{2})?$")
YEAR = r"(?P<year>(?:19|20)\d{2})"
DATES = {
    writing: re.compile(pattern)
    for writing, pattern in {
        "year-month-day": r"(?P<year>\d{4})[-/.年]\s*(?P<month>\d{1,2})[-/.月]\s*(?P<day>\d{1,2})[.日]?" + CLOCK,
        "day.month.year": r"(?P<day>\d{1,2})(?P<mark>[./-])(?P<month>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + CLOCK,
        "month/day/year": r"(?P<month>\d{1,2})(?P<mark>[./-])(?P<day>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + CLOCK,
        "day month year": r"(?:[^\W\d_]{2,}\.?,?\s+)?(?P<day>\d{1,2})(?:\.|st|nd|rd|th)?[\s/-]*(?:de\s+)?"
        r"(?P<name>[^\W\d_]{3,})\.?[\s,/-]*(?:del?\s+)?(?P<year>\d{4}|\d{2})" + CLOCK,
        "month day year": r"(?:[^\W\d_]{3,},?\s+)?(?P<name>[^\W\d_]{3,})\.?\s*(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+"
        r"(?P<year>\d{4})" + CLOCK,
        "yearmonthday": YEAR + r"(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])",
        "daymonthyear": r"(?P<day>0[1-9]|[12]\d|3[01])(?P<month>0[1-9]|1[0-2])" + YEAR,
        "year-month": YEAR + r"[-/](?P<month>\d{1,2})",
        "month/year": r"(?P<month>0[1-9]|1[0-2])[./]" + YEAR,
    }.items()
}
YEAR_FIRST, DAY_FIRST, MONTH_FIRST = "year-month-day", "day.month.year", "month/day/year"
SHORT_YEARS = (DAY_FIRST, MONTH_FIRST, "day month year")
"""Ways of writing in which years may have two digits."""

MONTHS = [
    ("jan", "ene", "gen"), ("feb", "fév", "fev"), ("mar", "mär", "maer", "mrz", "maa", "mrt"), ("apr", "avr", "abr"),
    ("may", "mai", "mei", "mag"), ("jun", "juin", "giu"), ("jul", "juil", "lug"), ("aug", "aoû", "aou", "ago"),
    ("sep", "set"), ("oct", "okt", "out", "ott"), ("nov",), ("dec", "dez", "déc", "dic"),
]  # fmt: skip
"""How names of months begin in English, German, French, Spanish, Portuguese, Italian and Dutch."""

FIRST_YEAR = 1969
"""Years of two digits are this one and the 99 after it, as in C and Python, unless a column says otherwise."""


def parse(words: Iterable[str], writing: str, first_year: int = FIRST_YEAR) -> NDArray[Any]:
    """Words as dates or numbers that are written in one of the ways of ``DATES`` and ``SPECIAL``; NaT or NaN elsewhere.

    Dates with a time zone are given in universal time; years of two digits begin with ``first_year``.
    """
    pattern, value = (DATES[writing], partial(_date, first_year)) if writing in DATES else SPECIAL[writing]
    found = (pattern.fullmatch(word) for word in words)
    values = [None if one is None else value(one) for one in found]
    return np.array(values, dtype="datetime64[us]" if writing in DATES else np.float64)


def _date(first_year: int, found: re.Match[str]) -> datetime | None:
    parts: dict[str, Any] = found.groupdict()
    year, zone = int(parts["year"]), parts.get("zone") or ""
    if len(parts["year"]) == 2:
        year = first_year + (year - first_year) % 100
    if "name" in parts:
        name = parts["name"].lower()
        month = next((number for number, starts in enumerate(MONTHS, 1) if name.startswith(starts)), 0)
    else:
        month = int(parts["month"])
    try:
        date = datetime(
            year, month, int(parts.get("day") or 1), _hour(parts.get("hour") or "0", parts.get("half")),
            int(parts.get("minute") or 0), int(parts.get("second") or 0),
            int((parts.get("fraction") or "0").ljust(6, "0")[:6]),
        )  # fmt: skip
        shift = ZONE.search(zone)
        if shift is not None:
            date -= timedelta(hours=int(shift[1] + shift[2]), minutes=int(shift[1] + (shift[3] or "0")))
    except (ValueError, OverflowError):
        return None
    return date


# --- columns ----------------------------------------------------------------------------------------------------------

ColumnKind = Literal["number", "category", "date", "identifier", "left out"]
Role = Literal["input", "target", "aside", "id"]
TYPES = ("number", "category", "date")

ABSENT = {
    "", "#n/a", "#n/a n/a", "#na", "-1.#ind", "-1.#qnan", "-nan", "1.#ind", "1.#qnan", "<na>", "n/a", "na", "null",
    "nan", "none", "?", "<null>", "-", "--", ".", "n.a.", "k.a.", "#div/0!", "#value!", "#ref!", "#name?", "#num!",
    "#nv", "#wert!", "#bezug!", "#zahl!", "\\n", "(null)", "nat", "0000-00-00", "0000-00-00 00:00:00",
}  # fmt: skip
"""Signs for a missing value in a column that is learned from, in small letters; capital letters mean the same."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How a table is written, as far as the user says it; the rest is found out from the file.

    Attributes
    ----------
    encoding : of a text file, such as ``"latin-1"``.
    decimal : decimal sign, ``"."`` or ``","``, for columns that could be read with either. If the file is read as an
        earlier one was, the decimal sign of this file.
    na : further signs for a missing value. In a target, only these and an empty cell mean that it is missing.
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
    kind : numbers, categories and dates are used for learning; columns that name or count rows, or are empty, are not.
    role : input, target, or what is kept beside them: ids as they are written, other columns by their kind.
    missing, unreadable : rows without a value, and rows whose value could not be read and counts as missing; in a file
        that is read as an earlier one was, also levels that are new.
    levels : of a category.
    decimal, thousands, unit : how numbers are written: the decimal sign, signs between thousands, and what stands
        beside the number.
    writing : order of a date's parts; a key of ``SPECIAL`` of numbers; ``"truth"`` of categories whose capital
        letters say nothing.
    first_year : of the hundred that years of two digits mean; 0 where a date has none.
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
    first_year: int = 0
    na: tuple[str, ...] = ()
    note: str = ""

    @property
    def is_used(self) -> bool:
        """Whether the column is learned from."""
        return self.role == "input" and self.kind in TYPES

    def check(self) -> None:
        """Refuse a reading that came from a file, and that no table could have given."""
        writings = {"number": ("", *SPECIAL), "date": (*DATES,), "category": ("", "truth", "lists")}
        if (
            min(self.missing, self.unreadable, self.first_year) < 0
            or self.writing not in writings.get(self.kind, (self.writing,))
            or self.decimal not in ("", ".", ",")
            or not set(self.thousands) <= set(",. '")
            or len(set(self.levels)) < len(self.levels)
        ):
            raise InputError(f"Column {self.name!r} is not read in a way that is known.")


def read_columns(
    table: pd.DataFrame, readings: Iterable[ColumnReading], *, decimal: str | None = None
) -> tuple[pd.DataFrame, tuple[ColumnReading, ...]]:
    """Read columns by their readings, as floats, Categoricals of strings, or dates.

    The readings that are given back count what this table lacks, and note what of it cannot be used.

    Parameters
    ----------
    decimal : decimal sign of this file, if it is known; else that of the readings, and numbers that may be meant the
        other way round cannot be read.
    """
    typed: dict[str, Any] = {}
    found: list[ColumnReading] = []
    for reading in readings:
        if reading.kind not in TYPES:
            continue
        column, how, note = table[reading.name], reading, ""
        if decimal and reading.kind == "number":
            swapped = reading.decimal not in ("", decimal)  # that sign then stood between thousands
            thousands = reading.thousands.translate(SWAP) if swapped else reading.thousands
            how = replace(reading, decimal=decimal, thousands=thousands)
        values = _stored_numbers(column, how)
        if values is not None:
            missing, useless = int(np.isnan(values).sum()), 0
        else:
            cells = Cells.of(column, reading.na)
            values, unusable = cells.read(how)
            if reading.kind == "number" and reading.thousands and decimal is None:
                doubtful = cells.numbers.doubtful(reading.decimal, reading.thousands)
                values[doubtful[cells.codes]] = np.nan
                unusable |= doubtful
            missing, useless = cells.count(cells.absent), cells.count(unusable)
            what = "new levels" if reading.kind == "category" else "unreadable"
            parts = [f"{n / len(table):.0%} {word}" for n, word in ((useless, what), (missing, "missing")) if n]
            note = f"{', '.join(parts)}, such as {cells.example(unusable)!r}" if useless else ""
        typed[reading.name] = values
        found.append(replace(reading, missing=missing, unreadable=useless, note=note))
    return pd.DataFrame(typed, index=table.index), tuple(found)


def _stored_numbers(column: pd.Series[Any], reading: ColumnReading) -> NDArray[np.float64] | None:
    """Numbers of a column where single cells need no look: stored as such, or written with a decimal sign alone."""
    if reading.kind != "number" or reading.na or reading.unit or reading.writing:
        return None
    values = None
    if _is_numeric(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(column.dtype, pd.StringDtype):
        found = plain_numbers(as_text(column))
        values = found[1] if found is not None and found[0] in ("", reading.decimal or ".") else None
    return None if values is None or np.isinf(values).any() else values


def _is_numeric(dtype: Any) -> bool:
    return is_numeric_dtype(dtype) and not is_bool_dtype(dtype)


EXCEL_TEXT = re.compile(r"""^="([^"]*)"$|^'([+-]?[0-9.,]*[0-9])$""")
"""How Excel is told that a cell holds text, which is no part of the value."""

STORED = "\x1f"
"""Behind the text of a value that is stored as a number or date, as long as it must differ from the same text."""


def _are_stored(column: pd.Series[Any]) -> NDArray[np.bool_]:
    """Which cells hold a number or a date, rather than text that may mean one."""
    if column.dtype != object:
        return np.full(len(column), _is_numeric(column.dtype) or is_datetime64_any_dtype(column.dtype))
    kinds = (int, float, Decimal, np.number, date)
    found = [isinstance(value, kinds) and not isinstance(value, bool) for value in column]
    return np.array(found, dtype=bool) & column.notna().to_numpy(dtype=bool)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a column: distinct values as text, which of them mean a missing value, and the rows of each.

    ``stored`` are numbers and dates that the file itself holds as such. There is no doubt about them: they are not read
    in the way in which text of the column is written.
    """

    codes: NDArray[np.int64]
    text: NDArray[Any]
    counts: NDArray[np.int64]
    absent: NDArray[np.bool_]
    stored: NDArray[np.bool_]
    dtype: Any  # of the column in the file

    @classmethod
    def of(cls, column: pd.Series[Any], na: Sequence[str], signs: set[str] = ABSENT) -> Cells:
        """The cells of a column, with the signs that mean a missing value."""
        if isinstance(column.dtype, pd.CategoricalDtype):
            signs = {""}
        dtype = column.dtype
        if is_timedelta64_dtype(dtype):
            column = column.dt.total_seconds()
        words, is_stored = as_text(column), _are_stored(column)
        codes, keys = pd.factorize(np.where(is_stored, words + STORED, words) if is_stored.any() else words)
        if any(key[:1] in ("=", "'") for key in keys):
            places, keys = pd.factorize(np.array([EXCEL_TEXT.sub(r"\1\2", key).strip() for key in keys], dtype=object))
            codes = places[codes]
        text = np.array([key.removesuffix(STORED) for key in keys], dtype=object) if is_stored.any() else keys
        stored = np.asarray(text != keys, dtype=bool)
        absent = np.fromiter(map(signs.__contains__, map(str.lower, text)), bool, len(text))
        if na:
            said = {without_zeros(sign.strip()) for sign in na}
            absent |= np.array([without_zeros(word) in said for word in text], dtype=bool)
        return cls(codes, text, np.bincount(codes, minlength=len(text)), absent, stored, dtype)

    @cached_property
    def present(self) -> NDArray[Any]:
        """Distinct values that do not mean a missing one."""
        return self.text[~self.absent]

    @cached_property
    def numbers(self) -> WrittenNumbers:
        """Distinct values as numbers."""
        found = WrittenNumbers.of(np.where(self.absent | self.stored, "", self.text))
        amounts = self.stored & ~self.absent & np.isnat(self.dates)
        for values in found.values.values():
            values[amounts] = self.text[amounts].astype(np.float64)
        return found

    @cached_property
    def dates(self) -> NDArray[np.datetime64]:
        """Distinct values that are stored as dates; NaT elsewhere."""
        found = np.full(len(self.text), "NaT", dtype="datetime64[us]")
        if not _is_numeric(self.dtype):
            found[self.stored] = parse(self.text[self.stored], YEAR_FIRST)
        return found

    def parse(self, writing: str, first_year: int = 0) -> NDArray[Any]:
        """Distinct values as dates or numbers that are written in one of the ways of ``DATES`` and ``SPECIAL``."""
        found = parse(self.text, writing, first_year or FIRST_YEAR)
        if writing in DATES:
            return np.where(np.isnat(self.dates), found, self.dates)
        seconds = SPECIAL[writing][0] in (TIME, LAP) and is_timedelta64_dtype(self.dtype)
        return np.where(self.stored, self.numbers.values["."], found) if seconds else found

    @cached_property
    def plain(self) -> tuple[str, NDArray[np.float64]] | None:
        """The decimal sign and the numbers, if all distinct values are digits with that sign or without."""
        found = None if self.stored.any() else plain_numbers(self.present)
        if found is None:
            return None
        numbers = np.full(len(self.text), np.nan)
        numbers[~self.absent] = found[1]
        return found[0], numbers

    @cached_property
    def n_present(self) -> int:
        """Rows with a value."""
        return self.count(~self.absent)

    @property
    def all_differ(self) -> bool:
        """Whether no value occurs twice."""
        return len(self.present) == self.n_present

    @property
    def holds_dates(self) -> bool:
        """Whether the file itself has dates here, and nothing else."""
        return not np.isnat(self.dates[~self.absent]).any()

    def count(self, which: NDArray[np.bool_]) -> int:
        """Rows with one of some distinct values."""
        return int(self.counts[which].sum())

    def example(self, which: NDArray[np.bool_]) -> str:
        """The first of some distinct values."""
        return str(self.text[which][0])[:60] if which.any() else ""

    def read(self, reading: ColumnReading) -> tuple[Any, NDArray[np.bool_]]:
        """Values of all rows by a reading, and which distinct values cannot be read or are new levels."""
        if reading.kind == "category":
            words = pd.Series(self.text, dtype=object)
            words = (words.str.lower() if reading.writing == "truth" else words).mask(self.absent, None)
            new = ~words.isin(reading.levels).to_numpy() & ~self.absent
            levels = pd.Index([*reading.levels, *sorted(set(words[new]))], dtype=object)
            return pd.Categorical(words.to_numpy()[self.codes], categories=levels), new & bool(reading.levels)
        if reading.kind == "date":
            dates = self.parse(reading.writing, reading.first_year)
            return dates[self.codes], np.isnat(dates) & ~self.absent
        if reading.writing:
            numbers = self.parse(reading.writing)
        elif self.plain is not None and self.plain[0] in ("", reading.decimal or ".") and reading.unit != "%":
            numbers = self.plain[1].copy()
        else:
            numbers = self.numbers.read(reading.decimal, reading.thousands, reading.unit)
        numbers[~np.isfinite(numbers)] = np.nan
        return numbers[self.codes], np.isnan(numbers) & ~self.absent


def without_zeros(word: str) -> str:
    """A whole number without the zeros behind its decimal sign, as in -999.0; other words as they are."""
    return re.sub(r"^(-?[0-9]+)[.,]0{1,2}$", r"\1", word)


def signs_not_found(table: pd.DataFrame, na: Sequence[str]) -> list[str]:
    """The signs for a missing value that no cell holds."""
    found = {without_zeros(word) for _, column in table.items() for word in as_text(column)} if na else set()
    return [sign for sign in na if without_zeros(sign.strip()) not in found]


AN_HOUR = timedelta(hours=1)


def as_text(column: pd.Series[Any], missing: str = "") -> NDArray[Any]:
    """Values as strings without spaces around them, and whole floats as whole numbers.

    Files differ in the spaces they keep, and a gap elsewhere in the column must not change 3 to 3.0.
    """

    def text(value: Any) -> str:
        if isinstance(value, (float, np.floating)):
            return str(int(value)) if float(value).is_integer() else repr(float(value))
        if isinstance(value, timedelta):  # 26:00:00, not 1 day, 2:00:00
            return f"{value // AN_HOUR}:{str(value % AN_HOUR).partition(':')[2]}"
        return str(value).strip()

    if isinstance(column.dtype, pd.StringDtype):
        return np.array([*map(str.strip, column.fillna(missing).to_numpy(dtype=object))], dtype=object)
    gaps, values = column.isna().to_numpy(dtype=bool), column.astype(object).to_numpy()
    words = [missing if gap else text(value) for value, gap in zip(values, gaps, strict=True)]
    return np.array(words, dtype=object)


# --- how columns were read, for the terminal, the page and the card --------------------------------------------------

HEADINGS = ("Column", "Kind", "Written", "Missing", "Levels", "Note")
ColumnRow = tuple[str, str, str, str, str, str]
"""A column, or several that were read in the same way, in words: a cell for each of ``HEADINGS``."""

MOST_ROWS = 30
"""Columns that are listed one by one; of more, those that were read in the same way share a row."""

MOST_NAMES = 3


def column_rows(columns: Sequence[ColumnReading], most: int = MOST_ROWS) -> list[ColumnRow]:
    """A row for each column; of more than ``most`` columns, inputs that were read in the same way share one."""
    if len(columns) <= most:
        return [_row([column]) for column in columns]
    groups: dict[tuple[str, ...], list[ColumnReading]] = {}
    for column in columns:
        same = (_kind(column), _written(column), column.note)
        groups.setdefault(("", *same) if column.role == "input" else (column.name,), []).append(column)
    rows = [_row(group) for group in groups.values()]
    return rows if len(rows) <= most else [*rows[:most], (f"and {len(rows) - most:,} more", "", "", "", "", "")]


def _row(group: list[ColumnReading]) -> ColumnRow:
    names = [column.name for column in group]
    shown = ", ".join(names)
    if len(names) > MOST_NAMES:
        shown = f"{', '.join(names[: MOST_NAMES - 1])}, …, {names[-1]} ({len(names):,} columns)"
    levels = [len(column.levels) for column in group if column.kind == "category" and column.levels]
    return (
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
