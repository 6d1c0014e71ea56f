"""How a claim is judged: every comparison by its interval over seeds, by one rule, and the claim by its comparisons."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from paper.page.frequency import sensitivity_entries, size_entries
from paper.page.results import PaperResults
from paper.statistics import (
    Estimate,
    difference,
    distances,
    estimate,
    excludes_zero,
    groups,
    signed,
    unpaired_difference,
    values,
)

__all__ = ["Best", "Claim", "Compared", "Comparison", "Judgement", "Less", "Verdict", "judge"]

Row = dict[str, Any]
BySeed = dict[Any, float]
Verdict = Literal["holds", "holds in part", "undecided", "does not hold", "not run"]


WORDS = {"top1": "top-1", "top5": "top-5", "nll": "NLL", "bce": "NLL", "variance_ratio": "variance"}
"""Figures of result files, for readers."""


# --- what is compared ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Less:
    """A side of a comparison that is a difference itself: ``first`` less ``second``, on the same seed."""

    first: Row
    second: Row


@dataclass(frozen=True)
class Best:
    """Of all runs with these options, those of the best value of ``by``, by its mean over seeds.

    ``without`` are values that do not take part; a text stands for all that begin with it.
    """

    where: Row
    by: str = "what"
    without: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sides and a figure: ours should have more than theirs.

    It holds if the interval of the difference lies above zero, does not hold if it lies below, and is undecided
    otherwise. Where a claim says that something is no better, the other side is ours.

    Attributes
    ----------
    label : what is compared, for readers.
    file, metric : result file, and the figure of its runs.
    ours, theirs : options of the runs of either side; theirs may be a number.
    lower : whether lower is better, so that theirs less ours counts.
    times, margin : what theirs is multiplied by, and what it may be better by.
    spread : what is compared is how far values lie from their median, not the values.
    other_file : where theirs are, if not in ``file``.
    """

    label: str
    file: str
    metric: str
    ours: Row | Less | Best
    theirs: Row | Less | Best | float
    lower: bool = False
    times: float = 1.0
    margin: float = 0.0
    spread: bool = False
    other_file: str = ""


@dataclass(frozen=True)
class Claim:
    """Something the paper says, in our words.

    Attributes
    ----------
    measured : what the comparisons measure, for readers.
    comparisons : one, or the parts of the claim.
    """

    section: str
    text: str
    measured: str
    comparisons: tuple[Comparison, ...]


# --- judging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compared:
    """A comparison with its figures, for readers: a mean for either side, and ours less theirs."""

    label: str
    ours: float
    theirs: str
    gain: Estimate

    @property
    def verdict(self) -> Verdict:
        """On which side of zero the interval lies; a single seed has none, and decides nothing."""
        if not excludes_zero(self.gain):
            return "undecided"
        return "holds" if self.gain.mean > 0 else "does not hold"

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """A row of the table of a claim."""
        label = re.sub(r"\w+", lambda word: WORDS.get(word[0], word[0]), self.label)
        return label, f"{self.ours:.3f}", self.theirs, signed(self.gain), self.verdict


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds here, the comparisons that say so, and the labels of those that have not been run."""

    verdict: Verdict
    compared: tuple[Compared, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How many comparisons came out how.

        >>> gains = [Estimate(mean=one, half_width=0.1, p_value=None) for one in (0.2, 0.2, -0.2, 0)]
        >>> for some in (gains, gains[:2], gains[2:], gains[:1]):
        ...     print(Judgement("holds", tuple(Compared("", 0.0, "", gain) for gain in some)).summary)
        2 of 4 hold, 1 undecided, 1 against
        all 2 hold
        none of 2 holds, 1 undecided, 1 against
        1 comparison
        """
        n = [sum(one.verdict == verdict for one in self.compared) for verdict in PARTS]
        most = len(self.compared)
        if most < 2:
            return "1 comparison" if most else "no results yet"
        first = {0: f"none of {most} holds", 1: f"1 of {most} holds", most: f"all {most} hold"}
        rest = (f"{count} {word}" for count, word in zip(n[1:], ("undecided", "against"), strict=True) if count)
        return ", ".join([first.get(n[0], f"{n[0]} of {most} hold"), *rest])


PARTS: tuple[Verdict, ...] = ("holds", "undecided", "does not hold")


def judge(claim: Claim, results: PaperResults) -> Judgement:
    """A claim with one comparison has its verdict, and so has one whose comparisons agree.

    Of others, it holds in part if some of them hold; if none does, it does not hold where any does not, and is
    undecided otherwise. Comparisons without results do not count, and are named.
    """
    made = [(one.label, _compare(one, results)) for one in claim.comparisons]
    found = tuple(one for _, one in made if one is not None)
    if not found:
        return Judgement("not run", missing=tuple(label for label, _ in made))
    verdicts = [one.verdict for one in found]
    verdict: Verdict = "does not hold" if "does not hold" in verdicts else "undecided"
    if "holds" in verdicts:
        verdict = "holds" if set(verdicts) == {"holds"} else "holds in part"
    return Judgement(verdict, found, tuple(label for label, one in made if one is None))


