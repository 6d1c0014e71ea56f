"""Small problems with known answers: majority classes played down to minority ones, the rest of their rows hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecrt.data.imbalance import stratified_holdout, thin_out

Labels = NDArray[np.int64]

MOST_ROWS = 8000
"""Rows that a problem may have to learn from. Whole classes are left out beyond; where these are too few to choose
from, rows of the largest."""

FEWEST_MAJORITY = 6
"""Majority classes that it takes: a third are played down, and de-mixing needs at least three of the others."""

CHECK_SHARE = 0.2
"""Share of the other rows that is held out."""

MOST_CHECKED = 200
"""Rows of a class that are checked at most: more would cost time and tell nothing new."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows to learn from, rows to check on, and which classes are minority in it.

    Attributes
    ----------
    learn, check : indices of rows.
    minority : mask over classes, those played down included.
    weight : of the checked rows; classes of a kind count alike, and both kinds as much as they do in the real data.
    """

    learn: Labels
    check: Labels
    minority: NDArray[np.bool_]
    weight: NDArray[np.float64]


def pseudo_minority_problem(y: Labels, minority: NDArray[np.bool_], rng: np.random.Generator) -> Problem | None:
    """Hide most samples of a third of the majority classes; ``None`` where there are too few classes for it.

    A class that is played down keeps as many rows as some real minority class has. Its hidden rows are checked on, and
    a fifth of the rows of the other majority classes; the real minority is learned from, but too small to check on.

    Parameters
    ----------
    y : class indices of all rows.
    minority : mask over classes.
    """
    counts = np.bincount(y, minlength=len(minority))
    majority, rare = (np.flatnonzero(mask & (counts > 0)) for mask in (~minority, minority))
    if len(majority) < FEWEST_MAJORITY or len(rare) == 0:
        return None
    majority, rare = _classes_that_fit(majority, rare, counts, rng)
    played_down = np.sort(rng.permutation(majority)[: max(len(majority) // 3, 1)])
    kept = rng.choice(counts[rare], len(played_down))
    others = np.setdiff1d(majority, played_down)

    rows = _rows_that_fit(y, np.concatenate([majority, rare]), rng)
    counts = np.bincount(y[rows], minlength=len(minority))
    kept = np.minimum(kept, counts[played_down] // 2)
    sizes = dict(zip(played_down.tolist(), np.maximum(kept, 1).tolist(), strict=True))
    visible = rows[thin_out(y[rows], sizes, rng)]
    hidden = np.setdiff1d(rows, visible)
    held_out = visible[stratified_holdout(y[visible], CHECK_SHARE, rng)[1]]
    held_out = held_out[np.isin(y[held_out], others)]
    check = np.concatenate([hidden, held_out])
    check = check[thin_out(y[check], dict.fromkeys(np.unique(y).tolist(), MOST_CHECKED), rng)]

    is_minority = minority.copy()
    is_minority[played_down] = True
    return Problem(
        learn=np.setdiff1d(visible, held_out),
        check=check,
        minority=is_minority,
        weight=_weights(y[check], is_minority, float(minority.mean())),
    )


def cross_validation_problem(y: Labels, minority: NDArray[np.bool_], rng: np.random.Generator) -> Problem:
    """The real data with a fifth of every class held out, all classes counted alike; thinned out where it is large."""
    counts = np.bincount(y, minlength=len(minority))
    majority, rare = (np.flatnonzero(mask & (counts > 0)) for mask in (~minority, minority))
    if len(majority) >= FEWEST_MAJORITY and len(rare) > 0:
        majority, rare = _classes_that_fit(majority, rare, counts, rng)
    rows = _rows_that_fit(y, np.concatenate([majority, rare]), rng)
    learn, check = (rows[part] for part in stratified_holdout(y[rows], CHECK_SHARE, rng))
    share = len(np.unique(y[check][minority[y[check]]])) / max(len(np.unique(y[check])), 1)
    return Problem(learn=learn, check=check, minority=minority, weight=_weights(y[check], minority, share))


def _classes_that_fit(
    majority: Labels, rare: Labels, counts: NDArray[np.int64], rng: np.random.Generator
) -> tuple[Labels, Labels]:
    """Both kinds thinned out alike until their rows are few enough, with enough majority classes left."""
    share = min(MOST_ROWS / max(int(counts[majority].sum() + counts[rare].sum()), 1), 1.0)
    n_majority = max(int(np.ceil(share * len(majority))), FEWEST_MAJORITY)
    n_rare = max(int(np.ceil(share * len(rare))), 1)
    return np.sort(rng.permutation(majority)[:n_majority]), np.sort(rng.permutation(rare)[:n_rare])


def _rows_that_fit(y: Labels, classes: Labels, rng: np.random.Generator) -> Labels:
    """All rows of some classes, or no more of each than keeps them few enough: the largest lose, the rare do not."""
    rows = np.flatnonzero(np.isin(y, classes))
    sizes = np.sort(np.bincount(y[rows])[classes])
    # A limit L leaves the sizes below it whole: the sum of min(size, L) is to be MOST_ROWS.
    whole = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    limits = (MOST_ROWS - whole) / np.arange(len(sizes), 0, -1)
    cut = np.flatnonzero(sizes > limits)
    if len(cut) == 0 or len(rows) <= MOST_ROWS:
        return rows
    limit = max(int(limits[cut[0]]), 2)
    return rows[thin_out(y[rows], dict.fromkeys(classes.tolist(), limit), rng)]


def _weights(y: Labels, minority: NDArray[np.bool_], minority_share: float) -> NDArray[np.float64]:
    counts = np.bincount(y, minlength=len(minority))
    weight = 1.0 / np.maximum(counts, 1)
    for kind, share in ((minority, minority_share), (~minority, 1 - minority_share)):
        present = int((kind & (counts > 0)).sum())
        weight[kind] *= share / max(present, 1)
    return np.asarray(weight[y] / weight[y].sum())
