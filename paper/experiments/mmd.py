"""How far apart two samples are: the maximum mean discrepancy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["mmd_rbf"]

Array = NDArray[np.float64]
ROWS_AT_ONCE = 500


def mmd_rbf(x: Array, y: Array, bandwidths: Sequence[float] = (0.5,)) -> Array:
    r"""Distance of the mean embeddings of two samples, one value for each bandwidth.

    .. math:: \| \hat\mu_x - \hat\mu_y \|_\kappa, \quad \kappa(a, b) = \exp(-\|a - b\|^2 / 2 \sigma^2)

    The supplement (section C) prints the kernel without its minus sign and the embeddings as sums; with sums the value
    would depend on the sample size. The estimate keeps the diagonal (it is a norm, so never negative): two samples of n
    from one distribution are about :math:`\sqrt{2 (1 - E\kappa) / n}` apart.

    References
    ----------
    Gretton, Borgwardt, Rasch, Schoelkopf and Smola: A kernel two-sample test, JMLR 13, 2012.

    >>> x = np.array([[0.0], [1.0]])
    >>> float(mmd_rbf(x, x)[0])
    0.0
    >>> round(float(mmd_rbf(np.zeros((1, 1)), np.full((1, 1), 100.0))[0]) ** 2, 6)
    2.0
    """
    scale = -0.5 / np.asarray(bandwidths, dtype=np.float64) ** 2
    squared = _mean_kernel(x, x, scale) + _mean_kernel(y, y, scale) - 2 * _mean_kernel(x, y, scale)
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))


def _mean_kernel(x: Array, y: Array, scale: Array) -> Array:
    """Mean of exp(scale * squared distance) over all pairs, for each scale, in blocks of rows."""
    total, y_norm = np.zeros(len(scale)), (y**2).sum(axis=1)
    for start in range(0, len(x), ROWS_AT_ONCE):
        part = x[start : start + ROWS_AT_ONCE]
        squares = np.maximum((part**2).sum(axis=1)[:, None] + y_norm - 2 * part @ y.T, 0.0)
        total += [np.exp(factor * squares).sum() for factor in scale]
    return total / (len(x) * len(y))
