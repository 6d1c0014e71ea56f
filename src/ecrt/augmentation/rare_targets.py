"""Synthetic rows for a continuous target: which targets to draw, and rows between and beside those there are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from ecrt.augmentation.donors import draw_from_donors
from ecrt.data.minority import TargetRegions

__all__ = ["draw_targets", "interpolate", "rows_between"]

Array = NDArray[np.float64]

NEIGHBOURS = 5
RARE_COPIES = 3
"""Synthetic rows of either kind for each row with a rare target."""

MOST_ROWS = 10_000
"""Of more rows than this some are drawn to interpolate between: looking for neighbours would take too long."""


def draw_targets(y: Array, regions: TargetRegions, size: int, rng: np.random.Generator) -> Array:
    """Targets in rare regions, all of these alike: uniform within a region, or of several outputs those of its rows."""
    region = regions.region_of(y)
    wanted = np.flatnonzero(regions.rare & (np.bincount(region, minlength=len(regions.counts)) > 0))
    if len(wanted) == 0:
        return np.empty((0, y.shape[1]))
    chosen = rng.choice(wanted, size)
    if y.shape[1] > 1:
        return np.stack([y[rng.choice(np.flatnonzero(region == number))] for number in chosen])
    position = rng.uniform(regions.edges[chosen], regions.edges[chosen + 1])
    return np.asarray(regions.restore((position * regions.axis[0])[:, None]))


def interpolate(s: Array, y: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows on the line between a row and one of its nearest neighbours, sources and target alike.

    References
    ----------
    Torgo, Ribeiro, Pfahringer and Branco (2013), SMOTE for regression: there for rare targets, between features.
    """
    k = min(NEIGHBOURS, len(s) - 1)
    if k < 1:
        return s[:0], y[:0]
    neighbours = NearestNeighbors(n_neighbors=k + 1).fit(s).kneighbors(s, return_distance=False)[:, 1:]
    start = rng.integers(len(s), size=size)
    end = neighbours[start, rng.integers(k, size=size)]
    step = rng.random((size, 1))
    return s[start] + step * (s[end] - s[start]), y[start] + step * (y[end] - y[start])


def rows_between(
    s: Array, y: Array, regions: TargetRegions, n_donors: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """As many rows as there are, between all; and for each rare one three between rare rows and three moved ones.

    A moved row is a row with a target near the one drawn, carried there along the local slopes of its sources: its
    residuals stay together.

    Parameters
    ----------
    s, y : sources in the units that distances are measured in, and targets in their own.
    n_donors : how many nearest targets set the bandwidth of the slopes.
    """
    some = np.sort(rng.permutation(len(s))[:MOST_ROWS])
    parts = [interpolate(s[some], y[some], len(some), rng)]
    rare = np.flatnonzero(regions.is_rare(y))
    if len(rare) > 1:
        rare = np.sort(rng.permutation(rare)[:MOST_ROWS])
        parts.append(interpolate(s[rare], y[rare], RARE_COPIES * len(rare), rng))
        wanted = draw_targets(y, regions, RARE_COPIES * len(rare), rng)
        standard = regions.standardise
        parts.append((draw_from_donors(s, standard(y), standard(wanted), n_donors, rng, jointly=True), wanted))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])
