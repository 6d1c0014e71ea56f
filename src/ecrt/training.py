"""The only place with an optimizer: one loop for every network, one solver for convex heads, and how to stop them."""

from __future__ import annotations

import copy
import math
import signal
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import partial
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ecrt.checkpoints import Kept, begin_training, registered
from ecrt.distributed import (
    Tables,
    active,
    any_of,
    as_first,
    end_step,
    leave_step,
    part_of_table,
    share_of_step,
    summed,
)
from ecrt.errors import DivergenceError, NotEnoughMemoryError, StoppedError, TerminatedError
from ecrt.losses import log_softmax
from ecrt.randomness import generator_on, own_draws_only


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

    @classmethod
    def of(cls, part: Any) -> TrainingConfig:
        """With what the options of the same names say."""
        return cls(**{one.name: getattr(part, one.name) for one in fields(cls) if hasattr(part, one.name)})


@dataclass
class History:
    """What happened: mean training loss and held-out loss of every epoch, and which epoch was kept."""

    train_loss: list[float] = field(default_factory=list)
    held_out_loss: list[float] = field(default_factory=list)
    best_epoch: int = 0
    best_loss: float = math.inf


class Progress:
    """Where long work reports to. This one shows nothing; ``BarProgress`` shows bars."""

    def start(self, stage: str, total: int) -> None:
        """A stage of ``total`` steps begins."""

    def advance(self, note: str = "") -> None:
        """One step is done."""

    def finish(self) -> None:
        """The stage is over, perhaps before all its steps."""


