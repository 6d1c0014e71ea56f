"""Random numbers of a block of code: its own generators, on its own thread, never those of the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from ecrt.distributed import number_in_step

aten = torch.ops.aten

APART = 0x9E3779B97F4A7C15
"""Between the seeds of processes: the bits of neighbours have little in common."""


class _Generators:
    """A generator for every device, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.made: dict[torch.device, torch.Generator] = {}

    def on(self, device: torch.device) -> torch.Generator:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self.made:
            self.made[device] = torch.Generator(device).manual_seed(self.seed)
        return self.made[device]


# Of this thread (and of the tasks it starts): other threads have their own, or none.
_generators: ContextVar[_Generators | None] = ContextVar("generators", default=None)
_redirection: ContextVar[_Redirection | None] = ContextVar("redirection", default=None)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within this block, on this thread, torch draws from generators of this seed.

    Building modules, dropout, a module of the user's: whatever torch is asked for without a generator. The state of
    the process is neither read nor changed, so blocks that run at the same time, and the caller, do not notice.
    """
    with _set(_generators, _Generators(seed)):
        if _redirection.get() is not None:
            yield
            return
        with _Redirection() as mode, _set(_redirection, mode):  # type: ignore[no-untyped-call]
            yield


def generator_on(device: torch.device) -> torch.Generator | None:
    """The generator to draw from on this device; ``None``, outside of every block, for that of the process."""
    generators = _generators.get()
    return None if generators is None else generators.on(device)


def own_generator_on(device: torch.device) -> torch.Generator | None:
    """The same; for the rows of a step that processes share out, one that each process has for itself."""
    generator = generator_on(device)
    return None if generator is None else _own(generator)


def _own(generator: torch.Generator) -> torch.Generator:
    """Of a generator that is the same on all processes, one of this process: no process draws for the rows of others.

    All are moved on by as much, so that the state of the first is that of each.
    """
    number = number_in_step()
    if number is None:
        return generator
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.Generator(generator.device).manual_seed((seed + number * APART) % 2**63)


def drawn_so_far() -> dict[str, Tensor]:
    """States of the generators of this block, by device."""
    generators = _generators.get()
    return {} if generators is None else {str(device): one.get_state() for device, one in generators.made.items()}


def draw_on_from(states: dict[str, Tensor]) -> None:
    """Put the generators of this block into such states."""
    generators = _generators.get()
    if generators is not None:
        for device, state in states.items():
            generators.on(torch.device(device)).set_state(state)


@contextmanager
def own_draws_only(*modules: nn.Module) -> Iterator[None]:
    """Work at full speed where nothing is drawn, or every draw names its generator.

    In a ``seeded`` block each operation of torch passes by Python, in case it draws, and small ones take several times
    as long. Code of this package names its generators in what is called often; a module with other layers may not.
    """
    mode = _redirection.get()
    layers = (layer for module in modules for layer in module.modules())
    if mode is None or _get_current_dispatch_mode() is not mode or not all(map(_names_generator, layers)):
        yield
        return
    mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    try:
        with _set(_redirection, None):
            yield
    finally:
        mode.__enter__()  # type: ignore[no-untyped-call]


class Dropout(nn.Dropout):
    """Dropout that draws from the generator of a ``seeded`` block, and to the same values as torch's on the CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """Set some values to zero, in training, and scale the others up."""
        return input if not self.training or self.p == 0 else input * self.factors(input)

    def factors(self, input: Tensor) -> Tensor:
        """Zeros, and what the values that are kept are multiplied by."""
        kept = torch.empty_like(input).bernoulli_(1 - self.p, generator=own_generator_on(input.device))
        return kept.div_(1 - self.p)


DRAW_NOTHING = {
    nn.AdaptiveAvgPool2d, nn.BatchNorm1d, nn.BatchNorm2d, nn.Conv2d, nn.Embedding, nn.Flatten, nn.Identity, nn.Linear,
    nn.ModuleList, nn.ReLU, nn.Sequential, nn.SiLU,
}  # fmt: skip


def _names_generator(layer: nn.Module) -> bool:
    return type(layer) in DRAW_NOTHING or type(layer).__module__.partition(".")[0] in ("ecrt", "zuko")


class _Redirection(TorchDispatchMode):
    """Hands the generator of the block to every operation that draws and was given none."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        generators = _generators.get()
        if torch.Tag.nondeterministic_seeded not in func.tags or generators is None:
            return func(*args, **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        if (dict(zip(names, args, strict=False)) | kwargs).get("generator") is not None:
            return func(*args, **kwargs)
        device = next((value.device for value in args if isinstance(value, Tensor)), None)
        device = torch.device(kwargs.get("device") or device or "cpu")
        if device.type == "meta":  # has no values
            return func(*args, **kwargs)
        generator = _own(generators.on(device))
        if "generator" in names:
            return func(*args, **kwargs | {"generator": generator})
        if func in _TWINS:
            return _TWINS[func](*args, **kwargs, generator=generator)
        return _lend(generator, lambda: func(*args, **kwargs))


def _dropout(input: Tensor, p: float, train: bool | None, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    kept = torch.empty_like(input).bernoulli_(1 - p, generator=generator)
    return input * kept / (1 - p), kept.bool()


_TWINS: dict[Any, Callable[..., Any]] = {
    aten.rand.default: aten.rand.generator,
    aten.randn.default: aten.randn.generator,
    aten.randint.default: aten.randint.generator,
    aten.randint.low: aten.randint.low_generator,
    aten.randperm.default: aten.randperm.generator,
    aten.rand_like.default: lambda x, *, generator, **of: torch.empty_like(x, **of).uniform_(generator=generator),
    aten.randn_like.default: lambda x, *, generator, **of: torch.empty_like(x, **of).normal_(generator=generator),
    aten.native_dropout.default: _dropout,
}
"""Operations that take no generator, and what does the same with one."""

_lending = threading.Lock()


def _lend(generator: torch.Generator, call: Callable[[], Any]) -> Any:
    """Run what draws from the process and nothing else: it gets the generator's state, and the old one comes back.

    For rare operations of modules that are not ours, such as attention kernels with dropout of their own. Another
    thread that draws from the process in this very moment would be disturbed; nothing can be done about that here.
    """
    with _lending:
        if generator.device.type == "cuda":
            of_process = torch.cuda.default_generators[generator.device.index]
        else:
            of_process = torch.default_generator
        before = of_process.get_state()
        of_process.set_state(generator.get_state())
        try:
            result = call()
            generator.set_state(of_process.get_state())
            return result
        finally:
            of_process.set_state(before)


@contextmanager
def _set(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
