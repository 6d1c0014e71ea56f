"""Cells of the toy's figures to the rows of a table: means with intervals, ratios, and where curves meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ecrt.experiments.summary import Estimate, t_interval

__all__ = ["PAPER_EFFICIENCY", "equivalent_size", "summarise"]

Row = dict[str, Any]
PAPER_EFFICIENCY = "efficiency, paper preset"


def summarise(rows: list[Row]) -> list[Row]:
    """One row for every point of a figure."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row["cell"]["part"], []).append(row)
    table: list[Row] = []
    for part, make in MAKERS.items():
        table += [{"part": part, **entry} for entry in make(parts.get(part, []))]
    return table


def equivalent_size(sizes: list[int], without: list[float], reached: float) -> float:
    """The size at which the curve without augmentation first reaches a value, linear in log size between points.

    Infinite where it never does: the true factor is then larger than can be seen here.

    >>> equivalent_size([10, 100], [0.5, 0.7], 0.6)
    31.6
    >>> equivalent_size([10, 100], [0.5, 0.7], 0.8)
    inf
    """
    if reached <= without[0]:
        return float(sizes[0])
    for place in range(1, len(sizes)):
        if without[place] >= reached:
            low, high = without[place - 1], without[place]
            share = (reached - low) / (high - low)
            ends = np.log([sizes[place - 1], sizes[place]])
            return round(float(np.exp(ends[0] + share * (ends[1] - ends[0]))), 1)
    return float("inf")


def _estimate(name: str, values: Iterable[float]) -> Row:
    found: Estimate = t_interval(list(values))
    return {name: found.mean, f"{name}_half_width": found.half_width}


def _efficiency(rows: list[Row]) -> list[Row]:
    table: list[Row] = []
    for n_majority in sorted({row["cell"]["n_majority"] for row in rows}):
        mine = [row for row in rows if row["cell"]["n_majority"] == n_majority]
        settings = [(run["n_minority"], run["kind"], run["weight"]) for run in mine[0]["runs"]]
        for place, (size, kind, weight) in enumerate(settings):
            runs = [row["runs"][place] for row in mine]
            entry = {"n_majority": n_majority, "n_minority": size, "kind": kind, "weight": weight, "seeds": len(runs)}
            for metric in ("top1", "nll", "minority_recall", "top1_training_prior"):
                entry |= _estimate(metric, (run[metric] for run in runs))
            plain = settings.index((size, "parametric", 0.0))
            if weight > 0:
                gains = [row["runs"][place]["top1"] - row["runs"][plain]["top1"] for row in mine]
                entry |= _estimate("gain", gains)
            table.append(entry)
    for entry in [e for e in table if e["weight"] > 0]:
        curve = [e for e in table if e["n_majority"] == entry["n_majority"] and e["weight"] == 0.0]
        sizes = [e["n_minority"] for e in curve]
        for metric, sign in (("top1", 1.0), ("nll", -1.0), ("top1_training_prior", 1.0)):
            size = equivalent_size(sizes, [sign * e[metric] for e in curve], sign * entry[metric])
            factor = size / entry["n_minority"]
            # JSON knows no infinity: beyond the largest size tried there is only a lower bound.
            entry[f"{metric}_factor"] = factor if np.isfinite(factor) else max(sizes) / entry["n_minority"]
            entry[f"{metric}_factor_is_bound"] = not np.isfinite(factor)
    return table


def _mmd(rows: list[Row]) -> list[Row]:
    table = []
    for place, bandwidth in enumerate(rows[0]["bandwidths"] if rows else []):
        keys = dict.fromkeys((d["size"], d["kind"]) for d in rows[0]["distances"])
        for size, kind in keys:
            means = [
                float(np.mean([d["mmd"][place] for d in row["distances"] if (d["size"], d["kind"]) == (size, kind)]))
                for row in rows
            ]
            table.append({"bandwidth": bandwidth, "size": size, "kind": kind, **_estimate("mmd", means)})
    return table


def _variance(rows: list[Row]) -> list[Row]:
    return [
        {**risk, "variance_ratio": risk["augmented_variance"] / risk["plain_variance"],
         "unbiased": abs(risk["augmented_mean"] - risk["plain_mean"]) <= 2 * risk["gap_half_width"],
         "n_draws": row["cell"]["n_draws"]}
        for row in rows
        for risk in row["risks"]
    ]  # fmt: skip


def _perturbed(rows: list[Row]) -> list[Row]:
    table = []
    for share in sorted({row["cell"]["share"] for row in rows}):
        mine = [row for row in rows if row["cell"]["share"] == share]
        for place, run in enumerate(mine[0]["runs"]):
            entry = {"share": share, "sobolev": float(np.mean([row["sobolev"] for row in mine]))}
            entry |= {"kind": run["kind"], "weight": run["weight"], "seeds": len(mine)}
            for metric in ("excess_risk", "top1"):
                entry |= _estimate(metric, (row["runs"][place][metric] for row in mine))
            table.append(entry)
    return table


def _grouped(rows: list[Row], key: str, metrics: tuple[str, ...]) -> list[Row]:
    table = []
    for value in sorted({row["cell"][key] for row in rows}):
        mine = [row for row in rows if row["cell"][key] == value]
        entry: Row = {key: value, "seeds": len(mine)}
        for metric in metrics:
            entry |= _estimate(metric, (float(np.mean(row[metric])) for row in mine))
        table.append(entry)
    return table


MAKERS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "efficiency": _efficiency,
    PAPER_EFFICIENCY: _efficiency,
    "mmd": _mmd,
    "variance": _variance,
    "perturbed": _perturbed,
    "packing": lambda rows: _grouped(rows, "likelihood_weight", ("spread", "filled_share", "mcc", "top1", "nll")),
    "affine": lambda rows: _grouped(rows, "affine", ("mcc", "unseen_correlation", "n_blocks")),
    "picture": lambda rows: [{"mcc": row["mcc"]} for row in rows],
}
