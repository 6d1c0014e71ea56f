"""How independent are the sources given the label, and are they the true ones?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist, squareform
from scipy.stats import rankdata

Array = NDArray[np.float64]

FEWEST_ROWS = 6
"""With fewer, centred kernels have nothing left to compare."""


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
    kernels = _unit_kernels(s[:max_rows, :max_columns])
    return float("nan") if kernels is None else max(_largest_product(kernels), 0.0)


def hsic_test(
    s: Array, rng: np.random.Generator, *, n_permutations: int = 499, exceedances: int = 10
) -> tuple[float, float]:
    """Largest normalised HSIC between two coordinates, and the chance that independent ones reach it.

    Each permutation shuffles every coordinate separately, so that nothing but independence is assumed. Permutations
    stop as soon as ``exceedances`` of them have reached the value, which then is clearly not large. The p-value stays
    valid.

    Parameters
    ----------
    s : rows of one class.
    n_permutations : at most; the least p-value is one over one more.
    exceedances : permutations as large as the value after which to stop.

    References
    ----------
    Gretton et al. (2007), A kernel statistical test of independence. Besag and Clifford (1991), Sequential Monte Carlo
    p-values.
    """
    kernels = _unit_kernels(s)
    if kernels is None:
        return float("nan"), float("nan")
    value, reached = _largest_product(kernels), 0
    shuffled = kernels.copy()
    for drawn in range(1, n_permutations + 1):
        for column in range(1, len(kernels)):
            order = rng.permutation(len(s))
            shuffled[column] = kernels[column][np.ix_(order, order)]
        reached += _largest_product(shuffled) >= value
        if reached == exceedances:
            return max(value, 0.0), reached / drawn
    return max(value, 0.0), (reached + 1) / (n_permutations + 1)


def _unit_kernels(s: Array) -> Array | None:
    """A centred Gaussian kernel of each column that varies, without its diagonal, scaled to unit norm.

    ``None`` where there are too few rows or columns to compare.
    """
    s = _varying(s)
    n, d = s.shape
    if n < FEWEST_ROWS or d < 2:
        return None
    kernels = np.empty((d, n, n))
    for column in range(d):
        squares = pdist(s[:, column, None], "sqeuclidean")  # every pair once
        bandwidth = np.median(squares)
        kernel = squareform(np.exp(-squares / (bandwidth if bandwidth > 0 else 1.0)), checks=False)
        # U-centring (Szekely and Rizzo, 2014): rows and columns of the off-diagonal part sum to zero.
        rows = kernel.sum(axis=1) / (n - 2)
        kernel = kernel - rows[:, None] - rows[None, :] + kernel.sum() / ((n - 1) * (n - 2))
        np.fill_diagonal(kernel, 0.0)
        kernels[column] = kernel / np.sqrt(max((kernel**2).sum(), 1e-300))
    return kernels


def _largest_product(kernels: Array) -> float:
    flat = kernels.reshape(len(kernels), -1)
    products = flat @ flat.T
    return float(products[~np.eye(len(kernels), dtype=bool)].max())


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
