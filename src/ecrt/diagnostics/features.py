"""What features show: are they memorised, does the minority vary where the majority does not, do they beat sources?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from ecrt.metrics import LEVEL, half_width
from ecrt.nn import column_spread

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

PERMUTATIONS = 199

MARKED = 1.2
"""Ratio of squared residuals, held-out rows over seen ones, from which it matters."""

FEWEST_SEEN = 3
"""Rows of a class that its mean is taken from."""

MOST_CELLS = 5_000_000
"""Rows times columns: every permutation goes over all of them."""

LARGE = 2.0
"""Minority variance, in units of the majority's along the same direction, from which a feature is called unique."""

FEWEST_VARIED = 4
"""Rows of a class: two for each half."""

DRAWS, SPLITS, MOST_VARIED = 199, 5, 200
POWER_STEPS = 30

RIDGE = 1e-2
"""Added to the majority's covariance, as a share of its mean variance; less variance counts as none."""

FEWEST_CLASSES = 3
"""With fewer, classes cannot show how much they differ: rows have to."""


# --- memorised features ----------------------------------------------------------------------------------------------


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

    The means are those of the seen rows, without the row itself, so that both kinds are treated in the same way. The
    chance comes from giving the mark "seen" to other rows of the same class.

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
    usable = (np.bincount(y, weights=seen) >= FEWEST_SEEN) & (np.bincount(y, weights=~seen) >= 1)
    rows = usable[y]
    if not rows.any() or z.shape[1] == 0:
        return None
    z, y, seen = z[rows], y[rows], seen[rows]
    distance, ratio = _distances(z, y, seen)
    by_class, reached = np.argsort(y, kind="stable"), 0
    for _ in range(PERMUTATIONS):
        shuffled = np.empty_like(seen)
        shuffled[by_class] = seen[np.lexsort((rng.random(len(y)), y))]
        reached += _distances(z, y, shuffled)[1] >= ratio
    distance = distance / max(float(distance[seen].mean()), 1e-300)
    return Memorisation(
        ratio=ratio,
        p_value=(reached + 1) / (PERMUTATIONS + 1),
        n_seen=int(seen.sum()),
        n_held_out=int((~seen).sum()),
        seen=distance[seen][:1000],
        held_out=distance[~seen][:1000],
    )


def _distances(z: Array, y: Labels, seen: NDArray[np.bool_]) -> tuple[Array, float]:
    """Squared distance from the mean of the other seen rows of the class, per column; that of unseen over seen rows."""
    n = np.bincount(y, weights=seen)
    sums = np.zeros((len(n), z.shape[1]))
    np.add.at(sums, y[seen], z[seen])
    squares = ((z - sums[y] / np.maximum(n, 1)[y, None]) ** 2).mean(axis=1)
    # Leaving a row out of its own mean stretches its deviation by n / (n - 1); the mean of n - 1 rows is also a little
    # further off than that of n, which both kinds are corrected for.
    stretch = np.where(seen, (n / np.maximum(n - 1, 1))[y], 1.0) ** 2
    expected = np.where(seen, (1 + 1 / np.maximum(n - 1, 1))[y], (1 + 1 / np.maximum(n, 1))[y])
    distance = np.asarray(squares * stretch / expected)
    return distance, float(distance[~seen].mean() / max(distance[seen].mean(), 1e-300))


