"""Tables as people have them (numbers, categories, dates, gaps) to the numbers that everything else works on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_datetime64_any_dtype, is_integer_dtype, is_numeric_dtype
from sklearn.preprocessing import OneHotEncoder

from ecrt.errors import InputError, warn_user

__all__ = ["Column", "TableEncoder"]

Array = NDArray[np.float64]
Kind = Literal["number", "category", "date", "left out"]

MOST_LEVELS = 40
"""Levels of a category that get a column of their own, the most frequent first; the others share "none of these"."""

MISSING = "(missing)"
ROWS_TO_JUDGE = 20
"""With fewer rows distinct values say nothing: no column is taken for text or for an identifier."""

WORDS_IN_TEXT = 4


@dataclass(frozen=True, kw_only=True)
class Column:
    """How one column is read.

    Attributes
    ----------
    kind : numbers (and truth values) stay as they are; a category has a 0-1 column for each of its levels; a date
        becomes year, month, day, hour, weekday and seconds since 1970; an identifier is left out.
    fill : what stands in for missing values, the median of each number.
    flagged : whether values were missing at fit, so that a 0-1 column says where.
    levels : of a category; a value that is none of them, unseen ones included, is zero in each of their columns.
    """

    name: str
    kind: Kind
    fill: tuple[float, ...] = ()
    flagged: bool = False
    levels: tuple[str, ...] = ()

    @property
    def names_out(self) -> list[str]:
        """Names of the columns that this one becomes."""
        if self.kind == "left out":
            return []
        if self.kind == "category":
            return [f"{self.name}={level}" for level in self.levels]
        parts = [self.name] if self.kind == "number" else [f"{self.name} {part}" for part in DATE_PARTS]
        return parts + [f"{self.name} is missing"] * self.flagged

    def encode(self, values: pd.Series[Any]) -> Array:
        """Values of the column as the columns it becomes."""
        if self.kind == "category":
            # Built from what was learned rather than fitted: it can be written down and made again.
            encoder = OneHotEncoder(categories=[list(self.levels)], handle_unknown="ignore", sparse_output=False)
            text = _as_text(values).to_numpy(dtype=object)[:, None]
            return np.asarray(encoder.fit(np.array(self.levels, dtype=object)[:, None]).transform(text))
        numbers = _numbers(values)[:, None] if self.kind == "number" else _date_parts(values)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.fill, numbers)
        return np.column_stack([filled, missing[:, 0]]) if self.flagged else filled


DATE_PARTS = ("year", "month", "day", "hour", "weekday", "seconds since 1970")


@dataclass(frozen=True)
class TableEncoder:
    """Columns as numbers; made by ``learn``, and again from its ``state`` when a model is loaded.

    ``plain`` says whether all are columns of numbers that had no gaps, so that an array need only be ``filled``.
    """

    columns: tuple[Column, ...]
    plain: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        plain = all(column.kind == "number" and not column.flagged for column in self.columns)
        object.__setattr__(self, "plain", plain)

    @classmethod
    def learn(cls, table: pd.DataFrame) -> TableEncoder:
        """Tell what each column holds.

        Text (several words, mostly distinct) is refused: it must be turned to numbers by something that reads.
        """
        columns = [_learn_column(str(name), table.iloc[:, place]) for place, name in enumerate(table.columns)]
        left_out = [column.name for column in columns if column.kind == "left out"]
        if len(left_out) == len(columns):
            raise InputError(f"No column to learn from: {left_out} hold nothing, or no value twice.")
        if left_out:
            warn_user(
                f"Columns {left_out} are left out: they hold nothing, or like identifiers another value in every row."
            )
        return cls(tuple(columns))

    @property
    def names_out(self) -> list[str]:
        """Names of the columns of numbers."""
        return [name for column in self.columns for name in column.names_out]

    def encode(self, table: pd.DataFrame) -> Array:
        """The table as numbers without gaps."""
        if self.plain and all(is_numeric_dtype(kind) for kind in table.dtypes):  # wide tables of numbers, in one go
            return self.filled(table.to_numpy(dtype=np.float64, na_value=np.nan))
        parts = [
            column.encode(table.iloc[:, place])
            for place, column in enumerate(self.columns)
            if column.kind != "left out"
        ]
        return np.concatenate(parts, axis=1)

    def filled(self, numbers: Array) -> Array:
        """Numbers of plain columns without gaps: the array itself if it has none."""
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(numbers.sum()) or np.isfinite(numbers).all()  # a finite sum has finite parts
        if finite:
            return numbers
        _refuse_infinity(numbers, [column.name for column in self.columns])
        return np.where(np.isnan(numbers), np.concatenate([column.fill for column in self.columns]), numbers)

    def state(self) -> dict[str, Any]:
        """All that was learned, in plain values."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> TableEncoder:
        """The encoder that ``state`` was taken from; an ``InputError`` if there can be none."""
        try:
            if set(state) != {"columns"}:
                raise InputError("A table needs its columns, and nothing else.")
            return cls(tuple(_column_from_state(column) for column in state["columns"]))
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(f"The columns of the table cannot be read: {error}") from error


