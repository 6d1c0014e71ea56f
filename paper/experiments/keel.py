"""Twelve KEEL tables: rivals behind our interface beside the same methods built directly from their libraries.

ECRT is as it is by default, a blend. Its stored results were made when held-out rows chose one de-mixing and one head.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
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

from ecrt.estimators import ECRTClassifier
from ecrt.metrics import PRIORS, PriorName, prediction_metrics
from ecrt.rivals import BaselineClassifier
from ecrt.stages import LinearHead
from paper.data import load_keel
from paper.statistics import estimate, excludes_zero

__all__ = [
    "DIRECT_MODELS",
    "METHODS",
    "PER_FOLD",
    "TABLES",
    "cells",
    "on_columns",
    "predicted_folds",
    "run_cell",
    "summarise",
]

Array = NDArray[np.float64]
Row = dict[str, Any]
Runs = dict[tuple[str, str], dict[str, dict[int, Row]]]
"""Method and way it was built, to table, to seed, to figures by prior, name and fold."""

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
"""The log-loss is a mean over rows under the training prior, and over classes under the balanced one."""

OURS, DIRECT = "ours", "direct"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A method built twice.

    Attributes
    ----------
    direct : from scikit-learn and imbalanced-learn, with a seed; None for ECRT, which they do not have.
    ours : from this package, with a seed and the number of training rows; asked for probabilities under the balanced
        prior.
    prior : that the direct method's probabilities assume.
    n_ours, n_direct : seeds of each; two direct ones show the size of the noise.
    """

    direct: Callable[[int], Any] | None
    ours: Callable[[int, int], Any]
    prior: PriorName
    n_ours: int = 1
    n_direct: int = 2


def on_columns(*steps: Any) -> Any:
    """Steps behind words as indicators and numbers standardised."""
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder=StandardScaler()
    )  # fmt: skip
    return make_pipeline(columns, *steps)


def _baseline(**options: Any) -> Callable[[int, int], Any]:
    return lambda seed, n_rows: BaselineClassifier(**options, random_state=seed)


DIRECT_MODELS: dict[str, Callable[[int], Any]] = {
    "MLP": lambda seed: on_columns(MLPClassifier(random_state=seed)),
    "SMOTE + MLP": lambda seed: on_columns(SMOTE(random_state=seed), MLPClassifier(random_state=seed)),
    "balanced forest": lambda seed: on_columns(
        BalancedRandomForestClassifier(sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed)
    ),
    "class-weighted logistic regression": lambda seed: on_columns(
        LogisticRegression(class_weight="balanced", max_iter=1000)
    ),
}
"""Straight from their libraries, with a seed."""

METHODS: dict[str, Peer] = {
    "MLP": Peer(direct=DIRECT_MODELS["MLP"], ours=_baseline(method="erm", head="mlp"), prior="training"),
    "SMOTE + MLP": Peer(
        direct=DIRECT_MODELS["SMOTE + MLP"], ours=_baseline(method="smote", head="mlp"), prior="balanced"
    ),
    "balanced forest": Peer(
        direct=DIRECT_MODELS["balanced forest"],
        ours=_baseline(method="balanced-forest"),
        prior="balanced",
        n_ours=3,
        n_direct=3,
    ),
    "class-weighted logistic regression": Peer(
        direct=DIRECT_MODELS["class-weighted logistic regression"],
        # C = 1 on the sum of losses is a weight decay of 1 / n on their mean; two columns of half the weights each,
        # where scikit-learn has one, halve the penalty.
        ours=lambda seed, n_rows: BaselineClassifier(
            method="weighted", head=LinearHead(weight_decay=2 / n_rows), random_state=seed
        ),
        prior="balanced",
        n_direct=1,
    ),
    "ECRT": Peer(
        direct=None, ours=lambda seed, n_rows: ECRTClassifier(random_state=seed), prior="balanced", n_direct=0
    ),
}  # fmt: skip
"""Our MLPs choose their epochs on held-out rows, scikit-learn's take 200; other settings are each library's own."""


def cells(smoke: bool) -> Iterable[Row]:
    """Every table with every method, built both ways; in a smoke run the quick ones on one table."""
    for table in ("ecoli4",) if smoke else TABLES:
        for method, peer in METHODS.items():
            if smoke and not method.startswith(("balanced", "class")):
                continue
            for built, n_seeds in ((OURS, peer.n_ours), (DIRECT, peer.n_direct)):
                for seed in range(min(n_seeds, 1) if smoke else n_seeds):
                    yield {"table": table, "method": method, "built": built, "seed": seed}


