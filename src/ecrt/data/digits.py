"""An imbalanced data set that needs no download."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from ecrt.data.imbalance import step_imbalance


@dataclass(frozen=True)
class Split:
    """A training and a test set."""

    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]


def imbalanced_digits(n_minority: int, seed: int, minority: tuple[int, ...] = (5, 6, 7, 8, 9)) -> Split:
    """scikit-learn's digits: half the rows for testing, minority digits cut to ``n_minority`` training samples."""
    from sklearn.datasets import load_digits  # slow to import

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    rows = step_imbalance(y_train, minority, n_minority, np.random.default_rng(seed))
    return Split(X_train[rows], y_train[rows], X_test, y_test)
