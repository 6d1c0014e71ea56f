"""Training steps: one that looks at every loss, and one that leaves the host out until the epoch ends."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ecrt.errors import DivergenceError
from ecrt.nn.randomness import generator_on

__all__ = ["DeferredSteps", "Schedule", "WatchedSteps"]

Loss = Callable[[Any], Tensor]

WARM_UP = 3
"""Plain steps before a graph is recorded: lazily made state and the choice of algorithms must lie behind."""

MOST_GRAPHS = 2
"""Graphs kept: each holds the activations of its batch. A full batch and the last, smaller one of an epoch."""


class Schedule:
    """Learning rate: a linear warm-up times a cosine to zero, and the count of steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, peak: float, warmup: int, total: int) -> None:
        self.optimizer, self.peak, self.warmup, self.total = optimizer, peak, max(warmup, 1), max(total, 1)
        self.step = -1
        self.advance()

    def advance(self) -> None:
        """Set the rate of the next step."""
        self.step += 1
        warm = min(1.0, (self.step + 1) / self.warmup)
        rate = self.peak * warm * 0.5 * (1 + math.cos(math.pi * min(self.step / self.total, 1.0)))
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)  # a recorded graph reads it from the device
            else:
                group["lr"] = rate


class WatchedSteps:
    """Steps whose loss and gradient are read by the host, and that stop before an update that is not finite."""

    def __init__(
        self, loss: Loss, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, schedule: Schedule,
        *, gradient_norm: float, stage: str,
    ) -> None:  # fmt: skip
        self.loss, self.parameters, self.optimizer, self.schedule = loss, parameters, optimizer, schedule
        self.gradient_norm, self.stage = gradient_norm, stage
        self.total, self.count = 0.0, 0

    def __call__(self, batch: Any) -> None:
        """One update."""
        value = self.loss(batch)
        current = value.item()
        if not math.isfinite(current):
            raise DivergenceError(self.stage, self.schedule.step, "loss")
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        if not torch.isfinite(nn.utils.clip_grad_norm_(self.parameters, self.gradient_norm)):
            raise DivergenceError(self.stage, self.schedule.step, "gradient")
        self.optimizer.step()
        self.schedule.advance()
        self.total, self.count = self.total + current, self.count + 1

    def end_epoch(self) -> float:
        """Mean loss of the steps since the last call."""
        mean = self.total / max(self.count, 1)
        self.total, self.count = 0.0, 0
        return mean


class DeferredSteps:
    """Steps that never wait for the host.

    The first loss or gradient that is not finite is noted on the device, and from that step on no update changes a
    parameter there: ``found_inf`` of fused optimizers masks it. ``end_epoch`` reads the note and raises, so the
    promise is the same as that of ``WatchedSteps`` (no update from a value that is not finite, stage and step named)
    and only the news comes late; the caller puts back the best state, as buffers have moved on.

    Parameters
    ----------
    graphs : record the step as a CUDA graph and replay it. The loss must then depend on nothing but the tensors of its
        batch, module state and the device's random numbers; whatever else a batch holds is part of what is recorded,
        and another value of it is recorded anew.
    """

    def __init__(
        self, loss: Loss, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, schedule: Schedule,
        *, gradient_norm: float, stage: str, graphs: bool = False,
    ) -> None:  # fmt: skip
        self.loss, self.parameters, self.optimizer, self.schedule = loss, parameters, optimizer, schedule
        self.gradient_norm, self.stage, self.graphs = gradient_norm, stage, graphs
        device = parameters[0].device
        self.total, self.count = torch.zeros((), device=device), 0
        self.masked = torch.zeros((), device=device)
        optimizer.found_inf = self.masked  # type: ignore[attr-defined]
        self.step = torch.zeros((), device=device, dtype=torch.int64)
        self.bad_step = torch.full_like(self.step, -1)
        self.bad_loss = torch.zeros((), device=device, dtype=torch.bool)
        self.seen: Counter[Hashable] = Counter()
        self.recorded: OrderedDict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = OrderedDict()

    def __call__(self, batch: Any) -> None:
        """One update, or none if an earlier value was not finite."""
        if self.graphs:
            self._graphed(batch)
        else:
            self._update(batch)
        self.schedule.advance()
        self.count += 1

    def end_epoch(self) -> float:
        """Mean loss of the steps since the last call; the one wait for the device.

        Raises
        ------
        DivergenceError
            When a loss or a gradient was not finite.
        """
        mean, bad_step = self.total.item() / max(self.count, 1), int(self.bad_step)
        if bad_step >= 0:
            raise DivergenceError(self.stage, bad_step, "loss" if self.bad_loss else "gradient")
        self.total.zero_()
        self.count = 0
        return mean

    def _update(self, batch: Any) -> None:
        value = self.loss(batch)
        self.optimizer.zero_grad(set_to_none=True)
        value.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.gradient_norm)
        current = value.detach()
        bad_loss = ~torch.isfinite(current)
        bad = bad_loss | ~torch.isfinite(norm)
        first = bad & (self.bad_step < 0)
        self.bad_loss |= first & bad_loss
        self.bad_step.copy_(torch.where(first, self.step, self.bad_step))
        self.masked.copy_(self.bad_step >= 0)
        self.optimizer.step()
        self.total += current
        self.step += 1

    def _graphed(self, batch: Any) -> None:
        leaves, structure = tree_flatten(batch)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        key = tuple(
            (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves
        )  # fmt: skip
        if key in self.recorded:
            self.recorded.move_to_end(key)
            graph, inputs = self.recorded[key]
            for place, tensor in zip(inputs, tensors, strict=True):
                place.copy_(tensor)
            graph.replay()
            return
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._update(batch)
        torch.cuda.current_stream().wait_stream(side)
        self.seen[key] += 1
        if self.seen[key] >= WARM_UP:
            self._record(key, [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure)

    def _record(self, key: Hashable, leaves: list[Any], structure: TreeSpec) -> None:
        while len(self.recorded) >= MOST_GRAPHS:
            self.recorded.popitem(last=False)
        graph = torch.cuda.CUDAGraph()
        generator = generator_on(self.parameters[0].device)
        if generator is not None:
            graph.register_generator_state(generator)  # so that a replay draws anew
        with torch.cuda.graph(graph):
            self._update(tree_unflatten(leaves, structure))
        self.recorded[key] = graph, [leaf for leaf in leaves if isinstance(leaf, Tensor)]
