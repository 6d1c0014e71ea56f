"""Numbers, times and dates as people write them: 1,234.50 EUR, (3.5), 12 %, 0x1F, 12:30, 3. März 2021."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
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
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:[.,][0-9]{3})+")
"""A number that may have signs between thousands."""

CURRENCIES = {
    "$", "€", "£", "¥", "₹", "us$", "usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "fr.", "r$", "brl", "kr", "zł",
    "pln", "czk", "sek", "nok", "dkk", "cad", "aud", "ca$", "a$",
}  # fmt: skip
WITH_UNIT = re.compile(
    r"(?P<open>\()?(?P<sign>[+-])?\s*(?P<prefix>[^\W\d_]{1,3}\.?|[^\W\d_]{0,3}[$€£¥₹]|)\s*(?P<inner>[+-])?"
    rf"(?P<number>[0-9.,](?:[0-9.,' ]*[0-9.,])?{EXPONENT})\s*"
    r"(?P<suffix>[^\d\s+(),;:_-][^\d+(),;:_-]{0,11})?(?P<minus>-)?\)?"
)
SPELLINGS = str.maketrans({"\u2212": "-", "\u2013": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})


@dataclass(frozen=True, eq=False)
class WrittenNumbers:
    """Words as numbers, for each decimal sign.

    Attributes
    ----------
    values : NaN where a word is not a number.
    marks : the sign between thousands in each word.
    units : what stands beside each number.
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
        for place, word in enumerate(words):
            found._read(place, word)
        return found

    @classmethod
    def known(cls, values: Array) -> WrittenNumbers:
        """Numbers that the file itself holds as such."""
        empty = np.full(len(values), "", object)
        return cls(dict.fromkeys(OTHER_SIGN, values), dict.fromkeys(OTHER_SIGN, empty), empty)

    def _read(self, place: int, word: str) -> None:
        found = WITH_UNIT.fullmatch(word.translate(SPELLINGS))
        if found is None or (found["open"] is not None) != word.endswith(")"):
            return
        if found["prefix"] and found["prefix"].lower() not in CURRENCIES:
            return
        signs = [found["open"], found["sign"], found["inner"], found["minus"]]
        negative = (signs.count("-") + signs.count("(")) % 2
        self.units[place] = found["prefix"].strip() or (found["suffix"] or "").strip()
        for sign in OTHER_SIGN:
            number = found["number"] if sign == "." else found["number"].translate(SWAP)
            read = NUMBER.fullmatch(number)
            if read is not None:
                mark = read["mark"] or ""
                self.marks[sign][place] = mark if sign == "." else mark.translate(SWAP)
                self.values[sign][place] = float(number.replace(mark, "")) * (-1 if negative else 1)

    @property
    def readable(self) -> NDArray[np.bool_]:
        """Which words are numbers with one decimal sign or the other."""
        return np.isfinite(self.values["."]) | np.isfinite(self.values[","])

    def read(self, decimal: str, thousands: str, unit: str) -> Array:
        """Words as numbers that are written in this way; without the unit too, unless it is a percentage."""
        values, marks = self.values[decimal or "."].copy(), self.marks[decimal or "."]
        for mark in set(marks) - {"", *thousands}:
            values[marks == mark] = np.nan
        for found in set(self.units):
            if found.lower() != unit.lower() and (found or unit == "%"):
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
        settled = (self.marks[sign] == other) | (fractions & ~swapped)
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


SPECIAL: dict[str, tuple[re.Pattern[str], Callable[[re.Match[str]], float]]] = {
    "time": (
        re.compile(r"([0-9]{1,3}):([0-9]{2})(?::([0-9]{2}(?:[.,][0-9]+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?"),
        _seconds,
    ),
    "hexadecimal": (re.compile("0[xX][0-9a-fA-F]{1,13}"), lambda found: float(int(found[0], 16))),
}
"""Numbers of another kind: times such as 12:30, read as seconds, and 0x1F."""

CLOCK = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?"
)
YEAR = r"(?P<year>(?:19|20)\d{2})"
DATES = {
    writing: re.compile(pattern)
    for writing, pattern in {
        "year-month-day": r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})" + CLOCK,
        "day.month.year": r"(?P<day>\d{1,2})(?P<mark>[./-])(?P<month>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + CLOCK,
        "month/day/year": r"(?P<month>\d{1,2})(?P<mark>[./-])(?P<day>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})" + CLOCK,
        "day month year": r"(?:[^\W\d_]{2,}\.?,?\s+)?(?P<day>\d{1,2})(?:\.|st|nd|rd|th)?[\s-]*"
        r"(?P<name>[^\W\d_]{3,})\.?[\s,-]*(?P<year>\d{4})" + CLOCK,
        "month day year": r"(?:[^\W\d_]{3,},?\s+)?(?P<name>[^\W\d_]{3,})\.?\s*(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+"
        r"(?P<year>\d{4})" + CLOCK,
        "yearmonthday": YEAR + r"(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01])",
        "year-month": YEAR + r"[-/](?P<month>\d{1,2})",
        "month/year": r"(?P<month>0[1-9]|1[0-2])[./]" + YEAR,
    }.items()
}
YEAR_FIRST, DAY_FIRST, MONTH_FIRST = "year-month-day", "day.month.year", "month/day/year"
MONTHS = [
    ("jan", "ene"), ("feb", "fév", "fev"), ("mar", "mär", "maer", "mrz"), ("apr", "avr", "abr"), ("may", "mai"),
    ("jun", "juin"), ("jul", "juil"), ("aug", "aoû", "aou", "ago"), ("sep",), ("oct", "okt"), ("nov",),
    ("dec", "dez", "déc", "dic"),
]  # fmt: skip
"""How names of months begin in English, German, French and Spanish."""

CENTURY_FROM = 69
"""Years of two digits from here on are of the last century, as in C and Python."""


def parse(words: Iterable[str], writing: str) -> NDArray[Any]:
    """Words as dates or numbers that are written in one of the ways of ``DATES`` and ``SPECIAL``; NaT or NaN elsewhere.

    Dates with a time zone are given in universal time.
    """
    pattern, value = (DATES[writing], _date) if writing in DATES else SPECIAL[writing]
    found = (pattern.fullmatch(word) for word in words)
    values = [None if one is None else value(one) for one in found]
    return np.array(values, dtype="datetime64[us]" if writing in DATES else np.float64)


def _date(found: re.Match[str]) -> datetime | None:
    parts: dict[str, Any] = found.groupdict()
    year, zone = int(parts["year"]), parts.get("zone") or ""
    if len(parts["year"]) == 2:
        year += 1900 if year >= CENTURY_FROM else 2000
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
        if zone.startswith(("+", "-")):
            date -= timedelta(hours=int(zone[:3]), minutes=int(zone[0] + zone[-2:]))
    except (ValueError, OverflowError):
        return None
    return date
