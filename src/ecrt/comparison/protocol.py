"""Compare methods on one table: the same splits, the same tuning by Optuna, and every run kept on disk.

Settings are judged on inner validation rows alone. A comparison that was killed goes on where it stopped.
"""

from __future__ import annotations

import json
import math
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from os import PathLike
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from ecrt.checkpoints import digest_of
from ecrt.comparison.methods import METHODS, Asked, Method, choose_methods
from ecrt.comparison.results import MEASURES, Comparison, MethodResult, choose_measure
from ecrt.comparison.splits import Split, make_splits, warnings_of
from ecrt.data import ColumnReading, ColumnRow, TableEncoder, column_rows
from ecrt.disk import locked, make_folder, plain, read_arrays, read_json, remove_litter, write_arrays, write_json
from ecrt.errors import InputError, warn_user
from ecrt.estimators.inputs import check_class_counts, class_indices, in_pandas, plain_labels
from ecrt.io.model_files import package_versions
from ecrt.machine import one_thread
from ecrt.metrics import PRIORS, Predictions, PriorName, class_prior_of, read_predictions, shift_prior
from ecrt.rivals import BaselineClassifier
from ecrt.rivals.base import Choice, Space
from ecrt.stages import MLPHead
from ecrt.training import Progress
from ecrt.workers import Workers

Rows = NDArray[np.int64]

TRIALS = 10
"""Trials for each method and split, where neither their number nor their time is given."""

REFERENCE = "logit-adjusted"

STARTUP_TRIALS = 5
"""Trials drawn at random before those that went well say where to look (Optuna's TPE)."""

MOST_TRIALS = 500

REPEAT = 0.1
"""Seconds after which an alarm rings again: the first may come at a bad moment, or be swallowed."""

MOST_BYTES = 16 * 2**30
Validation = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Log-probabilities under the balanced prior, and class indices, of the rows that a trial was judged on."""

Objective = Callable[[Mapping[str, Any]], tuple[float, Validation]]

SETTINGS_FILE = "comparison.json"
RUN_FILE, SECONDS_FILE, PREDICTIONS_FILE = "run.json", "seconds.json", "predictions.npz"


def compare(
    X: Any,
    y: ArrayLike,
    *,
    methods: Asked = "default",
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
    """Find the best method for a table.

    Every method sees the same outer splits, one for each seed. Within a split it is tuned on an inner split of the
    training rows by Optuna, fitted on all training rows with the best setting, and asked about the test rows once.
    Runs are parallel by joblib, which can also use a Dask or Ray cluster.

    Parameters
    ----------
    X, y : a table or an array (also sparse), and the class of each row.
    methods : names of ``ecrt.comparison.METHODS``, ``"default"`` or ``"all"``; classifiers of your own by name, such as
        ``{"trees": ExtraTreesClassifier()}``; or a list of both. Pipelines are given the table as it is, other
        classifiers the numbers that ECRT reads it as. Classes are numbered from 0 on, in order.
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
    jobs : processes; ``None`` for as many as joblib is configured for, which is one by default.
    title : what the table is called.
    reading : how its columns were read from a file, for the page.
    progress : shows every run that is done.

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
    compared = choose_methods(methods)
    names = list(compared)
    chosen = reference or (REFERENCE if REFERENCE in names else names[0])
    if chosen not in names:
        raise InputError(f"The reference {chosen!r} is not among the methods: {', '.join(names)}.")
    if prior not in PRIORS:
        raise InputError(f"There is no class prior {prior!r} to compare under: use balanced or training.")
    if trials is not None and budget is not None:
        raise InputError("Tuning ends after a number of trials or after some seconds: give trials or budget, not both.")
    if (trials is not None and trials < 1) or (budget is not None and not budget > 0):
        raise InputError(f"trials={trials}, budget={budget}: at least one trial, or a time above 0, is needed.")
    splits = make_splits(codes, groups=groups, times=times, n_seeds=seeds, test_size=test_size)
    settings = {
        "title": title, "methods": names, "reference": chosen, "metric": choose_measure(metric, len(labels)),
        "prior": prior, "seeds": seeds, "test_size": test_size, "budget": budget,
        "splits": "grouped" if groups is not None else "timed" if times is not None else "stratified",
        "trials": TRIALS if trials is None and budget is None else trials,
        "data": ", ".join(map(digest_of, (table, codes, groups, times))), "versions": package_versions(),
    }  # fmt: skip
    own = {name: method.reference for name, method in compared.items() if METHODS.get(name) is not method}
    settings |= {"own": own} if own else {}  # the same folder is for the same estimators
    tested = [np.bincount(codes[split.test], minlength=len(labels)) for split in splits]
    data = {
        "rows": len(table), "columns": table.shape[1], "classes": labels, "counts": np.bincount(codes).tolist(),
        "test_rows": np.mean(tested, axis=0).tolist(),
        "test_to_train": float(np.mean([len(split.test) / len(split.train) for split in splits])),
        "reading": [list(row) for row in (column_rows(reading) if reading else columns)],
    }  # fmt: skip
    remarks = warnings_of(table, codes, splits, labels)
    place = tempfile.TemporaryDirectory(prefix="ecrt-compare-") if output is None else nullcontext(output)
    with place as folder, locked(folder, wait=False):
        store = Store(Path(folder))
        store.claim(settings)
        for sentence in remarks:
            warn_user(sentence)
        _run_all(store, compared, table, codes, splits, settings, jobs, progress or Progress())
        labels_of = {name: method.label for name, method in compared.items()}
        found = collect(store, settings, data, remarks, codes, splits, labels_of)
        found.write(store.folder)
    return found


