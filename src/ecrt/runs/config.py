"""What a fit from the command line is asked for: a YAML file with dotted overrides, and the task that a target sets."""

from __future__ import annotations

import csv
import difflib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from ecrt.data import LABEL_SEPARATOR, DataFile, ReadOptions, read_data
from ecrt.data.tables import holds_nested
from ecrt.disk import parse_yaml, read_text, read_yaml
from ecrt.errors import InputError, warn_user
from ecrt.estimators import ECRTClassifier, ECRTRegressor
from ecrt.estimators.base import input_errors
from ecrt.rivals import BaselineClassifier, known_rivals

TaskName = Literal["classification", "multilabel", "regression"]

ESTIMATORS: dict[TaskName, type[Any]] = {
    "classification": ECRTClassifier,
    "multilabel": ECRTClassifier,
    "regression": ECRTRegressor,
}

OURS = "ecrt"
"""The method of a fit, unless a rival is named."""

MOST_CLASSES = 30
"""Whole numbers with more distinct values than this may be amounts or labels: the user is asked."""


COPIES = 0.01
"""Share of rows that may be copies of others without a word."""


@dataclass(frozen=True)
class Target:
    """What is to be learned.

    Attributes
    ----------
    task, reason : which task, and a sentence on why.
    y : labels, an indicator matrix, or numbers, none of them missing.
    names : the labels of an indicator matrix, or the columns of several targets.
    unknown : labels of new rows that the model does not know, each with the rows that have it.
    """

    task: TaskName
    reason: str
    y: NDArray[Any]
    names: tuple[str, ...] = ()
    unknown: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


def read_classes(
    path: Path, target: str | None, *, aside: Sequence[str | None] = (), options: ReadOptions | None = None, **more: Any
) -> tuple[DataFile, NDArray[Any]]:
    """Read a table with the class of each row.

    Parameters
    ----------
    target : the column with the class; an NPZ file need not name its array, ``y``.
    aside : columns that are not learned from, or None for one that was not named.
    options, more : of ``read_data``.
    """
    kept = [name for name in aside if name is not None]
    if target is None and path.suffix != ".npz":
        raise InputError("Name the column with the class: --target COL.")
    if path.is_dir():
        raise InputError(
            f"{path} is a folder: this command reads single tables and NPZ files of embeddings, not folders of images, "
            "Parquet or Arrow files."
        )
    if kept and path.suffix == ".npz":
        raise InputError("An NPZ file has no columns: use a table with --group, --time or --seen.")
    names = (target or "y",)
    data = labelled(read_data(path, target=names, aside=kept, options=options, **more))
    return data, read_target(data, names, "classification").y


def unlabelled(data: DataFile) -> Any:
    """The rows without a target that have something to learn from."""
    empty = pd.DataFrame(data.y).isna().all(axis=1).to_numpy()
    if isinstance(data.X, pd.DataFrame):
        empty = empty & ~data.X.isna().all(axis=1).to_numpy()
    if not empty.any():
        raise InputError("use_unlabelled would have no effect: every row has a target.")
    return data.take(np.flatnonzero(empty)).X


