"""Do the minority classes vary where the majority does not?

A mechanism learned from the majority says nothing about a direction in which the majority hardly varies. If rare
classes vary there, and are told apart by it, transfer takes from them what they had.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ecrt.nn import column_spread

__all__ = ["UniqueFeature", "unique_feature"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LEVEL = 0.05
LARGE = 2.0
"""Minority variance, in units of the majority's along the same direction, from which a feature is called unique."""

FEWEST_ROWS = 4
"""Rows of a class: two for each half."""

DRAWS, SPLITS, MOST_ROWS = 199, 5, 200
POWER_STEPS = 30

RIDGE = 1e-2
"""Added to the majority's covariance, as a share of its mean variance: what is below it is as good as constant."""


@dataclass(frozen=True, kw_only=True, eq=False)
class UniqueFeature:
    """Minority variance outside of what the majority shows.

    Attributes
    ----------
    ratio : variance of the minority along its direction of largest variance, over that of the majority. The direction
        is found on one half of the rows and measured on the other; the mean over several halvings.
    p_value : chance of such a ratio if minority classes were like majority ones.
    by : ``"classes"``: the same was done to groups of majority classes played down to minority size. ``"rows"``, where
        there are too few majority classes for that: to random rows of the majority, which takes all its classes to
        vary alike.
    null : ratios of those.
    n_classes : minority classes in it: those with at least four rows.
    weights : the direction, one weight for each feature in units of its spread; the largest is positive.
    projections, minority : up to 2,000 rows along that direction, class means taken off, in units of the majority's
        spread, and whether a row is of the minority.
    """

    ratio: float
    p_value: float
    by: Literal["classes", "rows"]
    null: Array
    n_classes: int
    weights: Array
    projections: Array
    minority: NDArray[np.bool_]

    @property
    def found(self) -> bool:
        """Whether it is beyond chance, and large."""
        return self.p_value < LEVEL and self.ratio > LARGE


