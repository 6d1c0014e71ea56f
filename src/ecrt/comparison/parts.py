"""What the rivals from scikit-learn and imbalanced-learn need on top, to take the tables that everybody else takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from imblearn.base import BaseSampler
from imblearn.over_sampling import SMOTE
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ecrt.data import TableEncoder

__all__ = ["ClasswiseSMOTE", "TableReader"]

Array = NDArray[np.float64]


class TableReader(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A table as the numbers that ``ECRTClassifier`` makes of it, so that every method reads the same columns."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> TableReader:
        """Learn what the columns hold."""
        self.table_ = TableEncoder.learn(X)
        return self

    def transform(self, X: pd.DataFrame) -> Array:
        """Columns as numbers without gaps."""
        return self.table_.encode(X)


class ClasswiseSMOTE(BaseSampler):  # type: ignore[misc]
    """SMOTE that raises every class to the size of the largest, whatever the size of the smallest.

    imbalanced-learn's SMOTE refuses a class that has no more rows than ``k_neighbors``. Here each class takes as many
    neighbours as it has, at most ``k_neighbors``; a class with a single row repeats it.

    References
    ----------
    Chawla, Bowyer, Hall and Kegelmeyer (2002), SMOTE: Synthetic Minority Over-sampling Technique, JAIR 16.
    """

    _sampling_type = "over-sampling"
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012

    def __init__(self, *, k_neighbors: int = 5, random_state: int | None = None) -> None:
        super().__init__(sampling_strategy="auto")
        self.k_neighbors, self.random_state = k_neighbors, random_state

    def _fit_resample(self, X: Array, y: NDArray[Any]) -> tuple[Array, NDArray[Any]]:
        labels, counts = np.unique(y, return_counts=True)
        rows, targets = [X], [y]
        for label, count in zip(labels, counts.tolist(), strict=True):
            missing = int(counts.max()) - count
            if missing == 0:
                continue
            if count == 1:
                made = np.repeat(X[y == label], missing, axis=0)
            else:
                smote = SMOTE(
                    sampling_strategy={label: int(counts.max())},
                    k_neighbors=min(self.k_neighbors, count - 1),
                    random_state=self.random_state,
                )
                made = smote.fit_resample(X, y)[0][len(X) :]
            rows.append(made)
            targets.append(np.full(missing, label, dtype=y.dtype))
        return np.concatenate(rows), np.concatenate(targets)
