"""A folder with a model, and a file: predictions, or how good they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from sklearn.metrics import confusion_matrix

from ecrt.data import LABEL_SEPARATOR, ColumnReading, DataFile, Images, ReadOptions, column_rows, read_data
from ecrt.data.tables import NOT_AS_FITTED
from ecrt.disk import check_writable, recover, replacing
from ecrt.errors import InputError, ModelFileError, hide_warnings, warn_user
from ecrt.estimators import load
from ecrt.io import read_json, read_text
from ecrt.runs.config import Decision, FitConfig, read_config
from ecrt.runs.evaluation import measure
from ecrt.runs.folder import CONFIG_FILE, MODEL_FOLDER, TARGET_FILE, check_run
from ecrt.runs.records import Evaluation, Measured, TaskName
from ecrt.runs.targets import ESTIMATORS, labelled, read_target

PREDICTED, CARD_FILE = "predicted", "MODEL_CARD.md"
MOST_NAMES = 1_000_000
MOST_NAMED = 12
WRITERS = {".csv": "to_csv", ".parquet": "to_parquet", ".jsonl": "to_json"}


@dataclass(frozen=True)
class FittedRun:
    """What ``ecrt fit`` left: the model and its settings."""

    model: Any
    config: FitConfig
    task: TaskName
    names: tuple[str, ...]
    columns: tuple[ColumnReading, ...] = ()

    @property
    def decision(self) -> Decision:
        """How probabilities of classes become labels."""
        return self.config.decision(self.model.classes_, self.model.class_counts_)

    def read(
        self, path: Path, *, target: Sequence[str] = (), options: ReadOptions, allow_unreadable: bool = False
    ) -> DataFile:
        """Read a file as that of the fit was read; columns that the model does not know are not looked at.

        Parameters
        ----------
        options : how this file is written, where it is otherwise than that of the fit.
        allow_unreadable : whether more than half of a column may be unreadable or new.
        """
        options = replace(options, encoding=options.encoding or self.config.encoding)
        data = read_data(
            path, target=target, ids=self.config.id, image_size=self.config.image_size, columns=self.columns,
            options=options, allow_unreadable=allow_unreadable,
        )  # fmt: skip
        self._warn_of_problems(data)
        names = getattr(self.model, "feature_names_in_", None)
        if isinstance(data.X, pd.DataFrame) and names is None:
            raise InputError("The model was not fitted on a table with named columns.")
        if not isinstance(data.X, pd.DataFrame) and names is not None:
            raise InputError(f"The model was fitted on a table with columns {list(names)[:10]}; {path.name} has none.")
        of_images = self.model.table_ is None and not hasattr(self.model, "n_features_in_")
        if isinstance(data.X, Images) != of_images:
            raise InputError(f"{path.name} is not the kind of data that the model was fitted on.")
        return data

    def _warn_of_problems(self, data: DataFile) -> None:
        """Warn, column by column, of what the model cannot use, and of gaps where there were none."""
        whole = {column.name for column in self.columns if not column.missing}
        named = [problem for problem in data.problems if problem.share or problem.name in whole]
        for problem in named[:MOST_NAMED]:
            warn_user(f"Column {problem}.")
        if len(named) > MOST_NAMED:
            warn_user(f"{len(named) - MOST_NAMED} more columns are not as in the fit.")

    def predict(self, path: Path, **how: Any) -> pd.DataFrame:
        """Ids, then what is predicted: a label with the probability of each class, labels of each row, or numbers.

        Parameters
        ----------
        how : the file is read, as in ``read``.
        """
        data = self.read(path, **how)
        with hide_warnings(NOT_AS_FITTED):  # reading the file has given them
            ids, found = data.ids.reset_index(drop=True), self._predictions(data.X)
        taken = [name for name in ids if name in found]
        if taken:
            raise InputError(f"The id columns {taken} have the names of columns that predict adds.")
        return pd.concat([ids, found], axis=1)

    def _predictions(self, X: Any) -> pd.DataFrame:
        """Columns with predictions, and with probabilities where the task has them."""
        model, names = self.model, np.array(self.names, dtype=object)
        if self.task == "regression":
            columns = [PREDICTED] if len(names) == 1 else [f"{PREDICTED}_{name}" for name in names]
            return pd.DataFrame(model.predict(X), columns=columns)
        probabilities = model.predict_proba(X)
        if self.task == "classification":
            names = model.classes_
            predicted: Any = self.decision.labels(probabilities, names)
        else:
            predicted = [LABEL_SEPARATOR.join(names[row]) for row in np.asarray(model.predict(X)).astype(bool)]
        found = pd.DataFrame(probabilities, columns=[f"p_{name}" for name in names])
        found.insert(0, PREDICTED, predicted)
        return found

    def evaluate(self, path: Path, **how: Any) -> tuple[Evaluation | Measured, dict[str, float]]:
        """Measure the model on labelled rows; with a threshold or costs, also what that decision gives.

        Parameters
        ----------
        how : the file is read, as in ``read``.
        """
        names, classes = self.config.target, getattr(self.model, "classes_", None)
        data = labelled(self.read(path, target=names, **how))
        target = read_target(data, names, self.task, labels=self.names, classes=classes)
        with hide_warnings(NOT_AS_FITTED):
            found = measure(self.model, data.X, target, title=path.name)
            decided = self._decided(data.X, target.y) if self.task == "classification" else {}
        subject = f"Figures are of the saved model, on the rows of {path.name}, whether it was fitted on them or not."
        return replace(found, subject=subject, columns=tuple(column_rows(self._as_read(data)))), decided

    def _as_read(self, data: DataFile) -> list[ColumnReading]:
        """How the columns of a new file were read: as in the fit, and what is not as it was."""
        problems = {problem.name: problem for problem in data.problems}
        found = []
        for column in self.columns:
            if column.is_used:
                problem = problems.get(column.name)
                note = str(problem).removeprefix(f"{column.name!r}: ") if problem and problem.share else ""
                found.append(msgspec.structs.replace(column, missing=problem.missing if problem else 0, note=note))
        return found

    def _decided(self, X: Any, y: Any) -> dict[str, float]:
        """What the threshold gives, if there is one."""
        decision, costs = self.decision, self.config.costs
        if decision.threshold is None:
            return {}
        positive = self.model.classes_[decision.positive]
        predicted = decision.labels(self.model.predict_proba(X), self.model.classes_) == positive
        (right_no, false_alarms), (misses, hits) = confusion_matrix(y == positive, predicted, labels=[False, True])
        figures = {
            "threshold": decision.threshold,
            "recall": hits / max(hits + misses, 1),
            "precision": hits / max(hits + false_alarms, 1),
            "false_alarm_rate": false_alarms / max(false_alarms + right_no, 1),
        }
        if costs is not None:
            figures["cost_per_row"] = (costs["miss"] * misses + costs["false_alarm"] * false_alarms) / len(y)
        return {name: float(value) for name, value in figures.items()}


def open_run(folder: Path, **changes: Any) -> FittedRun:
    """Load the model of a folder.

    Parameters
    ----------
    changes : settings to use instead of those of the fit, such as ``threshold``; ``None`` changes nothing.
    """
    check_run(folder)
    config = read_config(folder / CONFIG_FILE, [])
    changes = {name: value for name, value in changes.items() if value is not None}
    # Costs weigh what really happens, so they bring the training prior; a threshold keeps that of the fit.
    prior = config.prior if "costs" not in changes or config.class_prior else "training"
    if changes.keys() & {"threshold", "costs"}:
        config = replace(config, **({"threshold": None, "costs": None} | changes))
    model = load(_model_folder(folder))
    target = _read_target_file(folder / TARGET_FILE, model)
    task = target.task
    if task == "classification":
        config = replace(config, class_prior=changes.get("class_prior", prior))
        model.set_params(class_prior=config.prior)
    elif changes:
        raise InputError(f"{sorted(changes)} can be changed for a classification only; the task is {task}.")
    return FittedRun(model, config, task, target.names, target.columns)


class _TargetFile(msgspec.Struct, forbid_unknown_fields=True):
    """What ``target.json`` says."""

    task: TaskName
    names: Annotated[tuple[str, ...], Meta(max_length=MOST_NAMES)]
    columns: Annotated[tuple[ColumnReading, ...], Meta(max_length=MOST_NAMES)]


def _read_target_file(file: Path, model: Any) -> _TargetFile:
    try:
        found: _TargetFile = read_json(file, _TargetFile)
        for column in found.columns:
            column.check()
    except InputError as error:
        raise ModelFileError(file, str(error)) from error
    task, n_names = found.task, len(found.names)
    fits = type(model) is ESTIMATORS[task] and getattr(model, "multilabel_", False) == (task == "multilabel")
    if fits and task != "classification":
        outputs = len(model.classes_ if task == "multilabel" else model.regions_.center)
        fits = len(set(found.names)) == n_names == outputs
    if not fits:
        raise ModelFileError(file, f"It names {n_names} targets of a {task}, which the model beside it does not have.")
    used = [column.name for column in found.columns if column.is_used]
    known = list(getattr(model, "feature_names_in_", ()))
    if used != known or len(set(used)) < len(used):
        raise ModelFileError(file, f"It names other columns ({used[:5]}) than the model beside it has ({known[:5]}).")
    return found


def card_of(folder: Path) -> str:
    """The card of a model, which is loaded to see that it is whole."""
    recover(folder)
    place = folder
    if (folder / MODEL_FOLDER).is_dir():
        check_run(folder)
        place = _model_folder(folder)
    load(place)
    return read_text(place / CARD_FILE)


def _model_folder(folder: Path) -> Path:
    """A folder that is a link may hold anybody's model."""
    if (folder / MODEL_FOLDER).is_symlink():
        raise ModelFileError(folder / MODEL_FOLDER, "It is a symbolic link, not a folder.")
    return folder / MODEL_FOLDER


def check_predictions(output: Path, source: Path | None = None) -> None:
    """See that predictions can be written to a file, and not over the one to predict, before they are made."""
    if source is not None and output.exists() and source.exists() and output.samefile(source):
        raise InputError(f"{output} is the file to predict, which would be lost. Name another file with -o.")
    if output.suffix not in WRITERS:
        raise InputError(f"Cannot write {output.name}: its name must end in {', '.join(WRITERS)}.")
    if output.exists() and not output.is_file() and not output.is_dir():
        raise InputError(f"Cannot write {output}: it is a pipe or a device, not a file.")
    check_writable(output.resolve())


def write_predictions(table: pd.DataFrame, output: Path) -> None:
    """As CSV, JSON lines or Parquet, by the ending of the file; whole or not at all."""
    check_predictions(output)
    options = {"orient": "records", "lines": True} if output.suffix == ".jsonl" else {"index": False}
    try:
        with replacing(output.resolve()) as unfinished:  # what a link names is written, and the link stays
            getattr(table, WRITERS[output.suffix])(unfinished, **options)
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error
