"""What the inverse of a masked flow costs and how far it can be trusted: the paper's reason for a head on sources.

A flow with the supplement's four blocks learns the density of curved data by likelihood. The usual inverse passes
through every block once for each feature; ours evaluates every hidden unit once. Far out, sources go through the
inverse and back. A flow whose log-scales have no bound stands for the paper's; the library bounds them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from zuko.transforms import MonotonicAffineTransform

from ecrt.flows import MaskedFlow
from ecrt.randomness import seeded
from paper.statistics import observations, table

__all__ = ["BOUNDED", "UNBOUNDED", "cells", "run_cell", "summarise"]

Row = dict[str, Any]
BOUNDED, UNBOUNDED = "bounded, the library's", "without a bound, as in the paper"
NO_BOUND = 60.0
"""A bound on log-scales that no trained flow comes near."""
DISTANCES = (3.0, 5.0, 10.0)
"""Standard deviations from the middle."""
WRONG = 0.1
"""A source that comes back so far from where it was, in standard deviations, is lost."""
REPEATS = 9


def cells(smoke: bool) -> Iterable[Row]:
    """Both flows with 2 to 32 features, three seeds."""
    for seed in range(1 if smoke else 3):
        for n_features in (3,) if smoke else (2, 8, 32):
            for what in (BOUNDED, UNBOUNDED):
                yield {"what": what, "n_features": n_features, "seed": seed, "steps": 5 if smoke else 150}


def run_cell(*, what: str, n_features: int, seed: int, steps: int) -> Row:
    """Train a flow, time it in both directions, and send sources there and back."""
    with seeded(seed):
        flow = MaskedFlow(n_features)
        for block in flow.blocks if what == UNBOUNDED else ():
            vars(block)["univariate"] = partial(MonotonicAffineTransform, slope=math.exp(-NO_BOUND))
        _train(flow, n_features, steps)
        s = torch.randn(512, n_features)
        directions = s / s.norm(dim=1, keepdim=True)
        lost = {f"lost_at_{distance:g}": _lost(flow, distance * directions) for distance in DISTANCES}
        forward, usual, ours = _seconds([partial(_forward, flow), partial(_inverse, flow), flow.inverse], s)
    return {"usual_over_forward": usual / forward, "ours_over_forward": ours / forward, **lost}


def _train(flow: MaskedFlow, n_features: int, steps: int) -> None:
    optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for _ in range(steps):
        s, log_det = flow(_curved(512, n_features))
        loss = (0.5 * s.square().sum(1) - log_det).mean() / n_features
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
    flow.requires_grad_(False)


def _curved(n: int, n_features: int) -> Tensor:
    """Every feature a parabola of the one before, as in the Henon map, with noise of its own width."""
    columns = [torch.randn(n)]
    for _ in range(1, n_features):
        before = columns[-1].clamp(-3, 3)
        columns.append(0.5 * before**2 - 0.5 + torch.exp(0.5 * before) * 0.5 * torch.randn(n))
    return torch.stack(columns, 1)


@torch.no_grad()
def _forward(flow: MaskedFlow, z: Tensor) -> Tensor:
    for block in flow.blocks:
        z = block()(z)
    return z


@torch.no_grad()
def _inverse(flow: MaskedFlow, s: Tensor) -> Tensor:
    for block in reversed(flow.blocks):
        s = block().inv(s)
    return s


def _lost(flow: MaskedFlow, s: Tensor) -> float:
    """Share of sources that do not come back through the usual inverse, in single precision."""
    error = (_forward(flow, _inverse(flow, s)) - s).abs().amax(1)
    return float((~(error < WRONG)).float().mean())  # not a number counts as lost


def _seconds(runs: list[Callable[[Tensor], Tensor]], s: Tensor) -> list[float]:
    """Median processor time of each, run in turn."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(REPEATS):
        for run, mine in zip(runs, times, strict=True):
            started = time.process_time()
            run(s)
            mine.append(time.process_time() - started)
    return [float(np.median(mine)) for mine in times]


def summarise(rows: list[Row]) -> list[Row]:
    """Means over seeds, by flow and number of features."""
    lost = tuple(f"lost_at_{distance:g}" for distance in DISTANCES)
    return table(
        observations(rows), ("what", "n_features"), ("usual_over_forward", "ours_over_forward", *lost),
        order=lambda key: (key[1], key[0]),
    )  # fmt: skip
