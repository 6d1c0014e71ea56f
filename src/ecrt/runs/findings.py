"""Answers to questions about sources, as codes with the numbers behind them; ``ecrt.report`` puts them into words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.stats import binom
from scipy.stats import t as student_t

from ecrt.arrays import Array, Mask

BY_CHANCE = 0.05
"""How often independent sources are called dependent."""

STRONG, COPIES = 0.3, 0.95
"""Correlations from which sources depend on each other by more than a blemish, and are copies of each other."""

BLIND = 0.6
"""Where chance alone reaches such a correlation, few samples say nothing about independence."""

Answer = Literal["yes", "partly", "no", "cannot tell"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes
    ----------
    answer : in one word.
    numbers : that it rests on, by name.
    harmless : whether the answer, even a no, is no cause for worry.
    because : which case it is, where an answer has several; empty for the usual one.
    """

    answer: Answer
    numbers: dict[str, Any] = field(default_factory=dict)
    harmless: bool = False
    because: str = ""


def theory_finding(n_sources: int, n_classes: int, enough_classes: bool, smallest_singular_value: float) -> Finding:
    """Whether the conditions of the identification theorem hold: 2 q + 1 classes for q sources, that differ enough."""
    numbers = {
        "n_sources": n_sources, "needed": 2 * n_sources + 1, "n_classes": n_classes,
        "most_sources": (n_classes - 1) // 2, "smallest_singular_value": smallest_singular_value,
    }  # fmt: skip
    if not enough_classes:
        return Finding("no", numbers, harmless=True, because="few classes")
    if smallest_singular_value > 0:
        return Finding("yes", numbers)
    return Finding("no", numbers, harmless=True, because="shared prior")


def chance_correlation(n_samples: int, n_sources: int) -> float:
    """What the largest correlation among independent Gaussian sources stays below in 95 of 100 samples.

    >>> round(chance_correlation(100, 2), 3)
    0.197
    """
    pairs = n_sources * (n_sources - 1) / 2
    if n_samples < 3 or pairs < 1:
        return 1.0
    level = 1 - (1 - BY_CHANCE) ** (1 / pairs)
    t = float(student_t.ppf(1 - level / 2, n_samples - 2))
    return t / float(np.sqrt(n_samples - 2 + t**2))


def source_findings(classes: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Finding]:
    """Findings on the sources of a model, the most telling first, from the arrays and facts of its evaluation."""
    seen, n_sources = classes["demixed_on"], model["n_sources"]
    found = {"independence-unseen": _independence(classes, ~seen, n_sources)} if (~seen).any() else {}
    found["independence-seen"] = _independence(classes, seen, n_sources)
    if (~seen).any():
        found["likelihood"] = _likelihood(classes["log_likelihood"], seen, n_sources)
    error = model["round_trip_error"]
    back: Answer = "yes" if error <= 1e-3 else "partly" if error <= 0.05 else "no"
    n_classes = int(seen.sum())
    return found | {
        "round-trip": Finding(back, {"error": error}),
        "theory": theory_finding(n_sources, n_classes, model["enough_classes"], model["smallest_singular_value"]),
    }


def _independence(classes: Mapping[str, Any], mask: Mask, n_sources: int) -> Finding:
    rows = np.flatnonzero(mask & np.isfinite(classes["max_correlation"]))
    numbers: dict[str, Any] = {"n_sources": n_sources, "n_classes": int(mask.sum()), "measured": len(rows)}
    if n_sources < 2:
        return Finding("yes", numbers, because="one source")
    if len(rows) == 0:
        return Finding("cannot tell", numbers, because="no samples")
    value = classes["max_correlation"][rows]
    chance = np.array([chance_correlation(int(n), n_sources) for n in classes["n_examples"][rows]])
    beyond, strong = int((value > chance).sum()), int(((value > chance) & (value >= STRONG)).sum())
    numbers |= {
        "correlation": float(np.median(value)), "chance": float(np.median(chance)), "beyond": beyond,
        "copies": bool(np.median(value) > COPIES), "samples": float(np.median(classes["n_examples"][rows])),
    }  # fmt: skip
    if binom.sf(beyond - 1, len(rows), BY_CHANCE) >= BY_CHANCE:
        if np.median(chance) > BLIND:
            return Finding("cannot tell", numbers, because="few samples")
        return Finding("yes", numbers)
    return Finding("partly" if strong <= 0.25 * len(rows) else "no", numbers)


def _likelihood(value: Array, seen: Mask, n_sources: int) -> Finding:
    known = np.isfinite(value)
    if not (seen & known).any() or not (~seen & known).any():
        return Finding("cannot tell")
    here, there = float(np.median(value[seen & known])), float(np.median(value[~seen & known]))
    gap = (here - there) / n_sources
    return Finding(
        "yes" if gap < 0.5 else "partly" if gap < 2 else "no", {"seen": here, "unseen": there, "lower_by": gap}
    )
