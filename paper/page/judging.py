"""How a claim is judged: each of its comparisons by an interval over seeds, and the claim by how many of them hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from paper.page.frequency import sensitivity_entries, size_entries
from paper.page.results import PaperResults
from paper.statistics import Estimate, difference, distances, estimate, groups, signed, unpaired_difference, values

__all__ = ["Best", "Claim", "Comparison", "Judgement", "Less", "Verdict", "judge"]

Row = dict[str, Any]
BySeed = dict[Any, float]
Verdict = Literal["holds", "holds in part", "within noise", "does not hold", "not run here"]

MOST_SHOWN = 14
"""So many comparisons are listed one by one."""


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
    """Two sides and a figure. It holds if the interval of what ours has more than theirs lies above zero.

    Attributes
    ----------
    label : what is compared, for readers.
    file, metric : result file, and the figure of its runs.
    ours, theirs : options of the runs of either side; theirs may be a number.
    lower : whether lower is better, so that theirs less ours counts.
    times, margin : what theirs is multiplied by, and what it may be better by.
    spread : what is compared is how far values lie from their median, not the values.
    within : the claim is that ours has no more: it holds unless the interval lies above zero.
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
    within: bool = False
    other_file: str = ""


@dataclass(frozen=True)
class Claim:
    """Something the paper says, in our words.

    Attributes
    ----------
    measured : what the comparisons measure, for readers.
    """

    section: str
    text: str
    measured: str
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds here, and the figures that say so."""

    verdict: Verdict
    evidence: str


# --- judging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compared:
    comparison: Comparison
    ours: float
    theirs: float
    gain: Estimate
    name: str

    @property
    def holds(self) -> bool:
        """A single seed has no interval, and its sign decides."""
        return (self.gain.mean > (self.gain.half_width or 0.0)) != self.comparison.within

    @property
    def refutes(self) -> bool:
        """Whether the interval lies on the side that the claim denies."""
        return not self.holds and (self.comparison.within or self.gain.mean < -(self.gain.half_width or 0.0))

    @property
    def text(self) -> str:
        """The label, both sides, and the difference with its interval."""
        best = f" of {self.name}" if self.name else ""
        return f"{self.comparison.label}: {self.ours:.3f} against {self.theirs:.3f}{best} ({signed(self.gain)})"


def judge(claim: Claim, results: PaperResults) -> Judgement:
    """All or some of the comparisons hold; or none does, and some intervals speak against the claim or none does.

    Comparisons without results do not count.
    """
    made = [_compare(one, results) for one in claim.comparisons]
    found = [one for one in made if one is not None]
    if not found:
        return Judgement("not run here", "No results yet.")
    held = sum(one.holds for one in found)
    verdict: Verdict = "does not hold" if any(one.refutes for one in found) else "within noise"
    if held:
        verdict = "holds" if held == len(found) else "holds in part"
    if len(found) <= MOST_SHOWN:
        return Judgement(verdict, f"{claim.measured}: {'; '.join(one.text for one in found)}.")
    low, high = min(one.gain.mean for one in found), max(one.gain.mean for one in found)
    return Judgement(verdict, f"{claim.measured}: {held} of {len(found)} hold; differences {low:+.4f} to {high:+.4f}.")


def _compare(comparison: Comparison, results: PaperResults) -> _Compared | None:
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
    return _Compared(comparison, mean, other, gain, mine or name)


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
    entries = results.entries("ablations")
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


def _inaturalist(results: PaperResults) -> list[Row]:
    """Means over rare and over frequent classes, and the sensitivity of rare ones to the strength of augmentation."""
    rows = results.rows("inaturalist")
    return [*results.entries("inaturalist"), *size_entries(rows), *sensitivity_entries(results)]


DERIVED: dict[str, Callable[[PaperResults], list[Row]]] = {
    "ablations": _ablations,
    "toy-figures": _toy,
    "inaturalist": _inaturalist,
}
