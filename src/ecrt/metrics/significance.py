"""Many tests at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["holm"]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: all that fall below a level are significant together at that level.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    largest = 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * p_values[at]))
        adjusted[at] = largest
    return [float(value) for value in adjusted]
