"""Counts, means and scatter of classes, measured part by part: of rows that need not be in memory together.

Parts are put together by the update of Chan, Golub and LeVeque, which adds up deviations from means and never squares
of values: columns far from zero lose no digits.

References
----------
Chan, Golub, LeVeque: Algorithms for computing the sample variance, The American Statistician 37 (1983).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from ecrt.arrays import Array, Labels, Mask
from ecrt.distributed import all_least, all_summed
from ecrt.nn import ROUNDING_STEPS


def _sums(values: Array, y: Labels, n_classes: int) -> Array:
    """Values added up over the rows of each class."""
    # The product with an indicator sums in the order of np.add.at, many times faster.
    indicator = sparse.csr_array((np.ones(len(y)), (y, np.arange(len(y)))), shape=(n_classes, len(y)))
    return np.asarray(indicator @ values)


def within_class_residuals(z: Array, y: Labels) -> tuple[Array, Array, Labels]:
    """Deviations from class means, the means of the classes present, and their counts."""
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    means: Array = _sums(z, member, len(counts)) / counts[:, None]
    residuals = means[member]
    np.subtract(z, residuals, out=residuals)
    return residuals, means, counts


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the columns of some rows, in float64. Those of two parts add up to those of both.

    Attributes
    ----------
    count_m : rows of each class.
    mean_md : means of each class, 0 where it has no row.
    squares_md : squared deviations from these, added up over the rows of each class.
    scatter_dd : products of these deviations, added up over the rows of the ``pooled_m`` classes.
    low_d, high_d : least and greatest value of each column.
    pooled_m : mask of these classes.

    Examples
    --------
    >>> z, y = np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 1])
    >>> both = Moments.of(z[:1], y[:1], 2) + Moments.of(z[1:], y[1:], 2)
    >>> both.count_m.tolist(), both.mean_md.tolist(), both.scatter_dd.tolist()
    ([2.0, 1.0], [[2.0], [5.0]], [[2.0]])
    """

    count_m: Array
    mean_md: Array
    squares_md: Array
    scatter_dd: Array
    low_d: Array
    high_d: Array
    pooled_m: Mask

    @classmethod
    def of(cls, z: Array, y: Labels, n_classes: int, pooled_m: Mask | None = None) -> Moments:
        """Of rows in memory, or of none.

        Parameters
        ----------
        z, y : rows and their class indices.
        n_classes : how many classes there are, with rows among these or without.
        pooled_m : classes whose products of deviations are added up; ``None`` for all.
        """
        pooled_m = np.ones(n_classes, dtype=bool) if pooled_m is None else pooled_m
        first = z[0].astype(np.float64) if len(z) else np.zeros(z.shape[1])
        # Exactly zero where nothing varies, and precise far from zero.
        residuals, means, counts = within_class_residuals(z - first, y)
        present, member = np.unique(y, return_inverse=True)
        count_m, mean_md, squares_md = np.zeros(n_classes), *np.zeros((2, n_classes, z.shape[1]))
        count_m[present], mean_md[present] = counts, means + first
        squares_md[present] = _sums(residuals**2, member, len(present))
        pooled = residuals[pooled_m[y]]
        low_d, high_d = z.min(axis=0, initial=np.inf), z.max(axis=0, initial=-np.inf)
        return cls(count_m, mean_md, squares_md, pooled.T @ pooled, low_d, high_d, pooled_m)

    def __add__(self, other: Moments) -> Moments:
        count_m = self.count_m + other.count_m
        share_m = other.count_m / np.maximum(count_m, 1.0)
        step_md = other.mean_md - self.mean_md
        # Rows of both sides move by what their mean moves: n1 n2 / (n1 + n2) times the squared step.
        moved_md = step_md * (self.count_m * share_m)[:, None]
        mean_md = self.mean_md + share_m[:, None] * step_md
        mean_md[self.count_m == 0] = other.mean_md[self.count_m == 0]  # as they are, to the last digit
        return Moments(
            count_m,
            mean_md,
            self.squares_md + other.squares_md + moved_md * step_md,
            self.scatter_dd + other.scatter_dd + moved_md[self.pooled_m].T @ step_md[self.pooled_m],
            np.minimum(self.low_d, other.low_d),
            np.maximum(self.high_d, other.high_d),
            self.pooled_m,
        )

    def of_all_processes(self) -> Moments:
        """Those of all rows, where each process has those of its own: sums that are as long however many they are."""
        count_m = all_summed(self.count_m)
        least_m1 = np.maximum(count_m, 1.0)[:, None]
        mean_md = np.zeros_like(self.mean_md)
        for _ in range(2):  # what the sum of means far from zero has lost comes with the sum of deviations
            step_md = np.where(self.count_m[:, None] > 0, self.mean_md - mean_md, 0.0)
            mean_md = mean_md + all_summed(step_md * self.count_m[:, None]) / least_m1
        step_md = np.where(self.count_m[:, None] > 0, self.mean_md - mean_md, 0.0)
        moved_md, pooled_m = step_md * self.count_m[:, None], self.pooled_m
        return Moments(
            count_m,
            mean_md,
            all_summed(self.squares_md + moved_md * step_md),
            all_summed(self.scatter_dd + moved_md[pooled_m].T @ step_md[pooled_m]),
            all_least(self.low_d),
            -all_least(-self.high_d),
            pooled_m,
        )

    @property
    def center_d(self) -> Array:
        """Means over all rows."""
        return self._mean_over(np.ones_like(self.pooled_m))

    @property
    def pooled_center_d(self) -> Array:
        """Means over the rows of the pooled classes."""
        return self._mean_over(self.pooled_m)

    @property
    def spread_d(self) -> Array:
        """Standard deviations over all rows, exactly 0 where a column varies by rounding alone."""
        away_md = self.mean_md - self.center_d
        spread = np.sqrt((self.squares_md.sum(axis=0) + self.count_m @ away_md**2) / max(self.count_m.sum(), 1.0))
        largest = np.maximum(np.abs(self.low_d), np.abs(self.high_d))
        return np.where(spread > ROUNDING_STEPS * np.finfo(np.float64).eps * largest, spread, 0.0)

    def _mean_over(self, classes: Mask) -> Array:
        count_m = self.count_m * classes
        first = self.mean_md[count_m.argmax()]
        return np.asarray(first + count_m @ (self.mean_md - first) / max(count_m.sum(), 1.0))
