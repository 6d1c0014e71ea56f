"""Weights of rows: a row of weight two counts as one that occurs twice.

A fit splits rows, folds them and draws from them, so what it finds depends on how often a row occurs and on the order
of rows. Where rows have weights, or occur more than once, they are therefore brought into a form that depends on
neither: equal rows together, as often as their weights say, in an order of their contents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing, check_array
from torch.utils.data import Dataset

from ecrt.errors import InputError, warn_user
from ecrt.estimators.inputs import in_pandas

Array = NDArray[np.float64]
Hashes = NDArray[np.uint64]

MOST_COPIES = 100_000
"""Rows that weights may make of fewer; with larger weights each copy stands for several."""


class WeightedRows(NamedTuple):
    """Rows to learn from; ``weight`` is what each counts for, ``None`` where all count for one."""

    X: Any
    y: Any
    weight: Array | None = None


def weighted_rows(X: Any, y: Any, sample_weight: ArrayLike | None = None) -> WeightedRows:
    """Rows repeated as their weights say, in an order that depends on what they hold alone.

    Rows that are all different and all weigh 1 stay as they are; those of weight 0 are left out. A weight that is no
    whole number, or too large, is shared equally by copies of the row.
    """
    if isinstance(X, Dataset):
        if sample_weight is not None:
            raise InputError("sample_weight needs rows, not a Dataset: repeat its items instead.")
        return WeightedRows(X, y)
    X = in_pandas(X)
    hashes = None if y is None else _hashes_of(X, y)
    if sample_weight is None:
        if hashes is None or len(np.unique(hashes)) == len(hashes):
            return WeightedRows(X, y)
        weight = np.ones(len(hashes))
    elif hashes is None:
        return WeightedRows(X, y)  # what is wrong with them is said where they are read
    else:
        weight = checked_weights(sample_weight, len(hashes))
    order = np.lexsort((weight, hashes))
    order = order[weight[order] > 0]
    found, first = np.unique(hashes[order], return_index=True)
    total = np.add.reduceat(weight[order], first)
    if (total == 1).all():
        rows = np.sort(order)
        return WeightedRows(*(_safe_indexing(_as_rows(values), rows) for values in (X, y)))
    most = max(MOST_COPIES, 2 * len(found), 0 if sample_weight is not None else len(hashes))
    copies = np.maximum(np.rint(total / max(1.0, total.sum() / most)), 1).astype(np.int64)
    rows = np.repeat(order[first], copies)
    each = np.repeat(total / copies, copies)
    X, y = (_safe_indexing(_as_rows(values), rows) for values in (X, y))
    return WeightedRows(X, y, None if (each == 1).all() else each)


def checked_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Weights of so many rows: finite, none below zero, not all zero."""
    try:
        weight = check_array(sample_weight, dtype=np.float64, ensure_2d=False, ensure_all_finite=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight: {error}") from error
    if weight.shape != (n_rows,):
        raise InputError(
            f"sample_weight has the shape {weight.shape}; a number for each of the {n_rows} rows is needed."
        )
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        raise InputError(
            f"sample_weight: row {wrong.argmax()} has the weight {weight[wrong.argmax()]:g}; weights are finite "
            "numbers from 0 on."
        )
    if not weight.any():
        raise InputError("Every sample weight is zero: there is no row to learn from.")
    if weight.sum() < 0.1 * np.count_nonzero(weight):
        warn_user(
            f"The sample weights of {np.count_nonzero(weight):,} rows add up to {weight.sum():.3g}. A weight says how "
            "often a row occurs, so a fit will take this for very few rows. If your weights say only how rows compare "
            "with each other, divide them by their mean."
        )
    return weight


def whole_weights_only(rows: WeightedRows, who: str) -> tuple[Any, Any]:
    """X and y of rows that count for one each; other weights are refused."""
    if rows.weight is not None:
        raise InputError(
            f"{who} takes whole numbers as sample_weight, which repeat rows, up to {MOST_COPIES:,} rows in all; yet "
            f"rows have weights such as {rows.weight[rows.weight != 1][0]:g}. Round the weights, or do without that."
        )
    return rows.X, rows.y


def _as_rows(values: Any) -> Any:
    """What rows can be taken from."""
    values = in_pandas(values)
    if hasattr(values, "tocsr"):
        return values.tocsr()
    return values if isinstance(values, pd.DataFrame | pd.Series) else np.asarray(values)


def _hashes_of(X: Any, y: Any) -> Hashes | None:
    """A number for each row that depends on what it holds, and its y; ``None`` for what are no rows."""
    if np.ma.is_masked(X) or np.ma.is_masked(y):
        return None
    try:
        X = _as_rows(X)
        rows, targets = _row_hashes(X), _row_hashes(_as_rows(y))
    except (TypeError, ValueError):
        return None
    if X.ndim < 2 or len(rows) != len(targets) or len(rows) == 0:
        return None
    return _mixed(rows) * np.uint64(3) + _mixed(targets)


def _row_hashes(values: Any) -> Hashes:
    if isinstance(values, pd.DataFrame | pd.Series):
        return np.asarray(pd.util.hash_pandas_object(values, index=False), dtype=np.uint64)
    if hasattr(values, "tocsr"):
        rows = values.tocsr(copy=True)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        hashes = _mixed(rows.data) * (_mixed(np.arange(rows.shape[1])) | np.uint64(1))[rows.indices]
        ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(hashes)])  # sums of numbers of 64 bits, modulo 2^64
        return np.asarray(ends[rows.indptr[1:]] - ends[rows.indptr[:-1]], dtype=np.uint64)
    return _row_hashes(pd.DataFrame(values.reshape(len(values), -1)))


def _mixed(values: NDArray[Any]) -> Hashes:
    return pd.util.hash_array(values)