# --- features of the minority alone ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class UniqueFeature:
    """Minority variance outside of what the majority shows.

    Attributes
    ----------
    ratio : variance of the minority along its direction of largest variance, over that of the majority. The direction
        is found on one half of the rows and measured on the other; the mean over several halvings.
    p_value : chance of such a ratio if minority classes were like majority ones.
    by : ``"classes"``: the same was done to groups of majority classes cut down to minority size. ``"rows"``, where
        there are too few majority classes for that: to random rows of the majority, which assumes that all its
        classes vary in the same way.
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

    A mechanism learned from the majority says nothing about such a direction. If rare classes vary there, and differ by
    it, transfer takes from them what they had.

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
    rare = np.flatnonzero(minority & (counts >= FEWEST_VARIED))
    majority = np.flatnonzero(~minority & (counts >= 2 * FEWEST_VARIED))
    if len(rare) == 0 or len(majority) == 0:
        return None
    z = (z - z.mean(axis=0)) / np.where((spread := column_spread(z)) > 0, spread, 1.0)
    some_rows = {int(m): rng.permutation(np.flatnonzero(y == m))[:MOST_VARIED] for m in [*rare, *majority]}

    def rows_of(labels: Labels) -> list[Labels]:
        return [some_rows[int(label)] for label in labels]

    sizes = np.minimum(counts[rare], MOST_VARIED)
    group = min(len(rare), max(len(majority) // 3, 1))
    by_classes = comb(len(majority), group) >= 2 / LEVEL and len(majority) - group >= 2
    group = group if by_classes else len(rare)

    frequent = _Scatter.of(z, rows_of(majority))
    real = []
    for _ in range(1 if group == len(rare) else SPLITS):
        real.append(_split_ratio(z, rows_of(rng.permutation(rare)[:group]), frequent, rng))
    null = []
    for _ in range(DRAWS):
        if by_classes:
            reduced = rng.permutation(majority)[:group]
            kept = np.minimum(rng.permutation(sizes)[:group], counts[reduced])
            groups = [rng.permutation(rows)[:n] for rows, n in zip(rows_of(reduced), kept, strict=True)]
            left = frequent.plus(_Scatter.of(z, rows_of(reduced)), -1)
        else:
            groups, before, after = _random_rows(rows_of(majority), sizes, rng)
            left = frequent.plus(_Scatter.of(z, before), -1).plus(_Scatter.of(z, after))
        null.append(_split_ratio(z, groups, left, rng))
    ratio = float(np.median(real))
    direction = _largest_direction(frequent.whiten(_centred(z, rows_of(rare))), rng)
    direction = solve_triangular(frequent.factor, direction, lower=True, trans="T")  # weights of the features
    direction = direction * np.sign(direction[np.abs(direction).argmax()]) / np.abs(direction).max()
    projected = [_centred(z @ direction[:, None], rows_of(labels))[:, 0] for labels in (rare, majority)]
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


@dataclass(frozen=True)
class _Scatter:
    """Squares and products of features, summed within classes, and their degrees of freedom."""

    matrix: Array
    freedom: int

    @classmethod
    def of(cls, z: Array, parts: list[Labels]) -> _Scatter:
        """That of some classes, given by their rows."""
        parts = [rows for rows in parts if len(rows) > 1]  # a single row does not vary
        residuals = _centred(z, parts) if parts else z[:0]
        return cls(residuals.T @ residuals, sum(len(rows) - 1 for rows in parts))

    def plus(self, other: _Scatter, sign: int = 1) -> _Scatter:
        """With other classes, or without them."""
        return _Scatter(self.matrix + sign * other.matrix, self.freedom + sign * other.freedom)

    @cached_property
    def factor(self) -> Array:
        """Cholesky factor of the covariance, with a ridge."""
        covariance = self.matrix / max(self.freedom, 1)
        ridge = RIDGE * max(float(np.trace(covariance)) / len(covariance), 1e-12)
        return np.asarray(np.linalg.cholesky(covariance + ridge * np.eye(len(covariance))), dtype=np.float64)

    def whiten(self, residuals: Array) -> Array:
        """In coordinates where these classes have the same variance in every direction."""
        return np.asarray(solve_triangular(self.factor, residuals.T, lower=True).T)


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
    groups = [rows for rows in groups if len(rows) >= FEWEST_VARIED] or [parts[0]]
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


# --- features against sources ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MinorityGap:
    """What h(s) saves on h(z), in nats of balanced log-loss on held-out rows of the minority.

    Attributes
    ----------
    gain, low, high : mean with its 95 % interval; positive where sources are better.
    loss_z, loss_s : mean log-loss by features and by sources, every class with the same weight.
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