def _read(X: Any, y: Any) -> tuple[pd.DataFrame, list[str], NDArray[np.int64], list[ColumnRow]]:
    """The table as a data frame, the labels as text, the class index of each row, and how named columns were read."""
    X = in_pandas(X)
    X = X.toarray() if hasattr(X, "toarray") else X  # a sparse matrix
    named = isinstance(X, pd.DataFrame)
    if not isinstance(X, pd.DataFrame):
        values = np.asarray(X)
        if values.ndim != 2:
            raise InputError(f"X has the shape {values.shape}: tables can be compared, images cannot.")
        X = pd.DataFrame(values, columns=[f"x{place}" for place in range(values.shape[1])])
    X = X.reset_index(drop=True)
    labels = np.asarray(plain_labels(y)).ravel()
    if len(labels) != len(X):
        raise InputError(f"X has {len(X)} rows and y has {len(labels)} labels.")
    classes, codes = class_indices(labels)
    check_class_counts(classes, codes)
    encoder = TableEncoder.learn(X)  # once, on all rows: every split and method then reads the same columns
    encoder.encode(X)  # raises before the work begins if no method could read a column
    rows = encoder.column_rows() if named else []
    return encoder.typed(X), [str(label) for label in classes], codes, rows


def _run_all(
    store: Store, methods: Mapping[str, Method], X: pd.DataFrame, y: Rows, splits: Sequence[Split],
    settings: Mapping[str, Any], jobs: int | None, progress: Progress,
) -> None:  # fmt: skip
    """Every run that is not on disk yet; each is written as soon as it is done."""
    runs = [(name, seed) for seed in range(len(splits)) for name in settings["methods"]]
    tasks = [task for task in runs if not store.is_finished(*task)]
    finished = len(runs) - len(tasks)
    progress.start(f"compare: runs{f' ({finished} done before)' if finished else ''}", len(tasks))

    def each() -> Iterator[tuple[Any, ...]]:
        for name, seed in tasks:
            folder = make_folder(store.run_folder(name, seed))
            own = None if METHODS.get(name) is methods[name] else methods[name]  # ours are known in every process
            yield name, seed, splits[seed], settings, folder, own

    for _, done in Workers(jobs).run(run, each(), X, y):
        store.write_run(done)
        progress.advance(f"last: {done.method} {done.seed}")
    progress.finish()


