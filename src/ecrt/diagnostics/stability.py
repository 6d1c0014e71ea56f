"""Do other seeds find the same sources?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ecrt.metrics import mean_correlation_coefficient

__all__ = ["Stability", "source_stability"]

Array = NDArray[np.float64]

MOST_ROWS = 2000


@dataclass(frozen=True)
class Stability:
    """Mean correlation coefficient (MCC) of every two fits on the same rows, 1 for the same sources; empty for one."""

    pairs: tuple[float, ...]

    @property
    def lowest(self) -> float:
        """The least alike two."""
        return min(self.pairs, default=float("nan"))

    @property
    def mean(self) -> float:
        """Of all pairs."""
        return float(np.mean(self.pairs)) if self.pairs else float("nan")


def source_stability(sources: Sequence[Array]) -> Stability:
    """Compare the sources that several fits give to the same rows, up to order, sign and stretching of each.

    >>> s = np.random.default_rng(0).normal(size=(50, 2))
    >>> source_stability([s, -s[:, ::-1]]).pairs
    (1.0,)
    """
    return Stability(
        tuple(
            round(mean_correlation_coefficient(first[:MOST_ROWS], second[:MOST_ROWS]), 12)
            for first, second in combinations(sources, 2)
        )
    )
