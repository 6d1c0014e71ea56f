"""Twelve KEEL tables: rivals behind our interface beside the same methods built directly from their libraries."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from imblearn.ensemble import BalancedRandomForestClassifier
from imblearn.over_sampling import SMOTE
from imblearn.pipeline import make_pipeline
from numpy.typing import NDArray
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ecrt.data import load_keel
from ecrt.estimators import ECRTClassifier
from ecrt.experiments.summary import t_interval
from ecrt.metrics import PRIORS, PriorName, prediction_metrics

__all__ = ["METHODS", "PER_FOLD", "TABLES", "cells", "run_cell", "summarise"]

Array = NDArray[np.float64]
Row = dict[str, Any]
Folds = dict[tuple[str, str, str], Any]
"""Method, way it was built and table, to figures by prior, name and fold."""

TABLES = (
    "glass1", "pima", "vehicle1", "yeast3", "page-blocks0", "vowel0", "ecoli4", "flare-F", "car-good",
    "winequality-red-4", "yeast5", "abalone19",
)  # fmt: skip
"""From 214 to 5,472 rows; 1.8 to 129 rows of the frequent class for one of the rare; three have text columns."""

N_FOLDS = 5
PER_FOLD = "folds"
"""Key of the figures fold by fold, which the paired differences need and the file of results does not keep."""

MEASURES: dict[PriorName, dict[str, str]] = {
    "training": {"average_precision": "average_precision", "balanced_accuracy": "balanced_accuracy", "log_loss": "nll"},
    "balanced": {
        "average_precision": "average_precision", "balanced_accuracy": "balanced_accuracy", "log_loss": "balanced_nll",
    },
}  # fmt: skip
"""The log-loss counts rows as the prior says: as they come under that of training, classes alike under the balanced."""

OURS, DIRECT, AGAIN = "ours", "direct", "direct, another seed"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A method built twice.

    Attributes
    ----------
    direct : from scikit-learn and imbalanced-learn, with a seed; None for ECRT, which they do not have.
    ours : from this package; its probabilities are asked for under the balanced prior.
    prior : that the direct method's probabilities assume.
    """

    direct: Callable[[int], Any] | None
    ours: Callable[[int], Any]
    prior: PriorName


def _on_columns(*steps: Any) -> Any:
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder=StandardScaler()
    )  # fmt: skip
    return make_pipeline(columns, *steps)


def _baseline(**options: Any) -> Callable[[int], Any]:
    def build(seed: int) -> Any:
        from ecrt.estimators import BaselineClassifier

        return BaselineClassifier(**options, class_prior="balanced", random_state=seed)

    return build


METHODS: dict[str, Peer] = {
    "MLP": Peer(
        direct=lambda seed: _on_columns(MLPClassifier(random_state=seed)),
        ours=_baseline(method="erm", head="mlp"),
        prior="training",
    ),
    "SMOTE + MLP": Peer(
        direct=lambda seed: _on_columns(SMOTE(random_state=seed), MLPClassifier(random_state=seed)),
        ours=_baseline(method="smote", head="mlp"),
        prior="balanced",
    ),
    "balanced forest": Peer(
        direct=lambda seed: _on_columns(
            BalancedRandomForestClassifier(
                sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed
            )
        ),
        ours=_baseline(method="balanced-forest"),
        prior="balanced",
    ),
    "class-weighted logistic regression": Peer(
        direct=lambda seed: _on_columns(LogisticRegression(class_weight="balanced", max_iter=1000)),
        ours=_baseline(method="weighted", head="linear"),
        prior="balanced",
    ),
    "ECRT": Peer(direct=None, ours=lambda seed: ECRTClassifier(random_state=seed), prior="balanced"),
}  # fmt: skip


def cells(smoke: bool) -> Iterable[Row]:
    """Every table with every method, built both ways; the direct one with two seeds, for the size of the noise."""
    for table in ("ecoli4",) if smoke else TABLES:
        for method, peer in METHODS.items():
            ways = (OURS, DIRECT, AGAIN) if peer.direct is not None else (OURS,)
            for built in ways:
                if built != AGAIN or "logistic" not in method:  # which has no seed
                    yield {"table": table, "method": method, "built": built}