def collect(
    store: Store, settings: dict[str, Any], data: dict[str, Any], warnings: list[str], y: NDArray[np.int64],
    splits: Sequence[Split], labels: Mapping[str, str],
) -> Comparison:  # fmt: skip
    """Measure the predictions on disk; their columns are the classes of the training rows of their split.

    ``labels`` are those of the methods for readers.
    """
    methods: dict[str, MethodResult] = {}
    times: dict[str, list[dict[str, float]]] = {}
    for name in settings["methods"]:
        runs = [store.read_run(name, seed) for seed in range(len(splits))]
        tuned, times[name] = [run.tuned for run in runs], [run.seconds for run in runs]
        metrics: dict[str, dict[str, list[float]]] = {}
        recalls: dict[str, NDArray[np.float64]] = {}
        error = next((one.error for one in tuned if one.error), "")
        for prior in () if error else PRIORS:
            found = [run.predictions.metrics(prior) for run in runs if run.predictions is not None]
            names = [metric for metric in MEASURES if any(metric in one for one in found)]
            metrics[prior] = {metric: [one.get(metric, np.nan) for one in found] for metric in names}
            recalls[prior] = np.full((len(splits), len(data["classes"])), np.nan)
            for row, one, split in zip(recalls[prior], found, splits, strict=True):
                row[np.unique(y[split.train])[one["by_class"]["class"]]] = one["by_class"]["recall"]
        methods[name] = MethodResult(
            label=labels[name],
            error=error,
            parameters=[one.parameters for one in tuned],
            validation=[one.validation for one in tuned],
            trials=[one.trials for one in tuned],
            metrics=metrics,
            recalls=recalls,
        )
    return Comparison(settings=settings, data=data, warnings=warnings, methods=methods, times=times)


# --- one run: a method on one split -----------------------------------------------------------------------------------


def run(
    name: str, seed: int, split: Split, settings: Mapping[str, Any], folder: Path, own: Method | None, X: pd.DataFrame,
    y: Rows,
) -> Run:  # fmt: skip
    """Tune a method on one split, fit it on all training rows and predict; a run that fails has no predictions.

    ``own`` : the method, where it is not one of ours.
    """
    method, started = own or METHODS[name], time.perf_counter()
    kept: Path | None = folder
    with ExitStack() as alone, one_thread(), warnings.catch_warnings():
        try:  # a worker that outlived its parent, or was given up for lost, may still be at it
            alone.enter_context(locked(folder, wait=True) if folder.is_dir() else nullcontext())
        except InputError:
            kept = None  # whoever holds it keeps trials there
        # Warnings of libraries about one fit of hundreds do not help the user. Failures are recorded.
        warnings.simplefilter("ignore")
        if settings["budget"] is not None:
            _load_all()
        tuned, validation, seconds = tune(
            method,
            _objective(method, seed, X, y, split, settings),
            higher_is_better=MEASURES[settings["metric"]].higher_is_better,
            seed=seed_from(seed, *name.encode()),
            trials=settings["trials"],
            budget=settings["budget"],
            folder=kept,
        )
        tuning, refitting = time.perf_counter() - started, time.perf_counter()
        predictions = None
        if not tuned.error:
            try:
                predictions = _fit_predict(method, tuned.parameters, seed, X, y, split.train, split.test)
                predictions = replace(predictions, validation=validation)
            except Exception as fault:  # the other methods go on; this one is reported as failed
                tuned = replace(tuned, error=error_text(fault))
    took = {
        "tuning": seconds,  # of all trials, those of a run that was killed included
        "overhead": round(max(tuning - seconds, 0.0), 3),
        "refit": round(time.perf_counter() - refitting, 3),
    }
    return Run(name, seed, tuned, took, predictions)


@cache
def _load_all() -> None:
    """Fit a tiny network once in a process: torch loads much of itself then, and no trial should pay for that."""
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    BaselineClassifier(head=MLPHead(epochs=1), device="cpu", random_state=0).fit(X, np.arange(40) % 2)


