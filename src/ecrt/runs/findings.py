"""A question, its answer in one word, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Answer", "Finding"]

Answer = Literal["yes", "partly", "no", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """One question, its answer, and what follows."""

    question: str
    answer: Answer
    found: str
    meaning: str
    advice: str = ""
    harmless: bool = False
    """Whether the answer, even a no, is no cause for worry."""
