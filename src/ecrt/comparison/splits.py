"""Which rows are trained on and which are tested, and what about them stands in the way of a fair answer."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from ecrt.data import stratified_holdout
from ecrt.errors import InputError

Rows = NDArray[np.int64]
Labels = NDArray[np.int64]
SplitKind = Literal["stratified", "grouped", "timed"]

HARDLY_IMBALANCED = 2.0
"""Below this ratio of the largest class to the smallest there is little imbalance to speak of."""

FEW_TEST_ROWS = 10
"""With fewer test rows of a class a single one moves its recall by more than a tenth."""

NAMED = 5
"""Classes that a warning names."""

FIRST_TEST = 0.5
"""Timed splits test in the part of the rows after this, in as many windows as seeds."""


@dataclass(frozen=True, kw_only=True)
class Splitter:
    """Outer and inner splits of one table.

    Attributes
    ----------
    y : class indices.
    groups, times : of each row; at most one of them is given.
    n_seeds : how many outer splits there are.
    test_size : share of rows that are tested, and of training rows that tuning is judged on. Timed outer splits have
        windows instead: the later half of the rows in ``n_seeds`` equal parts, each after all it is trained on.
    """

    y: Labels
    groups: Labels | None
    times: NDArray[np.float64] | None
    n_seeds: int
    test_size: float

    @property
    def kind(self) -> SplitKind:
        """What keeps training and test apart."""
        return "grouped" if self.groups is not None else "timed" if self.times is not None else "stratified"

    def outer(self, seed: int) -> tuple[Rows, Rows]:
        """Training and test rows of the seed's split."""
        if self.times is not None:
            return self._window(seed, self.times)
        return self._split(np.arange(len(self.y)), seed)

    def inner(self, train: Rows, seed: int) -> tuple[Rows, Rows]:
        """Training rows cut in the same way: those that trials are fitted on, and those they are judged on."""
        if self.times is not None:
            return _cut_in_time(train, self.times, len(train) - round(self.test_size * len(train)))
        return self._split(train, 1_000_003 + seed)

    def _split(self, rows: Rows, seed: int) -> tuple[Rows, Rows]:
        y = self.y[rows]
        if self.groups is None:
            kept, held_out = stratified_holdout(y, self.test_size, np.random.default_rng(seed))
        else:
            groups = self.groups[rows]
            folds = round(1 / self.test_size)
            if len(np.unique(groups)) < folds:
                raise InputError(
                    f"{len(np.unique(groups))} groups are too few to keep {self.test_size:.0%} of the rows apart; "
                    f"{folds} are needed."
                )
            splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a class with fewer rows than folds: see warnings_of
                kept, held_out = next(iter(splitter.split(np.zeros(len(y)), y, groups)))
        return rows[kept], rows[held_out]

    def _window(self, seed: int, times: NDArray[np.float64]) -> tuple[Rows, Rows]:
        """The seed's window in time as test rows, all rows before it as training rows."""
        order = np.argsort(times, kind="stable")
        edges = np.linspace(FIRST_TEST * len(order), len(order), self.n_seeds + 1).round().astype(int)
        start, end = (_edge_in_time(times[order], int(edge)) for edge in edges[seed : seed + 2])
        return np.sort(order[:start]), np.sort(order[start:end])


def _edge_in_time(ordered: NDArray[np.float64], edge: int) -> int:
    """The edge moved back to where its time begins: rows of one moment stay together."""
    return edge if edge >= len(ordered) else int(np.searchsorted(ordered, ordered[edge], side="left"))


def _cut_in_time(rows: Rows, times: NDArray[np.float64], n_first: int) -> tuple[Rows, Rows]:
    order = rows[np.argsort(times[rows], kind="stable")]
    edge = _edge_in_time(times[order], n_first)
    return np.sort(order[:edge]), np.sort(order[edge:])


def make_splitter(
    y: Labels, *, groups: Any = None, times: Any = None, n_seeds: int, test_size: float = 0.2
) -> Splitter:
    """A splitter of rows with these labels, after checks that every split can be made."""
    if groups is not None and times is not None:
        raise InputError("Splits are by group or in time, not both: give --group or --time.")
    if not 0 < test_size <= 0.5:
        raise InputError(f"test_size={test_size}: a share of the rows above 0 and up to 0.5 is needed.")
    if n_seeds < 1:
        raise InputError(f"seeds={n_seeds}: at least one is needed.")
    codes = None
    if groups is not None:
        column = pd.Series(np.asarray(groups))
        if column.isna().any():
            raise InputError(f"The group is missing in {int(column.isna().sum())} rows. Fill it, or drop these rows.")
        codes = pd.factorize(column)[0].astype(np.int64)
    splitter = Splitter(
        y=y, groups=codes, times=None if times is None else read_times(times), n_seeds=n_seeds, test_size=test_size
    )
    for seed in range(n_seeds):
        train, test = splitter.outer(seed)
        fitted, judged = splitter.inner(train, seed) if len(train) else (train, train)
        parts = {"training": train, "test": test, "tuning": fitted, "validation": judged}
        for name, rows in parts.items():
            if len(rows) == 0:
                raise InputError(f"Split {seed} ({splitter.kind}) has no {name} rows: there are too few rows to split.")
        for name, rows in (("training", train), ("tuning", fitted)):
            if len(np.unique(y[rows])) < 2:
                raise InputError(f"Split {seed} ({splitter.kind}): its {name} rows hold one class only.")
    return splitter


