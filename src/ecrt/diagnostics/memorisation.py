"""Do features of rows that an encoder was trained on lie closer to their class means than those of other rows?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Memorisation", "feature_memorisation"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LEVEL = 0.05
PERMUTATIONS = 199

MARKED = 1.2
"""Held-out residuals so many times as large, squared, are more than a blemish."""

FEWEST_SEEN = 3
"""Rows of a class that its mean is taken from."""

MOST_CELLS = 5_000_000
"""Rows times columns: every permutation goes over all of them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Memorisation:
    """Squared distances from class means.

    Attributes
    ----------
    ratio : mean over held-out rows, over that of rows seen in training; 1 where nothing is memorised.
    p_value : chance of such a ratio if it made no difference whether a row was seen.
    n_seen, n_held_out : rows of classes that have both.
    seen, held_out : the distances, in units of the mean over seen rows, at most 1,000 of each.
    """

    ratio: float
    p_value: float
    n_seen: int
    n_held_out: int
    seen: Array
    held_out: Array

    @property
    def memorised(self) -> bool:
        """Whether it is beyond chance, and matters."""
        return self.p_value < LEVEL and self.ratio > MARKED


def feature_memorisation(z: Array, y: Labels, seen: NDArray[np.bool_], rng: np.random.Generator) -> Memorisation | None:
    """Compare distances from class means of rows seen and not seen; ``None`` where no class has both.

    The means are those of the seen rows, each row's own left out, so that both kinds stand alike. The chance comes from
    giving the mark "seen" to other rows of the same class.

    Parameters
    ----------
    z : features, measured in units of their spread over all rows.
    seen : whether the encoder was trained on a row.
    """
    most = max(MOST_CELLS // max(z.shape[1], 1), 2000)
    if len(z) > most:
        some = np.sort(rng.permutation(len(z))[:most])
        z, y, seen = z[some], y[some], seen[some]
    scale = z.std(axis=0)
    z = z[:, scale > 0] / scale[scale > 0]
    n_seen = np.bincount(y, weights=seen)
    n_other = np.bincount(y, weights=~seen)
    usable = (n_seen >= FEWEST_SEEN) & (n_other >= 1)
    rows = np.flatnonzero(usable[y])
    if len(rows) == 0 or z.shape[1] == 0:
        return None
    z, y, seen = z[rows], y[rows], seen[rows]
    distance = _distances(z, y, seen)
    ratio = _ratio(distance, seen)
    reached = 0
    for _ in range(PERMUTATIONS):
        order = _shuffle_within(y, rng)
        shuffled = np.empty_like(seen)
        shuffled[order[0]] = seen[order[1]]
        reached += _ratio(_distances(z, y, shuffled), shuffled) >= ratio
    unit = distance[seen].mean()
    return Memorisation(
        ratio=ratio,
        p_value=(reached + 1) / (PERMUTATIONS + 1),
        n_seen=int(seen.sum()),
        n_held_out=int((~seen).sum()),
        seen=distance[seen][:1000] / max(unit, 1e-300),
        held_out=distance[~seen][:1000] / max(unit, 1e-300),
    )


def _distances(z: Array, y: Labels, seen: NDArray[np.bool_]) -> Array:
    """Squared distance from the mean of the other seen rows of the class, per column."""
    n = np.bincount(y, weights=seen)
    sums = np.zeros((len(n), z.shape[1]))
    np.add.at(sums, y[seen], z[seen])
    squares = ((z - sums[y] / np.maximum(n, 1)[y, None]) ** 2).mean(axis=1)
    # Leaving a row out of its own mean stretches its deviation by n / (n - 1); the mean of n - 1 rows is also a little
    # further off than that of n, which both kinds are corrected for.
    stretch = np.where(seen, (n / np.maximum(n - 1, 1))[y], 1.0) ** 2
    expected = np.where(seen, (1 + 1 / np.maximum(n - 1, 1))[y], (1 + 1 / np.maximum(n, 1))[y])
    return np.asarray(squares * stretch / expected)


def _ratio(distance: Array, seen: NDArray[np.bool_]) -> float:
    return float(distance[~seen].mean() / max(distance[seen].mean(), 1e-300))


def _shuffle_within(y: Labels, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Rows sorted by class, and the same with the rows of each class in another order."""
    return np.argsort(y, kind="stable"), np.lexsort((rng.random(len(y)), y))
