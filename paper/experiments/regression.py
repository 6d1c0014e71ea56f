"""Regression on skewed targets: who errs least where targets are rare, and what does it cost elsewhere?

A third of the rows of each table, always the same, are test rows and were never looked at while methods were made;
training rows are drawn from the others. Every method has the same network under the same budget.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.decomposition import FastICA

from ecrt.data import TableEncoder
from ecrt.data.imbalance import henon
from ecrt.diagnostics import mean_correlation_coefficient
from ecrt.errors import InputError
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.metrics import regression_metrics
from ecrt.stages import Flow, Linear, LinearHead, MLPHead, NoDemixing
from ecrt.training import TrainingConfig
from paper.experiments.regression_rivals import RIVALS, fit_rival
from paper.statistics import estimate

__all__ = [
    "cells",
    "continuous_sources",
    "load_regression_data",
    "posterior_median",
    "run_cell",
    "summarise",
    "summarise_toy",
    "toy_cells",
    "toy_run_cell",
]

Array = NDArray[np.float64]
Row = dict[str, Any]

DATASETS = ("diamonds", "txhousing", "generator")
HIDDEN = (64, 64)
LOG_SPREAD = 0.8
N_PAIRS = 3
TEST_ROWS_SEED = 2021


def load_regression_data(
    name: str, rng: np.random.Generator, n_train: int, n_test: int
) -> tuple[Array, Array, Array, Array]:
    """Training and test rows of numbers with a skewed target, from files of plotnine, which need not be imported.

    Parameters
    ----------
    name : ``"diamonds"``, prices of 53,940 diamonds; or ``"txhousing"``, houses sold in a month in 46 Texan cities
        (volume and months of inventory, which give the answer away, are left out).
    n_train, n_test : rows to draw, of test rows a third of the table at most.
    """
    spec = importlib.util.find_spec("plotnine")
    if spec is None or spec.origin is None:
        raise InputError(f"The data set {name!r} comes with the package plotnine: pip install --no-deps plotnine.")
    frame = pd.read_csv(Path(spec.origin).parent / "data" / f"{name}.csv")
    target = {"diamonds": "price", "txhousing": "sales"}[name]
    frame = frame.dropna(subset=[target]).drop(columns=["volume", "inventory", "date"], errors="ignore")
    y = frame.pop(target).to_numpy(dtype=np.float64)
    order = np.random.default_rng(TEST_ROWS_SEED).permutation(len(frame))
    third = len(order) // 3
    test, train = rng.permutation(order[:third])[:n_test], rng.permutation(order[third:])[:n_train]
    table = TableEncoder.learn(frame.iloc[train].reset_index(drop=True))
    X_train, X_test = (table.encode(frame.iloc[rows].reset_index(drop=True)) for rows in (train, test))
    return X_train, y[train], X_test, y[test]


def _moments(level: Array, n_pairs: int) -> tuple[Array, Array]:
    """Means and standard deviations of all sources at given levels, the logarithm of y in units of its spread."""
    means, spreads = [], []
    for pair in range(n_pairs):
        phase = 2 * np.pi * pair / n_pairs
        means += [1.2 * level, 1.5 * np.sin(1.2 * level + phase)]
        spreads += [0.25 + 0.5 / (1 + np.exp(-2 * level)), 0.3 + 0.6 / (1 + np.exp(1.5 * level + np.cos(phase)))]
    return np.stack(means, axis=-1), np.stack(spreads, axis=-1)


def continuous_sources(n: int, rng: np.random.Generator, n_pairs: int = 1) -> tuple[Array, Array, Array]:
    """Features, a log-normal target and the true sources, independent given y; pairs pass through the Henon map."""
    level = rng.standard_normal(n)
    means, spreads = _moments(level, n_pairs)
    s = means + spreads * rng.standard_normal(means.shape)
    x = np.hstack([henon(s[:, 2 * pair : 2 * pair + 2]) for pair in range(n_pairs)])
    return x, np.exp(LOG_SPREAD * level), s


def posterior_median(s: Array) -> Array:
    """The best prediction under absolute loss for one who knows the sources and how they depend on y."""
    level = np.linspace(-5, 5, 2001)
    means, spreads = _moments(level, s.shape[1] // 2)
    log_density = -0.5 * level**2 - np.log(spreads).sum(axis=1)
    found = []
    for part in np.array_split(s, max(len(s) // 500, 1)):
        scores = log_density - 0.5 * (((part[:, None, :] - means) / spreads) ** 2).sum(axis=2)
        mass = np.cumsum(np.exp(scores - scores.max(axis=1, keepdims=True)), axis=1)
        found.append(level[(mass < mass[:, -1:] / 2).sum(axis=1)])
    return np.asarray(np.exp(LOG_SPREAD * np.concatenate(found)))


def cells(smoke: bool) -> Iterable[Row]:
    """Ten seeds of three data sets, all methods on the same rows; a smoke run has the one that needs no file."""
    size = {"n_train": 200, "n_test": 200, "epochs": 1} if smoke else {"n_train": 2100, "n_test": 4000, "epochs": 60}
    for seed in range(1 if smoke else 10):
        for dataset in ("generator",) if smoke else DATASETS:
            yield {"dataset": dataset, "seed": seed, **size}


def run_cell(*, dataset: str, seed: int, n_train: int, n_test: int, epochs: int) -> Row:
    """All methods on one split, under absolute loss; every choice is made on rows held out of the training rows."""
    rng = np.random.default_rng(seed)
    found: Row = {}
    if dataset == "generator":
        X, y, s = continuous_sources(n_train + n_test, rng, N_PAIRS)
        found["bayes"] = regression_metrics(posterior_median(s[n_train:]), y[n_train:], y[:n_train])
        X_train, y_train, X_test, y_test = X[:n_train], y[:n_train], X[n_train:], y[n_train:]
    else:
        X_train, y_train, X_test, y_test = load_regression_data(dataset, rng, n_train, n_test)
    training = TrainingConfig(
        epochs=epochs, batch_size=128, learning_rate=4e-3, weight_decay=1e-2, patience=epochs
    )  # fmt: skip
    for method in RIVALS:
        predict = fit_rival(
            method, X_train, y_train[:, None], loss="absolute", hidden=HIDDEN, training=training, seed=seed
        )
        found[method] = regression_metrics(predict(X_test)[:, 0], y_test, y_train)
    flow = Flow(n_restarts=1, hidden=(64, 64), epochs=epochs)
    reg = ECRTRegressor(
        demixing=[NoDemixing(), Linear(), *([flow] if n_train >= 500 else [])],
        head=[LinearHead(loss="absolute"), MLPHead(loss="absolute", epochs=epochs, hidden=HIDDEN)],
        random_state=seed,
        device="cpu",
    ).fit(X_train, y_train)
    found["ecrt"] = regression_metrics(reg.predict(X_test), y_test, y_train)
    plan = {
        "demixing": reg.demixing_, "weighted": reg.weighted_, "head": reg.head_name_, "region_mass": reg.region_mass_,
        "augmentation": reg.augmentation_,
    }  # fmt: skip
    row = {"methods": found, "plan": plan, "candidates": reg.history_["candidates"], "n_features": X_train.shape[1]}
    return _without_nan(row)


def _without_nan(value: Any) -> Any:
    """``None`` for the errors of groups without rows: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and np.isnan(value) else value