def _compare(comparison: Comparison, results: PaperResults) -> Compared | None:
    """Paired by seed where both sides have the same seeds, else as two samples; nothing without results."""
    entries = _entries(results, comparison.file)
    ours, mine = _side(entries, comparison, comparison.ours)
    if isinstance(comparison.theirs, (int, float)):
        theirs, name = dict.fromkeys(ours, float(comparison.theirs)), ""
    else:
        entries = _entries(results, comparison.other_file) if comparison.other_file else entries
        theirs, name = _side(entries, comparison, comparison.theirs)
    if not ours or not theirs:
        return None
    if comparison.spread:
        ours, theirs = distances(ours), distances(theirs)
    sign = -1.0 if comparison.lower else 1.0
    first = {seed: sign * value for seed, value in ours.items()}
    second = {seed: sign * comparison.times * value - comparison.margin for seed, value in theirs.items()}
    gain = (
        difference(first, second)
        if set(first) & set(second) and not comparison.spread
        else unpaired_difference(first, second)
    )
    mean, other = (float(np.mean(list(side.values()))) for side in (ours, theirs))
    best = f" ({mine or name})" if mine or name else ""
    return Compared(comparison.label, mean, f"{other:.3f}{best}", gain)


def _side(entries: Sequence[Row], comparison: Comparison, side: Row | Less | Best) -> tuple[BySeed, str]:
    """The figure by seed, and the name of the best where it was chosen."""
    metric = comparison.metric
    if isinstance(side, Less):
        first, second = (values(entries, metric, **where) for where in (side.first, side.second))
        return {seed: first[seed] - second[seed] for seed in first if seed in second}, ""
    if isinstance(side, dict):
        return values(entries, metric, **side), ""
    of = [entry for entry in entries if side.where.items() <= entry.items() and entry.get(metric) is not None]
    choices = {
        key[0]: values(mine, metric) for key, mine in groups(of, side.by).items() if not _left_out(key[0], side.without)
    }
    if not choices:
        return {}, ""
    best = (min if comparison.lower else max)(choices, key=lambda key: estimate(list(choices[key].values())).mean)
    return choices[best], best if isinstance(best, str) else f"{side.by} {best:g}"


def _left_out(value: Any, without: tuple[Any, ...]) -> bool:
    return any(str(value).startswith(one) if isinstance(one, str) else value == one for one in without)


# --- figures that no run has by itself ----------------------------------------------------------------------------


def _entries(results: PaperResults, file: str) -> list[Row]:
    made = DERIVED.get(file)
    return results.entries(file) if made is None else made(results)


def _ablations(results: PaperResults) -> list[Row]:
    """Runs on data of their own; and trainings on one draw, which show how far solutions of one problem lie apart."""
    entries = [entry for file in ("ablations", "ablations-naive") for entry in results.entries(file)]
    drawn = [entry for entry in entries if entry["draw"] == 0 and entry.get("variant") == entry["what"]]
    return [
        *(entry for entry in entries if entry["seed"] == entry["draw"]),
        *(entry | {"what": f"drift: {entry['what']}"} for entry in drawn),
    ]


def _toy(results: PaperResults) -> list[Row]:
    """The ratio of variances, and the bias in units of what could be seen."""
    return [
        entry | {"variance_ratio": entry["augmented_variance"] / entry["plain_variance"],
                 "bias": abs(entry["augmented_mean"] - entry["plain_mean"]) / (2 * entry["gap_half_width"])}
        if "gap_half_width" in entry else entry
        for entry in results.entries("toy-figures")
    ]  # fmt: skip


def _toy_preset(results: PaperResults) -> list[Row]:
    """And the power of the number of minority samples with which the risk above that of Bayes falls, by seed."""
    entries = results.entries("toy-preset")
    curves = groups((entry for entry in entries if entry.get("excess_risk", 0) > 0), "what", "seed")
    rates = [
        {"what": what, "seed": seed, "rate": _power(mine)} for (what, seed), mine in curves.items() if len(mine) > 2
    ]
    return [*entries, *rates]


def _power(entries: list[Row]) -> float:
    """Slope of a straight line through the excess risk over the number of samples, both as logarithms."""
    samples, risk = (np.log(np.array([entry[name] for entry in entries])) for name in ("n_minority", "excess_risk"))
    return float(np.polyfit(samples, risk, 1)[0])


def _inaturalist(results: PaperResults) -> list[Row]:
    """Means over rare and over frequent classes, and the sensitivity of rare ones to the strength of augmentation."""
    rows = results.rows("inaturalist")
    return [*results.entries("inaturalist"), *size_entries(rows), *sensitivity_entries(results)]


DERIVED: dict[str, Callable[[PaperResults], list[Row]]] = {
    "ablations": _ablations,
    "ablations-naive": _ablations,
    "toy-figures": _toy,
    "toy-preset": _toy_preset,
    "inaturalist": _inaturalist,
}
