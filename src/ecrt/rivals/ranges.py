"""What may be tuned of an option: the values that it may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Choice", "Number", "Space"]


@dataclass(frozen=True)
class Number:
    """A number between two bounds, whole if they are; on a logarithmic scale if ``log``.

    ``first`` is tried first; ``None`` for the default of the option.
    """

    low: float
    high: float
    first: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a few plain values; ``first`` is tried first, and ``None`` is the default of the option."""

    values: tuple[Any, ...]
    first: Any = None


Space = Mapping[str, Number | Choice]
