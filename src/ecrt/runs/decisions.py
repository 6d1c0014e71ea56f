"""From probabilities to labels when two mistakes do not weigh the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

__all__ = ["Decision", "make_decision"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Decision:
    """Predict the class at ``positive`` from a probability of ``threshold`` on; otherwise the most probable class."""

    threshold: float | None = None
    positive: int = 1

    def labels(self, probabilities: Array, classes: NDArray[Any]) -> NDArray[Any]:
        """Label of each row."""
        if self.threshold is None:
            return classes[probabilities.argmax(axis=1)]
        is_positive = probabilities[:, self.positive] >= self.threshold
        return classes[np.where(is_positive, self.positive, 1 - self.positive)]


def make_decision(
    classes: NDArray[Any],
    counts: NDArray[np.int64],
    *,
    positive: str | int | None,
    threshold: float | None,
    costs: dict[str, float] | None,
) -> Decision:
    """The rule that settings ask for.

    With costs, the positive class is predicted when the expected cost of missing it exceeds that of a false alarm: from
    a probability of false_alarm / (false_alarm + miss) on.
    """
    if threshold is None and costs is None:
        return Decision()
    if len(classes) != 2:
        raise InputError(f"A threshold or costs need two classes; there are {len(classes)}.")
    if positive is None:
        place = int(np.argmin(counts))
    else:
        places = [at for at, label in enumerate(classes.tolist()) if str(label) == str(positive)]
        if not places:
            raise InputError(f"positive={positive!r} is no class; there are {classes.tolist()}.")
        place = places[0]
    if costs is not None:
        threshold = costs["false_alarm"] / (costs["false_alarm"] + costs["miss"])
    return Decision(threshold, place)