def _objective(
    method: Method, seed: int, X: pd.DataFrame, y: Rows, split: Split, settings: Mapping[str, Any]
) -> Objective:
    # Columns of all training classes: a class that no trial was fitted on is impossible, its rows are left out.
    classes = np.unique(y[split.train])
    columns = np.searchsorted(classes, np.unique(y[split.fitted]))

    def objective(parameters: Mapping[str, Any]) -> tuple[float, Validation]:
        found = _fit_predict(method, parameters, seed, X, y, split.fitted, split.judged)
        value = float(found.metrics(settings["prior"])[settings["metric"]])
        log_proba = np.full((len(split.judged), len(classes)), -np.inf)
        log_proba[:, columns] = found.log_proba
        return value, (log_proba, np.where(found.y >= 0, columns[found.y], -1))

    return objective


def _fit_predict(
    method: Method, parameters: Mapping[str, Any], seed: int, X: pd.DataFrame, y: Rows, train: Rows, test: Rows
) -> Predictions:
    """Fit on some rows and predict others, under the balanced prior."""
    classes, labels, counts = np.unique(y[train], return_inverse=True, return_counts=True)
    try:
        model = method.build(parameters, seed).fit(X.iloc[train], labels)
        has_logs = hasattr(model, "predict_log_proba")
        with np.errstate(divide="ignore", invalid="ignore"):  # a probability of zero is minus infinity
            found = np.asarray(model.predict_log_proba(X.iloc[test]) if has_logs else model.predict_proba(X.iloc[test]))
            log_proba = found.astype(np.float64) if has_logs else np.log(found.astype(np.float64))
    except SystemExit as end:
        raise RuntimeError(f"it called sys.exit({end.code!r})") from end
    if log_proba.shape != (len(test), len(classes)):
        raise ValueError(f"its probabilities have the shape {log_proba.shape}, not ({len(test)}, {len(classes)})")
    bad = ~(np.abs(logsumexp(log_proba, axis=1)) < 0.01)  # also where one is NaN
    if bad.any():
        raise ValueError(f"its probabilities are NaN, below 0 or not of sum 1 for {bad.sum()} of {len(test)} rows")
    balanced = shift_prior(log_proba, class_prior_of(method.prior, counts), class_prior_of("balanced", counts))
    place = np.searchsorted(classes, y[test])
    known = classes[np.minimum(place, len(classes) - 1)] == y[test]
    return Predictions(
        log_proba=balanced, y=np.where(known, place, -1), counts=counts.astype(np.int64), prior="balanced"
    )


# --- tuning -----------------------------------------------------------------------------------------------------------


