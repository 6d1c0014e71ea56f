"""One fit by several processes, on one machine or many, as torchrun starts them.

Every process has all rows and the same random numbers, so each comes to the same result by the same way. Of a batch
each computes its own part; gradients are then added up. The result is that of one process but for rounding, and for
dropout and other things that are drawn for single rows: these each process draws for its own rows. Without torchrun
nothing here does anything, but for ``in_two``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing import parent_process
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import ECRTError, InputError, LostProcessError, hide_warnings

T = TypeVar("T")

LONGEST_WAIT = timedelta(minutes=30)
"""For the other processes. One may have more to read than another, but none is silent for so long."""

MOST_CLASSES = 100_000
"""With more classes each process holds the rows of some of them, of tables that have a row for each."""

ROWS_WORTH_SHARING = 2
"""Each process has at least so many rows of a batch; of a smaller batch each computes all."""


def launched() -> bool:
    """Whether torchrun has started this very process together with others; not one that such a process has started."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ["WORLD_SIZE"]) > 1 and parent_process() is None


def rank() -> int:
    """The number of this process, 0 for the one that writes files and prints, and for one that is alone."""
    return int(os.environ["RANK"]) if launched() else 0


def own_device(device: torch.device) -> torch.device:
    """Of the GPUs of a machine, the one of this process, where none is named."""
    if device.type == "cuda" and device.index is None and launched():
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device


@dataclass(frozen=True)
class Span:
    """The rows of a batch, or of all, that a process computes."""

    start: int
    stop: int
    total: int

    @classmethod
    def of_process(cls, number: int, processes: int, total: int) -> Span:
        """Parts follow one another and differ by one row at most."""
        each, more = divmod(total, processes)
        start = number * each + min(number, more)
        return cls(start, start + each + (number < more), total)

    @property
    def share(self) -> float:
        """Of all rows."""
        return (self.stop - self.start) / self.total


@dataclass
class _Group:
    """All processes of a fit, and the part of this one in the step that is under way."""

    fabric: Any
    rank: int
    size: int
    part: Span | None = None


_started: list[_Group] = []
"""Connections are made once for each process."""

_group: ContextVar[_Group | None] = ContextVar("group", default=None)
"""Of this thread: fits in other threads are not shared, for nothing says that they come in the same order."""


@contextmanager
def joined() -> Iterator[None]:
    """Within this block, on the main thread of a process that torchrun has started, work is shared with the others.

    All of them must come to it. Only the first process warns.
    """
    if not launched() or _group.get() is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _started:
        _started.append(_start())
    token = _group.set(_started[0])
    try:
        with hide_warnings() if rank() else nullcontext():
            yield
    finally:
        _group.reset(token)


def active() -> bool:
    """Whether work is being shared."""
    return _group.get() is not None


def processes() -> int:
    """How many share the work; 1 where it is not shared."""
    group = _group.get()
    return 1 if group is None else group.size


def _start() -> _Group:
    """Connect all processes by Lightning Fabric."""
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)):  # gloo would look for those that have ended
        raise InputError(
            "Processes that torchrun has restarted cannot connect again: leave out --max-restarts, and start the same "
            "command again; a fit with a checkpoint goes on from there."
        )
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.ddp import DDPStrategy
    except ModuleNotFoundError:
        raise InputError("A fit under torchrun needs lightning-fabric: pip install 'ecrt[distributed]'.") from None
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    gpu = torch.cuda.is_available()
    fabric = Fabric(
        accelerator="cuda" if gpu else "cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=LONGEST_WAIT),
    )
    with _connected():
        fabric.launch()
    return _Group(fabric, fabric.global_rank, fabric.world_size)


@contextmanager
def _connected() -> Iterator[None]:
    """Say what it means when the others do not answer."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(str(error)) from error


# --- what processes tell each other -----------------------------------------------------------------------------------


def _add_up(values: Tensor, how: Literal["SUM", "MIN", "MAX"] = "SUM") -> Tensor:
    """Sum over processes, in place, or least or greatest value; its bits are the same on all of them."""
    with _connected():
        torch.distributed.all_reduce(values, getattr(torch.distributed.ReduceOp, how))
    return values


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return _add_up(values.detach().clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return _add_up(slopes[0].clone(memory_format=torch.contiguous_format))


def summed(values: Tensor) -> Tensor:
    """Sum over processes; gradients pass to all of them. Of what is not shared, the values themselves."""
    return values if _group.get() is None else _Total.apply(values)  # type: ignore[no-untyped-call]


def all_summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over processes of an array."""
    return values if _group.get() is None else _add_up(torch.from_numpy(values.copy())).numpy()


