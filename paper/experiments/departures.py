"""What further departures from the paper are worth, taken back one at a time, most of them in whole fits.

Four parts: learning rates, of flow and MLP, on the data of the ablations; a flow that held-out rows may weigh against
linear de-mixing; how an encoder of a table is made, on digits of which five have ten rows; and what is done for rare
targets in regression. All variants of a cell share its data.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.data.imbalance import imbalanced_digits
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier, ECRTRegressor
from ecrt.metrics import regression_metrics
from ecrt.stages import Encoder, MLPHead, Parametric
from paper.experiments.ablations import BASE, small_flow, small_head, small_problem
from paper.experiments.one_flow import Predictor, balanced_log_proba, find_sources, score, split
from paper.experiments.regression import HIDDEN, N_PAIRS, continuous_sources, load_regression_data
from paper.statistics import difference, figure, groups, observations, table, values

__all__ = ["cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]

PAPER_RATE = 1e-3
N_MINORITY = 10
"""Rows of a rare digit."""

FLOWS: dict[str, Row] = {
    BASE: {"demixing": ("linear", "flow")},
    "flow, whatever held-out rows say": {"demixing": "flow"},
    "linear de-mixing alone": {"demixing": "linear"},
}
"""Options of the whole fit on plain columns, with an MLP."""

ENCODERS: dict[str, Row] = {
    BASE: {},
    "no batch normalisation": {"batch_norm": False},
    "no weight decay": {"weight_decay": 0.0},
    "hidden layers of 1,024 and 512": {"hidden": (1024, 512)},
    "a head with a hidden layer of 512": {"head_hidden": (512,)},
    "all four as in the preset": {
        "batch_norm": False, "weight_decay": 0.0, "hidden": (1024, 512), "head_hidden": (512,)
    },
}  # fmt: skip
"""Options of the encoder; the last ones are those of most of the supplement's tables."""

NUMBERS: dict[str, Row] = {
    BASE: {},
    "donors": {"augmentation": "donors"},
    "no region weighs more": {"region_mass": 0.0},
}
"""Options of the regressor that are the preset's."""

METRICS = ("top1", "nll", "mae", "mae_few")


def cells(smoke: bool) -> Iterable[Row]:
    """Three seeds of the rates, for flows take long, and five of all else."""
    size: Row = {"n": 40 if smoke else 1000, "n_classes": 12 if smoke else 200, "epochs": 1 if smoke else 60}
    for part, sets in (
        ("rates", ("toy", "extreme")), ("flow", ("toy", "digits")), ("encoder", ("digits",)),
        ("numbers", ("generator", "diamonds")),
    ):  # fmt: skip
        for data in sets[:1] if smoke else sets:
            for seed in range(1 if smoke else 3 if part == "rates" else 5):
                yield {"part": part, "data": data, "seed": seed, **size}


def run_cell(*, part: str, data: str, seed: int, n: int, n_classes: int, epochs: int) -> Row:
    """The base of a part, and every departure taken back."""
    if part == "rates":
        return {"runs": _rates(data, seed, n, n_classes, epochs)}
    if part == "numbers":
        return {"runs": _numbers(data, seed, 2 * n, epochs)}
    if data == "digits":
        digits = imbalanced_digits(N_MINORITY, seed)
        X, y, X_test, y_test = digits.X_train, digits.y_train, digits.X_test, digits.y_test
    else:
        train, test, _ = small_problem(data, seed, n, n_classes)
        X, y, X_test, y_test = train.z, train.y, test.z, test.y
    runs: Row = {}
    for name, changed in (FLOWS if part == "flow" else ENCODERS).items():
        options: Row = changed
        if part == "encoder":
            options = {"encoder": Encoder(epochs=epochs, **changed), "demixing": "linear"}
        clf = ECRTClassifier(head=MLPHead(epochs=epochs), random_state=seed, **options)
        log_proba = _fitted(clf, X, y).predict_log_proba(X_test)
        runs[name] = score(log_proba, y_test, np.bincount(y))
    return {"runs": runs}


def _rates(data: str, seed: int, n: int, n_classes: int, epochs: int) -> Row:
    train, test, roles = small_problem(data, seed, n, n_classes)
    sample = split(train.z, train.y, seed)
    runs: Row = {}

    def run(name: str, demixed: Any, **rate: float) -> None:
        predictor = Predictor(small_head(epochs).set_params(**rate), Parametric())
        runs[name] = score(balanced_log_proba(demixed, sample, roles, predictor, test.z, seed), test.y, roles.counts)

    base = find_sources(sample, roles, small_flow(data, epochs, {}), seed)
    run(BASE, base)
    run("MLP at a rate of 0.001", base, learning_rate=PAPER_RATE)
    slow = small_flow(data, epochs, {"learning_rate": PAPER_RATE})
    run("flow at a rate of 0.001", find_sources(sample, roles, slow, seed))
    return runs


def _numbers(data: str, seed: int, n_train: int, epochs: int) -> Row:
    """Mean absolute error of all test rows and of those with rare targets, less is better."""
    rng, n_test = np.random.default_rng([seed, 2]), 2 * n_train
    if data == "generator":
        X, y, _ = continuous_sources(n_train + n_test, rng, N_PAIRS)
        X, X_test, y, y_test = X[:n_train], X[n_train:], y[:n_train], y[n_train:]
    else:
        X, y, X_test, y_test = load_regression_data(data, rng, n_train, n_test)
    runs: Row = {}
    for name, changed in NUMBERS.items():
        head = MLPHead(loss="absolute", epochs=epochs, hidden=HIDDEN)
        reg = ECRTRegressor(demixing=("none", "linear"), head=head, random_state=seed, **changed)
        found = regression_metrics(_fitted(reg, X, y).predict(X_test), y_test, y)
        runs[name] = {"mae": found["all"]["mae"], "mae_few": found["few"]["mae"]}
    for run in runs.values():  # in units of the base's, so that data sets can stand in one table
        run |= {f"{key}_of_base": run[key] / runs[BASE][key] for key in ("mae", "mae_few")}
    return runs


def _fitted(estimator: Any, X: Array, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return estimator.fit(X, y)


def summarise(rows: list[Row]) -> list[Row]:
    """Each variant's mean over seeds, and its difference from the base, paired by seed; of errors the ratio."""
    lines: list[Row] = []
    for mine in groups(observations(rows), "part", "data").values():
        for line in table(mine, ("what", "part", "data"), METRICS):
            for metric in ("top1", "nll"):
                ours, base = (values(mine, metric, what=what) for what in (line["what"], BASE))
                if base:
                    line |= figure(f"{metric}_gain", difference(ours, base))
            for metric in ("mae_of_base", "mae_few_of_base"):
                ratios = values(mine, metric, what=line["what"])
                if ratios:
                    line |= figure(metric, list(ratios.values()))
            lines.append(line)
    return lines