def unique_feature(z: Array, y: Labels, minority: NDArray[np.bool_], rng: np.random.Generator) -> UniqueFeature | None:
    """Look for the direction in which the minority varies and the majority does not.

    The test holds its level whatever the classes' distributions, as long as minority classes are no different in kind:
    what chance alone finds is measured on majority classes treated the same way.

    Parameters
    ----------
    z, y : features and class indices.
    minority : mask over classes; the mechanism is learned from the others.

    Returns
    -------
    ``None`` where no minority class has four rows, or the majority fewer than two classes' worth of rows.
    """
    counts = np.bincount(y, minlength=len(minority))
    rare = np.flatnonzero(minority & (counts >= FEWEST_ROWS))
    majority = np.flatnonzero(~minority & (counts >= 2 * FEWEST_ROWS))
    if len(rare) == 0 or len(majority) == 0:
        return None
    z = (z - z.mean(axis=0)) / np.where((spread := column_spread(z)) > 0, spread, 1.0)
    rows_of = {int(m): rng.permutation(np.flatnonzero(y == m))[:MOST_ROWS] for m in np.concatenate([rare, majority])}
    sizes = np.minimum(counts[rare], MOST_ROWS)
    group = min(len(rare), max(len(majority) // 3, 1))
    by_classes = comb(len(majority), group) >= 2 / LEVEL and len(majority) - group >= 2
    group = group if by_classes else len(rare)

    frequent = _Scatter(z, [rows_of[int(label)] for label in majority])
    real = []
    for _ in range(1 if group == len(rare) else SPLITS):
        chosen = rng.permutation(rare)[:group]
        real.append(_split_ratio(z, [rows_of[int(label)] for label in chosen], frequent, rng))
    null = []
    for _ in range(DRAWS):
        if by_classes:
            played = rng.permutation(majority)[:group]
            kept = np.minimum(rng.permutation(sizes)[:group], counts[played])
            groups = [rng.permutation(rows_of[int(label)])[:n] for label, n in zip(played, kept, strict=True)]
            left = frequent.without([rows_of[int(label)] for label in played])
        else:
            groups, before, after = _random_rows([rows_of[int(label)] for label in majority], sizes, rng)
            left = frequent.without(before, after)
        null.append(_split_ratio(z, groups, left, rng))
    ratio = float(np.median(real))
    direction = frequent.back(_largest_direction(frequent.whiten(_centred(z, [rows_of[int(m)] for m in rare])), rng))
    direction = direction * np.sign(direction[np.abs(direction).argmax()]) / np.abs(direction).max()
    projected = [
        _centred(z @ direction[:, None], [rows_of[int(m)] for m in labels])[:, 0] for labels in (rare, majority)
    ]
    shown = [values[:1000] for values in projected]
    return UniqueFeature(
        ratio=ratio,
        p_value=float(((np.array(null) >= ratio).sum() + 1) / (DRAWS + 1)),
        by="classes" if by_classes else "rows",
        null=np.array(null),
        n_classes=len(rare),
        weights=direction,
        projections=np.concatenate(shown) / max(float(projected[1].std()), 1e-300),
        minority=np.repeat([True, False], [len(values) for values in shown]),
    )


def _centred(z: Array, parts: list[Labels]) -> Array:
    """Rows of classes less the mean of their class."""
    return np.concatenate([z[rows] - z[rows].mean(axis=0) for rows in parts])


class _Scatter:
    """Covariance within classes, its Cholesky factor, and how to leave classes out of it."""

    def __init__(self, z: Array, parts: list[Labels], scatter: Array | None = None, freedom: int | None = None) -> None:
        self.z = z
        residuals = _centred(z, parts) if scatter is None else None
        self.scatter = residuals.T @ residuals if residuals is not None else np.asarray(scatter)
        self.freedom = max(sum(len(rows) - 1 for rows in parts) if freedom is None else freedom, 1)
        self.covariance = self.scatter / self.freedom
        ridge = RIDGE * max(float(np.trace(self.covariance)) / len(self.covariance), 1e-12)
        self.covariance = self.covariance + ridge * np.eye(len(self.covariance))
        self.factor = np.linalg.cholesky(self.covariance)

    def without(self, before: list[Labels], after: list[Labels] | None = None) -> _Scatter:
        """The same without some classes, or with fewer rows of them."""
        scatter, freedom = self.scatter, self.freedom
        for sign, parts in ((-1, before), (1, [rows for rows in after or [] if len(rows) > 1])):
            if parts:
                residuals = _centred(self.z, parts)
                scatter = scatter + sign * (residuals.T @ residuals)
                freedom += sign * sum(len(rows) - 1 for rows in parts)
        return _Scatter(self.z, [], scatter, freedom)

    def whiten(self, residuals: Array) -> Array:
        """In coordinates where the majority varies alike in every direction."""
        return np.asarray(solve_triangular(self.factor, residuals.T, lower=True).T)

    def back(self, direction: Array) -> Array:
        """Weights of the features that give the projection on a whitened direction."""
        return np.asarray(solve_triangular(self.factor, direction, lower=True, trans="T"))


def _random_rows(
    parts: list[Labels], sizes: Labels, rng: np.random.Generator
) -> tuple[list[Labels], list[Labels], list[Labels]]:
    """Groups of rows drawn from classes, the classes they come from, and what is left of these."""
    left = [rng.permutation(rows) for rows in parts]
    groups = []
    for size in sizes:
        roomy = [at for at, rows in enumerate(left) if len(rows) > size]
        at = int(rng.choice(roomy)) if roomy else int(np.argmax([len(rows) for rows in left]))
        size = min(int(size), max(len(left[at]) - 1, 1))
        groups.append(left[at][:size])
        left[at] = left[at][size:]
    touched = [at for at, rows in enumerate(left) if len(rows) < len(parts[at])]
    # A group of one row has no variance; it only comes up where rare classes have nearly all rows.
    groups = [rows for rows in groups if len(rows) >= FEWEST_ROWS] or [parts[0]]
    return groups, [parts[at] for at in touched], [left[at] for at in touched]


def _split_ratio(z: Array, groups: list[Labels], majority: _Scatter, rng: np.random.Generator) -> float:
    """Variance along the direction that one half finds, measured on the other, in units of the majority's there."""
    ratios = []
    for _ in range(SPLITS):
        mixed = [rng.permutation(rows) for rows in groups]
        halves = [rows[: len(rows) // 2] for rows in mixed], [rows[len(rows) // 2 :] for rows in mixed]
        whitened = [majority.whiten(_centred(z, half)) for half in halves]
        for find, measure in ((0, 1), (1, 0)):
            along = whitened[measure] @ _largest_direction(whitened[find], rng)
            ratios.append(float(along @ along) / max(len(along) - len(groups), 1))
    return float(np.mean(ratios))


def _largest_direction(residuals: Array, rng: np.random.Generator) -> Array:
    """The unit vector along which these vary most, by power iteration."""
    direction: Array = rng.standard_normal((residuals.shape[1],))
    for _ in range(POWER_STEPS):
        direction = np.asarray(residuals.T @ (residuals @ direction))
        direction = direction / max(float(np.linalg.norm(direction)), 1e-300)
    return direction