def labelled(data: DataFile, *, others_used: bool = False) -> DataFile:
    """The rows that have a target and something to learn from; warnings give the number of the others.

    ``others_used``: rows without a target are not lost, and need no warning.
    """
    if data.y is None:
        raise InputError("There is no target to learn.")
    has_target = ~pd.DataFrame(data.y).isna().any(axis=1).to_numpy()
    if not has_target.any():
        raise InputError("The target column is empty.")
    kept = has_target
    if isinstance(data.X, pd.DataFrame) and data.X.shape[1] > 1:
        kept = has_target & ~data.X.isna().all(axis=1).to_numpy()
    if not has_target.all() and not others_used:
        warn_user(f"{(~has_target).sum()} rows without a label are left out.")
    if (empty := np.flatnonzero(has_target & ~kept)).size:
        shown = ", ".join(str(row + 1) for row in empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
        warn_user(f"Left out, since they have a label but no value in any other column, as a footer has: row {shown}.")
    if not kept.any():
        raise InputError("No row has both a label and a value to learn from.")
    return data if kept.all() else data.take(np.flatnonzero(kept))


def with_weights(data: DataFile, column: str) -> tuple[DataFile, NDArray[np.float64]]:
    """The rows whose weight, in a column that was kept aside, is not zero; and these weights."""
    weight = data.aside[column].to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        row, found = data.aside.index[wrong[0]] + 1, weight[wrong[0]]
        said = "no weight that can be read" if np.isnan(found) else f"the weight {found:g}"
        raise InputError(
            f"--weight {column}: row {row} (line {row + 1} of a text file with a header) has {said}; weights are "
            "finite numbers from 0 on."
        )
    kept = np.flatnonzero(weight)
    if not len(kept):
        raise InputError(f"--weight {column}: every weight is zero; there is no row to learn from.")
    if len(kept) < len(weight):
        warn_user(f"{len(weight) - len(kept)} rows of weight 0 are left out.")
    return data.take(kept), weight[kept]


def warn_of_copies(data: DataFile) -> None:
    """Say how many rows of a table are copies of others, as in a file that was oversampled.

    Rows of few categories are often the same and no copies: a column of numbers must tell most of the others apart.
    """
    if not isinstance(data.X, pd.DataFrame) or data.y is None:
        return
    numbers = data.X.select_dtypes("number")
    y = pd.DataFrame(data.y, index=data.X.index).map(str)  # lists of labels cannot be compared
    copies = pd.concat([data.X, y], axis=1).duplicated()
    different = int((~copies).sum())
    if copies.sum() > COPIES * len(copies) and numbers.nunique().max() > different / 2:
        warn_user(
            f"{copies.sum()} of {len(copies)} rows are copies of others, with the same values and target. A copy of a "
            "row that is tested may be among those that are learned from, and figures are then too good. Remove copies "
            "first, unless each is an observation of its own."
        )


def read_target(
    data: DataFile,
    names: tuple[str, ...],
    task: TaskName | None,
    *,
    labels: tuple[str, ...] = (),
    classes: NDArray[Any] | None = None,
) -> Target:
    """Find the task from the target, unless it is given, and put the target into its form.

    Parameters
    ----------
    data : of rows that all have a target.
    names : the target columns.
    labels, classes : that a fitted model knows; nothing is then learned from these rows, which may be few. Other labels
        are given apart, and other classes stay as they are.
    """
    frame = pd.DataFrame(data.y).infer_objects()
    if frame.shape[1] > len(names):  # a matrix of an NPZ file
        names = tuple(f"{names[0]}_{column}" for column in range(frame.shape[1]))
    reason = "as asked for."
    if task is None:
        task, why = _task_of(frame, names)
        reason = f"since {why}. Use --task if it is not so."
    reason = f"Task: {task}, {reason}"
    if task == "multilabel":
        return Target(task, reason, *_indicator(frame, names, labels))
    if task == "regression":
        return Target(task, reason, _numbers(frame, names), names)
    if frame.shape[1] > 1:
        raise InputError(f"Classification needs one target column, got {list(names)}.")
    return Target(task, reason, _classes(frame.iloc[:, 0], classes))


def _numbers(frame: pd.DataFrame, names: tuple[str, ...]) -> NDArray[np.float64]:
    """Numbers, one or several for each row."""
    if any(kind.kind in "mM" for kind in frame.dtypes):
        frame = frame.astype(str)  # dates are no numbers; pandas would count nanoseconds
    numbers = frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        raise InputError(
            f"Target {list(names)} holds values that are not numbers, as regression needs. Labels are columns of "
            "0 and 1, or of true and false."
        )
    return numbers[:, 0] if numbers.shape[1] == 1 else numbers


def _label_text(label: Any) -> str:
    """A label as it would be written: 1, 1.0 and "1" are one label, whatever type a file gives it."""
    whole = isinstance(label, (float, np.floating)) and float(label).is_integer()
    return str(int(label)) if whole else str(label).strip()


def _task_of(frame: pd.DataFrame, names: tuple[str, ...]) -> tuple[TaskName, str]:
    if frame.shape[1] > 1:
        if _truth(frame) is not None:
            return "multilabel", "the targets are 0 or 1, or true or false"
        return "regression", "there are several targets"
    column = frame.iloc[:, 0]
    if holds_nested(column):
        return "multilabel", "rows have lists of labels"
    distinct = column.nunique()
    if column.dtype.kind == "f" and not (column == column.round()).all():
        return "regression", "the target holds numbers with decimals"
    if column.dtype.kind in "iuf" and distinct > MOST_CLASSES:
        raise InputError(
            f"Target {names[0]!r} has {distinct} different whole numbers, which may be labels or amounts. Say which: "
            "--task classification or --task regression."
        )
    several = column[column.map(lambda value: isinstance(value, str) and LABEL_SEPARATOR in value)]
    if len(several):
        warn_user(
            f"Labels such as {several.iloc[0]!r} are each read as one class. If they are lists: --task multilabel."
        )
    return "classification", f"the target has {distinct} different values"


def _classes(column: pd.Series[Any], known: NDArray[Any] | None) -> NDArray[Any]:
    """Class labels; those that are ``known`` get the type that they have there, whatever it is in this file."""
    if holds_nested(column):
        raise InputError("The target holds lists of labels, not one class for each row. ecrt fit learns such labels.")
    if known is not None:
        label_of = {_label_text(label): label for label in known.tolist()}
        return np.array([label_of.get(_label_text(value), value) for value in column.tolist()], dtype=object)
    if column.dtype.kind == "f" and (column == column.round()).all():
        column = column.astype(np.int64)
    if column.dtype.kind == "f":
        raise InputError("The target holds numbers with decimals, which are not classes.")
    if column.nunique() > max(len(column) / 2, 2):
        raise InputError(
            f"The target has {column.nunique()} distinct values in {len(column)} rows: too many to be class labels. Is "
            "it the right column?"
        )
    return column.to_numpy()


def _indicator(
    frame: pd.DataFrame, names: tuple[str, ...], labels: tuple[str, ...]
) -> tuple[NDArray[np.int64], tuple[str, ...], dict[str, NDArray[np.bool_]]]:
    """0-1 columns as they are; lists, or text with separators, to a column for each label.

    Where ``labels`` are known, others are given apart, with the rows that have them.
    """
    if frame.shape[1] > 1:
        truth = _truth(frame)
        if truth is None:
            raise InputError(f"The targets {list(names)} of a multi-label task must be 0 or 1, or true or false.")
        return truth, names, {}
    rows = [
        [str(label) for label in value]
        if isinstance(value, (list, tuple))
        else [part.strip() for part in str(value).split(LABEL_SEPARATOR) if part.strip()]
        for value in frame.iloc[:, 0]
    ]
    found = sorted({label for row in rows for label in row})
    known = labels or tuple(found)
    others = [label for label in found if label not in set(known)]
    matrix = MultiLabelBinarizer(classes=[*known, *others]).fit_transform(rows)
    unknown = {label: matrix[:, len(known) + place] == 1 for place, label in enumerate(others)}
    return matrix[:, : len(known)], known, unknown


def _truth(frame: pd.DataFrame) -> NDArray[np.int64] | None:
    """Columns of 0 and 1, or of true and false, as 0 and 1; None where there is anything else."""
    words = frame.map(_label_text).apply(lambda column: column.str.lower()).replace({"true": "1", "false": "0"})
    return words.to_numpy(dtype=np.int64) if words.isin(["0", "1"]).all(axis=None) else None


# --- settings ---------------------------------------------------------------------------------------------------------

OWN_OPTIONS = {"class_prior", "costs", "device", "random_state", "verbose"}
"""Options of the estimator that are settings of the run."""

MODEL_OPTIONS = set().union(*(estimator._get_param_names() for estimator in ESTIMATORS.values())) - OWN_OPTIONS
"""What can be set under ``model``, whatever the task."""

LISTS = ("target", "id", "drop", "na")
"""Settings that hold several names; a single one needs no list."""

MOST_PIXELS = 4096
LONGEST_SHOWN = 100


@dataclass(frozen=True, kw_only=True)
class FitConfig(ReadOptions):
    """A fit, whole: with the same file it gives the same model.

    Attributes
    ----------
    target : column with the target, or several of them (0-1 columns of a multi-label task, or numbers); not needed for
        a folder of images.
    task : classification, multilabel or regression; found from the target if not given.
    id : columns that name rows, kept for the output and not learned from.
    drop : columns to leave out.
    weight : column that says how often each row occurs, for the fit; it is not learned from.
    encoding, decimal, na, types : how the file is written, if it cannot be found out: see ``ReadOptions``.
    seed, device : of the estimator.
    class_prior : ``"balanced"``, ``"training"``, or a number for each class; if not given, balanced without costs and
        training with them.
    positive : with two classes, the one that ``threshold`` and ``costs`` are for; the rarer one if not given, by weight
        where rows have weights. Where both are equally frequent it must be given.
    threshold : probability from which the positive class is predicted; the model keeps it as costs.
    costs : of a miss and of a false alarm, such as ``{miss: 10, false_alarm: 1}``, which set the threshold; or, for any
        number of classes, of each mistake, such as ``{cat: {dog: 1}, dog: {cat: 5}}``: true classes, and under each
        what it costs to predict another.
    test_size : share of each class kept for testing; 0 for none.
    refit : whether the saved model learns from the test rows too, once they have been used to measure.
    use_unlabelled : whether rows whose target is empty are tried as ``X_unlabelled``; otherwise they are left out.
    image_size : pixels a side that images are resized to.
    preset : ``"paper"`` for the paper's method as it stands (``"paper:mnist"`` and so on with the networks that its
        supplement has for a data set); options under ``model`` are changes to it.
    method : ``"ecrt"``, or a rival of ``BaselineClassifier``, such as ``"logit-adjusted"``, for classes.
    model : further options of the estimator, ``ECRTClassifier``, ``ECRTRegressor`` or ``BaselineClassifier``; a part by
        its short name, or as its options, such as ``demixing: {kind: flow, objective: gcl}``. Options of a rival
        itself are under ``method`` there.
    """

    target: tuple[str, ...] = ("label",)
    task: TaskName | None = None
    id: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    weight: str | None = None
    seed: int = 0
    device: str = "auto"
    class_prior: str | tuple[float, ...] | None = None
    positive: str | int | None = None
    threshold: float | None = None
    costs: dict[str, float | dict[str, float]] | None = None
    test_size: float = 0.2
    refit: bool = True
    use_unlabelled: bool = False
    image_size: int = 32
    preset: str | None = None
    method: str = OURS
    model: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.test_size < 1:
            raise InputError(f"test_size={self.test_size}: a share from 0 up to, not including, 1 is needed.")
        if not 1 <= self.image_size <= MOST_PIXELS:
            raise InputError(f"image_size={self.image_size}: from 1 to {MOST_PIXELS} pixels a side are possible.")
        if self.threshold is not None and self.costs is not None:
            raise InputError("Give threshold or costs, not both: costs set the threshold.")
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise InputError(f"threshold={self.threshold}: a probability between 0 and 1 is needed.")
        costs = {"miss": 1.0, "false_alarm": 1.0} if self.costs is None or self.costs_by_class else self.costs
        if set(costs) != {"miss", "false_alarm"} or not all(
            isinstance(cost, float | int) and 0 < cost < math.inf for cost in costs.values()
        ):
            raise InputError(
                f"costs={_short(self.costs)}: two positive numbers are needed, miss and false_alarm, or for each class "
                "the costs of predicting the others."
            )
        methods = [OURS, *(name for name, rival in known_rivals().items() if rival.kept)]
        if self.method not in methods:
            close = difflib.get_close_matches(self.method[:LONGEST_SHOWN], methods, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(methods)}."
            raise InputError(f"No method that can be saved is called {_short(self.method)}; {hint}")
        if self.method != OURS and self.preset is not None:
            raise InputError(f"preset={self.preset} is for ECRT, not for method={self.method}: leave out one of them.")
        if self.method != OURS and self.task not in (None, "classification"):
            raise InputError(f"method={self.method} is for classes; the task is {self.task}.")
        if not isinstance(self.model.get("method", {}), dict):
            raise InputError("model.method holds options of a rival; which rival it is says the setting method.")
        estimators = self.estimators.values() if self.task is None else [self.estimators[self.task]]
        known = {estimator: set(estimator._get_param_names()) - OWN_OPTIONS for estimator in estimators}
        _refuse_unknown(self.model, set().union(*known.values()), "model.")
        errors = []
        known = {estimator: names for estimator, names in known.items() if names >= self.model.keys()} or known
        for estimator, names in known.items():
            try:
                made = self.make(estimator, {name: one for name, one in self.options.items() if name in names})
                with input_errors():
                    made._validate_params()
            except InputError as error:
                errors.append(error)
        if len(errors) == len(known):  # for each task that it may be
            raise errors[0]

    @property
    def estimators(self) -> dict[TaskName, type[Any]]:
        """What can be fitted, by task."""
        return ESTIMATORS if self.method == OURS else {"classification": BaselineClassifier}

    @property
    def options(self) -> dict[str, Any]:
        """Options of the estimator, with the rival among them."""
        if self.method == OURS:
            return self.model
        return self.model | {"method": {"kind": self.method, **self.model.get("method", {})}}

    @property
    def costs_by_class(self) -> dict[str, Any] | None:
        """Costs of each mistake between classes, if such are given."""
        by_class = self.costs is not None and all(isinstance(row, dict) for row in self.costs.values())
        return self.costs if by_class else None

    @property
    def prior(self) -> str | tuple[float, ...]:
        """The class prior to predict under."""
        return self.class_prior or ("balanced" if self.costs is None and self.preset is None else "training")

    def make(self, estimator: type[Any], options: Mapping[str, Any]) -> Any:
        """The estimator with these options, which are changes to the preset, if there is one.

        Options of a part without its kind are changes to the part of the preset.
        """
        if self.preset is None:
            return estimator._from_plain_options(options)
        name, _, data = self.preset.partition(":")
        if name != "paper":
            raise InputError(f"preset={self.preset!r}: there is 'paper', or 'paper:' and a data set of its supplement.")
        found = estimator.paper(**({"data": data} if data else {}))
        changed = {
            option: value
            for option, value in options.items()
            if option in estimator._roles and isinstance(value, dict) and not {"kind", "network"} & value.keys()
        }
        others = {option: value for option, value in options.items() if option not in changed}
        plain = estimator._from_plain_options(others)
        found.set_params(**{option: getattr(plain, option) for option in others})
        for option, value in changed.items():
            part = getattr(found, option)
            unknown = sorted(value.keys() - set(part._get_param_names()))
            if unknown:
                raise InputError(f"{option}: {type(part).__name__} has no option {unknown[0]!r}.")
            part.set_params(**value)
        return found

    @property
    def decides(self) -> bool:
        """Whether a threshold, or costs of a miss and a false alarm, decide between two classes."""
        return self.threshold is not None or (self.costs is not None and self.costs_by_class is None)

    def positive_place(self, classes: NDArray[Any], counts: NDArray[Any]) -> int:
        """Place of the positive one of two classes; where neither is named or rarer, the user is asked."""
        if len(classes) != 2:
            raise InputError(
                f"A threshold or costs need two classes, as a positive class does; there are {len(classes)}."
            )
        names = list(map(str, classes.tolist()))
        if self.positive is None and counts[0] == counts[1]:
            raise InputError(
                f"{names[0]!r} and {names[1]!r} are equally frequent, so that neither is the rarer one. Name the class "
                f"that must not be missed, such as --positive {names[1]}."
            )
        if self.positive is not None and str(self.positive) not in names:
            raise InputError(f"positive={self.positive!r} is not a class; there are {classes.tolist()}.")
        return int(np.argmin(counts)) if self.positive is None else names.index(str(self.positive))

    def model_costs(self, classes: NDArray[Any], counts: NDArray[Any]) -> dict[str, Any] | None:
        """The costs of the model: of each mistake as given, or of the two between two classes.

        A threshold t is a false alarm that costs t and a miss that costs 1 - t: from t on a miss is expected to cost
        more. The false alarm costs a little less, so that t itself counts as reached, whatever rounding does.
        """
        if not self.decides:
            return self.costs_by_class
        place = self.positive_place(classes, counts)
        costs: dict[str, Any] = self.costs or {}
        if self.threshold is not None:
            costs = {"miss": 1 - self.threshold, "false_alarm": self.threshold * (1 - 1e-12)}
        positive, other = str(classes[place]), str(classes[1 - place])
        return {positive: {other: costs["miss"]}, other: {positive: costs["false_alarm"]}}

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
        if path.split(".")[0] in parts or folders[:1] == ["method"]:
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def _refuse_unknown(settings: dict[str, Any], known: set[str], prefix: str) -> None:
    for name in settings:
        if name not in known:
            below = {} if prefix else {option: f"model.{option}" for option in MODEL_OPTIONS}
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


def read_costs(text: str | None) -> dict[str, Any] | None:
    """Costs as they are written on the command line: of the two mistakes between two classes, or a CSV file of all.

    The file has true classes in its first column, and predicted ones in its first line.
    """
    if text is None:
        return None
    if text.lower().endswith(".csv"):
        return _costs_of(Path(text))
    try:
        miss, false_alarm = (float(part) for part in text.split(":"))
    except ValueError:
        raise InputError(
            f"--costs {text}: use two numbers such as 10:1, for a miss and a false alarm, or a CSV file with a line "
            "for each true class and a column for each predicted one."
        ) from None
    return {"miss": miss, "false_alarm": false_alarm}


def _costs_of(file: Path) -> dict[str, Any]:
    text = read_text(file).removeprefix("\ufeff")
    separator = ";" if ";" in text.partition("\n")[0] else ","
    lines = list(csv.reader(io.StringIO(text), delimiter=separator))
    lines = [[cell.strip() for cell in line] for line in lines if any(cell.strip() for cell in line)]
    names, found = lines[0][1:] if lines else [], {}
    if not names or len(set(names)) < len(names):
        raise InputError(f"{file}: its first line must name each predicted class once.")
    for number, (true, *cells) in enumerate(lines[1:], start=2):
        if len(cells) != len(names) or true in found:
            fault = f"{true!r} comes twice" if true in found else f"{len(cells)} costs for {len(names)} classes"
            raise InputError(f"{file}, row {number}: {fault}.")
        try:
            found[true] = {name: float(cell) for name, cell in zip(names, cells, strict=True) if cell}
        except ValueError as error:
            raise InputError(f"{file}, row {number} ({true!r}): {error}.") from error
    return found
