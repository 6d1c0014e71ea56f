"""What may be tuned: ranges in plain values, and the same for Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ecrt.errors import InputError

__all__ = ["Choice", "Number", "Space", "Whole", "optuna_library", "optuna_space"]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A real number between two bounds, on a logarithmic scale if ``log``."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A whole number between two bounds, on a logarithmic scale if ``log``."""

    low: int
    high: int
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[Any, ...]


Space = Mapping[str, Number | Whole | Choice]


def optuna_library() -> Any:
    """Optuna, silenced; it is an extra, so an error says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("Tuning needs Optuna: pip install 'ecrt[compare]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def optuna_space(space: Space) -> dict[str, Any]:
    """The ranges as Optuna's distributions."""
    kinds = optuna_library().distributions

    def translated(part: Number | Whole | Choice) -> Any:
        if isinstance(part, Choice):
            return kinds.CategoricalDistribution(part.values)
        kind = kinds.FloatDistribution if isinstance(part, Number) else kinds.IntDistribution
        return kind(part.low, part.high, log=part.log)

    return {name: translated(part) for name, part in space.items()}