def _column_from_state(state: dict[str, Any]) -> Column:
    column: Any = Column(**{**state, "fill": tuple(state["fill"]), "levels": tuple(state["levels"])})
    numbers = {"number": 1, "date": len(DATE_PARTS)}.get(column.kind, 0)
    if (
        column.kind not in ("number", "category", "date", "left out")
        or not isinstance(column.name, str)
        or not isinstance(column.flagged, bool)
        or len(column.fill) != numbers
        or not all(isinstance(value, float) and np.isfinite(value) for value in column.fill)
        or not all(isinstance(level, str) for level in column.levels)
        or len(set(column.levels)) != len(column.levels)
        or (column.kind == "category") != bool(column.levels)
    ):
        raise InputError(f"Column {column.name!r} is not one that a table could have.")
    return cast(Column, column)


def _learn_column(name: str, values: pd.Series[Any]) -> Column:
    present = values.dropna()
    if len(present) == 0:
        return Column(name=name, kind="left out")
    flagged = len(present) < len(values)
    many = len(present) >= ROWS_TO_JUDGE
    if is_datetime64_any_dtype(values.dtype):
        return _date_column(name, values, flagged)
    if _holds_numbers(values):
        if many and is_integer_dtype(values.dtype) and _counts_rows(present):
            return Column(name=name, kind="left out")
        numbers = _numbers(values)
        return Column(name=name, kind="number", fill=(float(np.nanmedian(numbers)),), flagged=flagged)
    text = _as_text(present)
    counts = text.value_counts()
    if many and len(counts) > len(text) / 2:
        if _are_dates(text):
            return _date_column(name, values, flagged)
        if (text.str.count(r"\S+")).mean() >= WORDS_IN_TEXT:
            raise InputError(
                f"Column {name!r} holds text, such as {text.iloc[0][:60]!r}. Leave it out, or turn it to numbers "
                "first, for example with a sentence encoder or skrub.StringEncoder in a Pipeline."
            )
        if len(counts) == len(text):
            return Column(name=name, kind="left out")
    elif _are_dates(text):
        return _date_column(name, values, flagged)
    repeated = counts[counts > 1] if many else counts
    levels = tuple(sorted(repeated.index[: MOST_LEVELS - flagged]))
    if not levels and not flagged:
        return Column(name=name, kind="left out")
    return Column(name=name, kind="category", levels=(*levels, MISSING) if flagged else levels)


def _date_column(name: str, values: pd.Series[Any], flagged: bool) -> Column:
    fill = np.nanmedian(_date_parts(values), axis=0)
    return Column(name=name, kind="date", fill=tuple(fill.tolist()), flagged=flagged)


def _holds_numbers(values: pd.Series[Any]) -> bool:
    if isinstance(values.dtype, pd.CategoricalDtype):
        return False
    if is_numeric_dtype(values.dtype) or is_bool_dtype(values.dtype):
        return True
    present = values.dropna()
    return bool(present.map(lambda value: isinstance(value, (int, float, np.number, np.bool_))).all())


def _counts_rows(present: pd.Series[Any]) -> bool:
    """Whether whole numbers are a row counter: consecutive, each once."""
    return present.is_unique and int(present.max()) - int(present.min()) + 1 == len(present)


def _are_dates(text: pd.Series[Any]) -> bool:
    """Whether strings are dates such as 2021-05-30 or 2021-05-30 12:00, each of them."""
    looks = text.str.match(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([T ]\d{1,2}:\d{2}.*)?$")
    return bool(looks.all()) and bool(_as_dates(text).notna().all())


def _as_dates(values: pd.Series[Any]) -> pd.Series[Any]:
    form = None if is_datetime64_any_dtype(values.dtype) else "mixed"
    return pd.to_datetime(values, errors="coerce", utc=True, format=form).dt.tz_localize(None)


def _date_parts(values: pd.Series[Any]) -> Array:
    """Year, month, day, hour, weekday and seconds since 1970; NaN where there is no date."""
    dates = _as_dates(values)
    since_1970 = (dates - pd.Timestamp(0)).dt.total_seconds()
    parts = [dates.dt.year, dates.dt.month, dates.dt.day, dates.dt.hour, dates.dt.day_of_week, since_1970]
    return np.column_stack([part.to_numpy(dtype=np.float64, na_value=np.nan) for part in parts])


def _numbers(values: pd.Series[Any]) -> Array:
    try:
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        found = next(value for value in values.dropna() if not isinstance(value, (int, float, np.number)))
        raise InputError(f"Column {values.name!r} held numbers when the model was fitted, now {found!r}.") from error
    _refuse_infinity(numbers[:, None], [str(values.name)])
    return numbers


def _refuse_infinity(numbers: Array, names: list[str]) -> None:
    at_fault = [names[place] for place in np.flatnonzero(np.isinf(numbers).any(axis=0))]
    if at_fault:
        raise InputError(f"Input X contains infinity or a value too large, in columns {at_fault}.")


def _as_text(values: pd.Series[Any]) -> pd.Series[Any]:
    """Values as strings without spaces around them, and whole floats as whole numbers.

    Files differ in the spaces they keep, and a gap elsewhere in the column must not change 3 to 3.0.
    """

    def text(value: Any) -> str:
        whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
        return str(int(value)) if whole else str(value).strip()

    plain = values.astype(object)
    return plain.where(plain.notna(), MISSING).map(text)
