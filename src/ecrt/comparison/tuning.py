"""Tuning of one method on one split, by Optuna, judged on inner validation rows alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ecrt.comparison.limits import OutOfTime, time_limit
from ecrt.comparison.methods import Method
from ecrt.comparison.space import optuna_library, optuna_space
from ecrt.comparison.store import Validation, read_trial, write_trial
from ecrt.errors import InputError

__all__ = ["Trial", "Tuned", "tune"]

STARTUP_TRIALS = 5
"""Trials drawn at random before those that went well say where to look (Optuna's TPE)."""

MOST_TRIALS = 500


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


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What tuning found: the best setting, what it said of validation rows, and how many trials there were."""

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

    Every trial draws from a sampler that is seeded by its number, so that trials read from disk and trials just made
    are continued alike. With a budget, the trial that runs when it ends is cut and does not count; if none was
    finished, the method's first start is taken untested.

    Parameters
    ----------
    objective : the metric of a setting on validation rows, and its predictions there.
    trials, budget : one of them is given: how many trials, or for how many seconds.
    folder : where trials are kept, if anywhere.
    """
    optuna = optuna_library()
    space = optuna_space(method.space)
    study = optuna.create_study(direction="maximize" if higher_is_better else "minimize")
    for start in method.starts:
        study.enqueue_trial(dict(start))
    done: list[Trial] = []
    best, said = None, None
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
            best, said, parameters = trial.value, validation, trial.parameters
    failed = [trial for trial in done if trial.error]
    return Tuned(
        parameters=dict(method.starts[0]) if best is None else parameters,
        value=best,
        validation=said,
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
    except Exception as fault:  # a setting that a method cannot bear costs that trial, not the comparison
        error = f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    seconds = round(time.perf_counter() - began, 3)
    return Trial(parameters=parameters, value=value, error=error, cut=cut, seconds=seconds), validation


def _stored(folder: Path | None, number: int) -> tuple[Trial | None, Validation | None]:
    """A trial that is on disk, whole."""
    if folder is None or not (folder / f"trial-{number:03d}.json").is_file():
        return None, None
    try:
        trial, validation = read_trial(folder / f"trial-{number:03d}.json")
    except InputError:
        return None, None
    return Trial(**trial), validation


def _keep(folder: Path | None, number: int, trial: Trial, validation: Validation | None) -> None:
    """Write a trial; a worker on another machine may not see the folder, and keeps nothing."""
    if folder is not None and folder.is_dir():
        write_trial(folder / f"trial-{number:03d}.json", asdict(trial), validation)


def _trial_seed(seed: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
