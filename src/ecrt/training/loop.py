"""The only place with an optimizer: one loop for every network, one solver for convex heads."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ecrt.errors import DivergenceError, StoppedError
from ecrt.nn.randomness import own_draws_only
from ecrt.training.interrupt import deadline_passed, stop_requested
from ecrt.training.steps import DeferredSteps, Schedule, WatchedSteps

__all__ = [
    "History",
    "IndexBatches",
    "Progress",
    "SilentProgress",
    "TrainingConfig",
    "minimise_convex",
    "train",
]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a network is trained.

    Attributes
    ----------
    epochs : passes over the data at most.
    batch_size : samples of a step.
    learning_rate : warmed up over the first epoch and decayed along a cosine to zero.
    weight_decay : decoupled with AdamW, part of the gradient with SGD.
    patience : epochs without a better held-out loss after which training stops.
    gradient_norm : gradients are scaled down to this norm.
    optimizer : AdamW, or stochastic gradient descent with Nesterov momentum.
    momentum : of SGD.
    guard : when losses and gradients are looked at: every ``"step"``, or once an ``"epoch"``, until when a value that
        is not finite is held off the parameters on the device; ``"auto"`` is the epoch on a GPU, where a look means
        waiting for it.
    """

    epochs: int = 100
    batch_size: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    patience: int = 15
    gradient_norm: float = 5.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    momentum: float = 0.9
    guard: Literal["auto", "step", "epoch"] = "auto"


@dataclass
class History:
    """What happened: mean training loss and held-out loss of every epoch, and which epoch was kept."""

    train_loss: list[float] = field(default_factory=list)
    held_out_loss: list[float] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float = math.inf


