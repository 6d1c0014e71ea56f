"""Which task a target sets, and the target in the form that the task needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import MultiLabelBinarizer

from ecrt.data import LABEL_SEPARATOR, DataFile, ReadOptions, read_data
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
        raise InputError(f"{path} is a folder: this command reads tables and NPZ files of embeddings, not images.")
    if kept and path.suffix == ".npz":
        raise InputError("An NPZ file has no columns: use a table with --group, --time or --seen.")
    names = (target or "y",)
    data = labelled(read_data(path, target=names, aside=kept, options=options, **more))
    return data, read_target(data, names, "classification").y


def labelled(data: DataFile) -> DataFile:
    """The rows that have a target and something to learn from; warnings give the number of the others."""
    if data.y is None:
        raise InputError("There is no target to learn.")
    has_target = ~pd.DataFrame(data.y).isna().any(axis=1).to_numpy()
    if not has_target.any():
        raise InputError("The target column is empty.")
    kept = has_target
    if isinstance(data.X, pd.DataFrame) and data.X.shape[1] > 1:
        kept = has_target & ~data.X.isna().all(axis=1).to_numpy()
    if not has_target.all():
        warn_user(f"{(~has_target).sum()} rows without a label are left out.")
    if (empty := np.flatnonzero(has_target & ~kept)).size:
        shown = ", ".join(str(row + 1) for row in empty[:5]) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
        warn_user(f"Left out, since they have a label but no value in any other column, as a footer has: row {shown}.")
    if not kept.any():
        raise InputError("No row has both a label and a value to learn from.")
    return data if kept.all() else data.take(np.flatnonzero(kept))


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
            f"Labels such as {several.iloc[0]!r} are each read as one class. If they are lists: --task multilabel."
        )
    return "classification", f"the target has {distinct} different values"


def _classes(column: pd.Series[Any], known: NDArray[Any] | None) -> NDArray[Any]:
    """Class labels; those that are ``known`` get the type that they have there, whatever it is in this file."""
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
