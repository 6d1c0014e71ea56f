"""Stages 2 to 4 together, for each way of de-mixing under consideration; held-out rows decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ecrt.data import ClassRoles, stratified_holdout
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
from ecrt.metrics import better_under_weights
from ecrt.stages.demix import DemixConfig, DemixResult, demix
from ecrt.stages.predict import Draw, HeadChoice, HeadConfig, choose_head
from ecrt.training import Progress, stop_requested

__all__ = ["Drawing", "TransferResult", "best_transfer", "transfer"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

Drawing = Callable[[Array, Labels, Labels, Labels], Draw]
"""Features, classes, training rows and held-out rows, to a way to synthetic sources."""


@dataclass(frozen=True, kw_only=True)
class TransferResult:
    """The chosen de-mixing with its head.

    Attributes
    ----------
    demixed : the de-mixing.
    head : scaled sources to balanced logits.
    choice : how that head was chosen.
    method : name of the chosen de-mixing.
    held_out : for each method tried, the held-out balanced NLL of its head: of every row under the head that the other
        half of the rows would have chosen.
    """

    demixed: DemixResult
    head: nn.Module
    choice: HeadChoice
    method: str
    held_out: dict[str, float]


def transfer(
    z: Array,
    y: Labels,
    *,
    roles: ClassRoles,
    candidates: list[DemixConfig],
    head_config: HeadConfig,
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    drawing: Drawing | None = None,
    fresh: NDArray[np.bool_] | None = None,
) -> TransferResult:
    """De-mix and fit a head for every candidate, simplest first; a later one must be better beyond noise.

    Parameters
    ----------
    z, y : features and class indices of rows that the encoder was not trained on.
    validation : share of each class held out to stop, choose and compare.
    drawing : another way to synthetic sources than the one of ``head_config``.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    """
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    train_rows, held_out_rows = stratified_holdout(y, validation, rng, eligible=fresh)
    if len(held_out_rows) == 0:
        raise InputError(
            f"No row can be held out of {len(y)} rows in {len(np.unique(y))} classes: one class at least needs two."
        )
    shared: dict[str, Any] = {
        "train_rows": train_rows, "held_out_rows": held_out_rows, "rng": rng, "device": device, "progress": progress
    }  # fmt: skip

    def choose_for(demixed: DemixResult) -> HeadChoice:
        draw = None if drawing is None else drawing(z, y, train_rows, held_out_rows)
        return choose_head(
            demixed.learned, y, roles=roles, demixed=demixed, config=head_config, draw=draw, fresh=fresh, **shared
        )  # fmt: skip

    return best_transfer(
        candidates,
        lambda config: demix(z, y, demixed_on=roles.demixed_on, config=config, **shared),
        choose_for,
        lambda rows: (1 / np.maximum(np.bincount(y[rows]), 1))[y[rows]],
    )


def best_transfer(
    candidates: list[DemixConfig],
    demix_by: Callable[[DemixConfig], DemixResult],
    choose_for: Callable[[DemixResult], HeadChoice],
    weights_of: Callable[[Labels], Array],
) -> TransferResult:
    """The de-mixing whose head serves held-out rows best; a later one must be better beyond noise.

    Parameters
    ----------
    candidates : simplest first.
    demix_by, choose_for : stages 2 and 4.
    weights_of : weights of rows that are judged together.
    """
    best: tuple[DemixConfig, DemixResult, HeadChoice] | None = None
    held_out: dict[str, float] = {}
    for config in candidates:
        if best is not None and stop_requested():
            break
        try:
            demixed = demix_by(config)
            head = choose_for(demixed)
        except StoppedError:
            if best is None:
                raise
            break
        except DivergenceError as error:
            if best is None:
                raise
            warn_user(f"De-mixing by {config.method!r} was given up. {error}")
            continue
        held_out[config.method] = head.held_out
        if best is None or _better(head, best[2], weights_of):
            best = config, demixed, head
    if best is None:
        raise InputError("No way of de-mixing was given.")
    config, demixed, choice = best
    return TransferResult(demixed=demixed, head=choice.fit(), choice=choice, method=config.method, held_out=held_out)


def _better(challenger: HeadChoice, champion: HeadChoice, weights_of: Callable[[Labels], Array]) -> bool:
    """Whether the challenger's losses are lower beyond noise, on the rows that judge both."""
    rows, mine, theirs = np.intersect1d(challenger.rows, champion.rows, assume_unique=True, return_indices=True)
    return len(rows) > 0 and better_under_weights(
        challenger.held_out_losses[mine], champion.held_out_losses[theirs], weights_of(rows)
    )
