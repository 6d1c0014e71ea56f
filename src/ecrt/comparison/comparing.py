"""Compare methods on one table: the same splits, the same tuning, tested for more than noise."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ecrt.comparison.checks import warnings_of
from ecrt.comparison.methods import METHODS, choose_methods
from ecrt.comparison.results import Comparison, collect
from ecrt.comparison.running import Plan, run
from ecrt.comparison.scoring import choose_measure
from ecrt.comparison.space import optuna_library
from ecrt.comparison.splits import Splitter, make_splitter
from ecrt.comparison.store import Store, fingerprint
from ecrt.data import ColumnReading, ColumnRow, TableEncoder, column_rows, rows_of_table
from ecrt.disk import locked
from ecrt.errors import InputError, warn_user
from ecrt.metrics import PRIORS, PriorName
from ecrt.training import Progress, SilentProgress

__all__ = ["TRIALS", "compare"]

TRIALS = 10
"""Trials for each method and split, where neither their number nor their time is given."""

REFERENCE = "logit-adjusted"
PACKAGES = ("ecrt", "imbalanced-learn", "numpy", "optuna", "pandas", "scikit-learn", "scipy", "torch")


def compare(
    X: ArrayLike,
    y: ArrayLike,
    *,
    methods: str | Sequence[str] = "default",
    metric: str = "balanced_accuracy",
    prior: PriorName = "balanced",
    seeds: int = 5,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
    trials: int | None = None,
    budget: float | None = None,
    test_size: float = 0.2,
    reference: str | None = None,
    output: str | PathLike[str] | None = None,
    jobs: int | None = None,
    title: str = "",
    reading: Sequence[ColumnReading] = (),
    progress: Progress | None = None,
) -> Comparison:
    """Which method serves this table?

    Every method sees the same outer splits, one for each seed. Within a split it is tuned on an inner split of the
    training rows by Optuna, fitted on all training rows with the best setting, and asked about the test rows once.
    Runs are parallel by joblib, whose Dask and Ray backends serve a cluster.

    Parameters
    ----------
    X, y : a table or an array (also sparse), and the class of each row.
    methods : names of ``ecrt.comparison.METHODS``, ``"default"`` or ``"all"``.
    metric, prior : what tuning aims at and the verdict is about, under which class prior. All metrics are measured
        under both priors in any case.
    seeds : number of outer splits.
    groups : rows of one group are never on both sides of a split.
    times : numbers or dates; training rows always come before test rows.
    trials, budget : for each method and split, the number of settings to try (10 if neither is given) or the seconds to
        spend on them. With a number, the same call gives the same result.
    test_size : share of the rows that are tested, and of the training rows that settings are judged on.
    reference : the method to beat; logit adjustment, or the first one.
    output : folder for predictions and results. The same call on the same folder goes on where it was stopped.
    jobs : processes; ``None`` for as many as joblib is configured for, which is one unless told otherwise.
    title : what the table is called.
    reading : how its columns were read from a file, for the page.
    progress : is told of every run that is done.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> found = compare(X[:150], y[:150], methods=["weighted-logistic", "balanced-forest"], seeds=2, trials=1)
    >>> sorted(found.ranking("balanced"))
    ['balanced-forest', 'weighted-logistic']
    """
    optuna_library()  # before the work begins, not in a worker
    table, labels, codes, columns = _read(X, y)
    names = choose_methods(methods)
    chosen = reference or (REFERENCE if REFERENCE in names else names[0])
    if chosen not in names:
        raise InputError(f"The reference {chosen!r} is not among the methods: {', '.join(names)}.")
    plan = _plan(choose_measure(metric, len(labels)), prior, trials, budget)
    splitter = make_splitter(codes, groups=groups, times=times, n_seeds=seeds, test_size=test_size)
    settings = {
        "title": title, "methods": list(names), "reference": chosen, "metric": plan.metric, "prior": plan.prior,
        "seeds": seeds, "splits": splitter.kind, "test_size": test_size, "trials": plan.trials, "budget": plan.budget,
        "data": fingerprint(table, codes, splitter.groups, splitter.times), "versions": _versions(),
    }  # fmt: skip
    tested = [np.bincount(codes[splitter.outer(seed)[1]], minlength=len(labels)) for seed in range(seeds)]
    data = {
        "rows": len(table), "columns": table.shape[1], "classes": labels, "counts": np.bincount(codes).tolist(),
        "test_rows": np.mean(tested, axis=0).tolist(),
        "reading": [list(row.cells) for row in (column_rows(reading) if reading else columns)],
    }  # fmt: skip
    remarks = warnings_of(table, splitter, labels)
    with _folder(output) as folder, locked(folder, wait=False):
        store = Store(folder)
        store.claim(settings)
        for sentence in remarks:
            warn_user(sentence)
        _run_all(store, names, table, splitter, plan, jobs, progress or SilentProgress())
        present = [np.unique(codes[splitter.outer(seed)[0]]).tolist() for seed in range(seeds)]
        found = collect(store, settings, data, remarks, {name: METHODS[name].label for name in names}, present)
        found.write(folder)
    return found


def _run_all(
    store: Store, names: Sequence[str], X: pd.DataFrame, splitter: Splitter, plan: Plan, jobs: int | None,
    progress: Progress,
) -> None:  # fmt: skip
    """Every run that is not on disk yet; each is written as soon as it is done."""
    tasks = [(name, seed) for seed in range(splitter.n_seeds) for name in names if not store.is_finished(name, seed)]
    for name, seed in tasks:
        store.remove_torn(name, seed)
    finished = len(names) * splitter.n_seeds - len(tasks)
    progress.start(f"compare: runs{f' ({finished} done before)' if finished else ''}", len(tasks))
    running: dict[tuple[str, int], None] = {}

    def calls() -> Iterator[Any]:
        for name, seed in tasks:
            running[name, seed] = None  # joblib takes a task when a process is free for it
            folder = store.run_folder(name, seed)
            folder.mkdir(parents=True, exist_ok=True)
            yield joblib.delayed(run)(name, seed, X, splitter, plan, folder)

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
    for record, predictions in parallel(calls()):
        name, seed = record["method"], record["seed"]
        store.write_run(name, seed, record, predictions)
        running.pop((name, seed), None)
        told = ", ".join(f"{name} {seed}" for name, seed in list(running)[:4])
        progress.advance(f"running: {told}" if told else "")
    progress.finish()


def _read(X: Any, y: Any) -> tuple[pd.DataFrame, list[str], NDArray[np.int64], list[ColumnRow]]:
    """The table as a data frame, the labels as text, the class index of each row, and how named columns were read."""
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    named = isinstance(X, pd.DataFrame)
    if isinstance(X, sparse.csr_array | sparse.csc_array | sparse.csr_matrix | sparse.csc_matrix):
        X = X.toarray()
    if not isinstance(X, pd.DataFrame):
        values = np.asarray(X)
        if values.ndim != 2:
            raise InputError(f"X has the shape {values.shape}: rows by columns are compared, images are not.")
        X = pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])])
    X = X.reset_index(drop=True)
    labels = pd.Series(np.asarray(y).ravel() if not isinstance(y, pd.Series) else y.to_numpy())
    if len(labels) != len(X):
        raise InputError(f"X has {len(X)} rows and y has {len(labels)} labels.")
    if labels.isna().any():
        raise InputError(f"{int(labels.isna().sum())} rows have no label. Leave them out.")
    try:
        classes, codes = np.unique(labels.to_numpy(), return_inverse=True)
    except TypeError as error:
        raise InputError("y mixes labels of different kinds, such as text and numbers.") from error
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({classes.tolist()}); at least 2 classes are needed.")
    encoder = TableEncoder.learn(X)  # once, on all rows: every split and method then reads the same columns
    encoder.encode(X)  # what no method could read is told before the work begins
    rows = rows_of_table(encoder) if named else []
    return encoder.typed(X), [str(label) for label in classes], codes.astype(np.int64), rows


def _plan(metric: str, prior: str, trials: int | None, budget: float | None) -> Plan:
    if trials is not None and budget is not None:
        raise InputError("Tuning ends after a number of trials or after some seconds: give trials or budget, not both.")
    if (trials is not None and trials < 1) or (budget is not None and not budget > 0):
        raise InputError(f"trials={trials}, budget={budget}: at least one trial, or more than no time, is needed.")
    if prior not in PRIORS:
        raise InputError(f"There is no class prior {prior!r} to compare under: use balanced or training.")
    n_trials = TRIALS if trials is None and budget is None else trials
    return Plan(metric=metric, prior="training" if prior == "training" else "balanced", trials=n_trials, budget=budget)


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


@contextmanager
def _folder(output: str | PathLike[str] | None) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with tempfile.TemporaryDirectory(prefix="ecrt-compare-") as folder:
        yield Path(folder)
