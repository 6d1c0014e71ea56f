"""Stage 3: synthetic sources for the classes that need them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.augmentation import Augmentation, augment
from ecrt.flows import between_class_variance, within_class_residuals

__all__ = ["AugmentConfig", "Synthetic", "augment_classes"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Which synthetic samples, how many, and how much they count.

    Attributes
    ----------
    kind : ``"parametric"`` (Gaussian), ``"permutation"`` (shuffled coordinates) or ``"borrowed"`` (the class's mean
        with residuals of classes that are not augmented).
    weight : lambda, the share of a class's mass that its synthetic samples hold; 0 switches augmentation off.
    n_synthetic : samples for each augmented class; ``None`` makes half as many as there are rows in all, but no
        class larger than the largest.
    pseudo_samples : nu of the shrunk variance.
    mean_shrinkage : how far the mean that samples are drawn around (not of permutation, which has none) is drawn
        towards that of all classes: 0 not at all, 1 as far as its error and the spread of class means warrant.
    """

    kind: Augmentation = "parametric"
    weight: float = 0.5
    n_synthetic: int | None = None
    pseudo_samples: float = 10.0
    mean_shrinkage: float = 0.0


@dataclass(frozen=True)
class Synthetic:
    """Synthetic sources and their classes.

    ``alike``: every sample of a class, real or synthetic, counts alike, instead of a share that is agreed on.
    """

    s: Array
    y: Labels
    alike: bool = False


def augment_classes(
    s: Array,
    y: Labels,
    augmented: NDArray[np.bool_],
    within_variance: Array,
    config: AugmentConfig,
    rng: np.random.Generator,
    rows: Labels | None = None,
    lenders: NDArray[np.bool_] | None = None,
) -> Synthetic:
    """Draw synthetic sources for every augmented class that has at least one sample.

    ``rows`` : those of ``s`` and ``y`` to draw from, ``None`` for all. ``lenders`` : classes to borrow residuals from,
    ``None`` for those that are not augmented.
    """
    rows = np.arange(len(y)) if rows is None else rows
    y = y[rows]
    counts = np.bincount(y, minlength=len(augmented))
    labels = np.flatnonzero(augmented & (counts > 0)) if config.weight > 0 else np.empty(0, dtype=np.int64)
    if len(labels) == 0:
        return Synthetic(np.empty((0, s.shape[1])), np.empty(0, dtype=np.int64))
    size = config.n_synthetic or int(np.clip(len(y) // (2 * len(labels)), 20, max(counts.max(), 20)))
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    variance = torch.from_numpy(within_variance)
    lenders = ~augmented if lenders is None else lenders
    residuals = _residuals(s[rows], y, lenders) if config.kind == "borrowed" else None
    by_class = rows[np.argsort(y, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(counts)])
    parts = [
        augment(
            config.kind,
            torch.from_numpy(s[by_class[starts[label] : starts[label + 1]]]),
            size,
            generator,
            variance_d=variance,
            pseudo_samples=config.pseudo_samples,
            residuals_rd=residuals,
        ).numpy()
        for label in labels
    ]
    if config.mean_shrinkage > 0 and config.kind != "permutation":
        shifts = _mean_shifts(s[rows], y, within_variance, config.mean_shrinkage)
        parts = [part + shifts[label] for part, label in zip(parts, labels.tolist(), strict=True)]
    return Synthetic(np.concatenate(parts), np.repeat(labels, size))


def _mean_shifts(s: Array, y: Labels, within_variance: Array, strength: float) -> dict[int, Array]:
    r"""From each class's mean to the shrunk one.

    That is :math:`\bar s_0 + k (\bar s - \bar s_0)` with :math:`k = b / (b + c v / n)`: v the variance within classes,
    b that of their means, c the strength.
    """
    _, means, counts = within_class_residuals(s, y)
    between = between_class_variance(means, counts, within_variance)
    trust = between / (between + strength / counts[:, None])
    shifts = (1 - trust) * (means.mean(axis=0) - means)
    return dict(zip(np.unique(y).tolist(), shifts, strict=True))


def _residuals(s: Array, y: Labels, lenders: NDArray[np.bool_]) -> torch.Tensor:
    """Deviations from their means of the classes that lend, stretched for the mean that each has lost."""
    lent = lenders[y]
    residuals, _, counts = within_class_residuals(s[lent], y[lent])
    _, member = np.unique(y[lent], return_inverse=True)
    stretch = np.sqrt(counts / np.maximum(counts - 1, 1))
    return torch.from_numpy(residuals[counts[member] > 1] * stretch[member][counts[member] > 1, None])
