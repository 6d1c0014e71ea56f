"""What candidates of a selection did to rows whose answers are known, and who is better beyond noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.metrics import half_width

__all__ = ["Losses", "Options", "Tried", "by_class", "clearly_better", "gain_of"]

Array = NDArray[np.float64]
Options = dict[str, Any]
Losses = tuple[Array, Array]
"""Mean loss of each class that was checked, and the classes' weights."""


@dataclass
class Tried:
    """Options, and what they did to the checked rows of each problem: losses of its classes, weighted."""

    options: Options
    losses: list[Losses] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: str | None = None

    @property
    def name(self) -> str:
        """Options that differ from the defaults of a plain fit, in words."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items()) or "as it was asked for"

    @property
    def loss(self) -> float:
        """Mean over problems of the weighted balanced NLL."""
        if self.failed is not None or not self.losses:
            return float("inf")
        return float(np.mean([weight @ losses for losses, weight in self.losses]))


def by_class(losses: Array, y: NDArray[np.int64], weight: Array) -> Losses:
    """Mean loss of each class that was checked, and the classes' weights."""
    mass = np.bincount(y, weights=weight)
    present = mass > 0
    means = np.bincount(y, weights=weight * losses)[present] / mass[present]
    return means, mass[present] / mass.sum()


def _differences(champion: Tried, challenger: Tried) -> tuple[Array, Array]:
    """What the challenger saves in each class of the problems both were measured on, with weights that sum to one."""
    n = min(len(champion.losses), len(challenger.losses))
    saved = np.concatenate([champion.losses[i][0] - challenger.losses[i][0] for i in range(n)])
    weight = np.concatenate([champion.losses[i][1] for i in range(n)])
    return saved, weight / weight.sum()


def gain_of(champion: Tried, challenger: Tried, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean saving with its interval; classes are what varies, for rows of a class share its few samples."""
    saved, weight = _differences(champion, challenger)
    mean = float(weight @ saved)
    effective = 1 / float((weight**2).sum())
    error = float(np.sqrt(weight**2 @ (saved - mean) ** 2 * effective / max(effective - 1, 1e-9)))
    width = half_width(error, max(effective - 1, 1.0), confidence)
    return mean, mean - width, mean + width


def clearly_better(champion: Tried, challenger: Tried, confidence: float) -> bool:
    """One-sided: whether the challenger saves something, with that confidence."""
    return challenger.failed is None and gain_of(champion, challenger, 2 * confidence - 1)[1] > 0
