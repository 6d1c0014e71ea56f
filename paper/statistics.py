"""Means, intervals and paired differences over seeds: the only place that computes them, for recipes and for the page.

A result file has rows, one for each cell. :func:`observations` flattens them: one entry for each run, with the options
of its cell, its seed and its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ttest_ind

from ecrt.metrics import Estimate, corrected_estimate

__all__ = [
    "Estimate",
    "bootstrap_texts",
    "class_bootstrap_text",
    "difference",
    "distances",
    "estimate",
    "excludes_zero",
    "figure",
    "groups",
    "observations",
    "paired_bootstrap",
    "resplit_estimate",
    "signed",
    "table",
    "unpaired_difference",
    "values",
]

Row = dict[str, Any]
Array = NDArray[np.float64]

CONFIDENCE = 0.95
N_RESAMPLES = 2000


# --- means and intervals ------------------------------------------------------------------------------------------


def estimate(numbers: ArrayLike) -> Estimate:
    """Mean and 95 % Student interval of independent repetitions; a single one has no interval.

    >>> estimate([0.90, 0.92, 0.91]).text()
    '0.910 ± 0.025'
    """
    return corrected_estimate(numbers, 0.0)


def resplit_estimate(numbers: ArrayLike, test_to_train: float) -> Estimate:
    """The same of random splits, which share training rows: Nadeau and Bengio's corrected interval."""
    return corrected_estimate(numbers, test_to_train)


def excludes_zero(found: Estimate) -> bool:
    """Whether the interval lies on one side of zero."""
    return found.half_width is not None and abs(found.mean) > found.half_width


def figure(name: str, numbers: ArrayLike | Estimate) -> Row:
    """The mean under a name, and the half-width of its interval under the name with an ending.

    >>> sorted(figure("top1", [0.5, 0.5]))
    ['top1', 'top1_half_width']
    """
    found = numbers if isinstance(numbers, Estimate) else estimate(numbers)
    return {name: found.mean, f"{name}_half_width": found.half_width}


