"""Reading with suspicion: every field of a JSON object and every tensor is asked for by name, type and size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from ecrt.errors import ModelFileError

__all__ = ["BadContentError", "Fields", "TensorStore"]


class BadContentError(Exception):
    """What is wrong inside a model file, and what to do; whoever knows the file makes it a ``ModelFileError``."""

    def __init__(self, problem: str, advice: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.advice = problem, advice

    def of_file(self, path: object) -> ModelFileError:
        """The error to raise."""
        return ModelFileError(path, self.problem, *([] if self.advice is None else [self.advice]))


class Fields:
    """The fields of one JSON object. At the end of a ``with`` block any that were not asked for are refused.

    Parameters
    ----------
    value : what JSON gave.
    where : name of the object, for messages.
    """

    def __init__(self, value: Any, where: str) -> None:
        if type(value) is not dict:
            raise BadContentError(f"{where} is {_kind(value)}, not an object.")
        self._left: dict[str, Any] = dict(value)
        self.where = where

    def __enter__(self) -> Fields:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None and self._left:
            raise BadContentError(f"{self.where} has fields that are not known here: {_some(self._left)}.")

    def raw(self, name: str) -> Any:
        """A value that the caller checks."""
        if name not in self._left:
            raise BadContentError(f"{self.where} has no field {name!r}.")
        return self._left.pop(name)

    def rest(self) -> dict[str, Any]:
        """All that is left, for the caller to check."""
        left, self._left = self._left, {}
        return left

    def text(self, name: str, choices: Iterable[str] | None = None) -> str:
        """A string, perhaps one of some."""
        value = self.raw(name)
        if type(value) is not str or (choices is not None and value not in choices):
            wanted = "a string" if choices is None else f"one of {sorted(choices)}"
            raise BadContentError(f"{self.where}.{name} is {_kind(value)}, not {wanted}.")
        return value

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number between two bounds."""
        value = self.raw(name)
        if type(value) is not int or not least <= value <= most:
            raise BadContentError(f"{self.where}.{name} is {_kind(value)}, not a whole number from {least} to {most}.")
        return value

    def wholes(self, name: str, least: int, most: int, longest: int) -> tuple[int, ...]:
        """A list of whole numbers."""
        values = self.items(name, longest)
        if not all(type(value) is int and least <= value <= most for value in values):
            raise BadContentError(f"{self.where}.{name} does not hold whole numbers from {least} to {most} alone.")
        return tuple(values)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.raw(name)
        if type(value) is not bool:
            raise BadContentError(f"{self.where}.{name} is {_kind(value)}, not true or false.")
        return value

    def items(self, name: str, longest: int) -> list[Any]:
        """A list of things that the caller checks."""
        value = self.raw(name)
        if type(value) is not list or len(value) > longest:
            raise BadContentError(f"{self.where}.{name} is {_kind(value)}, not a list of up to {longest}.")
        return value

    def part(self, name: str) -> Fields:
        """An object inside this one."""
        return Fields(self.raw(name), f"{self.where}.{name}")

    def is_null(self, name: str) -> bool:
        """Whether the field is null, in which case it is done with."""
        if name in self._left and self._left[name] is None:
            del self._left[name]
            return True
        return False


class TensorStore:
    """The tensors of a file, each to be taken once.

    Parameters
    ----------
    tensors : by name; those on disk are read when they are taken, after their shapes were compared.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._left = dict(tensors)

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, *, finite: bool = True) -> Tensor:
        """The tensor of that name, which must have this shape and dtype."""
        self.check(name, shape, (dtype,))
        stored = self._left.pop(name)
        tensor: Tensor = stored if isinstance(stored, Tensor) else stored.read()
        if finite and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise BadContentError(f"Tensor {name!r} holds NaN or infinity.")
        return tensor

    def check(self, name: str, shape: tuple[int, ...], dtypes: Iterable[torch.dtype]) -> None:
        """Refuse a tensor that is missing, or is not what is expected, before anything of its size is built."""
        if name not in self._left:
            raise BadContentError(f"Tensor {name!r} is missing.")
        tensor = self._left[name]
        if tuple(tensor.shape) != shape or tensor.dtype not in dtypes:
            raise BadContentError(
                f"Tensor {name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}; needed is "
                f"{' or '.join(str(dtype) for dtype in dtypes)} of shape {shape}."
            )

    def fill(
        self, module: nn.Module, prefix: str, floats: tuple[torch.dtype, ...] = (torch.float64,), *, finite: bool = True
    ) -> None:
        """Give a module its tensors, in place of those it was built with (which may be on the meta device).

        Parameters
        ----------
        prefix : what names of the tensors have before the names in the module's ``state_dict``.
        floats : dtypes that floating-point tensors may have.
        """
        expected = module.state_dict()
        for name, tensor in expected.items():
            self.check(
                f"{prefix}.{name}", tuple(tensor.shape), floats if tensor.is_floating_point() else (tensor.dtype,)
            )
        state = {}
        for name, tensor in expected.items():
            full_name = f"{prefix}.{name}"
            state[name] = self.take(full_name, tuple(tensor.shape), self._left[full_name].dtype, finite=finite)
        module.load_state_dict(state, strict=True, assign=True)

    def names(self, prefix: str) -> set[str]:
        """Names that begin with a prefix, less the prefix."""
        return {name.removeprefix(f"{prefix}.") for name in self._left if name.startswith(f"{prefix}.")}

    def end(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            raise BadContentError(f"The file holds tensors that are not known here: {_some(self._left)}.")


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(repr(name[:60]) for name in listed[:5])
    return shown if len(listed) <= 5 else f"{shown} and {len(listed) - 5} more"


def _kind(value: Any) -> str:
    if isinstance(value, (str, int, float)) or value is None:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:60]}..."
    return f"a list of {len(value)}" if isinstance(value, list) else "an object"
