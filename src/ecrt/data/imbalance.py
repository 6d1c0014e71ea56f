"""Protocols that make a training set imbalanced, and example data.

The example data need no download: imbalanced digits, and synthetic data whose sources are known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.model_selection import train_test_split

from ecrt.arrays import Array
from ecrt.data.minority import thin_out


def step_imbalance(
    y: NDArray[Any], minority: Collection[Any], n_minority: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Cut every minority class to ``n_minority`` samples and leave the others whole.

    >>> y = np.repeat([0, 1], 10)
    >>> rows = step_imbalance(y, minority=[1], n_minority=2, rng=np.random.default_rng(0))
    >>> np.bincount(y[rows]).tolist()
    [10, 2]
    """
    return thin_out(y, dict.fromkeys(minority, n_minority), rng)


def exponential_imbalance(y: NDArray[Any], ratio: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Cut class k of M to ``n * ratio ** (-k / (M - 1))`` samples: a long tail whose ends differ by ``ratio``."""
    classes, counts = np.unique(y, return_counts=True)
    shares = ratio ** (-np.arange(len(classes)) / max(len(classes) - 1, 1))
    # The small term keeps a whole number whole: 98 / 49 comes out of the power as 1.999...
    sizes = np.maximum(1, np.floor(counts * shares + 1e-9)).astype(int)
    return thin_out(y, dict(zip(classes.tolist(), sizes.tolist(), strict=True)), rng)


# --- example data -----------------------------------------------------------------------------------------------------


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


def henon(s: Array) -> Array:
    """The Henon map from two sources to two features.

    >>> henon(np.array([[1.0, 2.0]])).round(6).tolist()
    [[1.6, 0.3]]
    """
    return np.column_stack([1 - 1.4 * s[:, 0] ** 2 + s[:, 1], 0.3 * s[:, 0]])


@dataclass(frozen=True)
class SyntheticData:
    """Features and labels, with the sources they came from."""

    z: Array
    y: NDArray[np.int64]
    s: Array


@dataclass(frozen=True)
class GaussianSources:
    """Classes that are Gaussians with independent coordinates in source space."""

    means: Array
    variances: Array

    def draw(self, sizes: NDArray[np.int64] | list[int], rng: np.random.Generator) -> SyntheticData:
        """Draw ``sizes[m]`` samples of each class m and send them through the Henon map."""
        y = np.repeat(np.arange(len(self.means)), sizes)
        s = self.means[y] + np.sqrt(self.variances[y]) * rng.standard_normal((len(y), self.means.shape[1]))
        return SyntheticData(z=henon(s), y=y, s=s)

    def log_posterior(self, s: Array) -> Array:
        """Bayes classifier under equal class priors: log p(y | s), one column for each class."""
        offset = -0.5 * (np.log(self.variances) + self.means**2 / self.variances).sum(axis=1)
        log_density = s**2 @ (-0.5 / self.variances).T + s @ (self.means / self.variances).T + offset
        return np.asarray(log_softmax(log_density, axis=1))


def toy_sources() -> GaussianSources:
    """Seven classes of the toy; the paper's Sigma are variances."""
    means = [[-0.5, -1], [2, 1], [5, 2], [1, 3], [-2, 1], [-3.5, 4], [-4, -1]]
    variances = [[0.5, 0.5], [3, 1], [1, 2], [0.3, 2], [1, 0.2], [1, 1], [2, 0.3]]
    return GaussianSources(np.array(means, dtype=float), np.array(variances, dtype=float))


def rare_feature_data(
    *,
    unique: bool,
    rng: np.random.Generator,
    n_majority: int = 18,
    n_minority: int = 8,
    majority_rows: int = 60,
    minority_rows: int = 25,
    n_features: int = 66,
    n_signal: int = 7,
) -> SyntheticData:
    """Rare classes that differ along one source only, which frequent classes share or do not.

    Sources are independent Gaussians whose variances differ between classes, and are mixed by a random matrix. Means of
    the frequent classes differ along ``n_signal`` sources; the rare classes are the same there and differ along the
    last source alone. Unless it is ``unique`` to them, the frequent classes differ and vary along it too: a mechanism
    learned from these then serves the rare ones. If it is, they are nearly constant along it, and nothing that is
    learned from them says that it matters.

    Classes 0 to ``n_majority - 1`` are the frequent ones.
    """
    n_classes = n_majority + n_minority
    y = np.repeat(np.arange(n_classes), [majority_rows] * n_majority + [minority_rows] * n_minority)
    means = np.zeros((n_classes, n_features))
    means[:, :n_signal] = rng.standard_normal((n_classes, n_signal))
    means[n_majority:, :n_signal] = means[n_majority, :n_signal]
    deviations = np.sqrt(rng.uniform(0.5, 1.5, (n_classes, n_features)))
    for labels in (np.arange(n_majority), np.arange(n_majority, n_classes)):
        means[labels, -1] = rng.permutation(np.linspace(-6.0, 6.0, len(labels)))
    if unique:
        means[:n_majority, -1], deviations[:n_majority, -1] = 0.0, 0.2
    s = means[y] + deviations[y] * rng.standard_normal((len(y), n_features))
    left, right = (np.linalg.qr(rng.standard_normal((n_features, n_features)))[0] for _ in range(2))
    stretch = np.exp(rng.uniform(-np.log(1.5), np.log(1.5), n_features))
    return SyntheticData(z=s @ (left * stretch @ right).T, y=y, s=s)