def read_times(values: Any) -> NDArray[np.float64]:
    """Times as numbers: numbers as they are, dates as seconds since 1970."""
    column = pd.Series(np.asarray(values))
    if column.dtype.kind not in "iuf":
        dates = pd.to_datetime(column, errors="coerce", utc=True, format="mixed")
        unread = column[dates.isna()]
        if len(unread):
            raise InputError(f"The time of row {unread.index[0]} is {unread.iloc[0]!r}, not a number or a date.")
        return np.asarray((dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
    numbers = np.asarray(column, dtype=np.float64)
    if not np.isfinite(numbers).all():
        raise InputError(f"The time is missing in {int((~np.isfinite(numbers)).sum())} rows. Drop these rows.")
    return numbers


def warnings_of(X: pd.DataFrame, splitter: Splitter, labels: list[str]) -> list[str]:
    """What stands in the way of a fair answer, in sentences for the user; none if all is well."""
    y = splitter.y
    splits = [splitter.outer(seed) for seed in range(splitter.n_seeds)]
    found = [
        _balance(y, labels),
        _duplicates(X, y, splits),
        _few_test_rows(y, splits, labels),
        _unseen(y, splits, labels),
    ]
    if splitter.n_seeds < 3:
        seeds = "1 seed is" if splitter.n_seeds == 1 else f"{splitter.n_seeds} seeds are"
        found.append(f"{seeds} too few to tell a difference from noise; use 5 or more.")
    return [sentence for sentence in found if sentence]


def _balance(y: Labels, labels: list[str]) -> str:
    counts = np.bincount(y)
    least, most = int(counts.argmin()), int(counts.argmax())
    if counts[most] >= HARDLY_IMBALANCED * counts[least]:
        return ""
    return (
        f"The table is hardly imbalanced: {counts[most]} rows of {labels[most]!r}, the largest class, and "
        f"{counts[least]} of {labels[least]!r}, the smallest. Methods for imbalance have little to correct."
    )


def _duplicates(X: pd.DataFrame, y: Labels, splits: list[tuple[Labels, Labels]]) -> str:
    codes = pd.factorize(pd.util.hash_pandas_object(X, index=False))[0]
    if codes.max() + 1 == len(codes):
        return ""
    shared, with_label, tested = 0, 0, 0
    for train, test in splits:
        twin = np.isin(codes[test], codes[train])
        shared, tested = shared + int(twin.sum()), tested + len(test)
        pairs = codes * (y.max() + 1) + y
        with_label += int(np.isin(pairs[test], pairs[train]).sum())
    if shared == 0:
        return ""
    return (
        f"{shared / tested:.1%} of the test rows also stand among the training rows of their split, cell by cell "
        f"({with_label / tested:.1%} with the same label): methods that memorise are flattered. Drop the duplicates, "
        "or name a column with --group that keeps them on one side."
    )


def _few_test_rows(y: Labels, splits: list[tuple[Labels, Labels]], labels: list[str]) -> str:
    rows = np.mean([np.bincount(y[test], minlength=len(labels)) for _, test in splits], axis=0)
    few = np.flatnonzero(rows < FEW_TEST_ROWS)
    if len(few) == 0:
        return ""
    order = few[np.argsort(rows[few], kind="stable")]
    named = ", ".join(f"{labels[at]!r} ({rows[at]:.3g})" for at in order[:NAMED])
    tested = order[rows[order] > 0]
    end = "Classes without test rows count for nothing in the figures."
    if len(tested):
        step = 1 / (max(rows[tested[0]], 1) * (rows > 0).sum())
        end = (
            f"One row of {labels[tested[0]]!r} moves balanced accuracy by {step:.3f}: small differences cannot be seen."
        )
    have = "has" if len(few) == 1 else "have"
    return (
        f"{len(few)} of {len(labels)} classes {have} fewer than {FEW_TEST_ROWS} test rows a split, on average: {named}"
        f"{' and others' if len(few) > NAMED else ''}. {end}"
    )


def _unseen(y: Labels, splits: list[tuple[Labels, Labels]], labels: list[str]) -> str:
    absent = sorted({label for train, test in splits for label in np.setdiff1d(y[test], y[train]).tolist()})
    if not absent:
        return ""
    named = ", ".join(repr(labels[at]) for at in absent[:NAMED])
    return f"Classes {named} occur in the test rows of a split that has none of them in training: always wrong there."
