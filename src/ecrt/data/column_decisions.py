"""What the columns of a table hold, decided once on the whole file: numbers, categories, dates, or names of rows."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from msgspec.structs import replace
from numpy.typing import NDArray

from ecrt.data.columns import (
    ABSENT,
    DATES,
    DAY_FIRST,
    LAP,
    MONTH_FIRST,
    PLAIN,
    SCALED,
    SHORT_YEARS,
    SPECIAL,
    TIME,
    TYPES,
    YEAR_FIRST,
    Cells,
    ColumnReading,
    ReadOptions,
    WrittenNumbers,
    size_of,
    without_zeros,
)
from ecrt.errors import InputError

ROWS_TO_JUDGE = 20
"""With fewer rows, no column is taken for text or for an identifier."""

FEW = 0.1
"""A column of numbers or dates may have this share of unreadable values; they count as missing."""

FEW_WORDS = 3
"""So many different words among more than 20 different numbers mean missing values, in up to half of the rows."""

MANY_LEVELS = 40
WORDS_IN_TEXT = 4
MOST_STORED_LEVELS = 10_000
"""Levels of a category that are stored at most; with more, none are stored and new levels are not noticed."""

REPEATS_EXPECTED = 7
"""Whole numbers that never repeat name rows, if random numbers of that range would repeat more often than this."""

LARGEST_WHOLE = 2**53
"""Larger whole numbers are not exact as floats: they are codes."""

FILLERS = {sign * value for sign in (1, -1) for value in (99, 999, 9999, 99999, 999999)}
"""Numbers that often stand for a missing value."""

NUMBERS_INSIDE = 5
"""Different numbers among the levels of a category that are worth a note."""

YEARS_AHEAD = 10
"""How far from now dates may be whose years have two digits."""

SAMPLE = 100
"""Distinct values that show whether a column could be one of dates."""

ID_NAME = re.compile(
    r"(?:.*[\W_]|)(?:id|ids|idx|index|uuid|guid|nr|no|row|rowid|rownum)\.?|.*[a-z](?:ID|Id)|Unnamed: \d+|level_\d+"
)
REPEATED_ID = re.compile(r"(?:.*[\W_]|)(?:id|ID|Id)|.*[a-z](?:ID|Id)|index|idx|row|rowid|rownum|level_\d+|Unnamed: \d+")
UNNAMED = re.compile(r"Unnamed: \d+")
CODE_NAME = re.compile(
    r"(?:.*[\W_]|)(?:zip|zip ?code|zip_code|post ?code|postal_?code|plz|postleitzahl|code_?postal|postal|"
    r"postnummer|postnr|pin_?code|phone|phone_?number|telephone|téléphone|telefon|telefono|teléfono|tel|fax|mobile|ssn|iban)"
)
LONG_WHOLE = re.compile("[+-]?[0-9]{16,}")
DIGITS_AND_SIGNS = re.compile("[0-9 +()/-]+")
TRUTH = [
    {"true", "false"}, {"yes", "no"}, {"y", "n"}, {"t", "f"}, {"ja", "nein"}, {"j", "n"}, {"oui", "non"}, {"o", "n"},
    {"wahr", "falsch"}, {"vrai", "faux"}, {"on", "off"}, {"si", "no"}, {"sí", "no"},
]  # fmt: skip

SIZES_READ = "K, M and bn behind numbers are read as thousands, millions and billions."
NAMES_ROWS = "It names rows: no value occurs twice."


class _Hints(NamedTuple):
    """What the rest of the file says where a column alone does not: the decimal sign, and whether days come first."""

    decimal: str = ""
    day_first: bool = False


def decide_columns(
    table: pd.DataFrame, options: ReadOptions, *, separator: str = "", aside: Sequence[str] = ()
) -> tuple[tuple[ColumnReading, ...], pd.DataFrame]:
    """Decide what each column holds, and convert the columns that hold something to their types.

    Parameters
    ----------
    separator : between the values of the file; a semicolon makes a decimal comma and days before months likelier.
    aside : columns that are not used for learning; they may name rows.
    """
    readings: dict[str, ColumnReading] = {}
    typed: dict[str, Any] = {}
    undecided: dict[str, Cells] = {}
    for name, column in table.items():
        cells = Cells.of(column, options.na)
        readings[str(name)], typed[str(name)], unsure = _decide(str(name), cells, _Hints(), options, name in aside)
        if unsure:
            undecided[str(name)] = cells
    certain = [reading for name, reading in readings.items() if name not in undecided]
    signs = Counter(reading.decimal for reading in certain if reading.decimal).most_common(1)
    orders = Counter(one.writing for one in certain if one.writing in (DAY_FIRST, MONTH_FIRST)).most_common(1)
    decimal = options.decimal or (signs[0][0] if signs else "," if separator == ";" else ".")
    hints = _Hints(decimal, orders[0][0] == DAY_FIRST if orders else decimal == ",")
    for name, cells in undecided.items():
        settled = bool(orders) if readings[name].kind == "date" else bool(options.decimal or signs)
        reading, typed[name], unsure = _decide(name, cells, hints, options, name in aside)
        readings[name] = reading if settled else _with_notes(reading, unsure)
    kept = {name: values for name, values in typed.items() if values is not None}
    return tuple(readings.values()), pd.DataFrame(kept, index=table.index)


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
    if column.map(lambda value: isinstance(value, dict)).any():
        raise InputError(f"Target {name!r} holds objects. Give each of their values its own column.")
    if column.map(lambda value: isinstance(value, (list, tuple, np.ndarray))).any():
        lists = column.map(lambda value: list(value) if isinstance(value, np.ndarray) else value)
        return lists.to_numpy(dtype=object), ColumnReading(name=name, kind="category", role="target", writing="lists")
    cells = Cells.of(column, options.na if reading is None else reading.na, signs={""})
    if reading is None:
        likely = options.decimal or ("," if separator == ";" else ".")
        found = _decide_target(name, cells, options.types.get(name), likely)
        reading = replace(found, name=name, role="target", na=tuple(options.na), missing=cells.count(cells.absent))
    if reading.kind == "category":
        labels = cells.text.copy()
        labels[cells.absent] = None
        return labels[cells.codes], reading
    numbers, unreadable = cells.read(replace(reading, decimal=options.decimal or reading.decimal))
    if unreadable.any():  # a new label
        whole = [int(value) if float(value).is_integer() else value for value in numbers.tolist()]
        return np.where(unreadable[cells.codes], cells.text[cells.codes], np.array(whole, dtype=object)), reading
    if (numbers == np.round(numbers)).all() and (abs(numbers) < LARGEST_WHOLE).all():
        return numbers.astype(np.int64), reading
    return numbers, reading


def _decide_target(name: str, cells: Cells, kind: str | None, decimal: str) -> ColumnReading:
    levels = tuple(sorted(set(cells.present)))
    blank = [repr(label) for label in levels if label.lower() in ABSENT]
    what = "is read as a class" if len(blank) == 1 else "are read as classes"
    said = f"{', '.join(blank)} {what}. Use --na where the label is missing instead." if blank else ""
    labels = _with_notes(
        ColumnReading(name=name, kind="category", levels=levels), _capitals(cells.present, "classes"), said
    )
    if kind == "category" or not len(cells.present):
        return labels
    reading, _ = _as_number(cells, _Hints(decimal))
    if reading is None or reading.writing or cells.read(reading)[1].any():
        if kind == "number":
            raise InputError(f"Target {name!r} holds values that are not numbers, such as {_word(cells)!r}.")
        return _with_notes(labels, _nearly_numbers(cells)) if len(levels) > ROWS_TO_JUDGE else labels
    dressed = bool(reading.unit or reading.thousands)
    if kind is None and (_are_codes("", cells) or (dressed and len(cells.present) <= ROWS_TO_JUDGE)):
        return labels
    if kind is None and len(levels) <= ROWS_TO_JUDGE:
        values, _ = cells.read(reading)
        rewritten = _rewritten(levels, dict(zip(cells.text[cells.codes], values.tolist(), strict=True)))
        reading = _with_notes(labels, rewritten) if rewritten else reading
    return reading


def _rewritten(levels: tuple[str, ...], numbers: Mapping[str, float]) -> str:
    """A note if labels are numbers by chance: two of them would be the same number, or 1E1 would become 10."""
    kept = "labels stay as they are written. Use --types if they are numbers."
    first: dict[float, str] = {}
    for word in levels:
        same = first.setdefault(numbers[word], word)
        plain = {without_zeros(one.removeprefix("+")) for one in (same, word)}  # programs add .0 to whole numbers
        if len(plain) > 1:
            return f"{same!r} and {word!r} would be the same number: {kept}"
    codes = [word for word in levels if re.fullmatch("[0-9]+[eE][0-9]+", word)]
    if codes and all(word in codes or word.isdigit() for word in levels):
        return f"{codes[0]!r} would become {numbers[codes[0]]:.15g}: {kept}"
    return ""


def _with_notes(reading: ColumnReading, *notes: str) -> ColumnReading:
    return replace(reading, note=" ".join(filter(None, (reading.note, *notes))))


# --- deciding ------------------------------------------------------------------------------------------------------


def _decide(
    name: str, cells: Cells, hints: _Hints, options: ReadOptions, aside: bool
) -> tuple[ColumnReading, Any, str]:
    """What a column holds; its values, if it is used; and, if that is not certain, a sentence about it."""
    given = options.types.get(name)
    reading, unsure = _judge(name, cells, hints, given, aside)
    reading = replace(
        reading, name=name, role="aside" if aside else "input", na=tuple(options.na), missing=cells.count(cells.absent)
    )
    if reading.kind == "category":
        if len(cells.present) <= MOST_STORED_LEVELS:
            words = (word.lower() if reading.writing == "truth" else word for word in cells.present)
            reading = replace(reading, levels=tuple(sorted(set(words))))
        return reading, cells.read(reading)[0], unsure
    if reading.kind not in TYPES:
        return reading, None, unsure
    values, unreadable = cells.read(reading)
    reading = replace(reading, unreadable=cells.count(unreadable))
    if given is None and not aside:
        if reading.kind == "number":
            why = _why_numbers_name_rows(name, cells, reading, values)
            if why:
                return replace(reading, kind="identifier", note=why), None, ""
            reading = _with_notes(reading, _repeated_id(name, reading), _filler(reading, values))
        reading = _with_notes(reading, _grows(cells, reading, values))
    if reading.unreadable:
        example = repr(cells.example(unreadable))
        said = f"{reading.unreadable} values such as {example} are read as missing."
        reading = _with_notes(reading, f"1 value, {example}, is read as missing." if reading.unreadable == 1 else said)
    return reading, values, unsure


def _judge(name: str, cells: Cells, hints: _Hints, given: str | None, aside: bool) -> tuple[ColumnReading, str]:
    """Kind and writing of a column; and, if they are not certain, a sentence about it."""
    category = ColumnReading(name=name, kind="category")
    if len(cells.present) == 0:
        return replace(category, kind="left out", note="It holds nothing."), ""
    if given in ("number", "date"):
        reading, unsure = (_as_number if given == "number" else _as_date)(cells, hints, 0.5)
        if reading is None:
            raise InputError(f"Column {name!r} cannot be read as a {given}: it holds {_word(cells)!r}.")
        return reading, unsure
    if len(cells.present) == 1 and not cells.absent.any() and not aside and given is None:
        return replace(category, kind="left out", note="It is the same in every row."), ""
    if given == "category" or isinstance(cells.dtype, pd.CategoricalDtype):
        return category, ""
    date, unsure = _as_date(cells, hints)
    if date is not None:
        return date, unsure
    number, unsure = _as_number(cells, hints)
    codes = _are_codes(name, cells) if number is not None and not number.unit and number.decimal in ("", ".") else ""
    if number is not None and not codes:
        return number, unsure
    words = {word.lower() for word in cells.present}
    if any(words <= pair for pair in TRUTH):
        return replace(category, writing="truth"), ""
    units = _mixed_units(cells)
    if units:
        return replace(category, kind="left out", note=units), ""
    if aside:
        return category, ""
    short = cells.n_present >= ROWS_TO_JUDGE and _mean_words(cells) < WORDS_IN_TEXT
    id_name = _names_an_id(name, cells)
    if cells.all_differ and (short or id_name):
        named = replace(category, kind="identifier", note=NAMES_ROWS)
        return _with_notes(named, _nearly_numbers(cells) or ("" if id_name else _perhaps_amounts(cells.present))), ""
    return replace(category, note=_many_levels(name, cells, codes)), ""


def _as_number(cells: Cells, hints: _Hints, needed: float = 1 - FEW) -> tuple[ColumnReading | None, str]:
    """How to read the column as numbers, or ``None``; and a sentence if its decimal sign is not certain."""
    most = (1 - needed) * cells.n_present
    for writing, unreadable in _unreadable(cells, {one: SPECIAL[one][0] for one in SPECIAL}, 0.0).items():
        if unreadable <= most:
            writing, note = _kind_of_time(cells) if writing == "time" else (writing, "")
            return ColumnReading(name="", kind="number", writing=writing, note=note), ""
    if cells.plain is not None:
        return ColumnReading(name="", kind="number", decimal=cells.plain[0]), ""
    numbers, readable = cells.numbers, cells.numbers.readable
    strange = ~cells.absent & ~readable
    # Numbers, and a word or two in place of missing ones.
    few_words = strange.sum() <= FEW_WORDS and readable.sum() > ROWS_TO_JUDGE
    if cells.count(strange) > (0.5 * cells.n_present if few_words else most) or not readable.any():
        return None, ""
    unit = str(pd.Series(cells.counts[readable]).groupby(numbers.units[readable], sort=False).sum().idxmax())
    others = np.array([bool(one) and size_of(one) is None for one in numbers.units], dtype=bool)
    scaled = len(set(numbers.units[readable & ~others])) > 1 and cells.count(readable & others) <= most
    unit = SCALED if scaled else unit
    point, comma = (cells.count(np.isfinite(numbers.read(sign, ",. '", unit))) for sign in ".,")
    decimal, unsure, note = ("." if point > comma else ","), "", SIZES_READ if scaled else ""
    if point == comma:
        differs = np.flatnonzero(np.isfinite(numbers.values["."]) & (numbers.values["."] != numbers.values[","]))
        decimal = (hints.decimal or ".") if len(differs) else ""
        first = {numbers.marks[","][place] or numbers.marks["."][place]: place for place in differs[::-1]}
        read = [f"{cells.text[one]!r} is read as {numbers.values[decimal][one]:.15g}" for one in first.values()]
        if len(read) > 1:
            note = f"{note} {read[0]}, yet {read[1]}. Write all with one decimal sign.".strip()
        elif read:
            unsure = f"{read[0]}; use --decimal if that is wrong."
    marks = numbers.marks[decimal or "."][np.isfinite(numbers.values[decimal or "."])]
    reading = ColumnReading(
        name="", kind="number", unit=unit, decimal=decimal, thousands="".join(sorted(set(marks) - {""})),
        note=note,
    )  # fmt: skip
    otherwise = cells.count(readable & np.isnan(numbers.read(decimal, reading.thousands, unit)))
    return (None, "") if otherwise > most else (reading, unsure)


def _kind_of_time(cells: Cells) -> tuple[str, str]:
    """Whether 42:16 means minutes and seconds rather than hours and minutes; and a note if that had to be judged.

    Beside values of three parts, 42:16 must not be longer than 1:15:50. A clock has hours up to 23, of two digits in
    part of the day; the hours that some durations have in front of their minutes are few. 3:13.5 settles it.
    """
    if any(LAP.fullmatch(word) and not TIME.fullmatch(word) for word in cells.present):
        return "minutes:seconds", ""
    parts = [(word, *found.groups()) for word in cells.present if (found := TIME.fullmatch(word)) is not None]
    short = [(word, int(first)) for word, first, _, third, _ in parts if third is None]
    long = [first for _, first, _, third, _ in parts if third is not None]
    if not short or any(half for *_, half in parts):
        return "time", ""
    latest = max(first for _, first in short)
    minutes = 23 < latest < 60 or (bool(long) and (latest > 23 or all(len(first) == 1 for first in long)))
    what = "minutes and seconds" if minutes else "hours and minutes"
    note = f"{short[0][0]!r} is read as {what}, since others have three parts. Write all with three if it is not so."
    return "minutes:seconds" if minutes else "time", note if long else ""


def _unreadable(cells: Cells, patterns: Mapping[str, re.Pattern[str]], share: float) -> dict[str, int]:
    """Rows that each way of writing leaves unreadable; only of ways that fit a share of a sample of distinct values.

    Without the sample, numbers that nearly all rows share, such as 12.2000, could be taken for a month and a year.
    """
    sample = np.flatnonzero(~cells.absent)[:: max(len(cells.present) // SAMPLE, 1)]
    written = np.isnat(cells.dates[sample])
    words, n_dates = cells.text[sample[written]], int((~written).sum())  # stored dates fit any way of writing dates
    fitting = {
        writing: sum(map(bool, map(one.fullmatch, words))) + n_dates * (writing in DATES)
        for writing, one in patterns.items()
    }
    return {
        writing: cells.count(pd.isna(cells.parse(writing)) & ~cells.absent)
        for writing, count in fitting.items()
        if count >= max(share * len(sample), 1)
    }


def _mixed_units(cells: Cells) -> str:
    """A note if numbers are written with several units."""
    numbers, readable = cells.numbers, cells.numbers.readable
    units = sorted({str(unit) or "none" for unit in numbers.units[readable]})
    if len(units) < 2 or cells.count(readable) < (1 - FEW) * cells.n_present or readable.sum() <= ROWS_TO_JUDGE:
        return ""
    return f"Its numbers have several units ({', '.join(units[:5])}). Write them in one to learn from them."


def _as_date(cells: Cells, hints: _Hints, needed: float = 1 - FEW) -> tuple[ColumnReading | None, str]:
    """How to read the column as dates, or ``None``; and a sentence if day and month may be swapped."""
    if cells.holds_dates:
        return ColumnReading(name="", kind="date", writing=YEAR_FIRST), ""
    unreadable = _unreadable(cells, DATES, needed)
    for writing in ("yearmonthday", "daymonthyear"):
        if unreadable.get(writing) or len(cells.present) < 2:
            unreadable.pop(writing, None)  # whole numbers, a few of which could be dates
    writing = min(unreadable, key=lambda one: unreadable[one], default="")
    if not writing or unreadable[writing] > (1 - needed) * cells.n_present:
        return None, ""
    unsure = ""
    word = cells.example(~cells.absent & np.isnat(cells.dates))
    if writing in (DAY_FIRST, MONTH_FIRST) and unreadable.get(DAY_FIRST) == unreadable.get(MONTH_FIRST):
        pointed = "." in word.split()[0]
        writing = DAY_FIRST if hints.day_first or pointed else MONTH_FIRST
        order = "day, month" if writing == DAY_FIRST else "month, day"
        unsure = "" if pointed else f"{word!r} is read as {order}, year: no value tells which is which."
    if writing not in SHORT_YEARS:
        return ColumnReading(name="", kind="date", writing=writing), unsure
    first, note = _first_year([one["year"] for word in cells.present if (one := DATES[writing].fullmatch(word))])
    return ColumnReading(name="", kind="date", writing=writing, first_year=first, note=note), unsure


def _first_year(years: Sequence[str]) -> tuple[int, str]:
    """The hundred years that two digits mean in a column, by its first; and a note if it has such years.

    These hundred lie around the years of four digits, if there are any. Otherwise the years of the column follow each
    other on the circle from 00 to 99 without its largest gap. They are as late as they can be, but not in the future:
    at least the first is not, and the last by a few years at most.
    """
    short = sorted({int(year) for year in years if len(year) == 2})
    known = [int(year) for year in years if len(year) == 4]
    if known:
        first = int(np.median(known)) - 50
    else:
        gaps = np.diff([*short, short[0] + 100])
        start, span = short[(int(gaps.argmax()) + 1) % len(short)], 100 - int(gaps.max())
        now = datetime.now().year
        latest = max(year for year in range(now - now % 100 - 100, now + 1, 100) if year + start <= now) + start
        start = latest if latest + span <= now + YEARS_AHEAD else latest - 100
        first = start - (99 - span) // 2
    if not short:
        return first, ""
    read = [first + (year - first) % 100 for year in short]
    years_read = f"{min(read)}" if len(read) == 1 else f"{min(read)} to {max(read)}"
    return first, f"Years of two digits are read as {years_read}. Write four if that is wrong."


def _are_codes(name: str, cells: Cells) -> str:
    """Why whole numbers are codes rather than amounts; empty if they are amounts."""
    zeros = np.array([word[:1] == "0" and word.isdigit() and len(word) > 1 for word in cells.text], dtype=bool)
    lengths = set(map(len, cells.present))
    if zeros.any() and (len(lengths) == 1 or cells.count(zeros) > FEW * cells.n_present):
        return "codes with leading zeros"
    if max(lengths) >= 16 and any(map(LONG_WHOLE.fullmatch, cells.present)):
        return "whole numbers too long to be amounts"
    if CODE_NAME.fullmatch(name.lower()) and all(map(DIGITS_AND_SIGNS.fullmatch, cells.present)):
        return "codes, by the column's name"
    return ""


def _mean_words(cells: Cells) -> float:
    return float(np.mean([len(text.split()) for text in cells.present]))


def _word(cells: Cells) -> str:
    """A value that is not a plain number, if there is one."""
    return next((word for word in cells.present if not PLAIN.fullmatch(word)), cells.present[0])[:60]


def _names_an_id(name: str, cells: Cells) -> bool:
    return cells.n_present > 2 and any(ID_NAME.fullmatch(one) for one in (name, name.lower()))


def _why_numbers_name_rows(name: str, cells: Cells, number: ColumnReading, numbers: NDArray[np.float64]) -> str:
    """Why a column of numbers counts or names rows; empty if it does not."""
    if number.unit or number.writing or number.unreadable:
        return ""
    numbers = numbers[~np.isnan(numbers)]
    if not (numbers == np.round(numbers)).all():
        return ""
    n_present, named = cells.n_present, _names_an_id(name, cells)
    many = n_present >= ROWS_TO_JUDGE
    steps = np.diff(numbers)
    counts_on = many and bool(max((steps == 1).mean(), (steps == -1).mean()) >= 1 - FEW)
    if not cells.all_differ:
        unnamed = UNNAMED.fullmatch(name) is not None and numbers.min() >= 0 and numbers.max() <= len(cells.codes)
        if unnamed or (counts_on and (named or len(cells.present) > n_present / 2)):
            return "It counts rows, some numbers more than once. Use --types to keep it."
        return ""
    span = float(numbers.max() - numbers.min()) + 1
    from_start = n_present > 2 and numbers[0] in (0, 1) and (steps == 1).all()
    if span == n_present and (many or from_start):
        return "It counts rows."
    if named:
        return NAMES_ROWS
    if counts_on:
        return "It counts rows, with gaps. Use --types to keep it."
    if not many or cells.absent.any():
        return ""
    if _is_sorted(numbers):
        return "It counts rows: whole numbers that grow, or fall, from row to row. Use --types to keep it."
    if n_present**2 / (2 * span) > REPEATS_EXPECTED:
        return "It names rows: whole numbers close together, and none occurs twice. Use --types to keep it."
    return ""


# --- notes on a column ----------------------------------------------------------------------------------------------


def _many_levels(name: str, cells: Cells, codes: str) -> str:
    """A note on a category that is unusual; text is refused."""
    present = cells.present
    if codes:
        return f"Read as a category: {codes}."
    mostly_distinct = cells.n_present >= ROWS_TO_JUDGE and len(present) > cells.n_present / 2
    if mostly_distinct and _mean_words(cells) >= WORDS_IN_TEXT:
        raise InputError(
            f"Column {name!r} holds text, such as {present[0][:60]!r}. Leave it out (--drop), or turn it into "
            "numbers first, for example with ecrt embed, a sentence encoder or skrub.StringEncoder."
        )
    if len(present) > ROWS_TO_JUDGE and REPEATED_ID.fullmatch(name):
        return (
            f"Its name is that of an id, and its {len(present)} values occur more than once: rows of one id may be "
            "both learned from and tested on. Use --id if it names persons or things."
        )
    if len(present) > MANY_LEVELS:
        return f"It has {len(present)} levels, such as {present[0][:60]!r}. {_perhaps_amounts(present)}".strip()
    return _nearly_numbers(cells) or _nearly_dates(cells) or _capitals(present, "levels")


def _perhaps_amounts(present: NDArray[Any]) -> str:
    """What to do if words that hold digits are numbers or dates after all."""
    digits = sum(re.search(r"\d", word) is not None for word in present) > len(present) / 2
    return "If these are numbers or dates, use --na, --decimal or --types, or mend the file." if digits else ""


def _nearly_dates(cells: Cells) -> str:
    """A note if most values are dates, but not in one way of writing."""
    read = {writing: ~np.isnat(cells.parse(writing)) for writing in DATES}
    most = max(read.values(), key=cells.count)
    strange = ~cells.absent & ~most
    if not strange.any() or cells.count(np.logical_or.reduce([*read.values()])) <= cells.n_present / 2:
        return ""
    return (
        f"Most values hold dates, but not all in one way, as {cells.example(most)!r} and {cells.example(strange)!r}. "
        "To learn from dates, mend the file, or use --na or --types so that the others count as missing."
    )


def _nearly_numbers(cells: Cells) -> str:
    """A note if most values are numbers, at least without signs around them, as <2.5 or [10.1], and some are not."""
    bare = np.array([word.strip("<>≤≥~≈±*^=[](){}'\" ") for word in cells.text], dtype=object)
    inside = WrittenNumbers.of(np.where(cells.absent, "", bare))
    numbers = inside.readable & (inside.units == "")
    strange = ~cells.absent & ~(numbers & (bare == cells.text))
    if not strange.any() or numbers.sum() < NUMBERS_INSIDE or cells.count(numbers) <= cells.n_present / 2:
        return ""
    return (
        f"Most values hold numbers, but some cannot be read as such, as {cells.example(strange)!r}. To learn from "
        "amounts, mend the file, or use --na or --types so that the others count as missing."
    )


def _capitals(present: NDArray[Any], what: str) -> str:
    """A note if words differ in capital letters only, or look the same."""
    same: dict[str, list[str]] = {}
    for word in present:
        same.setdefault(word.lower() if word.isascii() else _looks(word), []).append(word)
    shown = sorted(next((words for words in same.values() if len(words) > 1), []))[:3]
    if not shown:
        return ""
    if len({word.lower() for word in shown}) == 1:
        return f"{', '.join(map(repr, shown))} differ in capital letters only; they are read as different {what}."
    return f"{', '.join(map(ascii, shown))} look alike; they are read as different {what}."


def _looks(word: str) -> str:
    """A word without what cannot be seen: signs of no width, kinds of spaces, and how accents are stored."""
    seen = "".join(sign for sign in unicodedata.normalize("NFKC", word) if unicodedata.category(sign) != "Cf")
    return " ".join(seen.lower().split())


def _grows(cells: Cells, reading: ColumnReading, values: NDArray[Any]) -> str:
    """A note if rows are sorted by the dates or numbers, as in a log."""
    if cells.n_present < ROWS_TO_JUDGE or cells.absent.any() or len(cells.present) <= ROWS_TO_JUDGE:
        return ""
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


def _repeated_id(name: str, number: ColumnReading) -> str:
    """A note if a column has the name of an id, but values occur more than once."""
    if not REPEATED_ID.fullmatch(name) or number.unit or number.writing or number.decimal:
        return ""
    return (
        "Its name is that of an id, but values occur more than once, so it is learned from as an amount. Use --id if "
        "it names persons or things, or --types to read it as a category."
    )


def _filler(number: ColumnReading, values: NDArray[np.float64]) -> str:
    """A note if a number such as -999, far from all others, may stand for a missing value."""
    if number.unit or number.writing:
        return ""
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
