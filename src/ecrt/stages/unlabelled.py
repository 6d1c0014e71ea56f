"""Rows without labels: classes that each of them may have, and how much it counts as a row of each.

One round of soft pseudo-labels. A model that was fitted on labelled rows says how probable each class is for a row,
under class frequencies that are those of the labelled rows, or are estimated from the unlabelled ones where these
speak against it. Its nearest neighbours have a say. Before and after they are asked, classes have these frequencies
among the rows, or frequent neighbours would outvote the rare classes. A row of which little is known counts for less,
and all of them together count for no more than the labelled rows of a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import nnls
from scipy.special import softmax

from ecrt.arrays import Array, Labels
from ecrt.nn import column_spread

MOST_ROUNDS = 1000
"""Of expectation and maximisation; they mostly end far earlier."""

FREQUENCY_ROUNDS = 50
"""In which probabilities are scaled until classes have the frequencies that are asked for, or nearly so."""

NEIGHBOURS = 10
DOUBT = 0.02
"""Is added to the mean probability of a class among them: a class that no neighbour has may still be the right one."""

LEAST_SHARE = 0.1
"""Classes with a smaller share of a row are left out: they would cost more than they are worth."""

MOST_SHIFT = 0.2
CERTAIN_SHIFT = 9.0
"""How far column means may be from those of every mixture of classes, squared on the mean over columns: in spreads of
the columns, its root, and in squared standard errors."""

MOST_NEIGHBOURS = 20_000
"""Of more unlabelled rows so many are looked at for neighbours; all of them are learned from."""

ROWS_AT_ONCE = 1024


def estimated_prior(likelihood: Array, start: Array) -> Array:
    """Class frequencies among rows, by expectation and maximisation in turn.

    References
    ----------
    Saerens, Latinne and Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities.

    Parameters
    ----------
    likelihood : how probable each row is under each class, up to a factor for each row.
    start : frequencies to begin with.
    """
    prior = start / start.sum()
    for _ in range(MOST_ROUNDS):
        posterior = likelihood * prior
        after = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
        change, prior = np.abs(after - prior).max(), after
        if change < 1e-9:
            break
    prior = np.maximum(prior, 1e-9)
    return np.asarray(prior / prior.sum())


@dataclass(frozen=True)
class SoftRows:
    """Unlabelled rows as pairs of a row and a class that it may have.

    Attributes
    ----------
    z : features of all unlabelled rows.
    row, y, weight : of each pair: its row, its class, and how much of a labelled row it counts for.
    """

    z: Array
    row: Labels
    y: Labels
    weight: Array

    def shared_mass(self, y: Labels, weight: Array, counts: Labels) -> tuple[Array, Array]:
        """Weights of other rows and of the pairs, where every class keeps its mass.

        Parameters
        ----------
        y, weight : of the other rows, real and synthetic.
        counts : real rows of each class.
        """
        mass = np.bincount(y, weights=weight, minlength=len(counts))
        all_rows = counts + np.bincount(self.y, weights=self.weight, minlength=len(counts))
        share = counts / np.maximum(all_rows, 1e-9)
        return weight * share[y], mass[self.y] * self.weight / all_rows[self.y]


@dataclass(frozen=True)
class Unlabelled:
    """Rows without labels.

    Attributes
    ----------
    z : their features.
    device : where neighbours are looked for.
    """

    z: Array
    device: torch.device

    @cached_property
    def neighbours(self) -> Labels:
        """The nearest of the other rows, by the angle between standardised rows with a column of ones.

        Between long vectors that is the angle alone, which serves embeddings better than distance; between short ones
        it is close to distance.
        """
        spread = column_spread(self.z)
        varies = spread > 0
        standard = (self.z[:, varies] - self.z[:, varies].mean(axis=0)) / spread[varies]
        rows = torch.from_numpy(np.column_stack([standard, np.ones(len(standard))])).float().to(self.device)
        rows = torch.nn.functional.normalize(rows)
        pool = np.linspace(0, len(rows) - 1, min(len(rows), MOST_NEIGHBOURS)).astype(np.int64)
        looked_at = torch.from_numpy(pool).to(self.device)
        others, found = rows[looked_at].T.contiguous(), []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            likeness = part @ others
            own = torch.arange(start, start + len(part), device=self.device)
            likeness[own[:, None] == looked_at] = -2.0
            found.append(likeness.topk(min(NEIGHBOURS, len(pool) - 1), dim=1).indices)
        return pool[torch.cat(found).cpu().numpy()]

    def soft_rows(self, logits: Array, counts: Labels) -> SoftRows:
        """Classes that the rows may have.

        Parameters
        ----------
        logits : balanced logits of the rows.
        counts : labelled rows of each class.
        """
        likelihood = softmax(logits, axis=1)
        prior = _prior(likelihood, counts)
        posterior = _of_frequencies(likelihood * prior, prior)
        if len(self.z) > 1:
            around = np.zeros_like(posterior)
            for nearest in self.neighbours.T:
                around += posterior[nearest] / self.neighbours.shape[1]
            posterior = _of_frequencies(posterior * (around + DOUBT), prior)
        row, y = np.nonzero(posterior > LEAST_SHARE)
        weight = posterior[row, y] * posterior.max(axis=1)[row]
        mass = np.bincount(y, weights=weight, minlength=len(counts))
        return SoftRows(self.z, row, y, weight * np.minimum(1, counts / np.maximum(mass, 1e-9))[y])

    def alike(self, z: Array, y: Labels) -> bool:
        """Whether some mixture of the classes of labelled rows may have the column means of these rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            spread = column_spread(np.concatenate([z, self.z]))
        varies = (spread > 0) & np.isfinite(spread)
        if not varies.any():
            return True
        start = z[:, varies].mean(axis=0)
        z, here = ((one[:, varies] - start) / spread[varies] for one in (z, self.z))
        means_md = np.stack([z[y == label].mean(axis=0) for label in np.unique(y)])
        mean_d, sure = here.mean(axis=0), 1e3  # that the shares of the classes add up to one
        try:
            shares = nnls(np.vstack([means_md.T, np.full(len(means_md), sure)]), np.append(mean_d, sure))[0]
        except RuntimeError:  # too many steps: nothing is known, and held-out rows decide
            return True
        shift = float(((mean_d - shares @ means_md) ** 2).mean())
        return shift <= MOST_SHIFT**2 or shift <= CERTAIN_SHIFT * (1 / len(z) + 1 / len(here))


def _of_frequencies(odds: Array, prior: Array) -> Array:
    """Probabilities in proportion to odds and a factor for each class, under which classes have these frequencies."""
    factor, least = np.ones(len(prior)), np.finfo(np.float64).tiny
    for _ in range(FREQUENCY_ROUNDS):
        found = factor * (odds.T @ (1 / np.maximum(odds @ factor, least))) / len(odds)
        factor *= np.where(found > least, prior / np.maximum(found, least), 1.0)
    posterior = odds * factor
    return np.asarray(posterior / np.maximum(posterior.sum(axis=1, keepdims=True), least))


def _prior(likelihood: Array, counts: Labels) -> Array:
    """Class frequencies: those of the labelled rows, unless others are more probable by Schwarz's criterion."""
    known = counts / counts.sum()
    found = estimated_prior(likelihood, counts.astype(np.float64))
    with np.errstate(divide="ignore"):
        saved = float(np.sum(np.log(likelihood @ found) - np.log(likelihood @ known)))
    return found if 2 * saved > (np.count_nonzero(counts) - 1) * np.log(len(likelihood)) else known
