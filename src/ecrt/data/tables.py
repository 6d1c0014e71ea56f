"""Tables as people have them (numbers, categories, dates, gaps) to the numbers that everything else works on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_datetime64_any_dtype, is_integer_dtype, is_numeric_dtype, is_timedelta64_dtype

from ecrt.arrays import Array
from ecrt.data.column_decisions import ROWS_TO_JUDGE, WORDS_IN_TEXT
from ecrt.data.columns import YEAR_FIRST, ColumnReading, ColumnRow, as_text, column_rows, parse
from ecrt.errors import InputError, warn_user

Hashes = NDArray[np.uint64]

ROWS_AT_ONCE = 8192
"""Of an array, when hashes are made."""

Kind = Literal["number", "category", "date", "left out"]

MOST_LEVELS = 40
"""Levels of a category that get their own column, the most frequent first."""

MOST_RARE_LEVELS = 1000
"""Further levels that are stored, so that new ones are noticed; with more, none are stored."""

LARGEST = 1e100
"""Numbers of a greater size are refused."""

NUMBERS = (int, float, Decimal, np.number, np.bool_)
"""Types of numbers in a column of objects; databases give amounts of money as Decimal."""

MISSING = "(missing)"
MOST_NAMED = 10
NOT_AS_FITTED = "Values that the model knows nothing of"
"""How the warning about such values begins."""


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one column is read.

    Attributes
    ----------
    kind : numbers (and truth values) stay as they are, durations become seconds; a category has a 0-1 column for each
        of its levels; a date becomes year, month, day, hour, weekday and seconds since 1970; an identifier is left out.
    fill : what stands in for missing values, the median of each number.
    flagged : whether values were missing at fit, so that a 0-1 column says where.
    levels : of a category; a value that is none of them, unseen ones included, is zero in each of their columns.
    rare : further levels, which have no column.
    many : whether there were too many further levels to remember them.
    """

    name: str
    kind: Kind
    fill: tuple[float, ...] = ()
    flagged: bool = False
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()
    many: bool = False

    def __post_init__(self) -> None:
        if (
            len(self.fill) != {"number": 1, "date": len(DATE_PARTS)}.get(self.kind, 0)
            or not np.isfinite(self.fill).all()
            or len(set(self.levels)) != len(self.levels)
            or (self.kind == "category") != bool(self.levels)
        ):
            raise InputError(f"Column {self.name!r} is not one that a table could have.")

    @property
    def names_out(self) -> list[str]:
        """Names of the columns that this one becomes."""
        if self.kind == "left out":
            return []
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels]
        parts = [self.name] if self.kind == "number" else [f"{self.name} {part}" for part in DATE_PARTS]
        return parts + [f"{self.name} is missing"] * self.flagged

    def encode(self, values: pd.Series[Any]) -> tuple[Array, str]:
        """Values of the column as the columns it becomes; and, if some cannot be used, how many and why."""
        present = values.notna().to_numpy()
        if self.kind == "category":
            text = as_text(values, MISSING)
            place = pd.Index(self.levels).get_indexer(pd.Index(text))  # -1: none of them
            new = (place < 0) & present
            new[new] = False if self.many else ~np.isin(text[new], list(self.rare))
            found = np.eye(len(self.levels) + 1)[place, :-1]
            return found, _share(new, f"new levels such as {str(text[new][0])[:40]!r}" if new.any() else "")
        numbers = _numbers(values)[:, None] if self.kind == "number" else _date_parts(values)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.fill, numbers)
        encoded = np.column_stack([filled, missing[:, 0]]) if self.flagged else filled
        return encoded, _share(missing[:, 0] & present, "no dates") if self.kind == "date" else ""


DATE_PARTS = ("year", "month", "day", "hour", "weekday", "seconds since 1970")


