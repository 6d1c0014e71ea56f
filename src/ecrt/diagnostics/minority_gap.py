"""Do sources serve held-out rows of the minority as well as the features they come from?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.metrics import half_width

__all__ = ["MinorityGap", "minority_gap"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FEWEST_CLASSES = 3
"""With fewer, classes cannot show how much they differ: rows have to."""


@dataclass(frozen=True, kw_only=True)
class MinorityGap:
    """What h(s) saves on h(z), in nats of balanced log-loss on held-out rows of the minority.

    Attributes
    ----------
    gain, low, high : mean with its 95 % interval; positive where sources are better.
    loss_z, loss_s : mean log-loss by features and by sources, classes counted alike.
    n_classes, n_rows : measured on.
    over : whether the interval is over classes, whose rows share a few training samples, or over rows.
    """

    gain: float
    low: float
    high: float
    loss_z: float
    loss_s: float
    n_classes: int
    n_rows: int
    over: Literal["classes", "rows"]


def minority_gap(loss_z: Array, loss_s: Array, y: Labels) -> MinorityGap | None:
    """Compare losses of the same held-out rows, all of minority classes; ``None`` with fewer than two rows.

    >>> gap = minority_gap(np.array([1.0, 1.2, 2.0, 2.2]), np.array([0.5, 0.7, 1.6, 1.6]), np.array([0, 0, 1, 1]))
    >>> round(gap.gain, 3), gap.over
    (0.5, 'rows')
    """
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(y) < 2:
        return None
    by_class = [np.bincount(member, weights=losses) / counts for losses in (loss_z, loss_s)]
    saved = by_class[0] - by_class[1]
    gain, n = float(saved.mean()), len(saved)
    if n >= FEWEST_CLASSES:
        over: Literal["classes", "rows"] = "classes"
        error, freedom = float(saved.std(ddof=1)) / np.sqrt(n), n - 1
    else:
        over = "rows"
        centred = (loss_z - loss_s) - saved[member]
        freedom = max(len(y) - n, 1)
        variance = float((centred**2).sum()) / freedom
        error = np.sqrt(variance * float((1 / counts).sum())) / n
    width = half_width(float(error), freedom)
    return MinorityGap(
        gain=gain, low=gain - width, high=gain + width, loss_z=float(by_class[0].mean()),
        loss_s=float(by_class[1].mean()), n_classes=n, n_rows=len(y), over=over,
    )  # fmt: skip