def run_cell(*, table: str, method: str, built: str, seed: int) -> Row:
    """Five stratified folds, the same for all: figures of the test rows under both priors."""
    peer = METHODS[method]
    direct = peer.direct if built == DIRECT else None
    folds: dict[str, dict[str, list[float]]] = {p: {name: [] for name in MEASURES[p]} for p in PRIORS}
    for fold in predicted_folds(table, lambda n_rows: direct(seed) if direct else peer.ours(seed, n_rows)):
        for prior in PRIORS:
            found = fold.figures(prior, "balanced" if built == OURS else peer.prior)
            for name, key in MEASURES[prior].items():
                folds[prior][name].append(float(found[key]))
    means = {
        prior: {name: float(np.mean(values)) for name, values in figures.items()} for prior, figures in folds.items()
    }
    return {"means": means, PER_FOLD: folds}


@dataclass(frozen=True)
class Fold:
    """A model, what it says of the rows that it has not seen, their labels, and the training rows of each class."""

    model: Any
    log_proba: Array
    labels: NDArray[np.int64]
    counts: NDArray[np.int64]

    def figures(self, prior: PriorName, assumed: PriorName) -> Row:
        """What is measured under a prior; probabilities, which assume another one, are moved to it."""
        return prediction_metrics(self.log_proba, self.labels, self.counts, prior=prior, assumed=assumed)


def predicted_folds(table: str, make: Callable[[int], Any]) -> Iterator[Fold]:
    """Five stratified folds of a table, each predicted by a model of the others; ``make`` takes their rows."""
    X, y = load_keel(table)
    for train, test in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(X, y):
        model = make(len(train))
        with warnings.catch_warnings():
            # Two classes are too few to de-mix on the majority, and MLPs end before they have converged.
            warnings.simplefilter("ignore")
            model.fit(X.iloc[train], y[train])
            log_proba = log_proba_of(model, X.iloc[test])
        classes, counts = np.unique(y[train], return_counts=True)
        yield Fold(model, log_proba, np.searchsorted(classes, y[test]), counts)


def log_proba_of(model: Any, X: Any) -> Array:
    """Log-probabilities, whatever a library offers."""
    if not hasattr(model, "predict_log_proba"):
        return _log(model.predict_proba(X))
    with np.errstate(divide="ignore"):
        return np.asarray(model.predict_log_proba(X))


def _log(proba: Array) -> Array:
    with np.errstate(divide="ignore"):  # forests give zeros
        return np.asarray(np.log(proba))


def summarise(rows: list[Row]) -> list[Row]:
    """Means over the tables for each method under each prior, then the differences between the two ways to build it."""
    runs: Runs = {}
    for row in rows:
        cell = row["cell"]
        runs.setdefault((cell["method"], cell["built"]), {}).setdefault(cell["table"], {})[cell["seed"]] = row[PER_FOLD]
    found: list[Row] = []
    for (method, built), tables in sorted(runs.items(), key=lambda item: list(METHODS).index(item[0][0])):
        for prior in PRIORS:
            line: Row = {"what": f"{method}, {built}", "prior": prior, "tables": len(tables)}
            for name in MEASURES[prior]:
                line[name] = float(np.mean([_over_seeds(seeds, prior, name) for seeds in tables.values()]))
            found.append(line)
    for method in METHODS:
        ours, direct = runs.get((method, OURS), {}), runs.get((method, DIRECT), {})
        one, other = ({t: {0: s[k]} for t, s in direct.items() if k in s} for k in (0, 1))
        for what, first, second in (("ours less direct", ours, direct), ("direct, seed 1 less seed 0", other, one)):
            tables_of_both = [table for table in TABLES if table in first and table in second]
            for prior in PRIORS if tables_of_both else ():
                line = {"what": f"{method}: {what}", "prior": prior, "tables": len(tables_of_both)}
                for name in MEASURES[prior]:
                    pairs = [
                        _over_seeds(first[table], prior, name) - _over_seeds(second[table], prior, name)
                        for table in tables_of_both
                    ]
                    line |= _difference(name, pairs)
                found.append(line)
    return found


def _over_seeds(seeds: dict[int, Row], prior: str, name: str) -> Array:
    """Figures of the folds, means over the seeds."""
    return np.asarray(np.mean([folds[prior][name] for folds in seeds.values()], axis=0))


def _difference(name: str, pairs: list[Array]) -> Row:
    """Paired by table and fold; the interval is over tables, each by its mean over folds, since folds share rows."""
    over_tables, over_folds = estimate([pair.mean() for pair in pairs]), estimate(np.concatenate(pairs))
    return {
        name: over_tables.text(4),
        f"{name}_over_folds": over_folds.text(4),
        f"{name}_beyond_noise": excludes_zero(over_tables),
    }
