"""Small problems with known answers: majority classes cut down to minority size, the rest of their rows hidden."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ecrt.arrays import Labels, Mask
from ecrt.data import stratified_holdout, thin_out

MOST_ROWS = 8000
"""Rows that a problem may have to learn from. Whole classes are left out beyond; where these are too few to choose
from, rows of the largest."""

FEWEST_MAJORITY = 6
"""Majority classes that it takes: a third are cut down, and de-mixing needs at least three of the others."""

CHECK_SHARE = 0.2
"""Share of the other rows that is held out."""

MOST_CHECKED = 200
"""Rows of a class that are checked at most: more would take time and show nothing new."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows to learn from, rows to check on, and which classes are minority in it.

    Attributes
    ----------
    learn, check : indices of rows.
    minority : mask over classes, those cut down included.
    weight : of the checked rows. Classes of a kind count the same, and both kinds as much as in the real data.
    """

    learn: Labels
    check: Labels
    minority: Mask
    weight: NDArray[np.float64]


def pseudo_minority_problem(y: Labels, minority: Mask, rng: np.random.Generator) -> Problem | None:
    """Hide most samples of a third of the majority classes; ``None`` where there are too few classes for it.

    A class that is cut down keeps as many rows as some real minority class has. Its hidden rows are checked on, and
    a fifth of the rows of the other majority classes; the real minority is learned from, but too small to check on.

    Parameters
    ----------
    y : class indices of all rows.
    minority : mask over classes.
    """
    majority, rare = _classes_that_fit(y, minority, rng)
    if len(majority) < FEWEST_MAJORITY or len(rare) == 0:
        return None
    cut_down = np.sort(rng.permutation(majority)[: max(len(majority) // 3, 1)])
    kept = rng.choice(np.bincount(y)[rare], len(cut_down))

    rows = _rows_that_fit(y, np.concatenate([majority, rare]), rng)
    kept = np.minimum(kept, np.bincount(y[rows])[cut_down] // 2)
    sizes = dict(zip(cut_down.tolist(), np.maximum(kept, 1).tolist(), strict=True))
    visible = rows[thin_out(y[rows], sizes, rng)]
    hidden = np.setdiff1d(rows, visible)
    held_out = visible[stratified_holdout(y[visible], CHECK_SHARE, rng)[1]]
    held_out = held_out[np.isin(y[held_out], np.setdiff1d(majority, cut_down))]
    check = np.concatenate([hidden, held_out])
    check = check[thin_out(y[check], dict.fromkeys(np.unique(y).tolist(), MOST_CHECKED), rng)]

    is_minority = minority.copy()
    is_minority[cut_down] = True
    return Problem(
        learn=np.setdiff1d(visible, held_out),
        check=check,
        minority=is_minority,
        weight=_weights(y[check], is_minority, float(minority.mean())),
    )


def cross_validation_problem(y: Labels, minority: Mask, rng: np.random.Generator) -> Problem:
    """The real data with a fifth of every class held out; all classes count the same. Thinned out where it is large."""
    rows = _rows_that_fit(y, np.concatenate(_classes_that_fit(y, minority, rng)), rng)
    learn, check = (rows[part] for part in stratified_holdout(y[rows], CHECK_SHARE, rng))
    checked = np.unique(y[check])
    share = float(minority[checked].mean()) if len(checked) else 0.0
    return Problem(learn=learn, check=check, minority=minority, weight=_weights(y[check], minority, share))


def _classes_that_fit(y: Labels, minority: Mask, rng: np.random.Generator) -> tuple[Labels, Labels]:
    """Majority and minority classes, the same share of both, so that their rows are few enough.

    None is left out where the majority classes are too few to choose from.
    """
    counts = np.bincount(y, minlength=len(minority))
    majority, rare = (np.flatnonzero(kind & (counts > 0)) for kind in (~minority, minority))
    if len(majority) < FEWEST_MAJORITY or len(rare) == 0:
        return majority, rare
    share = min(MOST_ROWS / len(y), 1.0)
    n_majority = max(int(np.ceil(share * len(majority))), FEWEST_MAJORITY)
    n_rare = int(np.ceil(share * len(rare)))
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


def _weights(y: Labels, minority: Mask, minority_share: float) -> NDArray[np.float64]:
    counts = np.bincount(y, minlength=len(minority))
    weight = 1.0 / np.maximum(counts, 1)
    for kind, share in ((minority, minority_share), (~minority, 1 - minority_share)):
        weight[kind] *= share / max(int((kind & (counts > 0)).sum()), 1)
    return np.asarray(weight[y] / weight[y].sum())