class BarProgress(Progress):
    """A bar for each stage, also within another; its steps are a bound: where a stage stops early, so does its bar."""

    def __init__(self) -> None:
        self._bars = RichProgress(
            TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn(),
            TimeElapsedColumn(), TimeRemainingColumn(compact=True), TextColumn("left"),
            TextColumn("{task.fields[note]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=Console(stderr=True), expand=True,
        )  # fmt: skip
        self._tasks: list[TaskID] = []

    def __enter__(self) -> BarProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def start(self, stage: str, total: int) -> None:
        """Add a bar."""
        self._tasks.append(self._bars.add_task(stage, total=total, note=""))

    def advance(self, note: str = "") -> None:
        """Move the newest bar by one step."""
        if self._tasks:
            self._bars.update(self._tasks[-1], advance=1, note=note)

    def finish(self) -> None:
        """End the newest bar at the step it has reached."""
        if self._tasks:
            task = self._tasks.pop()
            self._bars.update(task, total=self._bars.tasks[task].completed)


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
    gradients: Callable[[Any], float] | None = None,
    divide: Divide | None = None,
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
    graphs : replay steps as CUDA graphs; see :class:`DeferredSteps` for what that asks of ``loss``
        and batches. Without a GPU it changes nothing.
    to_the_end : let nothing but a deadline stop it, where all before would be lost with it.
    others_draw : whether batches come from code that is not ours and may draw random numbers.
    gradients : gives the loss of a batch and sets the gradients of the parameters, in place of autograd where steps are
        watched.
    divide : cuts a batch into parts, where its loss is the mean over rows that do not depend on each other: a batch
        that a GPU has no memory for is then done part by part, with the same gradient.

    Raises
    ------
    NotEnoughMemoryError
        When a GPU has no memory for a batch, and there is no way to divide it.
    StoppedError
        When a stop was asked for, by ``stop_on_interrupt`` or a deadline, before there was a state to keep: a finished
        epoch that lowered the held-out loss or, without one, all epochs. Such a state ends training quietly.
    DivergenceError
        When a loss or a gradient is not finite: before the update, with the best state so far left in ``module``. With
        ``config.guard`` at the epoch it is raised when the epoch ends, and updates stop changing parameters before.
    """
    progress = progress or Progress()
    history = History()
    tables = Tables(module)
    kept = begin_training(stage)
    if kept is not None and (outcome := kept.outcome()) is not None:
        with kept.reading():
            module.load_state_dict(tables.own(outcome["module"]))
            module.eval()
            return History(**outcome["history"])
    best_state = _snapshot(module)
    steps_per_epoch = len(batches)  # type: ignore[arg-type]
    named = {name: one for name, one in module.named_parameters() if one.requires_grad}
    parameters = list(named.values())
    on_gpu = parameters[0].is_cuda
    shared = active()
    deferred = not shared and (config.guard == "epoch" or (config.guard == "auto" and on_gpu))
    optimizer = _make_optimizer(parameters, config, recorded=on_gpu and graphs)
    schedule = Schedule(optimizer, config.learning_rate, steps_per_epoch, steps_per_epoch * config.epochs)
    backward = Backward(loss, optimizer, stage, divide)
    options: dict[str, Any] = {"gradient_norm": config.gradient_norm, "stage": stage}
    steps: WatchedSteps | DeferredSteps
    if deferred:
        steps = DeferredSteps(backward, parameters, optimizer, schedule, **options, graphs=on_gpu and graphs)
    else:
        steps = WatchedSteps(backward, parameters, optimizer, schedule, **options, gradients=gradients)
    n_epochs = config.epochs if stop_after is None else min(stop_after, config.epochs)
    stop = _deadline_over if to_the_end else _stop_wanted
    if isinstance(steps, WatchedSteps) and shared:
        stop = steps.agree_to(stop, kept)
    first, done = 0, 0
    if kept is not None and (state := kept.unfinished()) is not None:
        with kept.reading():
            first, done, best_state = int(state["epoch"]), int(state["batch"]), tables.own(state["best"])
            module.load_state_dict(best_state)
            module.load_state_dict(tables.own(state["module"]))
            history = History(**state["history"])
            of_optimizer = tables.own(state["optimizer"])
            restore_optimizer(optimizer, [of_optimizer[name] for name in named])
            schedule.go_on_from(state["step"])
            steps.restore(state["steps"])

    def state_at(epoch: int, batch: int) -> dict[str, Any]:
        return {
            "epoch": epoch, "batch": batch, "module": tables.whole(module.state_dict()),
            "best": tables.whole(best_state), "history": vars(history),
            "optimizer": tables.whole({name: optimizer.state[one] for name, one in named.items()}),
            "step": schedule.step, "steps": steps.state(),
        }  # fmt: skip

    progress.start(stage, n_epochs)
    at_full_speed = ExitStack()
    try:
        if not others_draw:
            at_full_speed.enter_context(own_draws_only(module))
        for epoch in range(first, n_epochs):
            module.train()
            trained = _run_epoch(steps, batches, stop, kept, partial(state_at, epoch), done if epoch == first else 0)
            if trained is None:
                break
            history.train_loss.append(trained)
            if held_out_loss is None:
                best_state, history.best_epoch = _snapshot(module), epoch
                progress.advance(f"loss {history.train_loss[-1]:.4f}")
                continue
            module.eval()
            with torch.no_grad():
                current = as_first(held_out_loss())
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
        if kept is not None and not stop():
            kept.end({"module": tables.whole(best_state), "history": vars(history)})
    finally:
        leave_step()
        at_full_speed.close()
        module.load_state_dict(best_state)
        module.eval()
        progress.finish()
    return history


def _run_epoch(
    steps: WatchedSteps | DeferredSteps, batches: Iterable[Any], stop: Callable[[], bool], kept: Kept | None,
    state_at: Callable[[int], Any], done: int,
) -> float | None:  # fmt: skip
    """Mean loss of an epoch, of which so many batches were done before; ``None`` of one that was not finished."""
    for number, batch in enumerate(batches if kept is None else kept.batches(batches, done), done + 1):
        if stop():
            return None
        steps(batch)
        if kept is not None:
            if isinstance(steps, WatchedSteps) and steps.granted:
                kept.agree(*steps.granted[1:])
            kept.save(partial(state_at, number))
    return steps.end_epoch()


def restore_optimizer(optimizer: torch.optim.Optimizer, states: list[Any]) -> None:
    """Moments and steps of each parameter, on its device; the rate is the schedule's."""
    whole = optimizer.state_dict()
    optimizer.load_state_dict(whole | {"state": dict(enumerate(states)) if any(states) else {}})


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
    """Values of the parameters and buffers; clones, because copy.deepcopy takes ten times as long."""
    state = module.state_dict()
    return {name: value.clone() if isinstance(value, Tensor) else copy.deepcopy(value) for name, value in state.items()}


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
    kept = begin_training(stage)
    if kept is not None and (outcome := kept.outcome()) is not None:
        with kept.reading():
            module.load_state_dict(outcome["module"])
            return int(outcome["evaluations"])
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
    if kept is not None:
        kept.end({"module": _snapshot(module), "evaluations": evaluations})
    return evaluations


@torch.no_grad()
def newton_softmax(
    head: nn.Linear, s_nd: Tensor, y_n: Tensor, weight_n: Tensor, shift_m: Tensor, decay: float, most: int = 50
) -> None:
    """Fit a small softmax regression by Newton's method, from where the head is.

    Minimised is the weighted cross-entropy of logits plus a shift, plus half the decay times the squared weights.

    Parameters
    ----------
    weight_n : of the rows; they sum to one.
    most : steps at most; a few are enough, since the loss is convex.
    """
    x_nk = torch.cat([s_nd, s_nd.new_ones(len(s_nd), 1)], dim=1).double()
    solution_mk = torch.cat([head.weight, head.bias[:, None]], dim=1).double()
    (n_outputs, k), rows_n, weight_n = solution_mk.shape, torch.arange(len(y_n)), weight_n.double()
    penalty_k = x_nk.new_full((k,), decay)
    penalty_k[-1] = 0

    def loss_of(found_mk: Tensor) -> tuple[float, Tensor]:
        log_p_nm = log_softmax(x_nk @ found_mk.T + shift_m)
        return float(-(weight_n @ log_p_nm[rows_n, y_n]) + 0.5 * (penalty_k * found_mk**2).sum()), log_p_nm.exp()

    loss, p_nm = loss_of(solution_mk)
    for _ in range(most):
        if deadline_passed():
            raise StoppedError("linear head")
        residual_nm = p_nm.clone()
        residual_nm[rows_n, y_n] -= 1
        slope_mk = (weight_n[:, None] * residual_nm).T @ x_nk + penalty_k * solution_mk
        curvature = x_nk.new_zeros(n_outputs, k, n_outputs, k)
        for a in range(n_outputs):
            for b in range(a):
                product_kk = x_nk.T @ ((weight_n * p_nm[:, a] * p_nm[:, b])[:, None] * x_nk)
                curvature[a, :, b] = curvature[b, :, a] = -product_kk
                curvature[a, :, a] += product_kk  # as probabilities sum to one, so do these blocks to zero
                curvature[b, :, b] += product_kk
        matrix = curvature.reshape(n_outputs * k, -1)
        # All intercepts may move together at no cost, and certain rows leave little curvature: a small ridge, always.
        matrix.diagonal().add_(penalty_k.repeat(n_outputs) + 1e-9)
        step_mk = torch.cholesky_solve(slope_mk.reshape(-1, 1), torch.linalg.cholesky(matrix)).reshape(n_outputs, k)
        share, expected = 1.0, float((slope_mk * step_mk).sum())
        while True:
            trial, p_trial_nm = loss_of(solution_mk - share * step_mk)
            if trial <= loss - 1e-4 * share * expected or share < 1e-6:
                break
            share /= 2
        saved, loss, solution_mk, p_nm = loss - trial, trial, solution_mk - share * step_mk, p_trial_nm
        if saved <= 1e-10 * max(abs(loss), 1.0):
            break
    if not math.isfinite(loss):
        raise DivergenceError("linear head", 0, "loss")
    head.weight.copy_(solution_mk[:, :-1])
    head.bias.copy_(solution_mk[:, -1])


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from a numpy one."""
    return registered(torch.Generator().manual_seed(int(rng.integers(2**62))))


# --- steps ------------------------------------------------------------------------------------------

Loss = Callable[[Any], Tensor]
Divide = Callable[[Any, int], list[tuple[Any, float]]]
"""A batch to so many parts, or as many as it has rows, each with its share of the rows."""

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

    def go_on_from(self, step: int) -> None:
        """Be at that step."""
        self.step = step - 1
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


def divide_rows(rows: Tensor, parts: int) -> list[tuple[Tensor, float]]:
    """Rows in parts, each with its share of them."""
    return [(part, len(part) / len(rows)) for part in rows.tensor_split(min(parts, len(rows)))]


class Backward:
    """The loss of a batch, after its gradients were set; in parts, from where a GPU has no memory for the whole."""

    def __init__(self, loss: Loss, optimizer: torch.optim.Optimizer, stage: str, divide: Divide | None = None) -> None:
        self.loss, self.optimizer, self.stage, self.divide = loss, optimizer, stage, divide
        self.parts = 1

    def __call__(self, batch: Any) -> Tensor:
        """The loss."""
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            pieces = [(batch, 1.0)] if self.parts == 1 or self.divide is None else self.divide(batch, self.parts)
            try:
                return sum((self._of(piece, share) for piece, share in pieces[1:]), self._of(*pieces[0]))
            except torch.OutOfMemoryError as error:
                recording = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
                if self.divide is None or recording or active() or len(pieces) < self.parts:
                    raise NotEnoughMemoryError(
                        f"{self.stage}: the GPU has no memory for a batch. Set a smaller batch_size. {error}"
                    ) from error
                self.parts *= 2
                torch.cuda.empty_cache()

    def _of(self, piece: Any, share: float) -> Tensor:
        value = self.loss(piece)
        share *= share_of_step()
        value = value if share == 1 else value * share
        value.backward()
        return value.detach()


class WatchedSteps:
    """Steps whose loss and gradient are read by the host, and that stop before an update that is not finite."""

    def __init__(
        self, backward: Loss, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, schedule: Schedule,
        *, gradient_norm: float, stage: str, gradients: Callable[[Any], float] | None = None,
    ) -> None:  # fmt: skip
        self.parameters, self.optimizer, self.schedule = parameters, optimizer, schedule
        self.gradient_norm, self.stage = gradient_norm, stage
        self.gradients = gradients or (lambda batch: backward(batch).item())
        self.total, self.count = 0.0, 0
        self.wishes: Callable[[], list[bool]] | None = None
        self.granted: list[bool] = []

    def __call__(self, batch: Any) -> None:
        """One update."""
        current = self.gradients(batch)
        if self.wishes is not None:
            current, self.granted = end_step(self.parameters, current, *self.wishes())
        if not math.isfinite(current):
            raise DivergenceError(self.stage, self.schedule.step, "loss")
        if not math.isfinite(self._clipped()):
            raise DivergenceError(self.stage, self.schedule.step, "gradient")
        self.optimizer.step()
        self.schedule.advance()
        self.total, self.count = self.total + current, self.count + 1

    def agree_to(self, stop: Callable[[], bool], kept: Kept | None) -> Callable[[], bool]:
        """Where processes share the steps, let them stop, and keep states, after the same step."""
        self.wishes = lambda: [stop(), *(() if kept is None else kept.wishes())]
        self.granted = any_of(*self.wishes())
        return lambda: self.granted[0]

    def state(self) -> Any:
        """Sum of losses since the epoch began, and their number."""
        return [self.total, self.count]

    def restore(self, state: Any) -> None:
        """Go on from there."""
        self.total, self.count = state

    def _clipped(self) -> float:
        """Scale gradients down to the norm that is allowed, as ``clip_grad_norm_`` does in more time; the norm."""
        gradients = [one.grad for one in self.parameters if one.grad is not None]
        norms = torch.stack(torch._foreach_norm(gradients))
        norm = torch.linalg.vector_norm(norms)
        if self.wishes is not None:
            held = [part_of_table(one) is not None for one in self.parameters if one.grad is not None]
            if any(held):
                of_tables = torch.tensor(held, device=norms.device)
                norm = (norms[~of_tables].square().sum() + summed(norms[of_tables].square().sum())).sqrt()
        factor = self.gradient_norm / (norm + 1e-6)
        if factor < 1:
            torch._foreach_mul_(gradients, factor)
        return norm.item()

    def end_epoch(self) -> float:
        """Mean loss of the steps since the last call."""
        mean = self.total / max(self.count, 1)
        self.total, self.count = 0.0, 0
        return mean


def watched_steps(
    module: nn.Module,
    loss: Callable[[Any], Tensor],
    config: TrainingConfig,
    n_steps: int,
    *,
    stage: str,
    gradients: Callable[[Any], float] | None = None,
) -> WatchedSteps:
    """Steps for batches that come from elsewhere; the arguments are those of ``train``.

    Parameters
    ----------
    n_steps : how many there will be; the first twentieth warms the learning rate up.
    """
    parameters = [one for one in module.parameters() if one.requires_grad]
    optimizer = _make_optimizer(parameters, config, recorded=False)
    schedule = Schedule(optimizer, config.learning_rate, n_steps // 20, n_steps)
    steps = WatchedSteps(
        Backward(loss, optimizer, stage), parameters, optimizer, schedule, gradient_norm=config.gradient_norm,
        stage=stage, gradients=gradients,
    )  # fmt: skip
    if active():
        steps.agree_to(lambda: False, None)
    return steps


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
        self, backward: Loss, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, schedule: Schedule,
        *, gradient_norm: float, stage: str, graphs: bool = False,
    ) -> None:  # fmt: skip
        self.backward, self.parameters, self.optimizer, self.schedule = backward, parameters, optimizer, schedule
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

    def state(self) -> Any:
        """What the device has noted since the epoch began, and the number of steps."""
        return [self.total, self.count, self.step, self.bad_step, self.bad_loss, self.masked]

    def restore(self, state: Any) -> None:
        """Go on from there."""
        self.count = state[1]
        mine = (self.total, self.step, self.bad_step, self.bad_loss, self.masked)
        for one, value in zip(mine, [state[0], *state[2:]], strict=True):
            one.copy_(value)

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
        current = self.backward(batch)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.gradient_norm)
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


# --- Ctrl-C, SIGTERM or a deadline: a wish to stop and keep what was finished -------------------------------------


@dataclass
class Stop:
    """Whether work was asked to stop: by which signal, 0 for none, and whether it is to stop at once."""

    signal: int = 0
    at_once: bool = False


_stop: ContextVar[Stop | None] = ContextVar("stop", default=None)
_deadline = ContextVar("deadline", default=math.inf)


def stop_requested() -> bool:
    """Whether training and choices should end with what was finished so far; all processes have the same answer."""
    return any_of(_stop_wanted())[0]


def deadline_passed() -> bool:
    """Whether the time that ``stopped_at`` gave is over; all processes have the same answer."""
    return any_of(_deadline_over())[0]


def _stop_wanted() -> bool:
    stop = _stop.get()
    return (stop is not None and stop.signal != 0) or _deadline_over()


def _deadline_over() -> bool:
    return time.monotonic() > _deadline.get()


@contextmanager
def stopped_at(deadline: float) -> Iterator[None]:
    """Within this block training is asked to stop once ``time.monotonic()`` passes the deadline."""
    token = _deadline.set(min(deadline, _deadline.get()))
    try:
        yield
    finally:
        _deadline.reset(token)


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Stop]:
    """Within this block the first Ctrl-C, or SIGTERM, asks training to stop; a second one interrupts at once.

    What is being trained ends with its best finished state, or with a ``StoppedError`` if it has none. Of what must
    follow, the simplest is done where that takes no training by epochs. Fits outside of the block, as in other
    threads, are not asked.
    """
    stop = Stop()

    def handle(signum: int, frame: FrameType | None) -> None:
        again, stop.signal = stop.signal != 0, signum
        if not again:
            with suppress(RuntimeError):  # the signal came while something was being written to the same stream
                say("Stopping with what is finished. Press Ctrl-C again to give up.")
        if again or stop.at_once:
            raise TerminatedError if signum == signal.SIGTERM else KeyboardInterrupt

    before = {name: signal.signal(name, handle) for name in (signal.SIGINT, signal.SIGTERM)}
    token = _stop.set(stop)
    try:
        yield stop
    finally:
        _stop.reset(token)
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Within this block the first Ctrl-C interrupts too: nothing that it is worth waiting for would be kept."""
    stop = _stop.get() or Stop()
    stop.at_once = True
    try:
        yield
    finally:
        stop.at_once = False