def tune(
    method: Method,
    objective: Objective,
    *,
    higher_is_better: bool,
    seed: int,
    trials: int | None,
    budget: float | None,
    folder: Path | None = None,
) -> tuple[Tuned, Validation | None, float]:
    """Try settings until their number or their time is out; gives the best, its predictions, and the seconds of all.

    Every trial draws from a sampler that is seeded by its number, so that it does not matter whether the trials before
    it were read from disk or just made. With a budget, the trial that runs when it ends is cut and does not count; if
    none was finished, the method's first start is taken untested.

    Parameters
    ----------
    objective : the metric of a setting on validation rows, and its predictions there.
    trials, budget : one of them is given: how many trials, or for how many seconds.
    folder : where trials are kept, if anywhere.
    """
    optuna = optuna_library()
    space = _distributions(optuna, method.space)
    study = optuna.create_study(direction="maximize" if higher_is_better else "minimize")
    for start in method.starts:
        study.enqueue_trial(start)
    done: list[Trial] = []
    best: tuple[Trial, Validation | None] | None = None
    left = math.inf if budget is None else budget
    most = trials or MOST_TRIALS if space else 1  # without anything to tune all trials are the same
    while len(done) < most and left > 0:
        began = time.perf_counter()  # drawing a setting is part of tuning
        sampler_seed = seed_from(seed, len(done))
        study.sampler = optuna.samplers.TPESampler(seed=sampler_seed, n_startup_trials=STARTUP_TRIALS)
        asked = study.ask(fixed_distributions=space)
        # A worker on another machine may not see the folder, and keeps nothing.
        file = folder / f"trial-{len(done):03d}.json" if folder is not None and folder.is_dir() else None
        if file is not None and file.is_file():
            trial, validation = Trial.read(file)
        else:
            trial, validation = _try(objective, dict(asked.params), began, left)
            if file is not None:
                trial.write(file, validation)
        done.append(trial)
        left = 0.0 if trial.cut else left - trial.seconds
        if trial.value is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(asked, trial.value)
        if study.best_trial.number == asked.number:  # of equal values the earliest: starts are the usual settings
            best = trial, validation
    failed, cut = [trial.error for trial in done if trial.error], sum(trial.cut for trial in done)
    tuned = Tuned(
        parameters=method.starts[0] if best is None else best[0].parameters,
        validation=None if best is None else best[0].value,
        trials={"finished": len(done) - len(failed) - cut, "failed": len(failed), "cut": cut},
        error=failed[0] if failed and best is None else "",
    )
    return tuned, None if best is None else best[1], round(sum(trial.seconds for trial in done), 3)


def _try(
    objective: Objective, parameters: dict[str, Any], began: float, left: float
) -> tuple[Trial, Validation | None]:
    value, validation, error, cut = None, None, "", False
    try:
        with time_limit(left - (time.perf_counter() - began)):
            value, validation = objective(parameters)
        if not np.isfinite(value):
            value, error = None, "the metric is not finite"
    except OutOfTime:
        value, validation, cut = None, None, True
    except Exception as fault:  # a setting that fails costs one trial, not the comparison
        error = error_text(fault)
    seconds = round(time.perf_counter() - began, 3)
    return Trial(parameters=parameters, value=value, error=error, cut=cut, seconds=seconds), validation


class OutOfTime(BaseException):
    """The time of a trial is out. No ``Exception``, so that a method's own handlers let it pass."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise ``OutOfTime`` in the block after some seconds, between two steps of Python.

    Only the main thread of a process can be interrupted, and not on Windows; elsewhere the block runs to its end. An
    import is never interrupted: it would leave a broken module to all that comes after.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not math.isfinite(seconds) or not possible:
        yield
        return

    def ring(signum: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return
            frame = frame.f_back
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), REPEAT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seed_from(*numbers: int) -> int:
    """A seed for each sequence of numbers, the same for two of them only by chance."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def error_text(fault: Exception) -> str:
    """An error of a library, on one line."""
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}"


def optuna_library() -> Any:
    """Optuna, silenced; it is an extra, so an error says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise InputError("Tuning needs Optuna: pip install 'ecrt[compare]'.") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _distributions(optuna: Any, space: Space) -> dict[str, Any]:
    kinds, found = optuna.distributions, {}
    for name, part in space.items():
        if isinstance(part, Choice):
            found[name] = kinds.CategoricalDistribution(part.values)
        else:
            kind = kinds.IntDistribution if isinstance(part.low, int) else kinds.FloatDistribution
            found[name] = kind(part.low, part.high, log=part.log)
    return found


# --- what is kept on disk ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting that was tried, its metric on validation rows, and why it has none: an error, or no time left."""

    parameters: dict[str, Any]
    value: float | None
    error: str
    cut: bool
    seconds: float

    def write(self, file: Path, validation: Validation | None) -> None:
        """Keep the trial and its predictions of validation rows; the record comes last."""
        if validation is not None:
            write_arrays(_validation_file(file), {"log_proba": validation[0], "y": validation[1]})
        write_json(file, self)

    @classmethod
    def read(cls, file: Path) -> tuple[Trial, Validation | None]:
        """A trial, and its predictions of validation rows if it was finished."""
        trial: Trial = read_json(file, cls)
        if trial.value is None:
            return trial, None
        arrays = read_arrays(_validation_file(file), MOST_BYTES)
        if not {"log_proba", "y"} <= arrays.keys():
            raise InputError(f"{_validation_file(file)} holds no validation rows.")
        return trial, (arrays["log_proba"], arrays["y"])