class TableEncoder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """Columns as numbers; made by ``learn``, and again from its columns when a model is loaded."""

    columns: tuple[Column, ...]

    @cached_property
    def plain(self) -> bool:
        """Whether all are columns of numbers that had no gaps, so that an array need only be ``filled``."""
        return all(column.kind == "number" and not column.flagged for column in self.columns)

    @classmethod
    def learn(cls, table: pd.DataFrame) -> TableEncoder:
        """Decide what each column holds; dtypes such as Categorical, float or datetime decide it.

        Text (several words, mostly distinct) is refused: turn it to numbers first.
        """
        columns = [_learn_column(str(name), table.iloc[:, place]) for place, name in enumerate(table.columns)]
        left_out = [column.name for column in columns if column.kind == "left out"]
        if len(left_out) == len(columns):
            raise InputError(f"No column to learn from: {left_out} hold nothing, or no value twice.")
        if left_out:
            warn_user(
                f"Columns {left_out} are left out: they hold nothing, or a different value in every row (identifiers)."
            )
        written = [one.name for place, one in enumerate(columns) if _is_written(one, table.iloc[:, place])]
        if written:
            warn_user(
                f"Columns {written[:MOST_NAMED]} hold numbers or dates as text, and are read as categories. Turn them "
                "into numbers or dates first (pandas.to_numeric, pandas.to_datetime), or make them Categorical."
            )
        return cls(tuple(columns))

    @property
    def names_out(self) -> list[str]:
        """Names of the columns of numbers."""
        return [name for column in self.columns for name in column.names_out]

    def encode(self, table: pd.DataFrame) -> Array:
        """The table as numbers without gaps; warns of values that the model cannot use."""
        if self.plain and all(is_numeric_dtype(kind) for kind in table.dtypes):  # wide tables of numbers, in one go
            return self.filled(table.to_numpy(dtype=np.float64, na_value=np.nan))
        parts, strange = [], []
        for place, column in enumerate(self.columns):
            if column.kind != "left out":
                values, said = column.encode(table.iloc[:, place])
                parts.append(values)
                strange += [f"{column.name!r}: {said}"] if said else []
        if strange:
            more = f"; and {len(strange) - MOST_NAMED} more columns" if len(strange) > MOST_NAMED else ""
            warn_user(f"{NOT_AS_FITTED}: {'; '.join(strange[:MOST_NAMED])}{more}.")
        return np.concatenate(parts, axis=1)

    def column_rows(self) -> list[ColumnRow]:
        """How columns were read, in words; missing values were not counted."""
        readings = [
            ColumnReading(
                name=column.name, kind=column.kind, missing=int(column.flagged),
                levels=(*(level for level in column.levels if level != MISSING), *column.rare),
            )
            for column in self.columns
        ]  # fmt: skip
        return [(*row[:3], "some" if row[3] else "", *row[4:]) for row in column_rows(readings)]

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """The columns that are used, with dtypes by their kind, so that any of its rows are read in the same way."""
        readers = {"number": _numbers, "category": _as_category, "date": _as_dates}
        return pd.DataFrame(
            {
                column.name: readers[column.kind](table.iloc[:, place])
                for place, column in enumerate(self.columns)
                if column.kind != "left out"
            },
            index=table.index,
        )

    def filled(self, numbers: Array) -> Array:
        """Numbers of plain columns without gaps: the array itself if it has none."""
        refuse_extremes(numbers, [column.name for column in self.columns])
        if not np.isnan(numbers.sum()):
            return numbers
        return np.where(np.isnan(numbers), np.concatenate([column.fill for column in self.columns]), numbers)


