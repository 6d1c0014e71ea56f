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

from ecrt.comparison.methods import Method
from ecrt.comparison.store import Trial, Validation, read_trial, write_trial
from ecrt.errors import InputError
from ecrt.rivals.base import Choice, Space

STARTUP_TRIALS = 5
"""Trials drawn at random before those that went well say where to look (Optuna's TPE)."""

MOST_TRIALS = 500

REPEAT = 0.1
"""Seconds after which the alarm rings again: the first may come at a bad moment, or be swallowed."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What tuning found: the best setting, its predictions of validation rows, and how many trials there were."""

    parameters: dict[str, Any]
    value: float | None
    validation: Validation | None
    n_finished: int
    n_failed: int
    n_cut: int
    seconds: float
    error: str


Objective = Callable[[Mapping[str, Any]], tuple[float, Validation]]


def tune(
    method: Method,
    objective: Objective,
    *,
    higher_is_better: bool,
    seed: int,
    trials: int | None,
    budget: float | None,
    folder: Path | None = None,
) -> Tuned:
    """Try settings until their number or their time is out, and take the best.

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
    best, predicted = None, None
    while len(done) < (MOST_TRIALS if trials is None else trials):
        left = float("inf") if budget is None else budget - sum(trial.seconds for trial in done)
        if left <= 0 or (done and done[-1].cut):
            break
        began = time.perf_counter()  # drawing a setting is part of tuning
        study.sampler = optuna.samplers.TPESampler(seed=_trial_seed(seed, len(done)), n_startup_trials=STARTUP_TRIALS)
        asked = study.ask(fixed_distributions=space)
        trial, validation = _stored(folder, len(done))
        if trial is None:
            trial, validation = _try(objective, dict(asked.params), began, left)
            _keep(folder, len(done), trial, validation)
        done.append(trial)
        if trial.value is None:
            study.tell(asked, state=optuna.trial.TrialState.FAIL)
            continue
        study.tell(asked, trial.value)
        # Of equal values the earliest: starts are the cheap and the usual settings.
        if best is None or (trial.value > best if higher_is_better else trial.value < best):
            best, predicted, parameters = trial.value, validation, trial.parameters
    failed = [trial for trial in done if trial.error]
    return Tuned(
        parameters=method.starts[0] if best is None else parameters,
        value=best,
        validation=predicted,
        n_finished=sum(trial.value is not None for trial in done),
        n_failed=len(failed),
        n_cut=sum(trial.cut for trial in done),
        seconds=round(sum(trial.seconds for trial in done), 3),
        error=failed[0].error if failed and best is None else "",
    )


def _try(
    objective: Objective, parameters: dict[str, Any], began: float, left: float
) -> tuple[Trial, Validation | None]:
    value: float | None = None
    validation: Validation | None = None
    error, cut = "", False
    try:
        with time_limit(left - (time.perf_counter() - began)):
            value, validation = objective(parameters)
        if not np.isfinite(value):
            value, error = None, "the metric is not finite"
    except OutOfTime:
        cut = True
    except Exception as fault:  # a setting that fails costs one trial, not the comparison
        error = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    seconds = round(time.perf_counter() - began, 3)
    return Trial(parameters=parameters, value=value, error=error, cut=cut, seconds=seconds), validation


def _stored(folder: Path | None, number: int) -> tuple[Trial | None, Validation | None]:
    """A trial that is on disk, whole."""
    if folder is None or not (folder / f"trial-{number:03d}.json").is_file():
        return None, None
    try:
        return read_trial(folder / f"trial-{number:03d}.json")
    except InputError:
        return None, None


def _keep(folder: Path | None, number: int, trial: Trial, validation: Validation | None) -> None:
    """Write a trial; a worker on another machine may not see the folder, and keeps nothing."""
    if folder is not None and folder.is_dir():
        write_trial(folder / f"trial-{number:03d}.json", trial, validation)


def _trial_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


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
        if not _importing(frame):
            raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), REPEAT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
