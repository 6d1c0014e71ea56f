"""What a fit from the command line is asked for: a YAML file, and dotted overrides of it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from ecrt.data import ReadOptions
from ecrt.errors import InputError
from ecrt.io import parse_yaml, read_yaml
from ecrt.runs.records import TaskName
from ecrt.runs.targets import ESTIMATORS

OWN_OPTIONS = {"class_prior", "device", "random_state", "verbose"}
"""Options of the estimator that are settings of the run."""

LISTS = ("target", "id", "drop", "na")
"""Settings that hold several names; a single one needs no list."""

MOST_PIXELS = 4096
LONGEST_SHOWN = 100


@dataclass(frozen=True)
class Decision:
    """Predict the class at ``positive`` from a probability of ``threshold`` on; otherwise the most probable class."""

    threshold: float | None = None
    positive: int = 1

    def labels(self, probabilities: NDArray[np.float64], classes: NDArray[Any]) -> NDArray[Any]:
        """Label of each row."""
        if self.threshold is None:
            return classes[probabilities.argmax(axis=1)]
        is_positive = probabilities[:, self.positive] >= self.threshold
        return classes[np.where(is_positive, self.positive, 1 - self.positive)]


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """A fit, whole: with the same file it gives the same model.

    Attributes
    ----------
    target : column with the target, or several of them (0-1 columns of a multi-label task, or numbers); not needed for
        a folder of images.
    task : classification, multilabel or regression; found from the target if not given.
    id : columns that name rows, kept for the output and not learned from.
    drop : columns to leave out.
    encoding, decimal, na, types : how the file is written, if it cannot be found out: see ``ReadOptions``.
    seed, device : of the estimator.
    class_prior : ``"balanced"``, ``"training"``, or a number for each class; if not given, balanced without costs and
        training with them.
    positive : with two classes, the one that ``threshold`` and ``costs`` are for; the rarer one if not given.
    threshold : probability from which the positive class is predicted.
    costs : of a miss and of a false alarm, such as ``{miss: 10, false_alarm: 1}``; they set the threshold.
    test_size : share of each class kept for testing; 0 for none.
    refit : whether the saved model learns from the test rows too, once they have been used to measure.
    image_size : pixels a side that images are resized to.
    model : further options of the estimator, ``ECRTClassifier`` or ``ECRTRegressor``; a part by its short name, or as
        its options, such as ``demixing: {kind: flow, objective: gcl}``.
    """

    target: tuple[str, ...] = ("label",)
    task: TaskName | None = None
    id: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    encoding: str | None = None
    decimal: str | None = None
    na: tuple[str, ...] = ()
    types: dict[str, str] = field(default_factory=dict)
    seed: int = 0
    device: str = "auto"
    class_prior: str | tuple[float, ...] | None = None
    positive: str | int | None = None
    threshold: float | None = None
    costs: dict[str, float] | None = None
    test_size: float = 0.2
    refit: bool = True
    image_size: int = 32
    model: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.test_size < 1:
            raise InputError(f"test_size={self.test_size}: a share from 0 up to, not including, 1 is needed.")
        if not 1 <= self.image_size <= MOST_PIXELS:
            raise InputError(f"image_size={self.image_size}: from 1 to {MOST_PIXELS} pixels a side are possible.")
        if self.threshold is not None and self.costs is not None:
            raise InputError("Give threshold or costs, not both: costs set the threshold.")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise InputError(f"threshold={self.threshold}: a probability between 0 and 1 is needed.")
        costs = {"miss": 1.0, "false_alarm": 1.0} if self.costs is None else self.costs
        if set(costs) != {"miss", "false_alarm"} or not all(0 < cost < math.inf for cost in costs.values()):
            raise InputError(f"costs={self.costs}: two positive numbers are needed, miss and false_alarm.")
        _ = self.reading  # refuses what cannot be
        estimators = ESTIMATORS.values() if self.task is None else [ESTIMATORS[self.task]]
        known = {estimator: set(estimator._get_param_names()) - OWN_OPTIONS for estimator in estimators}
        _refuse_unknown(self.model, set().union(*known.values()), "model.")
        errors = []
        for estimator, names in known.items():
            try:
                estimator._from_plain_options({name: one for name, one in self.model.items() if name in names})
            except InputError as error:
                errors.append(error)
        if len(errors) == len(known):  # for each task that it may be
            raise errors[0]

    @property
    def reading(self) -> ReadOptions:
        """How the file is written, as far as it is known."""
        return ReadOptions(encoding=self.encoding, decimal=self.decimal, na=self.na, types=self.types)

    @property
    def prior(self) -> str | tuple[float, ...]:
        """The class prior to predict under."""
        return self.class_prior or ("balanced" if self.costs is None else "training")

    def decision(self, classes: NDArray[Any], counts: NDArray[np.int64]) -> Decision:
        """From probabilities to labels.

        With costs, the positive class is predicted when the expected cost of missing it exceeds that of a false alarm:
        from a probability of false_alarm / (false_alarm + miss) on.
        """
        if self.threshold is None and self.costs is None:
            return Decision()
        if len(classes) != 2:
            raise InputError(f"A threshold or costs need two classes; there are {len(classes)}.")
        places = [int(np.argmin(counts))]
        if self.positive is not None:
            places = [at for at, label in enumerate(classes.tolist()) if str(label) == str(self.positive)]
        if not places:
            raise InputError(f"positive={self.positive!r} is not a class; there are {classes.tolist()}.")
        threshold = self.threshold
        if self.costs is not None:
            threshold = self.costs["false_alarm"] / (self.costs["false_alarm"] + self.costs["miss"])
        return Decision(threshold, places[0])

    def as_yaml(self) -> str:
        """All settings, defaults included, as a file that ``read_config`` reads."""
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def read_config(file: Path | None, overrides: Sequence[str], **given: Any) -> FitConfig:
    """Settings of a file, then overrides such as ``demixing.objective=gcl``, then what was given by name.

    Parameters
    ----------
    given : settings by name; ``None`` says nothing.
    """
    settings = {} if file is None else read_yaml(file) or {}
    if not isinstance(settings, dict):
        raise InputError(f"The config file {file} must hold keys and values.")
    parts = {name for estimator in ESTIMATORS.values() for name in estimator._roles}
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise InputError(f"The override {override!r} is not of the form KEY=VALUE, such as demixing.objective=gcl.")
        try:
            value = parse_yaml(text)
        except ValueError as error:
            raise InputError(f"The value of the override {override!r} cannot be read.") from error
        *folders, key = path.split(".")
        if path.split(".")[0] in parts:
            folders = ["model", *folders]
        place = settings
        for name in folders:
            if name in parts and isinstance(place.get(name), str):  # options of a part that has its short name so far
                place[name] = {"network" if name == "encoder" else "kind": place[name]}
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise InputError(f"The override {override!r} goes into {name!r}, which holds no keys.")
        place[key] = value
    settings |= {name: value for name, value in given.items() if value is not None}
    _refuse_unknown(settings, {entry.name for entry in fields(FitConfig)}, "")
    return _checked(settings)


def _checked(settings: dict[str, Any]) -> FitConfig:
    """The settings, if each is of its kind; the one that is not is named."""
    if (task := settings.get("task")) not in (None, *ESTIMATORS):
        raise InputError(f"task={_short(task)}: use {', '.join(ESTIMATORS)}.")
    lists = {name: [value] for name in LISTS if isinstance(value := settings.get(name), str)}
    try:
        return msgspec.convert(settings | lists, FitConfig)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        problem, _, path = str(error).partition(" - at `$.")
        name = re.split(r"[.\[`]", path)[0]
        raise InputError(f"{name}={_short(settings.get(name))}: {problem[0].lower()}{problem[1:]}.") from None


def _model_options() -> set[str]:
    """What can be set under ``model``."""
    return set().union(*(estimator._get_param_names() for estimator in ESTIMATORS.values())) - OWN_OPTIONS


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def _refuse_unknown(settings: dict[str, Any], known: set[str], prefix: str) -> None:
    for name in settings:
        if name not in known:
            below = {} if prefix else {option: f"model.{option}" for option in _model_options()}
            names = below | {one: prefix + one for one in known}
            close = difflib.get_close_matches(str(name)[:LONGEST_SHOWN], names, n=1)
            prefixed = prefix + str(name)[:LONGEST_SHOWN]
            hint = f"did you mean {names[close[0]]!r}?" if close else f"there are {sorted(known)}."
            raise InputError(f"No setting is called {prefixed!r}; {hint}")


def read_prior(text: str | None) -> str | tuple[float, ...] | None:
    """A class prior as it is written on the command line."""
    if text is None or text in ("balanced", "training"):
        return text
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--class-prior {text}: use balanced, training, or numbers such as 0.9,0.1.") from None


def read_costs(text: str | None) -> dict[str, float] | None:
    """Costs of the two mistakes as they are written on the command line."""
    if text is None:
        return None
    try:
        miss, false_alarm = (float(part) for part in text.split(":"))
    except ValueError:
        raise InputError(f"--costs {text}: use two numbers such as 10:1, for a miss and a false alarm.") from None
    return {"miss": miss, "false_alarm": false_alarm}