class Progress(Protocol):
    """Where long work reports to."""

    def start(self, stage: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def advance(self, note: str = "") -> None:
        """One step is done."""

    def finish(self) -> None:
        """The stage is over, perhaps before all its steps."""


class SilentProgress:
    """Reports nothing."""

    def start(self, stage: str, total: int) -> None:
        """Say nothing."""

    def advance(self, note: str = "") -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""


@dataclass(frozen=True)
class IndexBatches:
    """Shuffled index batches over data that sit in memory; a last batch of one is dropped (it has no negatives).

    Indices are copied to ``device``, if any is given, once an epoch.
    """

    n_samples: int
    batch_size: int
    generator: torch.Generator
    device: torch.device | None = None

    def __len__(self) -> int:
        full, left = divmod(self.n_samples, self.batch_size)
        return max(full + (left > 1), 1)

    def __iter__(self) -> Iterator[Tensor]:
        order = torch.randperm(self.n_samples, generator=self.generator)
        yield from order.to(self.device).split(self.batch_size)[: len(self)]


def train(
    module: nn.Module,
    loss: Callable[[Any], Tensor],
    batches: Iterable[Any],
    held_out_loss: Callable[[], float] | None,
    config: TrainingConfig,
    *,
    stage: str,
    stop_after: int | None = None,
    graphs: bool = False,
    others_draw: bool = False,
    to_the_end: bool = False,
    progress: Progress | None = None,
) -> History:
    """Minimise ``loss`` of batches over the parameters of ``module`` and leave it in its best state.

    Parameters
    ----------
    loss : a batch to a scalar.
    batches : iterated once an epoch.
    held_out_loss : measured after every epoch, decides which state is best and when to stop; ``None`` trains all
        epochs and keeps the last state.
    stop_after : end after this many epochs of a schedule made for ``config.epochs``.
    graphs : replay steps as CUDA graphs; see :class:`~ecrt.training.steps.DeferredSteps` for what that asks of ``loss``
        and batches. Without a GPU it changes nothing.
    to_the_end : let nothing but a deadline stop it, where all before would be lost with it.
    others_draw : whether batches come from code that is not ours and may draw random numbers.

    Raises
    ------
    StoppedError
        When a stop was asked for, by ``stop_on_interrupt`` or a deadline, before there was a state to keep: a finished
        epoch that lowered the held-out loss or, without one, all epochs. Such a state ends training quietly.
    DivergenceError
        When a loss or a gradient is not finite: before the update, with the best state so far left in ``module``. With
        ``config.guard`` at the epoch it is raised when the epoch ends, and updates stop changing parameters before.
    """
    progress = progress or SilentProgress()
    history = History()
    best_state = _snapshot(module)
    steps_per_epoch = len(batches)  # type: ignore[arg-type]
    parameters = [p for p in module.parameters() if p.requires_grad]
    on_gpu = parameters[0].is_cuda
    deferred = config.guard == "epoch" or (config.guard == "auto" and on_gpu)
    optimizer = _make_optimizer(parameters, config, recorded=on_gpu and graphs)
    schedule = Schedule(optimizer, config.learning_rate, steps_per_epoch, steps_per_epoch * config.epochs)
    options: dict[str, Any] = {"gradient_norm": config.gradient_norm, "stage": stage}
    steps: WatchedSteps | DeferredSteps
    if deferred:
        steps = DeferredSteps(loss, parameters, optimizer, schedule, **options, graphs=on_gpu and graphs)
    else:
        steps = WatchedSteps(loss, parameters, optimizer, schedule, **options)
    n_epochs = config.epochs if stop_after is None else min(stop_after, config.epochs)
    stop = deadline_passed if to_the_end else stop_requested
    progress.start(stage, n_epochs)
    at_full_speed = ExitStack()
    try:
        if not others_draw:
            at_full_speed.enter_context(own_draws_only(module))
        for epoch in range(n_epochs):
            module.train()
            trained = _run_epoch(steps, batches, stop)
            if trained is None:
                break
            history.train_loss.append(trained)
            if held_out_loss is None:
                best_state, history.best_epoch = _snapshot(module), epoch
                progress.advance(f"loss {history.train_loss[-1]:.4f}")
                continue
            module.eval()
            with torch.no_grad():
                current = held_out_loss()
            if not math.isfinite(current):
                raise DivergenceError(stage, schedule.step, "held-out loss")
            history.held_out_loss.append(current)
            if current < history.best_loss:
                history.best_epoch, history.best_loss = epoch, current
                best_state = _snapshot(module)
            progress.advance(f"held-out loss {current:.4f}, best {history.best_loss:.4f}")
            if epoch - history.best_epoch >= config.patience or stop():
                break
        wanted = n_epochs if held_out_loss is None else min(n_epochs, 1)
        if len(history.train_loss) < wanted:
            raise StoppedError(stage)
    finally:
        at_full_speed.close()
        module.load_state_dict(best_state)
        module.eval()
        progress.finish()
    return history


def _run_epoch(steps: WatchedSteps | DeferredSteps, batches: Iterable[Any], stop: Callable[[], bool]) -> float | None:
    """Mean loss of an epoch; ``None`` of one that was not finished."""
    for batch in batches:
        if stop():
            return None
        steps(batch)
    return steps.end_epoch()


def _make_optimizer(parameters: list[nn.Parameter], config: TrainingConfig, *, recorded: bool) -> torch.optim.Optimizer:
    """The optimizer; one that is recorded in a graph keeps its rate on the device."""
    rate = torch.tensor(config.learning_rate, device=parameters[0].device) if recorded else config.learning_rate
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=rate, momentum=config.momentum, nesterov=config.momentum > 0,
            weight_decay=config.weight_decay, fused=True,
        )  # fmt: skip
    return torch.optim.AdamW(parameters, lr=rate, weight_decay=config.weight_decay, fused=True, capturable=recorded)


def _snapshot(module: nn.Module) -> dict[str, Any]:
    return copy.deepcopy(module.state_dict())


def minimise_convex(
    module: nn.Module,
    loss_and_backward: Callable[[], float],
    *,
    stage: str,
    max_iterations: int = 100,
    tolerance: float = 1e-5,
) -> int:
    """Minimise a smooth convex loss with L-BFGS, all rows at once; returns the evaluations it took.

    Nothing but a deadline stops it, with a ``StoppedError``: it is soon done.

    Parameters
    ----------
    loss_and_backward : returns the loss after adding its gradient to the parameters of ``module``.
    tolerance : stop when no gradient entry, or no change of the loss, is larger.
    """
    parameters = list(module.parameters())
    optimizer = torch.optim.LBFGS(
        parameters, max_iter=max_iterations, tolerance_grad=tolerance, tolerance_change=tolerance * 1e-2,
        history_size=10, line_search_fn="strong_wolfe",
    )  # fmt: skip
    evaluations = 0
    best_loss, best_state = math.inf, _snapshot(module)

    def closure() -> float:
        nonlocal evaluations, best_loss, best_state
        if deadline_passed():
            raise StoppedError(stage)
        optimizer.zero_grad(set_to_none=False)
        value = loss_and_backward()
        if not math.isfinite(value):
            module.load_state_dict(best_state)
            raise DivergenceError(stage, evaluations, "loss")
        if value < best_loss:
            best_loss, best_state = value, _snapshot(module)
        evaluations += 1
        return value

    with own_draws_only(module):
        optimizer.step(closure)
    return evaluations
