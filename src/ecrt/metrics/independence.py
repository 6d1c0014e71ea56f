"""How independent are the sources given the label, and are they the true ones?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import rankdata

__all__ = ["hsic", "max_abs_correlation", "mean_correlation_coefficient"]

Array = NDArray[np.float64]


def max_abs_correlation(s: Array) -> float:
    """Largest absolute Pearson correlation between two coordinates; NaN with fewer than three rows or one column."""
    s = _varying(s)
    if s.shape[0] < 3 or s.shape[1] < 2:
        return float("nan")
    correlation = np.abs(np.asarray(np.corrcoef(s, rowvar=False)))
    np.fill_diagonal(correlation, 0.0)
    return float(correlation.max())


def hsic(s: Array, max_rows: int = 300, max_columns: int = 16) -> float:
    """Largest normalised HSIC between two coordinates: 0 for independent ones, 1 for one a copy of the other.

    Centred Gaussian kernels with the median distance as bandwidth, on the first ``max_rows`` rows and ``max_columns``
    columns (the diagonal of each kernel is left out of the products, which removes most of the small-sample bias).
    """
    s = _varying(s[:max_rows, :max_columns])
    n, d = s.shape
    if n < 6 or d < 2:
        return float("nan")
    off_diagonal = ~np.eye(n, dtype=bool)
    centred = np.empty((d, n * (n - 1)))
    for column in range(d):
        squares = (s[:, column, None] - s[None, :, column]) ** 2
        bandwidth = np.median(squares[off_diagonal])
        kernel = np.exp(-squares / (bandwidth if bandwidth > 0 else 1.0))
        np.fill_diagonal(kernel, 0.0)
        # U-centring (Szekely and Rizzo, 2014): rows and columns of the off-diagonal part sum to zero.
        rows = kernel.sum(axis=1) / (n - 2)
        kernel = kernel - rows[:, None] - rows[None, :] + kernel.sum() / ((n - 1) * (n - 2))
        centred[column] = kernel[off_diagonal]
    products = centred @ centred.T
    scale = np.sqrt(np.maximum(np.diag(products), 1e-300))
    normalised = products / np.outer(scale, scale)
    return float(max(normalised[~np.eye(d, dtype=bool)].max(), 0.0))


def _varying(s: Array) -> Array:
    """Columns that vary by more than rounding."""
    return s[:, s.std(axis=0) > 1e-9 * (1e-300 + np.abs(s).max(axis=0, initial=0.0))]


def mean_correlation_coefficient(true: Array, found: Array) -> float:
    """MCC: mean absolute rank correlation of true and found sources under the best matching of coordinates.

    >>> s = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(mean_correlation_coefficient(s, -np.exp(s[:, ::-1])), 6)
    1.0
    """
    ranks = np.hstack([rankdata(true, axis=0), rankdata(found, axis=0)])
    correlation = np.abs(np.asarray(np.corrcoef(ranks, rowvar=False))[: true.shape[1], true.shape[1] :])
    correlation = np.nan_to_num(correlation)  # a constant coordinate corresponds to nothing
    rows, columns = linear_sum_assignment(-correlation)
    return float(correlation[rows, columns].mean())
