"""Which rows are trained on and which are tested, and what about them stands in the way of a fair answer."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from ecrt.arrays import Labels
from ecrt.data import stratified_holdout
from ecrt.errors import InputError

Rows = NDArray[np.int64]

HARDLY_IMBALANCED = 2.0
"""Below this ratio of the largest class to the smallest there is little imbalance to speak of."""

FEW_TEST_ROWS = 10
"""With fewer test rows of a class a single one moves its recall by more than a tenth."""

NAMED = 5
"""Classes that a warning names."""

FIRST_TEST = 0.5
"""Timed splits test in the part of the rows after this, in as many windows as seeds."""


class Split(NamedTuple):
    """Rows of one split: training and test rows; of the training rows, those that trials are fitted and judged on."""

    train: Rows
    test: Rows
    fitted: Rows
    judged: Rows


def make_splits(
    y: Labels, *, groups: Any = None, times: Any = None, n_seeds: int, test_size: float = 0.2
) -> list[Split]:
    """A split for each seed, after checks that all of them can be made.

    Parameters
    ----------
    y : class indices.
    groups, times : of each row; at most one of them is given. Rows of a group stay together, and training rows come
        before test rows in time.
    test_size : share of rows that are tested, and of training rows that tuning is judged on. In time, the later half of
        the rows is tested instead, in ``n_seeds`` equal windows, each after all that it is trained on.
    """
    if groups is not None and times is not None:
        raise InputError("Splits are by group or in time, not both: give --group or --time.")
    if not 0 < test_size <= 0.5:
        raise InputError(f"test_size={test_size}: a share of the rows above 0 and up to 0.5 is needed.")
    if n_seeds < 1:
        raise InputError(f"seeds={n_seeds}: at least one is needed.")
    rows = np.arange(len(y))
    edges = np.linspace(FIRST_TEST * len(y), len(y), n_seeds + 1).round().astype(int).tolist()
    codes = None if groups is None else _read_groups(groups)
    moments = None if times is None else read_times(times)
    splits = []
    for seed in range(n_seeds):
        if moments is not None:
            train, test = _cut_in_time(rows, moments, edges[seed], edges[seed + 1])
            inner = _cut_in_time(train, moments, len(train) - round(test_size * len(train)), len(train))
        else:
            train, test = _draw(rows, y, codes, test_size, seed)
            inner = _draw(train, y, codes, test_size, 1_000_003 + seed)
        parts = {"training": train, "test": test, "tuning": inner[0], "validation": inner[1]}
        for name, part in parts.items():
            if len(part) == 0:
                raise InputError(f"Split {seed} has no {name} rows: there are too few rows to split.")
        for name in ("training", "tuning"):
            if len(np.unique(y[parts[name]])) < 2:
                raise InputError(f"The {name} rows of split {seed} hold one class only.")
        splits.append(Split(train, test, *inner))
    return splits


def _draw(rows: Rows, y: Labels, groups: Labels | None, share: float, seed: int) -> tuple[Rows, Rows]:
    """Rows that are kept and rows that are held out, at random; groups stay together."""
    if groups is None:
        kept, held_out = stratified_holdout(y[rows], share, np.random.default_rng(seed))
    else:
        n_groups, folds = len(np.unique(groups[rows])), round(1 / share)
        if n_groups < folds:
            raise InputError(
                f"{n_groups} groups are too few to keep {share:.0%} of the rows apart; {folds} are needed."
            )
        splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class with fewer rows than folds: see warnings_of
            kept, held_out = next(iter(splitter.split(rows[:, None], y[rows], groups[rows])))
    return rows[kept], rows[held_out]


def _cut_in_time(rows: Rows, times: NDArray[np.float64], start: int, end: int) -> tuple[Rows, Rows]:
    """Rows before the place ``start`` in time, and from there to ``end``; rows of one moment stay together."""
    order = rows[np.argsort(times[rows], kind="stable")]
    ordered = times[order]
    # Each edge moves back to where its moment begins.
    start, end = (
        edge if edge >= len(ordered) else int(np.searchsorted(ordered, ordered[edge])) for edge in (start, end)
    )
    return np.sort(order[:start]), np.sort(order[start:end])


def _read_groups(values: Any) -> Labels:
    column = pd.Series(np.asarray(values))
    if column.isna().any():
        raise InputError(f"The group is missing in {int(column.isna().sum())} rows. Fill it, or drop these rows.")
    return pd.factorize(column)[0].astype(np.int64)


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


def warnings_of(X: pd.DataFrame, y: Labels, splits: Sequence[Split], labels: list[str]) -> list[str]:
    """What stands in the way of a fair answer, in sentences for the user; none if all is well."""
    found, counts = [], np.bincount(y)
    least, most = int(counts.argmin()), int(counts.argmax())
    if counts[most] < HARDLY_IMBALANCED * counts[least]:
        found.append(
            f"The table is hardly imbalanced: {counts[most]} rows of {labels[most]!r}, the largest class, and "
            f"{counts[least]} of {labels[least]!r}, the smallest. Methods for imbalance have little to correct."
        )
    found += [*_duplicates(X, y, splits), *_few_test_rows(y, splits, labels)]
    absent = sorted({at for split in splits for at in np.setdiff1d(y[split.test], y[split.train]).tolist()})
    if absent:
        named = ", ".join(repr(labels[at]) for at in absent[:NAMED])
        found.append(f"Classes {named} are tested in a split that has none of them in training: always wrong there.")
    if len(splits) < 3:
        seeds = "1 seed is" if len(splits) == 1 else f"{len(splits)} seeds are"
        found.append(f"{seeds} too few to tell a difference from noise; use 5 or more.")
    return found


def _duplicates(X: pd.DataFrame, y: Labels, splits: Sequence[Split]) -> list[str]:
    codes = pd.factorize(pd.util.hash_pandas_object(X, index=False))[0]
    pairs = codes * (y.max() + 1) + y
    tested = sum(len(split.test) for split in splits)
    shared, with_label = (
        sum(int(np.isin(of[split.test], of[split.train]).sum()) for split in splits) for of in (codes, pairs)
    )
    if shared == 0:
        return []
    return [
        f"{shared / tested:.1%} of the test rows also stand among the training rows of their split, cell by cell "
        f"({with_label / tested:.1%} with the same label): methods that memorise are flattered. Drop the duplicates, "
        "or name a column with --group that keeps them on one side."
    ]


def _few_test_rows(y: Labels, splits: Sequence[Split], labels: list[str]) -> list[str]:
    rows = np.mean([np.bincount(y[split.test], minlength=len(labels)) for split in splits], axis=0)
    few = np.flatnonzero(rows < FEW_TEST_ROWS)
    if len(few) == 0:
        return []
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
    return [
        f"{len(few)} of {len(labels)} classes {have} fewer than {FEW_TEST_ROWS} test rows a split, on average: {named}"
        f"{' and others' if len(few) > NAMED else ''}. {end}"
    ]
