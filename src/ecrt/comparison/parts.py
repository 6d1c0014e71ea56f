"""What the rivals from scikit-learn and imbalanced-learn need on top, to take the tables that everybody else takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from imblearn.base import BaseSampler
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ecrt.augmentation.resampling import smote
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
    """``ecrt.augmentation.smote`` as a step of an imbalanced-learn pipeline; classes of any size will do."""

    _sampling_type = "over-sampling"
    _parameter_constraints: dict[str, list[Any]] = {}  # noqa: RUF012

    def __init__(self, *, k_neighbors: int = 5, random_state: int | None = None) -> None:
        super().__init__(sampling_strategy="auto")
        self.k_neighbors, self.random_state = k_neighbors, random_state

    def _fit_resample(self, X: Array, y: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        made, classes = smote(X, y, np.random.default_rng(self.random_state), k_neighbors=self.k_neighbors)
        return np.concatenate([X, made]), np.concatenate([y, classes])
