"""The answer in words: which method serves this table, and what nobody can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ecrt.comparison.scoring import MEASURES
from ecrt.comparison.statistics import Estimate, Pair

if TYPE_CHECKING:
    from ecrt.comparison.results import Comparison
    from ecrt.metrics import PriorName

__all__ = ["size_of", "verdict"]


def verdict(found: Comparison, prior: PriorName) -> list[str]:
    """First the methods against the reference, then the leader against all, then what failed."""
    sentences = []
    if found.settings["seeds"] < 2:
        sentences.append("One split cannot tell a difference from noise: use more seeds.")
    else:
        sentences += _against_reference(found, found.against_reference(prior))
    sentences += _leader(found, prior)
    for name, result in found.methods.items():
        if result.error:
            sentences.append(f"{found.label(name)} failed and is left out: {result.error}")
    return sentences


def _against_reference(found: Comparison, pairs: list[Pair]) -> list[str]:
    if not pairs:
        return []
    reference = found.label(found.reference)
    ahead = sorted((pair for pair in pairs if pair.beyond_noise and pair.gain.mean > 0), key=lambda p: -p.gain.mean)
    behind = sorted((pair for pair in pairs if pair.beyond_noise and pair.gain.mean < 0), key=lambda p: p.gain.mean)
    if ahead:
        told = "; ".join(f"{found.label(pair.first)} is ahead of {reference} by {size_of(pair.gain)}" for pair in ahead)
        sentences = [f"{told}: more than noise."]
    else:
        nearest = max(pairs, key=lambda pair: pair.gain.mean)
        where = "ahead by" if nearest.gain.mean > 0 else "behind by" if nearest.gain.mean < 0 else "level with it,"
        sentences = [
            f"No method beats {reference} by more than noise. The best of the others, {found.label(nearest.first)}, is "
            f"{where} {size_of(nearest.gain)}."
        ]
    if behind:
        told = "; ".join(f"{found.label(pair.first)} by {size_of(pair.gain)}" for pair in behind)
        sentences.append(f"Behind {reference} by more than noise: {told}.")
    return sentences


def _leader(found: Comparison, prior: PriorName) -> list[str]:
    ranking = found.ranking(prior)
    best = found.estimate(ranking[0], found.metric, prior) if len(ranking) > 1 else None
    if best is None:
        return []
    first, name = ranking[0], MEASURES[found.metric].label
    mine = [pair for pair in found.all_pairs(prior) if pair.first == first]
    beaten = [found.label(pair.second) for pair in mine if pair.beyond_noise]
    level = [found.label(pair.second) for pair in mine if not pair.beyond_noise]
    start = f"{name} under the {prior} prior: {found.label(first)} has the best mean, {best.text()}"
    if best.half_width is None:
        return [f"{start}."]
    if not beaten:
        return [f"{start}, but with all pairs tested together it cannot be told from {_listed(level)}."]
    rest = f"; it cannot be told from {_listed(level)}" if level else ""
    return [f"{start}; with all pairs tested together it is ahead of {_listed(beaten)} by more than noise{rest}."]


def size_of(gain: Estimate) -> str:
    """Size of a difference with its interval, without its sign.

    >>> size_of(Estimate(mean=-0.02, half_width=0.01, p_value=0.01))
    '0.020 [0.010, 0.030]'
    """
    size = f"{abs(gain.mean):.3f}"
    if gain.half_width is None:
        return size
    return f"{size} [{abs(gain.mean) - gain.half_width:.3f}, {abs(gain.mean) + gain.half_width:.3f}]"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
