"""Which task a target sets, and what each task needs to be fitted and measured from the command line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.data import LABEL_SEPARATOR, DataFile
from ecrt.errors import InputError, warn_user
from ecrt.estimators import ECRTClassifier, ECRTRegressor
from ecrt.runs.records import TaskName

ESTIMATORS: dict[TaskName, type[Any]] = {
    "classification": ECRTClassifier,
    "multilabel": ECRTClassifier,
    "regression": ECRTRegressor,
}

MOST_CLASSES = 30
"""Whole numbers with more distinct values than this may be amounts or labels: the user is asked."""


@dataclass(frozen=True)
class Target:
    """What is to be learned.

    Attributes
    ----------
    task, reason : which task, and a sentence on why.
    y : labels, an indicator matrix, or numbers; None of them missing.
    names : the labels of an indicator matrix, or the columns of several targets.
    rows : which rows of the file have a target.
    strata : groups of rows that a split keeps in proportion.
    unknown : of new rows, labels that the model does not know, each with the rows that have it.
    """

    task: TaskName
    reason: str
    y: NDArray[Any]
    names: tuple[str, ...]
    rows: NDArray[np.int64]
    strata: NDArray[np.int64]
    unknown: dict[str, NDArray[np.bool_]] = field(default_factory=dict)


def labelled(data: DataFile, target: Target) -> DataFile:
    """The rows that have a target; a warning gives the number of the others."""
    left_out = len(data.ids) - len(target.rows)
    if not left_out:
        return data
    warn_user(f"{left_out} rows without a label are left out.")
    return data.take(target.rows)


def read_target(data: DataFile, names: tuple[str, ...], task: TaskName | None) -> Target:
    """Find the task from the target, unless it is given, and put the target into its form.

    Parameters
    ----------
    names : the target columns.
    """
    frame, rows = _present(data)
    if task is None:
        task, why = _task_of(frame, names)
        reason = f"Task: {task}, since {why}. Use --task if it is not so."
    else:
        reason = f"Task: {task}, as asked for."
    if task == "multilabel":
        known, y, _ = _indicator(frame, names, ())
        rarest = np.argmin(np.where(y > 0, y.sum(axis=0), len(y) + 1), axis=1)
        return Target(task, reason, y, known, rows, rarest)
    if task == "regression":
        numbers, names = _numbers(frame, names)
        first = numbers if numbers.ndim == 1 else numbers[:, 0]
        strata = pd.qcut(first, 10, labels=False, duplicates="drop").astype(np.int64)
        return Target(task, reason, numbers, names, rows, strata)
    y = _classes(_one_column(frame, names))
    return Target(task, reason, y, (), rows, np.unique(y, return_inverse=True)[1].astype(np.int64))


def read_new_target(
    data: DataFile, names: tuple[str, ...], task: TaskName, labels: tuple[str, ...], classes: NDArray[Any] | None
) -> Target:
    """The target of new rows in the form that a model's own has: nothing is learned from these rows, which may be few.

    Parameters
    ----------
    names : the target columns.
    labels : that a multi-label model knows, or the names of several numbers.
    classes : that a classifier knows; others stay as they are.
    """
    frame, rows = _present(data)
    none, reason = np.zeros(len(rows), dtype=np.int64), f"Task: {task}, as in the fit."
    if task == "multilabel":
        _, y, unknown = _indicator(frame, names, labels)
        return Target(task, reason, y, labels, rows, none, unknown)
    if task == "regression":
        return Target(task, reason, _numbers(frame, names)[0], labels, rows, none)
    known = {_label_text(label): label for label in ([] if classes is None else classes.tolist())}
    column = _one_column(frame, names)
    y = np.array([known.get(_label_text(value), value) for value in column.tolist()], dtype=object)
    return Target(task, reason, y, (), rows, none)


def _present(data: DataFile) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """The target of the rows that have one, and which rows these are."""
    if data.y is None:
        raise InputError("There is no target to learn.")
    frame = pd.DataFrame(data.y)
    rows = np.flatnonzero(~frame.isna().any(axis=1).to_numpy())
    if len(rows) == 0:
        raise InputError("The target column is empty.")
    return frame.iloc[rows].infer_objects(), rows


def _numbers(frame: pd.DataFrame, names: tuple[str, ...]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Numbers, one or several for each row, and what each is called."""
    numbers = frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        raise InputError(
            f"Target {list(names)} holds values that are no numbers, as regression needs. Labels are columns of "
            "0 and 1, or of true and false."
        )
    if len(names) != numbers.shape[1]:  # an array of an NPZ file
        names = tuple(f"{names[0]}_{column}" for column in range(numbers.shape[1]))
    return (numbers[:, 0] if numbers.shape[1] == 1 else numbers), names


def _one_column(frame: pd.DataFrame, names: tuple[str, ...]) -> pd.Series[Any]:
    if frame.shape[1] > 1:
        raise InputError(f"Classification needs one target column, got {list(names)}.")
    return frame.iloc[:, 0]


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
    if column.map(lambda value: isinstance(value, (list, tuple))).any():
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
            f"Labels such as {several.iloc[0]!r} are read as one class each. If they are lists: --task multilabel."
        )
    return "classification", f"the target has {distinct} different values"


def _classes(column: pd.Series[Any]) -> NDArray[Any]:
    if column.dtype.kind == "f" and (column == column.round()).all():
        column = column.astype(np.int64)
    if column.dtype.kind == "f":
        raise InputError("The target holds numbers with decimals, which name no classes.")
    if column.nunique() > max(len(column) / 2, 2):
        raise InputError(
            f"The target has {column.nunique()} distinct values in {len(column)} rows: too many to be class labels. Is "
            "it the right column?"
        )
    return column.to_numpy()


def _indicator(
    frame: pd.DataFrame, names: tuple[str, ...], labels: tuple[str, ...]
) -> tuple[tuple[str, ...], NDArray[np.int64], dict[str, NDArray[np.bool_]]]:
    """0-1 columns as they are; lists, or text with separators, to a column for each label.

    Where ``labels`` are known, others are given apart, with the rows that have them.
    """
    if frame.shape[1] > 1:
        truth = _truth(frame)
        if truth is None:
            raise InputError(f"The targets {list(names)} of a multi-label task must be 0 or 1, or true or false.")
        return names, truth, {}
    rows = [
        [str(label) for label in value]
        if isinstance(value, (list, tuple))
        else [part.strip() for part in str(value).split(LABEL_SEPARATOR) if part.strip()]
        for value in frame.iloc[:, 0]
    ]
    known = labels or tuple(sorted(Counter(label for row in rows for label in row)))
    place = {label: at for at, label in enumerate(known)}
    y = np.zeros((len(rows), len(known)), dtype=np.int64)
    unknown: dict[str, NDArray[np.bool_]] = {}
    for at, row in enumerate(rows):
        for label in row:
            if label in place:
                y[at, place[label]] = 1
            else:
                unknown.setdefault(label, np.zeros(len(rows), dtype=bool))[at] = True
    return known, y, unknown


def _truth(frame: pd.DataFrame) -> NDArray[np.int64] | None:
    """Columns of 0 and 1, or of true and false, as 0 and 1; None where there is anything else."""
    words = frame.map(_label_text).apply(lambda column: column.str.lower()).replace({"true": "1", "false": "0"})
    return words.to_numpy(dtype=np.int64) if words.isin(["0", "1"]).all(axis=None) else None
