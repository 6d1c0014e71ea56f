"""Would shuffling the coordinates of few samples give a grid instead of a cloud?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ClassGrid", "class_grids"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

COARSE = 0.5
"""A gap between neighbouring values, in standard deviations, from which a grid is plain to see."""


@dataclass(frozen=True, kw_only=True)
class ClassGrid:
    """What permutation could draw for one minority class.

    Attributes
    ----------
    n_rows : samples of the class.
    distinct : different values of a source, in the median source.
    gap : distance between neighbouring values, averaged over the range, in units of the spread within classes; median
        over sources. Infinite with a single sample.
    """

    label: Any
    n_rows: int
    distinct: float
    gap: float

    @property
    def coarse(self) -> bool:
        """Whether a grid would be plain to see."""
        return self.gap > COARSE


def class_grids(
    s: Array, y: Labels, classes: NDArray[Any], minority: NDArray[np.bool_], within_variance: Array
) -> tuple[ClassGrid, ...]:
    """Distinct values and gaps of each minority class's sources, the rarest class first.

    Permutation draws each coordinate from the class's own values: n samples give a grid of n values an axis.

    Parameters
    ----------
    within_variance : variance of each source within the de-mixing classes: what a cloud should look like.
    """
    counts = np.bincount(y, minlength=len(classes))
    spread = np.sqrt(np.maximum(within_variance, 1e-300))
    grids = []
    for label in np.flatnonzero(minority & (counts > 0)):
        values = np.sort(s[y == label], axis=0)
        distinct = 1 + (np.diff(values, axis=0) > 1e-9 * spread).sum(axis=0)
        width = (values[-1] - values[0]) / spread
        gap = np.where(distinct > 1, width / np.maximum(distinct - 1, 1), np.inf)
        name = classes[label]
        grids.append(
            ClassGrid(
                label=name.item() if isinstance(name, np.generic) else name, n_rows=int(counts[label]),
                distinct=float(np.median(distinct)), gap=float(np.median(gap)),
            )
        )  # fmt: skip
    return tuple(sorted(grids, key=lambda grid: grid.n_rows))
