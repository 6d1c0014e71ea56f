"""Synthetic rows of rare classes, for pipelines of imbalanced-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Real
from typing import Annotated, Any

import numpy as np
import pandas as pd
from imblearn.over_sampling.base import BaseOverSampler
from imblearn.utils import check_target_type
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype, is_object_dtype
from scipy import sparse
from sklearn.utils import Tags, _safe_indexing, check_consistent_length
from sklearn.utils._param_validation import Interval, StrOptions

from ecrt.arrays import Array, Labels
from ecrt.data import TableEncoder
from ecrt.data.tables import row_hashes
from ecrt.errors import InputError, warn_user
from ecrt.estimators.base import FitBase, Minority
from ecrt.estimators.inputs import (
    check_class_counts,
    class_indices,
    in_numpy,
    in_pandas,
    places_as_often,
    plain_labels,
)
from ecrt.estimators.synthesis import (
    AUGMENTATION,
    DEMIXING,
    ROUNDS,
    ClassRows,
    different_rows,
    find_mechanism,
    idle_options,
    roles_of,
    rows_of_classes,
    usual_augmentation,
)
from ecrt.machine import ask
from ecrt.stages import Augmentation, Demixing

Strategy = Annotated[
    float | str | Mapping[Any, int] | Callable[[Any], Mapping[Any, int]],
    Interval(Real, 0, 1, closed="right"),
    StrOptions({"auto", "minority", "not minority", "not majority", "all"}),
    Mapping,
    callable,
]
"""What imbalanced-learn takes as the ``sampling_strategy`` of an over-sampler."""

COPIED_AT_ONCE = 2048


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTSampler(FitBase, BaseOverSampler):
    """Over-sampling by synthetic rows that are drawn among sources and brought back to the columns of X.

    De-mixing is learned from the classes with data. Sources of the rare classes are drawn there, and its exact inverse
    makes them rows. A row is left out, and another one drawn, if its sources do not come back from it or if it lies
    farther from the rows of its class than these lie from each other.

    Numbers come from the inverse. A column of whole numbers stays one and keeps its range, and no number goes beyond
    zero, or beyond an end that several rows share, if none did. A category, a date, text or a missing value is that of
    most of the five nearest rows of the class, as in SMOTENC; a number is too where more than half of these share it,
    zeros of sparse data for example.

    Like other samplers of imbalanced-learn it learns and draws in ``fit_resample``; there is nothing to save.

    Parameters
    ----------
    sampling_strategy : float, str, dict or callable, default="auto"
        Which classes get how many rows, as in every over-sampler of imbalanced-learn: ``"auto"`` makes all classes as
        large as the largest.
    demixing : {"auto", "linear", "flow", "none"}, Linear, Flow or NoDemixing, default="auto"
        ``"auto"`` takes a flow where held-out rows are more likely under it than under a linear map; it is tried on up
        to 64 columns with at least 500 rows in three classes.
    augmentation : {"auto", "kernel", "pairs", "parametric", "permutation", "borrowed"}, part, callable, default="auto"
        How sources are drawn. ``"auto"`` is ``"kernel"`` where classes with data have taught the de-mixing, and
        ``"pairs"`` where there are too few of them. The options ``weight`` and ``n_synthetic`` have no meaning here.
    minority : "auto", "all", int, labels or callable, default="auto"
        Classes that de-mixing does not learn from, as in ``ECRTClassifier``. With fewer than three others it learns
        from all.
    validation_fraction, device, verbose, random_state
        As in ``ECRTClassifier``.

    Attributes
    ----------
    sampling_strategy_ : labels, and how many rows were asked for.
    sample_indices_ : for every row of the result its place in X; for a synthetic one that of the row which it was moved
        from, or of one of its class: what else you know of rows, such as their groups, can be looked up by it.
    synthetic_ : for every synthetic row, in the order in which they follow the real ones, the places in X of the rows
        that it came from; of rows that are alike, one. With ``"parametric"`` and ``"borrowed"`` these are all rows of
        its class.
    refused_ : labels, and the share of rows drawn that were left out.
    demixing_, augmentation_ : the kinds of them, ``"linear"`` and ``"pairs"`` for example.
    demixed_on_ : labels that de-mixing learned from.
    table_ : how columns were read.
    classes_, n_features_in_, feature_names_in_ : of the data.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(600, n_classes=4, n_informative=6, weights=[.4, .3, .25, .05], random_state=0)
    >>> sampler = ECRTSampler(random_state=0)
    >>> X_more, y_more = sampler.fit_resample(X, y)
    >>> np.bincount(y), np.bincount(y_more)
    (array([240, 179, 149,  32]), array([240, 240, 240, 240]))
    >>> set(y[sampler.synthetic_[-1]].tolist())
    {3}
    """

    _roles = {"demixing": DEMIXING, "augmentation": AUGMENTATION}  # noqa: RUF012
    sampling_strategy: Strategy = "auto"
    demixing: str | Demixing = "auto"
    augmentation: str | Augmentation | Callable[..., Any] = "auto"
    minority: Minority = "auto"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.sampler_tags.sample_indices = True
        return tags

    def fit_resample(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> tuple[Any, Any]:
        """The rows of X, with synthetic ones after them, and the labels of all.

        Parameters
        ----------
        X : array, sparse matrix, list, or a data frame of pandas, polars or pyarrow: the result is of the same kind,
            and real rows are what they were.
        y : labels.
        sample_weight : how often each row occurs, whole numbers. The result has a row that often, so that what is
            fitted to it needs no weights.
        """
        if sample_weight is None or X is None or y is None:
            X_more, y_more = super().fit_resample(in_pandas(X), plain_labels(in_pandas(y)))
            return _like(X, X_more), _like(y, y_more)
        X, y = in_numpy(X), in_numpy(y)
        check_consistent_length(in_pandas(X), y)
        place = places_as_often(in_numpy(sample_weight), len(in_pandas(y)), "ECRTSampler")
        is_sparse = sparse.issparse(X)  # not every format lets rows be taken
        X_more, y_more = self.fit_resample(
            _safe_indexing(X.tocsr() if is_sparse else X, place), _safe_indexing(y, place)
        )
        found: Any = vars(self)
        named = {id(rows): place[rows] for rows in found["synthetic_"]}  # one array may stand for many rows
        found["synthetic_"] = [named[id(rows)] for rows in found["synthetic_"]]
        found["sample_indices_"] = place[found["sample_indices_"]]
        return X_more.asformat(X.format) if is_sparse else X_more, y_more

    def _check_X_y(self, X: Any, y: Any) -> tuple[Any, NDArray[Any], bool]:  # noqa: N802
        """X as cells to be filled in, y, and whether it came as an indicator of classes."""
        parts = (next(iter(self._parts(name)), None) for name in ("demixing", "augmentation"))
        self._check_parts(idle_options(*parts))
        y, one_vs_all = check_target_type(y, indicate_one_vs_all=True)
        z, y = self._learn_rows(X, y)
        if self.table_ is None:
            raise InputError("X must be a table: rows and columns.")
        return Cells(X, z if z.flags.writeable else z.copy(), self.table_), y, one_vs_all

    def _fit_resample(self, cells: Cells, y: NDArray[Any]) -> tuple[Any, NDArray[Any]]:
        self.classes_, labels = class_indices(y)
        check_class_counts(self.classes_, labels)
        wanted = {}
        for label, n in self.sampling_strategy_.items():
            if not float(n).is_integer():
                raise InputError(f"sampling_strategy asks for {n:g} synthetic rows of {label!r}; give a whole number.")
            if n:
                wanted[int(np.searchsorted(self.classes_, label))] = int(n)
        config = next(iter(self._parts("demixing")), None)
        roles = roles_of(labels, self.classes_, config, self.minority)
        augmentation = next(iter(self._parts("augmentation")), None) or usual_augmentation(roles)
        self.demixed_on_ = self.classes_[roles.demixed_on]
        augmented = np.isin(np.arange(len(self.classes_)), list(wanted))
        self.refused_: dict[Any, float] = {}
        drawn = []
        lower = "Ask for fewer rows: give sampling_strategy a dict of labels and the number of rows of each."
        ask("Synthetic rows, a table", lower, copies=4, rows=sum(wanted.values()), columns=cells.z.shape[1])
        once, times = different_rows(cells.codes, labels)
        mine = None if times is None else times[once]
        with self._session() as session:
            mechanism, made_by = find_mechanism(
                cells.z[once], labels[once], config, roles, self.validation_fraction, session, mine
            )
            if times is not None:
                mechanism = replace(mechanism, learned=mechanism.sources(cells.z))
            sources = rows_of_classes(
                mechanism, cells.z, labels, augmented, augmentation, roles.demixed_on, once, times
            )
            for label, size in wanted.items():
                found, refused = draw_good_rows(sources[label], cells, size, session.rng)
                name = self.classes_[[label]].tolist()[0]
                self.refused_[name] = refused
                drawn.append(found)
                if len(found.origin) < size:
                    warn_user(
                        f"Class {name!r} gets {len(found.origin)} synthetic rows instead of {size}: "
                        f"{refused:.0%} of those drawn were too far from its rows, or could not be brought back."
                    )
        self.demixing_, self.augmentation_ = made_by.kind, augmentation.kind
        counts = [len(one.origin) for one in drawn]
        self.sample_indices_ = np.concatenate([np.arange(len(y)), *(one.parent for one in drawn)])
        self.synthetic_ = [came_from for one in drawn for came_from in one.came_from]
        y_more = np.concatenate([y, np.repeat(self.classes_[[*wanted]], counts)]) if wanted else y.copy()
        return cells.appended(drawn), y_more.astype(y.dtype, copy=False)


# --- from sources to cells -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class New:
    """Synthetic rows of one class.

    Attributes
    ----------
    origin : for every column of X the row whose value is copied; -1 where it is a new number.
    numbers : the new numbers, a column for each of X.
    parent, came_from : rows that they come from, the first of them and all.
    """

    origin: Labels
    numbers: Array
    parent: Labels
    came_from: list[Labels]


class Cells:
    """The columns of X, to be filled in for synthetic rows.

    Parameters
    ----------
    X : as it was given.
    z : X as numbers.
    table : how columns became numbers.
    """

    def __init__(self, X: Any, z: Array, table: TableEncoder) -> None:
        self.X, self.z, self.columns = X, z, table.columns
        ends = np.cumsum([len(column.names_out) for column in self.columns])
        self.slots = [slice(end - len(column.names_out), end) for column, end in zip(self.columns, ends, strict=True)]
        frame = X if isinstance(X, pd.DataFrame) else None
        self.is_number = np.array([
            column.kind == "number" and (frame is None or _takes_numbers(frame.iloc[:, place]))
            for place, column in enumerate(self.columns)
        ])  # fmt: skip
        first = [slot.start if number else 0 for slot, number in zip(self.slots, self.is_number, strict=True)]
        self.first = np.array(first, dtype=np.int64)
        values = z[:, self.first]
        self.whole = (values == np.round(values)).all(axis=0)
        self.codes = np.column_stack([self._codes(place) for place in range(len(self.columns))])
        rows, times = np.unique(row_hashes(self.codes), return_index=True, return_counts=True)[1:]
        self.low, self.high = self._edge(values[rows], times), -self._edge(-values[rows], times)

    def _edge(self, values: Array, times: Labels) -> Array:
        """Below what no new number may be: what several rows share as the least value, and zero where none is less.

        The copies of one row share it if no other row occurs as often: in a table of one column they are many rows.
        """
        least = values.min(axis=0)
        here, often = values == least, times[:, None]
        edge = (here.sum(axis=0) > 1) | ((here * often).max(axis=0) > (~here * often).max(axis=0))
        return np.where(edge | self.whole, least, np.where(least >= 0, 0.0, -np.inf))

    def _codes(self, place: int) -> Labels:
        """The same number for rows whose cells in a column are the same."""
        if self.columns[place].kind == "left out" or not self.is_number[place]:
            column = (
                self.X.iloc[:, place] if isinstance(self.X, pd.DataFrame) else pd.Series(np.asarray(self.X)[:, place])
            )
            return pd.factorize(column)[0].astype(np.int64)
        return np.unique(self.z[:, self.slots[place]], axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)

    def vote(self, near: Labels) -> Labels:
        """The row whose cell is taken over, for each column: that of most of the rows near by, or -1 for none."""
        n, k = near.shape
        origin = np.full((n, len(self.columns)), -1)
        for start in range(0, n, COPIED_AT_ONCE):
            some = near[start : start + COPIED_AT_ONCE]
            for place, number in enumerate(self.is_number):
                codes = self.codes[some, place]
                votes = (codes[:, :, None] == codes[:, None, :]).sum(axis=2)
                first = votes.argmax(axis=1)  # of several with as many votes, the nearest
                most = np.take_along_axis(votes, first[:, None], axis=1)[:, 0]
                taken = (2 * most > k) & (most > 1) if number else np.ones(len(some), dtype=bool)
                chosen = np.take_along_axis(some, first[:, None], axis=1)[:, 0]
                origin[start : start + COPIED_AT_ONCE, place] = np.where(taken, chosen, -1)
        return origin

    def new_numbers(self, z: Array) -> Array:
        """Numbers for the columns, within their ends; where X holds whole numbers alone, whole ones."""
        numbers = np.clip(np.nan_to_num(z[:, self.first]), self.low, self.high)
        return np.where(self.whole, np.round(numbers), numbers)

    def encoded(self, origin: Labels, numbers: Array) -> Array:
        """Such rows as numbers, as X was read."""
        z = np.zeros((len(origin), self.z.shape[1]))
        for place, slot in enumerate(self.slots):
            copied = origin[:, place] >= 0
            z[copied, slot] = self.z[origin[copied, place], slot]
            z[~copied, self.first[place]] = numbers[~copied, place]
        return z

    def appended(self, drawn: list[New]) -> Any:
        """X with the synthetic rows after its own, in the form that it has."""
        origin = np.concatenate([np.empty((0, len(self.columns)), dtype=np.int64), *(one.origin for one in drawn)])
        numbers = np.concatenate([np.empty((0, len(self.columns))), *(one.numbers for one in drawn)])
        if isinstance(self.X, pd.DataFrame):
            cells = {place: self._cells(self.X.iloc[:, place], origin[:, place], numbers[:, place])
                     for place in range(len(self.columns))}  # fmt: skip
            new = pd.DataFrame(cells)
            new.columns = self.X.columns
            return pd.concat([self.X, new], ignore_index=True) if len(new) else self.X.reset_index(drop=True)
        if sparse.issparse(self.X):
            dense = np.where(origin >= 0, self.z[np.maximum(origin, 0), self.first], numbers)
            given: Any = self.X
            kind = sparse.csr_array if isinstance(given, sparse.sparray) else sparse.csr_matrix
            return sparse.vstack([given, kind(dense.astype(given.dtype))], format=given.format)
        array = np.asarray(self.X)
        new_rows = np.take_along_axis(array, np.maximum(origin, 0), axis=0)
        new_rows[origin < 0] = numbers[origin < 0].astype(array.dtype)
        return np.concatenate([array, new_rows])

    @staticmethod
    def _cells(column: pd.Series[Any], origin: Labels, numbers: Array) -> pd.Series[Any]:
        """Cells of synthetic rows, of the type that the column has."""
        copied = column.iloc[np.maximum(origin, 0)].reset_index(drop=True)
        if (origin >= 0).all():
            return copied
        dense = copied.astype(column.dtype.subtype) if isinstance(column.dtype, pd.SparseDtype) else copied
        filled = dense.where(origin >= 0, pd.Series(numbers).astype(dense.dtype))
        return filled.astype(column.dtype)


def draw_good_rows(source: ClassRows, cells: Cells, size: int, rng: np.random.Generator) -> tuple[New, float]:
    """Rows of a class that have passed both tests, up to ``size``; and the share of those drawn that have not."""
    kept: list[New] = []
    n_kept = n_drawn = 0
    for _ in range(ROUNDS):
        drawn = source.draw(size - n_kept, rng)
        n_drawn += len(drawn.z)
        origin, numbers = cells.vote(drawn.near), cells.new_numbers(drawn.z)
        good = np.flatnonzero(drawn.good & source.supported(cells.encoded(origin, numbers)))
        n_kept += len(good)
        if drawn.donors is None:
            came_from = [source.rows] * len(good)
        else:
            came_from = [_once(drawn.donors[row], drawn.near[row]) for row in good]
        kept.append(New(origin[good], numbers[good], drawn.parent[good], came_from))
        if n_kept == size:
            break
    new = New(
        np.concatenate([one.origin for one in kept]), np.concatenate([one.numbers for one in kept]),
        np.concatenate([one.parent for one in kept]), [rows for one in kept for rows in one.came_from],
    )  # fmt: skip
    return new, 1 - n_kept / n_drawn


def _once(*rows: Labels) -> Labels:
    """Row numbers in their order, each once."""
    return np.array(list(dict.fromkeys(np.concatenate(rows).tolist())), dtype=np.int64)


def _takes_numbers(column: pd.Series[Any]) -> bool:
    """Whether new numbers can stand in a column that was read as numbers: not truth values, durations or Decimals."""
    dtype = column.dtype.subtype if isinstance(column.dtype, pd.SparseDtype) else column.dtype
    if is_object_dtype(dtype):
        return bool(column.dropna().map(lambda value: type(value) in (int, float)).all())
    return is_numeric_dtype(dtype) and not is_bool_dtype(dtype)


# --- data frames of others -------------------------------------------------------------------------------------------


def _like(given: Any, more: Any) -> Any:
    """What was given, with the new rows of its copy in pandas after its own."""
    if not hasattr(given, "to_pandas"):
        return more
    library: Any = import_module(type(given).__module__.partition(".")[0])
    new = more.iloc[len(given) :]
    if library.__name__ == "pyarrow":
        if isinstance(given, library.Table):
            rows = library.Table.from_pandas(new, schema=given.schema, preserve_index=False)
            return library.concat_tables([given, rows])
        return library.chunked_array([given, library.array(new, type=given.type, from_pandas=True)])
    if isinstance(new, pd.Series):
        return library.concat([given, library.Series(given.name, _plain(new, given.dtype), given.dtype)])
    columns = {name: _plain(new[name], dtype) for name, dtype in given.schema.items()}
    return library.concat([given, library.DataFrame(columns, schema=given.schema)])


def _plain(values: pd.Series[Any], dtype: Any) -> list[Any]:
    """Values of a column, ``None`` where there is none, and whole numbers as such."""
    whole = dtype.is_integer()
    return [
        None if missing else int(value) if whole else value
        for value, missing in zip(values.tolist(), values.isna(), strict=True)
    ]
