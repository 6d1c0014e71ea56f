"""Twenty KEEL tables with at least 20 rows of the frequent class for one of the rare: ECRT against what is used.

The rule that chose them: all tables of that ratio with at most 1,700 rows and at least 15 of the rare class. Folds are
nested: whatever is chosen is chosen on the training rows of a fold. Rivals come straight from their libraries.

ECRT is as it is by default, a blend, and ``chosen`` lists its members with their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from ecrt.estimators import ECRTClassifier
from ecrt.metrics import PriorName
from paper.experiments.keel import DIRECT_MODELS, on_columns, predicted_folds
from paper.statistics import estimate

__all__ = ["METHODS", "TABLES", "cells", "run_cell", "summarise"]

Row = dict[str, Any]

TABLES = (
    "yeast-1-4-5-8_vs_7", "yeast-2_vs_8", "flare-F", "yeast4", "winequality-red-4", "kddcup-guess_passwd_vs_satan",
    "yeast-1-2-8-9_vs_7", "abalone-3_vs_11", "yeast5", "winequality-red-8_vs_6", "yeast6", "winequality-white-3_vs_7",
    "winequality-red-8_vs_6-7", "kddcup-land_vs_portsweep", "abalone-19_vs_10-11-12-13", "kr-vs-k-zero_vs_eight",
    "winequality-white-3-9_vs_5", "poker-8-9_vs_6", "kddcup-land_vs_satan", "poker-8_vs_6",
)  # fmt: skip
"""By their ratio, 22 to 86."""

ECRT, MLP = "ECRT", "MLP"

MEASURES = ("average_precision", "balanced_accuracy", "balanced_log_loss", "log_loss")
RANKED = MEASURES[:2]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A method, with a seed, and the class prior that its probabilities assume."""

    make: Callable[[int], Any]
    prior: PriorName


METHODS: dict[str, Peer] = {
    ECRT: Peer(make=lambda seed: ECRTClassifier(device="cpu", random_state=seed), prior="balanced"),
    MLP: Peer(make=DIRECT_MODELS["MLP"], prior="training"),
    "SMOTE + MLP": Peer(make=DIRECT_MODELS["SMOTE + MLP"], prior="balanced"),
    "logistic regression": Peer(make=lambda seed: on_columns(LogisticRegression(max_iter=1000)), prior="training"),
    "class-weighted logistic regression": Peer(
        make=DIRECT_MODELS["class-weighted logistic regression"], prior="balanced"
    ),
    "balanced-weight forest": Peer(
        make=lambda seed: on_columns(RandomForestClassifier(class_weight="balanced", random_state=seed)),
        prior="balanced",
    ),
    "balanced random forest": Peer(make=DIRECT_MODELS["balanced forest"], prior="balanced"),
}  # fmt: skip


def cells(smoke: bool) -> Iterable[Row]:
    """Every table with every method."""
    for table in TABLES[1:2] if smoke else TABLES:
        for method in (MLP, "balanced random forest") if smoke else METHODS:
            yield {"table": table, "method": method, "seed": 0}


def run_cell(*, table: str, method: str, seed: int) -> Row:
    """Five stratified folds, the same for all; probabilities moved to the prior that a figure asks for."""
    peer = METHODS[method]
    folds: dict[str, list[float]] = {name: [] for name in MEASURES}
    chosen = []
    for fold in predicted_folds(table, lambda n_rows: peer.make(seed)):
        balanced, training = (fold.figures(prior, peer.prior) for prior in ("balanced", "training"))
        found = {
            "average_precision": balanced["average_precision"],
            "balanced_accuracy": balanced["balanced_accuracy"],
            "balanced_log_loss": balanced["balanced_nll"],
            "log_loss": training["nll"],
        }
        for name, value in found.items():
            folds[name].append(float(value))
        if isinstance(fold.model, ECRTClassifier):
            chosen.append([
                {"demixing": one.demixing.kind, "head": one.head.kind, "weight": one.weight}
                for one in fold.model.members_
            ])  # fmt: skip
    means = {name: float(np.mean(values)) for name, values in folds.items()}
    return {"means": means, "folds": folds} | ({"chosen": chosen} if chosen else {})


def summarise(rows: list[Row]) -> list[Row]:
    """Mean rank and mean of every method, what ECRT has over the MLP, and then every table."""
    means: dict[str, dict[str, Row]] = {}
    for row in rows:
        means.setdefault(row["cell"]["table"], {})[row["cell"]["method"]] = row["means"]
    tables = [table for table in TABLES if table in means]
    methods = [method for method in METHODS if all(method in means[table] for table in tables)]
    ranks = {
        name: np.array([rankdata([-means[table][method][name] for method in methods]) for table in tables])
        for name in RANKED
    }
    found: list[Row] = [
        {"what": method, "tables": len(tables)}
        | {f"rank_{name}": float(ranks[name][:, at].mean()) for name in RANKED}
        | {name: float(np.mean([means[table][method][name] for table in tables])) for name in MEASURES}
        for at, method in enumerate(methods)
    ]
    if ECRT in methods and MLP in methods:
        line: Row = {"what": f"{ECRT} less {MLP}", "tables": len(tables)}
        for name in MEASURES:
            line[name] = estimate([means[table][ECRT][name] - means[table][MLP][name] for table in tables]).text(4)
        found.append(line)
    for table in tables:
        line = {"what": table}
        for name in RANKED:
            line |= {f"{name}, {method}": round(means[table][method][name], 4) for method in methods}
        found.append(line)
    return found