def summarise(rows: list[Row]) -> list[Row]:
    """Errors of each method as means over seeds; paired ratios to ERM's, and of ECRT's to it, with 95 % intervals."""
    table = []
    for dataset in dict.fromkeys(row["cell"]["dataset"] for row in rows):
        of = [row["methods"] for row in rows if row["cell"]["dataset"] == dataset]
        for method in of[0]:
            line: Row = {"dataset": dataset, "method": method, "runs": len(of)}
            for group in ("all", "many", "medium", "few"):
                line[f"{group}_mae"] = _mean([one[method][group]["mae"] for one in of])
            for name, group, measure in (
                ("few MAE / ERM", "few", "mae"), ("few RMSE / ERM", "few", "rmse"), ("few GM / ERM", "few", "gm"),
                ("all MAE / ERM", "all", "mae"), ("all RMSE / ERM", "all", "rmse"),
            ):  # fmt: skip
                line[name] = _paired_ratio(of, method, "erm", group, measure)
            line["ECRT's few MAE / this"] = _paired_ratio(of, "ecrt", method, "few", "mae")
            table.append(line)
    return table


def _paired_ratio(of: list[Row], method: str, other: str, group: str, measure: str) -> str:
    pairs = [(one[method][group][measure], one[other][group][measure]) for one in of]
    ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
    return estimate(ratios).text() if ratios else "none"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def toy_cells(smoke: bool) -> Iterable[Row]:
    """Two sources through the Henon map, five draws."""
    for seed in range(1 if smoke else 5):
        yield {"seed": seed, "n": 400 if smoke else 4000, "epochs": 3 if smoke else 60}


def toy_run_cell(*, seed: int, n: int, epochs: int) -> Row:
    """Are the sources found from quantile bins the true ones? Raw features and linear ICA beside them."""
    rng = np.random.default_rng(seed)
    x, y, _ = continuous_sources(n, rng)
    x_new, _, s_new = continuous_sources(n, rng)
    reg = ECRTRegressor(
        demixing=Flow(n_restarts=4, blocks=(1, 2), epochs=epochs), augmentation="none", head="linear", region_mass=0.0,
        random_state=seed, device="cpu",
    ).fit(x, y)  # fmt: skip
    ica = FastICA(whiten="unit-variance", random_state=seed, max_iter=1000).fit(x)
    return {
        "mcc": mean_correlation_coefficient(s_new, reg.transform(x_new)),
        "mcc_raw": mean_correlation_coefficient(s_new, x_new),
        "mcc_ica": mean_correlation_coefficient(s_new, ica.transform(x_new)),
        "n_blocks": reg.history_["restarts"][0].n_blocks,
        "theory_met": reg.theory_met_,
    }


def summarise_toy(rows: list[Row]) -> list[Row]:
    """MCC of the three, over draws."""
    names = {"mcc": "ECRT, quantile bins", "mcc_raw": "raw features", "mcc_ica": "linear ICA (FastICA)"}
    return [
        {
            "what": what,
            "runs": len(rows),
            "mcc": estimate([row[key] for row in rows]).text(),
            "lowest": min(row[key] for row in rows),
        }
        for key, what in names.items()
    ]
