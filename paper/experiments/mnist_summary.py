"""MNIST's cells to the rows of a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from ecrt.experiments.summary import t_interval

__all__ = ["summarise"]

Row = dict[str, Any]
METRICS = ("top1", "nll", "macro_f1", "top1_balanced_prior", "top1_training_prior")


def summarise(rows: list[Row]) -> list[Row]:
    """Each method's mean and half-width over seeds, by network and number of rare digits; then the correlations."""
    found: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        for method, run in row.get("runs", {}).items():
            found.setdefault((row["cell"]["network"], row["cell"]["n_rare"], method), []).append(run)
    table = []
    for (network, n_rare, method), runs in sorted(found.items()):
        entry: Row = {"what": method, "network": network, "n_rare": n_rare, "seeds": len(runs)}
        for metric in METRICS:
            estimate = t_interval([run[metric] for run in runs])
            entry |= {metric: estimate.mean, f"{metric}_half_width": estimate.half_width}
        table.append(entry)
    return table + _correlations([row for row in rows if "curves" in row])


def _correlations(rows: list[Row]) -> list[Row]:
    table = []
    for objective in ("gcl", "fdv") if rows else ():
        for place, epochs in enumerate(rows[0]["cell"]["flow_epochs"]):
            values = [row["curves"][objective][place] for row in rows]
            table.append({
                "what": "correlation", "objective": objective, "epochs": epochs, "seeds": len(rows),
                "correlation": float(np.mean(values)), "correlation_half_width": t_interval(values).half_width,
                "before": float(np.mean([row["before"] for row in rows])),
            })  # fmt: skip
    return table