def all_least(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least of the values of all processes, each at its place in an array."""
    return values if _group.get() is None else _add_up(torch.from_numpy(values.copy()), "MIN").numpy()


def any_of(*wishes: bool) -> list[bool]:
    """Whether any process has each of these wishes."""
    if _group.get() is None or not wishes:
        return list(wishes)
    return [wish > 0 for wish in _add_up(torch.tensor(wishes, dtype=torch.int32)).tolist()]


def as_first(value: float) -> float:
    """The number that the first process has, for all."""
    group = _group.get()
    if group is None:
        return value
    return _add_up(torch.tensor(value if group.rank == 0 else 0.0, dtype=torch.float64)).item()


def from_first(make: Callable[[], T]) -> T:
    """What the first process makes, given to all; an error of it is raised by all."""
    group = _group.get()
    if group is None:
        return make()
    made: tuple[Any, ECRTError | None] = None, None
    if group.rank == 0:
        try:
            made = make(), None
        except ECRTError as error:
            made = None, error
    with _connected():
        value, wrong = group.fabric.broadcast(made)
    if wrong is not None:
        raise wrong
    return value


def refuse_differences(facts: dict[str, str]) -> None:
    """Raise an error, on every process, that names what is not the same on all."""
    group = _group.get()
    if group is None:
        return
    with _connected():
        everybody: list[Any] = [None] * group.size
        torch.distributed.all_gather_object(everybody, facts)
    first = everybody[0]
    for number, theirs in enumerate(everybody):
        for name in first | theirs:
            if first.get(name) != theirs.get(name):
                raise InputError(
                    f"Process {number} fits with another {name} than process 0: {theirs.get(name, 'none')}, not "
                    f"{first.get(name, 'none')}. Give every process the same data and options; the rows of a batch are "
                    "shared out by the fit."
                )


# --- rows that are shared out -----------------------------------------------------------------------------------------


def share_out(n_rows: int, *, always: bool = False) -> Span | None:
    """The part of this process in a batch of so many rows; ``None`` where it computes all of them.

    Until the step ends, what is drawn for rows is drawn by each process, and its gradients will be added up.
    Where tables of classes are shared out a batch is so ``always``; the part of a process may then be empty.
    """
    group = _group.get()
    if group is None or (n_rows < ROWS_WORTH_SHARING * group.size and not always):
        return None
    group.part = Span.of_process(group.rank, group.size, n_rows)
    return group.part


def mine(rows: Any, *, always: bool = False) -> Any:
    """The part of this process of a batch, see ``share_out``."""
    part = share_out(len(rows), always=always)
    return rows if part is None else rows[part.start : part.stop]


def part_of(n_rows: int) -> Span | None:
    """The part of this process in the step under way, if these are its rows; ``None`` if they are a whole batch."""
    group = _group.get()
    part = None if group is None else group.part
    return part if part is not None and part.stop - part.start == n_rows else None


def in_two(rows: Tensor) -> tuple[Tensor, ...]:
    """A batch in the parts that two processes have; the part of a process whole.

    Where sums over rows are made so, two processes come to the bits of one. Rounding alone would tell them apart: now
    and then it puts a unit of a ReLU network on the other side of zero, which moves all weights of the unit.
    """
    whole = part_of(len(rows)) is not None or rows.is_cuda or len(rows) < 2 * ROWS_WORTH_SHARING
    return (rows,) if whole else rows.tensor_split(2)


def leave_step() -> None:
    """Forget a step that was begun and not ended."""
    group = _group.get()
    if group is not None:
        group.part = None


def number_in_step() -> int | None:
    """The number of this process, in a step whose rows are shared out."""
    group = _group.get()
    return None if group is None or group.part is None else group.rank


def share_of_step() -> float:
    """Of the rows of the step under way, the share of this process; 1 where each computes all of them."""
    group = _group.get()
    return 1.0 if group is None or group.part is None else group.part.share


def gathered(values: Tensor) -> tuple[Tensor, int]:
    """Of values for the rows of this process those for the whole batch, and the place of its first row among them.

    Gradients go back to the rows that they are of.
    """
    part = part_of(len(values))
    return (values, 0) if part is None else (_placed(values, part), part.start)


def _placed(values: Tensor, part: Span) -> Tensor:
    """The rows of all processes. To add up zeros and one number each is exact, whatever the sizes of the parts."""
    before, after = (values.new_zeros(n, *values.shape[1:]) for n in (part.start, part.total - part.stop))
    return summed(torch.cat([before, values, after]))


def rolled(values: Tensor) -> Tensor:
    """Each row of the whole batch at the place of the one after it: of a part, its rows."""
    part = part_of(len(values))
    if part is None:
        return values.roll(1, 0)
    return torch.cat([_of_each(values[-1])[rank() - 1][None], values[:-1]])


def _of_each(values: Tensor) -> Tensor:
    """What each process has, in their order."""
    return _placed(values[None], Span(rank(), rank() + 1, processes()))


def own_rows(n_rows: int) -> slice:
    """Of all rows those of this process, which may be none."""
    group = _group.get()
    part = Span(0, n_rows, n_rows) if group is None else Span.of_process(group.rank, group.size, n_rows)
    return slice(part.start, part.stop)


def rows_to_compute(n_rows: int) -> slice:
    """The same where few rows are not shared out: each process then computes all of them."""
    return slice(0, n_rows) if n_rows < ROWS_WORTH_SHARING * processes() else own_rows(n_rows)


def by_rows(n_rows: int, compute: Callable[[slice], Tensor]) -> Tensor:
    """What is computed for each of all rows, without a gradient: each process does some of them."""
    own = rows_to_compute(n_rows)
    found = compute(own)
    return found if own == slice(0, n_rows) else _placed(found, Span(own.start, own.stop, n_rows))


def end_step(parameters: Sequence[nn.Parameter], loss: float, *wishes: bool) -> tuple[float, list[bool]]:
    """Add up loss and gradients, if the rows of the step were shared out; and whether any process has each wish."""
    group = _group.get()
    if group is None or group.part is None:
        return loss, any_of(*wishes)
    group.part = None
    more = torch.tensor([loss, *map(float, wishes)], dtype=torch.float64, device=parameters[0].device)
    gradients = [one.grad for one in parameters if one.grad is not None and part_of_table(one) is None]
    for kind in dict.fromkeys(one.dtype for one in gradients) or [torch.float32]:
        alike = [one for one in gradients if one.dtype == kind]
        flat = _add_up(torch.cat([*(one.reshape(-1) for one in alike), more.to(kind)]))  # one message for all
        *summed_up, found = flat.split([*(one.numel() for one in alike), len(more)])
        if alike:
            torch._foreach_copy_(alike, [new.view_as(one) for one, new in zip(alike, summed_up, strict=True)])
    loss, *granted = found.tolist()
    return loss, [wish > 0 for wish in granted]


# --- layers that look at a whole batch --------------------------------------------------------------------------------


@contextmanager
def whole_batches(module: nn.Module, *, by_parts: bool = False) -> Iterator[None]:
    """Within this block batch normalisation takes the moments of the whole batch, not of the part of a process.

    ``by_parts``: one process puts the moments of inputs together as two do.
    """
    changed = active() or by_parts
    layers = [one for one in module.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)] if changed else []
    for layer in layers:
        layer.forward = partial(_normalised, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _normalised(layer: nn.modules.batchnorm._BatchNorm, x: Tensor) -> Tensor:
    part = part_of(len(x))
    is_input = not (x.requires_grad or x.is_cuda)  # whose moments have no gradient
    if not layer.training or (part is None and not (is_input and len(x) > 1)):
        return type(layer).forward(layer, x)
    rows = len(x) if part is None else part.total
    kind = torch.promote_types(x.dtype, torch.float32)
    if is_input:
        moments = [torch.stack(torch.batch_norm_update_stats(some, None, None, 0.0)) for some in in_two(x)]
    else:
        moments = [_moments(x.to(kind))]
    each_k2c = torch.stack(moments) if part is None else _of_each(moments[0])
    means_kc, variances_kc = (each_k2c.double() if is_input else each_k2c).unbind(1)
    shares = [Span.of_process(number, len(means_kc), rows).share for number in range(len(means_kc))]
    share_k1 = means_kc.new_tensor(shares)[:, None]
    mean_c = (share_k1 * means_kc).sum(0)
    # Not the mean square less the squared mean: far from zero that has no digits left, and may be negative
    variance_c = (share_k1 * (variances_kc + (means_kc - mean_c) ** 2)).sum(0)
    _keep_moments(layer, mean_c, variance_c, rows * x[0, 0].numel())
    if is_input:
        mean_c, variance_c = mean_c.to(kind), variance_c.to(kind)
        return nn.functional.batch_norm(x, mean_c, variance_c, layer.weight, layer.bias, eps=layer.eps)
    shape = (1, -1, *(1 for _ in x.shape[2:]))
    standard = (x - mean_c.view(shape)) * torch.rsqrt(variance_c + layer.eps).view(shape)
    return (standard * layer.weight.view(shape) + layer.bias.view(shape) if layer.affine else standard).to(x.dtype)


def _moments(x: Tensor) -> Tensor:
    """Means and variances of channels, with a gradient."""
    axes = [0, *range(2, x.ndim)]
    mean = x.mean(axes, keepdim=True)
    return torch.stack([mean.flatten(), ((x - mean) ** 2).mean(axes)])


def _keep_moments(layer: nn.modules.batchnorm._BatchNorm, mean: Tensor, variance: Tensor, count: int) -> None:
    """Move the running moments of a layer towards those of a batch."""
    if layer.running_mean is not None and layer.running_var is not None and layer.num_batches_tracked is not None:
        with torch.no_grad():
            layer.num_batches_tracked += 1
            weight = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
            layer.running_mean.lerp_(mean.to(layer.running_mean), weight)
            layer.running_var.lerp_((variance * (count / (count - 1))).to(layer.running_var), weight)


# --- tables of very many classes --------------------------------------------------------------------------------------


def many_classes(n_classes: int) -> bool:
    """Whether tables with a row for each class are shared out."""
    return active() and n_classes > MOST_CLASSES


def keep_own_rows(module: nn.Module, *names: str) -> None:
    """Let each process hold and train the rows of some classes of these parameters, where there are very many."""
    for name in names:
        whole = module.get_parameter(name)
        own = own_rows(len(whole))
        rows = nn.Parameter(whole.detach()[own].clone())
        rows.part = Span(own.start, own.stop, len(whole))  # type: ignore[attr-defined]
        setattr(module, name, rows)


def put_together(module: nn.Module, *names: str) -> None:
    """The rows of all classes again, for every process."""
    for name in names:
        setattr(module, name, nn.Parameter(all_rows(module.get_parameter(name))))


def part_of_table(table: Tensor) -> Span | None:
    """Which rows of a table of classes this process holds; ``None`` for all."""
    part: Span | None = getattr(table, "part", None)
    return part


def all_rows(table: Tensor) -> Tensor:
    """The rows of all classes, without a gradient."""
    part = part_of_table(table)
    return table.detach() if part is None else _placed(table.detach(), part)


def rows_of(table: Tensor, labels_k: Tensor, part: Span | None = None) -> Tensor:
    """Rows of classes, the same on all processes; each gives those that it holds, which ``part`` may say."""
    part = part_of_table(table) if part is None else part
    if part is None:
        return table[labels_k]
    held_k = (labels_k >= part.start) & (labels_k < part.stop)
    rows_kd = table[(labels_k - part.start).clamp(0, len(table) - 1)]
    return summed(torch.where(held_k[:, None], rows_kd, 0.0))


def log_sum_exp(scores_bk: Tensor, y_b: Tensor, part: Span) -> tuple[Tensor, Tensor]:
    """Over all classes, and the score of the own one: from the scores of the classes that this process holds.

    Rows are those of the whole batch, the same on all processes. Of each row two numbers and its largest score are
    told to the others, so that this is exact.
    """
    largest_b = _add_up(scores_bk.detach().amax(1), "MAX")
    held_b = (y_b >= part.start) & (y_b < part.stop)
    mine_b = scores_bk.gather(1, (y_b - part.start).clamp(0, scores_bk.shape[1] - 1)[:, None])[:, 0]
    sums = torch.exp(scores_bk - largest_b[:, None]).sum(1), torch.where(held_b, mine_b, 0.0)
    sum_b, own_b = summed(torch.stack(sums)).unbind()
    return torch.log(sum_b) + largest_b, own_b


def _rows_in(values: Tensor, part: Span) -> Tensor:
    return values[part.start : part.stop]


class Tables:
    """The parameters of a module of which each process holds some rows; what is kept of them is whole."""

    def __init__(self, module: nn.Module) -> None:
        parts = ((name, part_of_table(one)) for name, one in module.named_parameters())
        self.parts = {name: part for name, part in parts if part is not None}

    def whole(self, state: dict[str, Any]) -> dict[str, Any]:
        """From what this process has."""
        return {name: self._each(name, value, _placed) for name, value in state.items()}

    def own(self, state: dict[str, Any]) -> dict[str, Any]:
        """What this process has of it."""
        return {name: self._each(name, value, _rows_in) for name, value in state.items()}

    def _each(self, name: str, value: Any, change: Callable[[Tensor, Span], Tensor]) -> Any:
        part = self.parts.get(name)
        if part is None:
            return value
        if isinstance(value, dict):  # of an optimizer
            return {key: self._each(name, one, change) for key, one in value.items()}
        return change(value, part) if value.ndim else value
