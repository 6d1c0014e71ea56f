"""What every estimator here shares: reading X in all its forms, features, sources, files."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.utils.data import Dataset

from ecrt.data import TableEncoder
from ecrt.errors import InputError
from ecrt.estimators.inputs import array_items, unlabelled
from ecrt.flows import Demixer
from ecrt.stages import features_of, sources_of

__all__ = ["ECRTBase"]

Array = NDArray[np.float64]

MOST_CELLS = 500_000_000
"""Cells that sparse input may have when it is made dense: 4 GB."""


class ECRTBase(BaseEstimator):
    """Base of the estimators: ``encoder`` among the options, ``encoder_`` and ``demixer_`` after ``fit``."""

    encoder: str | nn.Module
    encoder_: nn.Module
    demixer_: Demixer
    table_: TableEncoder | None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a folder: tensors, a JSON file and a model card. ``ecrt.load`` reads it."""
        from ecrt.estimators.saved import save_estimator

        check_is_fitted(self)
        save_estimator(self, path)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _takes_images(self) -> bool:
        return isinstance(self.encoder, nn.Module) or self.encoder == "resnet18"

    def _learn_rows(self, X: Any, y: Any) -> tuple[Array, NDArray[Any]]:
        """X as numbers and y checked; how X is read is learned on the way."""
        rows, y = self._validated(X, y, reset=True)
        self.table_ = TableEncoder.learn(rows) if isinstance(rows, pd.DataFrame) else None
        return rows if self.table_ is None else self.table_.encode(rows), y

    def _read_rows(self, X: Any) -> Array:
        """X as numbers, read as in ``fit``."""
        rows, _ = self._validated(X, "no_validation", reset=False)
        if self.table_ is not None:
            return self.table_.encode(rows)
        numbers = np.asarray(rows, dtype=np.float64)  # fitted on a Dataset, which has no columns to fill gaps of
        if np.isnan(numbers).any():
            raise InputError("X contains NaN, and the model was fitted on a Dataset, which may have no missing values.")
        return numbers

    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Rows as a data frame (tables) or an array (images), with the checks that scikit-learn makes."""
        least = 2 if reset else 1
        X = X.to_pandas() if hasattr(X, "to_pandas") else X
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, y, reset=reset, skip_check_array=True)
            if X.shape[0] < least or X.shape[1] == 0:
                raise InputError(
                    f"Found a table of {X.shape[0]} sample(s) and {X.shape[1]} feature(s) while a minimum of {least} "
                    "and 1 is required."
                )
            if reset:
                y = validate_data(self, y=y, reset=False)
                check_consistent_length(X, y)
            return X, y
        text = not sparse.issparse(X) and np.asarray(X).dtype.kind in "OUS"
        checked = validate_data(
            self, X, y, reset=reset, ensure_min_samples=least, allow_nd=self._takes_images(), accept_sparse="csr",
            dtype=None if text else np.float64, ensure_all_finite=False if text else "allow-nan",
        )  # fmt: skip
        X, y = checked if reset else (checked, None)
        if X.ndim > 2:
            if np.isnan(X).any():
                raise InputError("Images contain NaN: only tables may have missing values.")
            return X, y
        if isinstance(X, sparse.csr_array | sparse.csr_matrix):
            if X.shape[0] * X.shape[1] > MOST_CELLS:
                raise InputError(
                    f"A sparse matrix of {X.shape[0]} x {X.shape[1]} is too large to be made dense. Reduce its columns "
                    "first, for example with sklearn.decomposition.TruncatedSVD in a Pipeline."
                )
            X = X.toarray()
        return pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])]), y

    def _features(self, X: Any) -> Array:
        """z = e(x) of rows or of a Dataset."""
        check_is_fitted(self)
        items: Dataset[Any] = unlabelled(X) if isinstance(X, Dataset) else array_items(self._read_rows(X))
        return features_of(self.encoder_, items, device=torch.device("cpu"))

    def _sources(self, X: Any) -> Array:
        """s = f(e(x)), whatever output format ``transform`` is set to."""
        features = self._features(X)
        return sources_of(self.demixer_, features)
