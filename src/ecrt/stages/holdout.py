"""Rows that judge a choice have no part in it: folds of rows that nothing has looked at, and choices across halves."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.checkpoints import registered
from ecrt.data import stratified_holdout
from ecrt.distributed import by_rows, rows_to_compute

FEW_ROWS = 20_000
"""With more rows than this, one held-out part is to be enough to choose heads by."""

JUDGES = 300
"""Up to then heads are chosen by cross-validation, until rows worth so many of equal weight have judged."""

SCARCE = 40
"""Held-out rows that are worth fewer than so many get a fifth fold, which takes time."""


def head_folds(
    y: Labels, train_rows: Labels, held_out_rows: Labels, rng: np.random.Generator, fresh: Mask | None = None
) -> list[tuple[Labels, Labels]]:
    """Rows to learn from and rows to check on: the given split, and with few rows up to four that take out others.

    Parameters
    ----------
    fresh : rows that no earlier stage has looked at, ``None`` for all: no others are checked on. Where training rows of
        a class are not, its held-out rows are checked on in every fold.
    """
    fresh = np.ones(len(y), dtype=bool) if fresh is None else fresh
    everything = np.concatenate([train_rows, held_out_rows])
    given = held_out_rows[fresh[held_out_rows]]
    if len(given) == 0:  # nothing is left to judge by but what an earlier stage has stopped on
        given = held_out_rows
    folds = [(everything[~np.isin(everything, given)], given)]
    left = train_rows[fresh[train_rows]]
    always = given[~np.isin(y[given], y[left])]
    if len(everything) <= FEW_ROWS:
        counts = np.unique(y[given], return_counts=True)[1]
        worth = len(counts) ** 2 / (1 / counts).sum()  # classes have the same weight, and a few rows of one rule it
        most = 4 if worth < SCARCE else 3
        for share in (1 / 4, 1 / 3, 1 / 2, 1)[: min(math.ceil(JUDGES / worth) - 1, most)]:
            kept, taken = stratified_holdout(y[left], share, rng)
            if len(taken):
                check = np.concatenate([left[taken], always])
                folds.append((np.setdiff1d(everything, check), check))
            left = left[kept]
    return [(learn, check) for learn, check in folds if len(check)]


def halves(strata: Labels) -> Mask:
    """One half of the rows, with as many of each stratum as the other; without a second row, all."""
    half = np.zeros(len(strata), dtype=bool)
    half[np.argsort(strata, kind="stable")[::2]] = True
    return half


def across_halves(half: Mask, choose: Callable[[Mask], Array]) -> Array:
    """Losses of rows under what the other half chose.

    Parameters
    ----------
    choose : from the rows that may choose to the losses of all rows under their choice.
    """
    if half.all():
        return choose(half)
    return np.where(half, choose(~half), choose(half))


def all_fresh(*masks: Mask | None) -> Mask | None:
    """Rows that no mask excludes."""
    given = [mask for mask in masks if mask is not None]
    return np.logical_and.reduce(given) if given else None


class Watched:
    """Held-out loss of a head in training; keeps each half's logits where the losses of the other half are lowest.

    Parameters
    ----------
    logits_of, losses_of : from a head to logits of a part of the rows, and from these to their losses.
    weight, half : of the rows.
    """

    def __init__(
        self, logits_of: Callable[[nn.Module, slice], Tensor], losses_of: Callable[[Tensor, slice], Array],
        weight: Array, half: Mask,
    ) -> None:  # fmt: skip
        self.logits_of, self.losses_of, self.weight = logits_of, losses_of, weight
        self.sides = [(half, half)] if half.all() else [(half, ~half), (~half, half)]
        self.lowest = [np.inf] * len(self.sides)
        self.every, self.part = slice(0, len(weight)), rows_to_compute(len(weight))
        self._kept = torch.empty(0)
        registered(self)

    @property
    def kept(self) -> Tensor:
        """The logits of all rows; a process has those of its part until they are asked for."""
        return by_rows(len(self.weight), lambda part: self._kept) if len(self._kept) else self._kept

    @kept.setter
    def kept(self, logits: Tensor) -> None:
        self._kept = logits[self.part]

    def state(self) -> Any:
        """What has been kept so far."""
        return {"lowest": self.lowest, "kept": self.kept, "device": str(self._kept.device)}

    def restore(self, state: Any) -> None:
        """Go on from there."""
        self.lowest, self.kept = list(state["lowest"]), state["kept"].to(state["device"])

    def __call__(self, head: nn.Module) -> float:
        """Weighted mean of the losses of all rows."""
        logits = self.logits_of(head, self.part)
        mine = torch.from_numpy(self.losses_of(logits, self.part))
        losses = by_rows(len(self.weight), lambda part: mine).numpy()
        if not len(self._kept):
            self._kept = logits.clone()
        for number, (half, others) in enumerate(self.sides):
            loss = float(self.weight[others] @ losses[others])
            if loss < self.lowest[number]:
                self.lowest[number] = loss
                rows = torch.from_numpy(half[self.part]).to(logits.device)
                self._kept[rows] = logits[rows]
        return float(self.weight @ losses)


def better_under_weights(challenger: Array, champion: Array, weight: Array) -> bool:
    """Whether the challenger's losses are lower than the champion's, row by row, by more than one standard error."""
    gain = champion - challenger
    weight = weight / weight.sum()
    mean = float(weight @ gain)
    return mean > float(np.sqrt(weight**2 @ (gain - mean) ** 2))
