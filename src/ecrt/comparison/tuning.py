"""Tuning of one method on one split, by Optuna, judged on inner validation rows alone."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.comparison.methods import Method
from ecrt.disk import read_arrays, read_json, write_arrays, write_json
from ecrt.errors import InputError
from ecrt.rivals.base import Choice, Space

STARTUP_TRIALS = 5
"""Trials drawn at random before those that went well say where to look (Optuna's TPE)."""

MOST_TRIALS = 500

REPEAT = 0.1
"""Seconds after which the alarm rings again: the first may come at a bad moment, or be swallowed."""

MOST_BYTES = 16 * 2**30
Validation = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Log-probabilities under the balanced prior, and class indices, of the rows that a trial was judged on."""

Objective = Callable[[Mapping[str, Any]], tuple[float, Validation]]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting that was tried.

    Attributes
    ----------
    parameters, value, error : the setting, the metric on validation rows, and what went wrong if it has none.
    cut : whether its time ran out.
    """

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
        """A trial, and its predictions of validation rows unless it failed."""
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
    best: Trial | None = None
    predicted: Validation | None = None
    while len(done) < (MOST_TRIALS if trials is None else trials):
        left = float("inf") if budget is None else budget - sum(trial.seconds for trial in done)
        if left <= 0 or (done and done[-1].cut):
            break
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
        if trial.value is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(asked, trial.value)
        sign = 1 if higher_is_better else -1
        # Of equal values the earliest: starts are the cheap and the usual settings.
        if best is None or best.value is None or sign * trial.value > sign * best.value:
            best, predicted = trial, validation
    failed = [trial.error for trial in done if trial.error]
    finished, cut = sum(trial.value is not None for trial in done), sum(trial.cut for trial in done)
    tuned = Tuned(
        parameters=method.starts[0] if best is None else best.parameters,
        validation=None if best is None else best.value,
        trials={"finished": finished, "failed": len(failed), "cut": cut},
        error=failed[0] if failed and best is None else "",
    )
    return tuned, predicted, round(sum(trial.seconds for trial in done), 3)


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
        cut = True
    except Exception as fault:  # a setting that fails costs one trial, not the comparison
        error = error_text(fault)
    seconds = round(time.perf_counter() - began, 3)
    return Trial(parameters=parameters, value=value, error=error, cut=cut, seconds=seconds), validation


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