def _validation_file(trial: Path) -> Path:
    return trial.with_name(trial.name.replace("trial-", "validation-")).with_suffix(".npz")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The best setting, the metric that it reached on validation rows, how trials ended, and what went wrong."""

    parameters: dict[str, Any]
    validation: float | None
    trials: dict[str, int]
    error: str


class Run(NamedTuple):
    """One method on one seed: what tuning chose, the seconds that it took, and predictions unless it failed."""

    method: str
    seed: int
    tuned: Tuned
    seconds: dict[str, float]
    predictions: Predictions | None


@dataclass(frozen=True)
class Store:
    """The folder of a comparison: whole files only, so that a run killed at any moment goes on where it stopped."""

    folder: Path

    def run_folder(self, method: str, seed: int) -> Path:
        """The folder of one method on one seed."""
        return self.folder / "runs" / method / f"seed-{seed}"

    def claim(self, settings: Mapping[str, Any]) -> None:
        """Take the folder for these settings, or go on with it; other settings, or other files, are refused.

        The folder must be held, so that what killed runs had half written can be removed first.
        """
        for folder in (self.folder, *self.folder.glob("runs/*/*")):
            remove_litter(folder)
        file = self.folder / SETTINGS_FILE
        wanted = plain(settings)
        if not file.is_file():
            if any(self.folder.iterdir()):
                raise InputError(f"The folder {self.folder} holds other files. Choose another.")
            write_json(file, wanted)
            return
        before = read_json(file, dict[str, Any])
        differing = [name for name in {**before, **wanted} if before.get(name) != wanted.get(name)]
        if differing:
            changes = [f"{name}: {_short(before.get(name))}, now {_short(wanted.get(name))}" for name in differing]
            raise InputError(
                f"The folder {self.folder} holds a comparison with other settings or data ({'; '.join(changes)}). "
                "Choose another folder, or give the same command to go on with that one."
            )

    def is_finished(self, method: str, seed: int) -> bool:
        """Whether a run is on disk, whole; runs and trials that cannot be read are named, and made again."""
        folder = self.run_folder(method, seed)
        if (folder / RUN_FILE).is_file():
            try:
                self.read_run(method, seed)
            except InputError as error:
                warn_user(f"{error} This run is made again.")
            else:
                _remove_validation(folder)
                return True
        for file in sorted(folder.glob("trial-*.json")):
            try:
                Trial.read(file)
            except InputError as error:
                warn_user(f"{error} This trial is made again.")
                file.unlink()
        return False

    def write_run(self, run: Run) -> None:
        """Write a finished run; the record comes last, since it says that the rest is there."""
        folder = self.run_folder(run.method, run.seed)
        if run.predictions is not None:
            run.predictions.write(folder / PREDICTIONS_FILE)
        write_json(folder / SECONDS_FILE, run.seconds)
        write_json(folder / RUN_FILE, run.tuned)
        _remove_validation(folder)

    def read_run(self, method: str, seed: int) -> Run:
        """What ``write_run`` has written."""
        folder = self.run_folder(method, seed)
        tuned: Tuned = read_json(folder / RUN_FILE, Tuned)
        seconds: dict[str, float] = read_json(folder / SECONDS_FILE, dict[str, float])
        predictions = None if tuned.error else read_predictions(folder / PREDICTIONS_FILE)
        return Run(method, seed, tuned, seconds, predictions)


def _remove_validation(folder: Path) -> None:
    """Of a finished run: the best trial's is among its predictions."""
    for trial in folder.glob("validation-*.npz"):
        trial.unlink(missing_ok=True)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:59] + "…"