def run_cell(*, table: str, method: str, built: str) -> Row:
    """Five stratified folds, the same for all: figures of the test rows under both priors."""
    X, y = load_keel(table)
    peer, seed = METHODS[method], 1 if built == AGAIN else 0
    folds: dict[str, dict[str, list[float]]] = {p: {name: [] for name in MEASURES[p]} for p in PRIORS}
    for train, test in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y):
        model = peer.ours(seed) if built == OURS else peer.direct(seed) if peer.direct else None
        with warnings.catch_warnings():
            # Two classes are too few to de-mix on the majority, and MLPs end before they have converged.
            warnings.simplefilter("ignore")
            model.fit(X.iloc[train], y[train])  # type: ignore[union-attr]
            log_proba = _log_proba(model, X.iloc[test])
        classes, counts = np.unique(y[train], return_counts=True)
        for prior in PRIORS:
            found = prediction_metrics(
                log_proba, np.searchsorted(classes, y[test]), counts, prior=prior,
                assumed="balanced" if built == OURS else peer.prior,
            )  # fmt: skip
            for name, key in MEASURES[prior].items():
                folds[prior][name].append(float(found[key]))
    means = {
        prior: {name: float(np.mean(values)) for name, values in figures.items()} for prior, figures in folds.items()
    }
    return {"means": means, PER_FOLD: folds}


def _log_proba(model: Any, X: Any) -> Array:
    if not hasattr(model, "predict_log_proba"):
        return _log(model.predict_proba(X))
    with np.errstate(divide="ignore"):
        return np.asarray(model.predict_log_proba(X))


def _log(proba: Array) -> Array:
    with np.errstate(divide="ignore"):  # forests give zeros
        return np.asarray(np.log(proba))


def summarise(rows: list[Row]) -> list[Row]:
    """Means over the tables for each method under each prior, then the differences between the two ways to build it."""
    folds: Folds = {(row["cell"]["method"], row["cell"]["built"], row["cell"]["table"]): row[PER_FOLD] for row in rows}
    tables = [table for table in TABLES if any(key[2] == table for key in folds)]
    table: list[Row] = []
    for method, peer in METHODS.items():
        for built in (OURS, DIRECT) if peer.direct is not None else (OURS,):
            for prior in PRIORS:
                of = [folds[method, built, name][prior] for name in tables if (method, built, name) in folds]
                if of:
                    line: Row = {"what": f"{method}, {built}", "prior": prior, "tables": len(of)}
                    table.append(line | {name: float(np.mean([f[name] for f in of])) for name in MEASURES[prior]})
    for method, peer in METHODS.items():
        if peer.direct is None:
            continue
        for what, one in (("ours less direct", OURS), ("another seed less direct", AGAIN)):
            for prior in PRIORS:
                line = {"what": f"{method}: {what}", "prior": prior}
                for name in MEASURES[prior]:
                    line |= _difference(folds, tables, method, one, prior, name)
                if len(line) > 2:
                    table.append(line)
    return table


def _difference(folds: Folds, tables: list[str], method: str, one: str, prior: str, name: str) -> Row:
    """Paired by table and fold; the interval is over tables, each by its mean over folds, since folds share rows."""
    pairs = [
        np.subtract(folds[method, one, table][prior][name], folds[method, DIRECT, table][prior][name])
        for table in tables
        if (method, one, table) in folds and (method, DIRECT, table) in folds
    ]
    if not pairs:
        return {}
    over_tables, over_folds = t_interval([pair.mean() for pair in pairs]), t_interval(np.concatenate(pairs))
    return {
        name: over_tables.text(4),
        f"{name}_over_folds": over_folds.text(4),
        f"{name}_beyond_noise": over_tables.excludes_zero(),
    }
