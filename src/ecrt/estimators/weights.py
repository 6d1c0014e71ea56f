"""Weights of rows: a row of weight two counts as one that occurs twice.

A fit splits rows, folds them and draws from them, so what it finds depends on the order of rows and on how copies are
written. Where whole weights repeat rows, or rows occur more than once, they are therefore brought into a form that
depends on neither: equal rows together, in an order of their contents.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing, check_array
from torch.utils.data import Dataset

from ecrt.data.streams import Hashes, mixed, row_hashes
from ecrt.errors import InputError, warn_user
from ecrt.estimators.inputs import in_pandas, refuse_dates

Array = NDArray[np.float64]

MOST_COPIES = 100_000
"""Rows that whole weights may make of fewer; with larger weights rows stay single."""

LARGEST_TOTAL = 1e15
"""Beyond, one more row would no longer count."""


class WeightedRows(NamedTuple):
    """Rows to learn from; ``weight`` is what each counts for, ``None`` where all count for one."""

    X: Any
    y: Any
    weight: Array | None = None


def weighted_rows(X: Any, y: Any, sample_weight: ArrayLike | None = None) -> WeightedRows:
    """Rows that are repeated as whole weights say, in an order that depends on what they hold alone.

    Rows that are all different and weigh 1 stay as they are, as do those with weights that are no whole numbers or make
    too many rows, which are given back. The weights of equal rows are added up first; rows of weight 0 are left out.
    """
    if isinstance(X, Dataset):
        if sample_weight is not None:
            raise InputError("sample_weight needs rows, not a Dataset: repeat its items instead.")
        return WeightedRows(X, y)
    X = in_pandas(X)
    try:
        hashes = None if y is None else _hashes_of(X, y)
    except (TypeError, ValueError) as error:
        if sample_weight is not None:
            raise InputError(f"sample_weight: rows cannot be compared with each other. {error}") from error
        hashes = None
    if hashes is None or (sample_weight is None and len(np.unique(hashes)) == len(hashes)):
        return WeightedRows(X, y)  # what is wrong with them, if anything is, will be said where they are read
    weight = np.ones(len(hashes)) if sample_weight is None else checked_weights(sample_weight, len(hashes))
    order = np.lexsort((weight, hashes))
    order = order[weight[order] > 0]
    first = np.unique(hashes[order], return_index=True)[1]
    total = np.add.reduceat(weight[order], first)
    copies, most = (
        np.rint(total).astype(np.int64),
        np.inf if sample_weight is None else max(MOST_COPIES, 2 * len(first)),
    )
    if copies.sum() > most or not np.allclose(total, copies, rtol=1e-9, atol=0):
        rows = np.flatnonzero(weight)
        return WeightedRows(*_taken(rows, X, y), weight[rows])
    rows = np.sort(order[first]) if (copies == 1).all() else np.repeat(order[first], copies)
    return WeightedRows(*_taken(rows, X, y))


def checked_weights(sample_weight: ArrayLike, n_rows: int) -> Array:
    """Weights of so many rows: finite, none below zero, not all zero."""
    refuse_dates(sample_weight, "sample_weight")
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
    if np.minimum(weight, 2 * LARGEST_TOTAL).sum() > LARGEST_TOTAL:
        raise InputError(
            f"The sample weights add up to more than {LARGEST_TOTAL:g}. A weight says how often a row occurs: if "
            "yours say only how rows compare with each other, divide them by their mean."
        )
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


def _taken(rows: NDArray[np.int64], X: Any, y: Any) -> tuple[Any, Any]:
    return _safe_indexing(_as_rows(X), rows), _safe_indexing(_as_rows(y), rows)


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
    X, y = _as_rows(X), _as_rows(y)
    if X.ndim < 2 or y.ndim == 0 or X.shape[0] != y.shape[0] or X.shape[0] == 0:
        return None
    return mixed(row_hashes(X)) * np.uint64(3) + mixed(row_hashes(y))
