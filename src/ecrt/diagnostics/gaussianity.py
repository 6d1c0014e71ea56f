"""Are the sources Gaussian within classes, as the parametric augmenter takes them to be?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import jarque_bera, kurtosis, skew

from ecrt.metrics import holm

__all__ = ["Gaussianity", "SourceShape", "source_gaussianity"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FEWEST_ROWS = 20
"""Rows of a class from which its residuals can be standardised without much change of their shape."""

MOST_ROWS, MOST_SOURCES, DRAWS = 5000, 64, 999
LEVEL = 0.05

STRONG = 0.5
"""Skewness or excess kurtosis (over two) from which the departure is more than a blemish."""


@dataclass(frozen=True, kw_only=True)
class SourceShape:
    """Standardised residuals of one source, pooled over classes.

    Attributes
    ----------
    source : its place among the sources.
    skewness, excess_kurtosis : 0 for a Gaussian.
    p_value : of the Jarque-Bera statistic, Holm-corrected over sources.
    """

    source: int
    skewness: float
    excess_kurtosis: float
    p_value: float

    @property
    def strong(self) -> bool:
        """Whether the departure is beyond chance, and large."""
        return self.p_value < LEVEL and max(abs(self.skewness), abs(self.excess_kurtosis) / 2) > STRONG


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussianity:
    """All sources that were tested; none where no class has rows enough.

    Attributes
    ----------
    sources : the furthest from Gaussian first.
    n_rows, n_classes : residuals of each source, and classes that they come from.
    quantiles : Gaussian quantiles, and those of the residuals of the three worst sources, column by column.
    """

    sources: tuple[SourceShape, ...]
    n_rows: int
    n_classes: int
    quantiles: Array

    @property
    def strong(self) -> list[SourceShape]:
        """Sources that depart from the Gaussian beyond chance, and by much."""
        return [one for one in self.sources if one.strong]


def source_gaussianity(s: Array, y: Labels, rng: np.random.Generator) -> Gaussianity:
    """Test each source's standardised residuals for the Gaussian shape.

    Residuals divided by the standard deviation of few rows are less spread out than Gaussian ones. The null
    distribution is therefore drawn: Gaussian numbers in classes of the same sizes, treated alike. It is the same for
    every source.

    References
    ----------
    Jarque and Bera (1987), A test for normality of observations and regression residuals.
    """
    counts = np.bincount(y)
    rows = np.flatnonzero(counts[y] >= FEWEST_ROWS)
    if len(rows) > MOST_ROWS:
        rows = _whole_classes(y, rows, rng)
    if len(rows) == 0:
        return Gaussianity(sources=(), n_rows=0, n_classes=0, quantiles=np.empty((0, 0)))
    y, s = y[rows], s[rows, :MOST_SOURCES]
    residuals = _standardised(s, y)
    statistic = np.atleast_1d(jarque_bera(residuals, axis=0).statistic)
    null = np.concatenate([
        np.atleast_1d(jarque_bera(_standardised(rng.standard_normal((len(y), 27)), y), axis=0).statistic)
        for _ in range(DRAWS // 27)
    ])  # fmt: skip
    p_values = holm(((null[:, None] >= statistic).sum(axis=0) + 1) / (len(null) + 1))
    order = np.argsort(-statistic, kind="stable")
    skewness, excess = np.atleast_1d(skew(residuals, axis=0)), np.atleast_1d(kurtosis(residuals, axis=0))
    return Gaussianity(
        sources=tuple(
            SourceShape(
                source=int(at), skewness=float(skewness[at]), excess_kurtosis=float(excess[at]), p_value=p_values[at]
            )
            for at in order
        ),
        n_rows=len(y),
        n_classes=len(np.unique(y)),
        quantiles=_quantiles(residuals[:, order[:3]]),
    )


def _standardised(s: Array, y: Labels) -> Array:
    """Every class to mean zero and variance one, column by column."""
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    order = np.argsort(member, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    sums = np.add.reduceat(s[order], starts)
    residuals = s - (sums / counts[:, None])[member]
    variance = np.add.reduceat(residuals[order] ** 2, starts) / (counts[:, None] - 1)
    return np.asarray(residuals / np.sqrt(np.maximum(variance, 1e-300))[member])


def _whole_classes(y: Labels, rows: Labels, rng: np.random.Generator) -> Labels:
    """Rows of classes drawn at random until there are enough; a large class is cut."""
    share = max(MOST_ROWS // max(len(np.unique(y[rows])), 1), FEWEST_ROWS)
    parts, total = [], 0
    for label in rng.permutation(np.unique(y[rows])):
        part = rng.permutation(rows[y[rows] == label])[:share]
        parts.append(part)
        total += len(part)
        if total >= MOST_ROWS:
            break
    return np.sort(np.concatenate(parts))


def _quantiles(residuals: Array) -> Array:
    from scipy.stats import norm

    share = np.linspace(0.005, 0.995, 100)
    return np.column_stack([norm.ppf(share), np.quantile(residuals, share, axis=0)])