def _learn_column(name: str, values: pd.Series[Any]) -> Column:
    present = values.dropna()
    if len(present) == 0:
        return Column(name=name, kind="left out")
    flagged = len(present) < len(values)
    many = len(present) >= ROWS_TO_JUDGE
    if is_datetime64_any_dtype(values.dtype) or isinstance(values.dtype, pd.PeriodDtype):
        return _date_column(name, values, flagged)
    if _holds_numbers(values):
        whole = many and is_integer_dtype(values.dtype) and present.is_unique
        if whole and int(present.max()) - int(present.min()) + 1 == len(present):  # a row counter
            return Column(name=name, kind="left out")
        numbers = _numbers(values)
        return Column(name=name, kind="number", fill=(float(np.nanmedian(numbers)),), flagged=flagged)
    if holds_nested(present):
        raise InputError(f"Column {name!r} holds lists or objects. Give each value its own column.")
    text = pd.Series(as_text(present))
    counts = text.value_counts()
    if isinstance(values.dtype, pd.CategoricalDtype):
        return _category(name, counts, flagged, many)
    if _as_dates(text).notna().all():
        return _date_column(name, values, flagged)
    if many and len(counts) > len(text) / 2:
        if (text.str.count(r"\S+")).mean() >= WORDS_IN_TEXT:
            raise InputError(
                f"Column {name!r} holds text, such as {text.iloc[0][:60]!r}. Leave it out, or turn it into numbers "
                "first, for example with a sentence encoder or skrub.StringEncoder in a Pipeline."
            )
        if len(counts) == len(text):
            return Column(name=name, kind="left out")
    return _category(name, counts, flagged, many)


def _category(name: str, counts: pd.Series[Any], flagged: bool, many: bool) -> Column:
    """A column for each frequent level; those that occur once have none, unless there are no others."""
    repeated = counts[counts > 1] if many and counts.max() > 1 else counts
    levels = tuple(sorted(repeated.index[: MOST_LEVELS - flagged]))
    rare = tuple(sorted(set(counts.index) - set(levels)))
    too_many = len(rare) > MOST_RARE_LEVELS
    return Column(
        name=name, kind="category", levels=(*levels, MISSING) if flagged else levels, rare=() if too_many else rare,
        many=too_many,
    )  # fmt: skip


def _is_written(column: Column, values: pd.Series[Any]) -> bool:
    """Whether the levels of a category are decimal numbers or dates as text; whole numbers may be codes."""
    if column.kind != "category" or isinstance(values.dtype, pd.CategoricalDtype):
        return False
    words = [word for word in (*column.levels, *column.rare) if word != MISSING]
    return (
        len(words) >= ROWS_TO_JUDGE / 2 and sum(WRITTEN.fullmatch(word) is not None for word in words) > len(words) / 2
    )


WRITTEN = re.compile(
    r"[+-]?[0-9]*[.,][0-9]+(?:[eE][+-]?[0-9]+)?\s*[%$€£]?|[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{2,4}(?:[T ,].*)?"
)


def _share(which: NDArray[np.bool_], what: str) -> str:
    share = which.mean() if len(which) else 0.0
    return f"{share:.0%} {what}" if share >= 0.01 else f"{which.sum()} {what}" if share > 0 else ""


def _date_column(name: str, values: pd.Series[Any], flagged: bool) -> Column:
    fill = np.nanmedian(_date_parts(values), axis=0)
    return Column(name=name, kind="date", fill=tuple(fill.tolist()), flagged=flagged)


def holds_nested(values: pd.Series[Any]) -> bool:
    """Whether a cell holds several values."""
    if isinstance(values.dtype, pd.StringDtype | pd.CategoricalDtype) or is_numeric_dtype(values.dtype):
        return False
    return any(isinstance(one, (dict, list, tuple, set, np.ndarray)) for one in values)


def _holds_numbers(values: pd.Series[Any]) -> bool:
    if isinstance(values.dtype, pd.CategoricalDtype):
        return False
    if is_numeric_dtype(values.dtype) or is_timedelta64_dtype(values.dtype):
        return True
    return bool(values.dropna().map(lambda value: isinstance(value, NUMBERS)).all())


def _as_dates(values: pd.Series[Any]) -> pd.Series[Any]:
    """Dates without a zone; of text only those with the year first, in which day and month cannot be swapped."""
    if isinstance(values.dtype, pd.PeriodDtype):
        values = values.dt.to_timestamp()
    if is_datetime64_any_dtype(values.dtype):
        return pd.to_datetime(values, utc=True).dt.tz_localize(None)
    return pd.Series(parse(as_text(values), YEAR_FIRST), index=values.index)