def difference(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Estimate:
    """Mean of what ours has more than theirs, paired by seed.

    >>> difference({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.5, 2: 0.9}).text(2)
    '0.15 ± 0.64'
    """
    return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


def unpaired_difference(ours: Mapping[Any, float], theirs: Mapping[Any, float]) -> Estimate:
    """The same of two samples with nothing in common, by Welch's interval.

    >>> unpaired_difference({0: 0.5, 1: 0.7}, {2: 0.4, 3: 0.5}).text(2)
    '0.15 ± 0.69'
    """
    first, second = list(ours.values()), list(theirs.values())
    gap = float(np.mean(first) - np.mean(second))
    if min(len(first), len(second)) < 2:
        return Estimate(mean=gap, half_width=None, p_value=None)
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(CONFIDENCE)
    return Estimate(mean=gap, half_width=float(interval.high - interval.low) / 2, p_value=None)


def distances(values: Mapping[Any, float]) -> dict[Any, float]:
    """How far each value lies from the median of all: Brown and Forsythe compare the spread of groups by these.

    >>> distances({0: 0.25, 1: 0.5, 2: 1.0})
    {0: 0.25, 1: 0.0, 2: 0.5}
    """
    middle = float(np.median(list(values.values())))
    return {seed: abs(value - middle) for seed, value in values.items()}


def signed(found: Estimate, decimals: int = 4) -> str:
    """A difference for readers, with its sign.

    >>> signed(estimate([0.02, 0.02]), 2)
    '+0.02 ± 0.00'
    """
    width = "" if found.half_width is None else f" ± {found.half_width:.{decimals}f}"
    return f"{found.mean:+.{decimals}f}{width}"


def paired_bootstrap(differences_nk: Array, n_resamples: int = N_RESAMPLES) -> Array:
    """Mean, lower and upper end of the 95 % percentile interval of each column's mean, rows drawn anew together."""
    rng, n = np.random.default_rng(0), len(differences_nk)
    means = np.concatenate([
        rng.multinomial(n, np.full(n, 1 / n), size=100) @ differences_nk / n for _ in range(0, n_resamples, 100)
    ])  # fmt: skip
    ends = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.vstack([differences_nk.mean(axis=0), ends])


def bootstrap_texts(differences_nk: Array) -> list[str]:
    """The same for readers, a text for each column.

    >>> bootstrap_texts(np.array([[0.01], [0.01]]))
    ['+0.0100 [+0.0100, +0.0100]']
    """
    return [f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]" for mean, low, high in paired_bootstrap(differences_nk).T]


def class_bootstrap_text(differences: Array, y: NDArray[np.int64], n_resamples: int = N_RESAMPLES) -> str:
    """Mean over classes, with the 95 % interval over draws of each class's rows."""
    rng = np.random.default_rng(0)
    of_class = [differences[y == label] for label in np.unique(y)]
    draws = np.mean([of[rng.integers(len(of), size=(n_resamples, len(of)))].mean(1) for of in of_class], axis=0)
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return f"{np.mean([of.mean() for of in of_class]):+.4f} [{low:+.4f}, {high:+.4f}]"


# --- runs ---------------------------------------------------------------------------------------------------------


def observations(rows: Iterable[Row]) -> list[Row]:
    """One entry for each run of each row.

    It has the options of the cell, a ``seed``, ``what`` was run where several things are in one row, and the figures.
    """
    return [entry for row in rows for entry in _of_row(row)]


def _of_row(row: Row) -> Iterator[Row]:
    cell = row["cell"]
    plain = {name: value for name, value in row.items() if isinstance(value, (bool, int, float, str))}
    shared: Row = {"what": cell.get("method"), "seed": cell.get("draw")} | cell | plain
    named = row.get("runs", {})
    # A recipe that compares few methods may have their figures in the row itself.
    named = named or {name: value for name, value in row.items() if isinstance(value, dict) and "top1" in value}
    if isinstance(named, dict):
        named = [{"what": name} | run for name, run in named.items()]
    named += [
        {"what": entry["what"], "prior": entry["prior"]} | entry["figures"][entry["prior"]]
        for entry in row.get("entries", ())
    ]
    named += [
        {name: one[name] for name in ("class", "size", "kind")} | {"bandwidth": bandwidth, "mmd": mmd}
        for one in row.get("distances", ())
        for bandwidth, mmd in zip(row["bandwidths"], one["mmd"], strict=True)
    ]
    named += row.get("risks", [])
    named += [
        {"what": name, "epoch": epoch, "top1": top1}
        for name, curve in row.get("top1_by_epoch", {}).items()
        for epoch, top1 in enumerate(curve, start=1)
    ]
    named += [
        {"objective": name, "epochs": epochs, "correlation": correlation}
        for name, curve in row.get("curves", {}).items()
        for epochs, correlation in zip(cell["flow_epochs"], curve, strict=True)
    ]
    for run in named or [{}]:
        yield shared | run


def groups(entries: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Entries by the values of these keys, in the order in which they come.

    >>> list(groups([{"a": 1}, {"a": 2}, {"a": 1}], "a"))
    [(1,), (2,)]
    """
    found: dict[tuple[Any, ...], list[Row]] = {}
    for entry in entries:
        found.setdefault(tuple(entry.get(key) for key in keys), []).append(entry)
    return found


def values(entries: Iterable[Row], metric: str, **where: Any) -> dict[Any, float]:
    """A figure of the entries that have these options, by seed; the mean where a seed has several.

    >>> values([{"seed": 0, "n": 1, "top1": 0.5}, {"seed": 0, "n": 2, "top1": 0.7}], "top1", n=2)
    {0: 0.7}
    """
    found: dict[Any, list[float]] = {}
    for entry in entries:
        if entry.get(metric) is not None and where.items() <= entry.items():
            found.setdefault(entry["seed"], []).append(float(entry[metric]))
    return {seed: float(np.mean(numbers)) for seed, numbers in found.items()}


def table(
    entries: Iterable[Row],
    by: Sequence[str],
    metrics: Sequence[str],
    *,
    means: Sequence[str] = (),
    count: str = "seeds",
    order: Callable[[tuple[Any, ...]], Any] | None = None,
) -> list[Row]:
    """One line for each group of entries: the keys, how many there are, and figures with intervals.

    Parameters
    ----------
    by : keys of a group; ``what`` usually comes first.
    metrics : figures with an interval, where all entries of a group have them.
    means : figures without.
    order : by what lines are sorted, from the values of ``by``; in the order of entries if ``None``.
    """
    found = groups(entries, *by)
    lines = []
    for key in found if order is None else sorted(found, key=order):
        mine = found[key]
        line: Row = dict(zip(by, key, strict=True)) | {count: len(mine)}
        for name in metrics:
            if all(entry.get(name) is not None for entry in mine):
                line |= figure(name, [entry[name] for entry in mine])
        for name in means:
            if all(entry.get(name) is not None for entry in mine):
                line[name] = float(np.mean([entry[name] for entry in mine]))
        lines.append(line)
    return lines