def _date_parts(values: pd.Series[Any]) -> Array:
    """Year, month, day, hour, weekday and seconds since 1970; NaN where there is no date."""
    dates = _as_dates(values)
    since_1970 = (dates - pd.Timestamp(0)).dt.total_seconds()
    parts = [dates.dt.year, dates.dt.month, dates.dt.day, dates.dt.hour, dates.dt.day_of_week, since_1970]
    return np.column_stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts])


def _numbers(values: pd.Series[Any]) -> Array:
    """Values as numbers, durations as seconds; NaN where there is none."""
    if is_datetime64_any_dtype(values.dtype):
        raise InputError(f"Column {values.name!r} held numbers when the model was fitted, now dates.")
    try:
        values = values.dt.total_seconds() if is_timedelta64_dtype(values.dtype) else values
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        found = next(value for value in values.dropna() if not isinstance(value, NUMBERS))
        raise InputError(f"Column {values.name!r} held numbers when the model was fitted, now {found!r}.") from error
    refuse_extremes(numbers[:, None], [str(values.name)])
    return numbers


def refuse_extremes(numbers: Array, names: Sequence[str] | None = None, *, of: str = "") -> None:
    """Refuse infinity, and values so large that their products would be infinite.

    Parameters
    ----------
    numbers : rows of numbers, or of images; NaN passes.
    names : of the columns, if they have any.
    of : the file that they are all rows of.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if float(np.vdot(numbers, numbers)) <= LARGEST**2:  # one quick pass; no part of a sum of squares is larger
            return
    places = np.argwhere(np.abs(numbers) > np.float64(LARGEST))  # which float32 cannot hold
    if len(places):
        row, *rest = places[0].tolist()
        column = f", column {names[rest[0]]!r}" if names is not None else ""
        what, line = (of, f"{row + 1} (the first is 1)") if of else ("Input X", row)
        raise InputError(
            f"{what} contains infinity or a value too large: row {line}{column} holds {numbers[tuple(places[0])]:g}. "
            f"Numbers up to {LARGEST:g} can be used: correct it, or leave it empty if it stands for a missing value."
        )


def _as_category(values: pd.Series[Any]) -> Any:
    return pd.Categorical(pd.Series(as_text(values)).where(values.notna().to_numpy(), None))


# --- hashes of rows ---------------------------------------------------------------------------------------------------


def row_hashes(values: Any) -> Hashes:
    """A number for each row that depends on what it holds."""
    if isinstance(values, pd.DataFrame) and all(kind == np.float64 for kind in values.dtypes):
        values = values.to_numpy()
    if isinstance(values, pd.DataFrame | pd.Series):
        return np.asarray(pd.util.hash_pandas_object(values, index=False), dtype=np.uint64)
    if hasattr(values, "tocsr"):
        rows = values.tocsr(copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        hashes = mixed(rows.data.astype(np.float64)) * _column_factors(rows.shape[1])[rows.indices]
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes)])  # sums of numbers of 64 bits, modulo 2^64
        return np.asarray(ends[rows.indptr[1:]] - ends[rows.indptr[:-1]], dtype=np.uint64)
    values = values.reshape(len(values), -1)
    if values.dtype.kind not in "fiub":
        return row_hashes(pd.DataFrame(values))
    # As for a sparse matrix, zeros count for nothing: its rows must come in the same order.
    factors, found = _column_factors(values.shape[1]), np.empty(len(values), dtype=np.uint64)
    for start in range(0, len(values), ROWS_AT_ONCE):
        part = np.asarray(values[start : start + ROWS_AT_ONCE], dtype=np.float64)
        hashes = np.where(part == 0, np.uint64(0), mixed(part.ravel()).reshape(part.shape))
        found[start : start + ROWS_AT_ONCE] = (hashes * factors).sum(axis=1, dtype=np.uint64)
    return found


def _column_factors(n_columns: int) -> Hashes:
    """An odd number for each column, so that a value counts for something else in another one."""
    return mixed(np.arange(n_columns)) | np.uint64(1)


def mixed(values: NDArray[Any]) -> Hashes:
    """A hash of each value."""
    return pd.util.hash_array(values)
