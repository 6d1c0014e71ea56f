"""A run: from a file to a folder with a model, and what that model says of other files.

The folder is built beside its place, sealed, and switched when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from ecrt.data import (
    LABEL_SEPARATOR,
    ColumnReading,
    DataFile,
    Images,
    ReadOptions,
    column_rows,
    read_data,
    stratified_holdout,
)
from ecrt.data.tables import NOT_AS_FITTED
from ecrt.disk import (
    MOST_JSON_BYTES,
    NewFolder,
    check_writable,
    free_name,
    plain_bytes,
    read_json,
    read_text,
    recover,
    replacing,
    write_json,
    write_text,
)
from ecrt.errors import InputError, ModelFileError, hide_warnings, warn_user
from ecrt.estimators import ECRTClassifier, load
from ecrt.estimators.base import log_prior_of
from ecrt.estimators.decisions import cost_matrix
from ecrt.estimators.inputs import resolve_device
from ecrt.io.model_files import package_versions
from ecrt.rivals import BaselineClassifier
from ecrt.runs.config import (
    ESTIMATORS,
    OURS,
    FitConfig,
    Target,
    TaskName,
    decide,
    labelled,
    read_config,
    read_target,
    unlabelled,
    warn_of_copies,
    with_weights,
)
from ecrt.runs.evaluation import Evaluation, beside_plain, evaluate, measure
from ecrt.stages import Encoder
from ecrt.training import interrupted_at_once, stop_requested

MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE = "model", "config.yaml", "target.json", "run.json"
HISTORY_FILE, VERSIONS_FILE = "history.json", "versions.json"
OWN = {MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE, HISTORY_FILE, VERSIONS_FILE, "metrics.json",
       "evaluation.npz", "report.html", "plots"}  # fmt: skip
NOT_SEALED = re.compile(r"run\.json|report\.html|plots/.*|.*\.npz|model/.*\.safetensors")
"""Pages and what they are made from, and tensors, whose digest is in ``model.json``."""

FORMAT = 1
MOST_FILES = 12
"""Sealed files of a run; none of them may be longer than the JSON that is read."""


class _Seal(msgspec.Struct, forbid_unknown_fields=True):
    """What ``run.json`` says: the files of a run, with their digests."""

    format: Literal[1]
    interrupted: bool
    files: Annotated[dict[str, str], Meta(max_length=MOST_FILES)]


def open_output(folder: Path, *, force: bool) -> NewFolder:
    """A folder to build a run in, to take the place of ``folder``; one that holds other things is left alone."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG_FILE).is_file() and not force:
        raise InputError(f"The folder {folder} holds other files. Choose another, or add --force to write there.")
    before = {name.partition("/")[0] for name in _sealed(folder) or ()}
    return NewFolder(folder, own=OWN | before)


def open_report(folder: Path) -> NewFolder:
    """A folder to build figures and a page in, to take the place of those in ``folder``; not those of a run."""
    if (folder / CONFIG_FILE).exists():
        raise InputError(f"The folder {folder} holds a fitted model and its figures. Choose another.")
    return NewFolder(folder, own=("metrics.json", "evaluation.npz", "diagnosis.json", "report.html", "plots"))


def seal_run(folder: Path, *, interrupted: bool = False) -> None:
    """Write down the digests of a run's files, so that a file from elsewhere is noticed."""
    files = {
        name: _digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not NOT_SEALED.fullmatch(name := file.relative_to(folder).as_posix())
    }
    write_json(folder / SEAL_FILE, {"format": FORMAT, "interrupted": interrupted, "files": files})


def publish_run(new: NewFolder, *, interrupted: bool) -> Path:
    """Seal a run and put it into its place, which is given back.

    An interrupted run does not replace a model: it gets another folder beside that.
    """
    seal_run(new.path, interrupted=interrupted)
    taken = interrupted and (new.folder / MODEL_FOLDER).exists()
    return new.publish(free_name(new.folder, "interrupted") if taken else None)


def check_run(folder: Path) -> None:
    """Refuse a folder whose files are not of one run, by the name of the file."""
    recover(folder)
    if not (folder / CONFIG_FILE).is_file():
        known = (folder / CARD_FILE).is_file()
        how = "A model that was saved in Python is read there, by ecrt.load." if known else ""
        raise InputError(f"{folder} was not written by ecrt fit: it has no {CONFIG_FILE}. {how}".rstrip())
    files = _sealed(folder)
    if files is None:
        raise ModelFileError(folder / SEAL_FILE, "The run has no such file, or not a readable one.", "Fit again.")
    for name, digest in files.items():
        if os.path.lexists(folder / name) and _digest(folder / name) != digest:
            raise ModelFileError(
                folder / name,
                "It does not belong to the run in this folder: it was changed, or comes from another run.",
                "Fit again, or copy the whole folder again.",
            )
    model = f"{MODEL_FOLDER}/model.json"
    for name in {CONFIG_FILE, TARGET_FILE, model} - {name for name in files if os.path.lexists(folder / name)}:
        raise ModelFileError(folder / name, "The run lacks it.", "Fit again, or copy the whole folder again.")


def _sealed(folder: Path) -> dict[str, str] | None:
    """Files of a run by name, with their digests; None without a readable list of them."""
    try:
        files: dict[str, str] = read_json(folder / SEAL_FILE, _Seal).files
    except InputError:
        return None
    outside = any(name.startswith("/") or ".." in name.split("/") for name in files)
    return None if outside else files


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(plain_bytes(file, MOST_JSON_BYTES)).hexdigest()
    except OSError as error:
        raise ModelFileError(file, f"It cannot be read: {error.strerror or error}.") from error


# --- fitting ----------------------------------------------------------------------------------------------------------

STOPPED = "training was interrupted; every part is in its best finished state"
NOT_REFITTED = "the fit on all rows was interrupted; this is the tested model, of {} rows"
MOST_NAMED = 5


def fit_file(
    path: Path,
    output: Path,
    config: FitConfig,
    *,
    say: Callable[[str], None],
    show: Callable[[Sequence[ColumnReading]], None] = lambda columns: None,
    verbose: bool = True,
    checkpoint: Path | None = None,
) -> tuple[Evaluation | None, str]:
    """Fit a model on a file and write model, settings, history and figures to a folder, all of them at the end.

    The saved model is fitted on all rows, with the parts (de-mixing, head and the rest) that the tested one chose.
    Returns the test results, if any, and how the fit was interrupted, empty if it was not.

    Parameters
    ----------
    say : takes what is going on, a sentence at a time.
    show : takes how the columns of a table were read.
    verbose : show progress bars.
    checkpoint : folder from which a fit that was stopped goes on.
    """
    resolve_device(config.device)  # before the file is read, which may take long
    if config.image_size != FitConfig.image_size and not path.is_dir():
        raise InputError(f"image_size={config.image_size} is for a folder of images, which {path.name} is not.")
    aside = [] if config.weight is None else [config.weight]
    if aside and (path.is_dir() or path.suffix == ".npz"):
        raise InputError(f"--weight {config.weight} names a column of a table, which {path.name} is not.")
    if config.weight in config.types:
        raise InputError(f"--types {config.weight} has no effect: the column holds weights, which are numbers.")
    data = read_data(
        path, target=config.target, ids=config.id, drop=config.drop, aside=aside, image_size=config.image_size,
        options=replace(config, types={**config.types, **dict.fromkeys(aside, "number")}),
    )  # fmt: skip
    more = {"X_unlabelled": unlabelled(data)} if config.use_unlabelled else {}
    data = labelled(data, others_used=config.use_unlabelled)
    weight: NDArray[np.float64] | None = None
    if config.weight is not None:
        data, weight = with_weights(data, config.weight)
    warn_of_copies(data)
    target = read_target(data, config.target, config.task)
    say(_summary(path, data, target))
    say(target.reason)
    left_out = [ColumnReading(name=name, kind="left out", note="As asked for.") for name in config.drop]
    columns = (*data.columns, *(left_out if data.columns else ()))
    show(columns)
    if more:
        if config.method != OURS:
            raise InputError(
                f"use_unlabelled needs method {OURS!r}; {config.method!r} learns from labelled rows alone."
            )
        if target.task != "classification":
            raise InputError(f"use_unlabelled needs one label for each row; the task is {target.task}.")
        say(f"{len(more['X_unlabelled'])} rows without a label are tried as well.")
    _check_decision(target, config)
    model = _make_estimator(data, target, config, verbose=verbose).set_params(checkpoint=checkpoint)
    train_rows, test_rows = stratified_holdout(_strata(target), config.test_size, np.random.default_rng(config.seed))

    found: Evaluation | None = None
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        if target.task == "classification":
            _warn_of_untested(target.y, test_rows)
    else:
        say(f"Fitting on all {len(target.y)} rows.")
    of_train: dict[str, Any] = {} if weight is None else {"sample_weight": weight[train_rows]}
    _fit(model, data.take(train_rows).X if len(test_rows) else data.X, target.y[train_rows], **more, **of_train)
    interrupted = STOPPED if stop_requested() else ""
    if len(test_rows):
        tested, truth = data.take(test_rows).X, replace(target, y=target.y[test_rows])
        found = measure(model, tested, truth, title=path.name)
        if target.task == "classification" and not interrupted:
            say("Fitting plain logit adjustment on the same rows, for comparison.")
            plain = _plain(model)
            _fit(plain, data.take(train_rows).X, target.y[train_rows], **of_train)
            found = replace(found, plain=beside_plain(found, evaluate(plain, tested, truth.y)))
        again = config.refit and not interrupted
        if again:
            say(f"Fitting on all {len(target.y)} rows.")
            of_all: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
            again = _refitted(model, data.X, target.y, **more, **of_all)
            interrupted = "" if again else NOT_REFITTED.format(len(train_rows))
        title = f"{found.title} ({interrupted})" if interrupted else found.title
        kept = "members and options" if config.method == OURS else "options"
        subject = _subject(len(train_rows), len(target.y), again=again, kept=kept)
        if weight is not None:
            subject += f" Rows had the weights of the column {config.weight!r} in the fit; each test row counts once."
        found = replace(found, title=title, subject=subject, columns=tuple(column_rows(columns)))
        model.metrics_, model.metrics_of_ = _card_figures(found, config)
    model.columns_read_ = tuple(column_rows(columns))
    if interrupted:
        model.interrupted_ = interrupted
    write_text(output / CONFIG_FILE, config.as_yaml())
    write_json(output / TARGET_FILE, msgspec.to_builtins(_TargetFile(target.task, target.names, data.columns)))
    write_json(output / VERSIONS_FILE, {"python": platform.python_version()} | package_versions())
    if found is not None:
        found.write(output)
    model.save(output / MODEL_FOLDER)
    write_json(output / HISTORY_FILE, model.history_)
    return found, interrupted


def _strata(target: Target) -> NDArray[np.int64]:
    """Groups of rows that a split keeps in proportion."""
    y = target.y
    if target.task == "multilabel":  # by the rarest label of a row
        return np.argmin(np.where(y > 0, y.sum(axis=0), len(y) + 1), axis=1)
    if target.task == "regression":
        first = y if y.ndim == 1 else y[:, 0]
        return pd.qcut(first, 10, labels=False, duplicates="drop").astype(np.int64)
    return np.unique(y, return_inverse=True)[1].astype(np.int64)


def _warn_of_untested(y: NDArray[Any], test_rows: NDArray[np.int64]) -> None:
    names = np.setdiff1d(y.astype(str), y[test_rows].astype(str))
    if len(names):
        shown = ", ".join(map(repr, names[:MOST_NAMED].tolist())) + (" and more" if len(names) > MOST_NAMED else "")
        warn_user(f"Too rare for a test row: {shown}. The figures do not include such classes.")


def _refitted(model: Any, X: Any, y: Any, **more: Any) -> bool:
    """Fit on all rows as the tested model was; False where that was interrupted, and the tested model is left."""
    if stop_requested():
        return False
    try:
        with interrupted_at_once():
            _fit(model, X, y, again=True, **more)
    except KeyboardInterrupt:
        if not stop_requested():
            raise
        return False
    return True


def _subject(n_fitted: int, n_rows: int, *, again: bool, kept: str) -> str:
    """Which model the figures are of, and what it has to do with the saved one."""
    fitted = f"fitted on {n_fitted:,} of the {n_rows:,} rows ({n_fitted / n_rows:.0%})"
    if not again:
        return f"Figures are of the saved model, {fitted}, on the other rows."
    return (
        f"Figures are of a model {fitted}, on the other rows. The saved model has the same {kept} and was then fitted "
        "on all rows."
    )


def _make_estimator(data: DataFile, target: Target, config: FitConfig, *, verbose: bool) -> Any:
    """The estimator that target and settings ask for; images have a network as encoder unless another is named."""
    if target.task not in config.estimators:
        raise InputError(f"method={config.method} is for classes; the task is {target.task}.")
    options = dict(config.options)
    images = isinstance(data.X, Images) or (isinstance(data.X, np.ndarray) and data.X.ndim == 4)
    if images and config.preset is None:
        encoder = options.get("encoder") or {}
        asked = encoder if isinstance(encoder, dict) else {"network": encoder}
        usual = {"network": "resnet18"} | ({"learn_from": "all"} if config.method == OURS else {})
        options["encoder"] = usual | asked
    options |= {"device": config.device, "random_state": config.seed, "verbose": verbose}
    if target.task == "classification":
        options |= {"class_prior": config.prior, "costs": config.costs_by_class}
    elif target.task == "multilabel":
        options["class_prior"] = config.class_prior or "training"
    return config.make(config.estimators[target.task], options)


def _plain(model: Any) -> ECRTClassifier:
    """Plain logit adjustment on the features of the same encoder."""
    encoder: Any = Encoder(model.encoder_, train=False) if model._encoder.trains else model.encoder
    shared = ("class_prior", "minority", "validation_fraction", "device", "random_state")
    return ECRTClassifier(
        encoder=encoder, demixing="none", augmentation="none", head="linear",
        **{name: getattr(model, name) for name in shared},
    )  # fmt: skip


def _check_decision(target: Target, config: FitConfig) -> None:
    """Whether prior, threshold and costs suit the classes should be known before the long run."""
    idle = [name for name in ("class_prior", "positive") if getattr(config, name) is not None]
    if idle and target.task == "regression":
        raise InputError(f"{' and '.join(idle)} would have no effect: the task is regression, which has no classes.")
    if isinstance(config.class_prior, tuple):
        several = target.task == "multilabel"
        log_prior_of(config.class_prior, np.array(target.names) if several else np.unique(target.y), several=several)
    if config.threshold is None and config.costs is None:
        return
    if target.task != "classification":
        raise InputError(f"A threshold or costs need classes; the task is {target.task}.")
    classes, counts = np.unique(target.y, return_counts=True)
    config.decision(classes, counts)
    if config.costs_by_class is not None:
        cost_matrix(config.costs_by_class, classes)


def _fit(model: Any, X: Any, y: Any, *, again: bool = False, **more: Any) -> None:
    """Fit; ``again`` with what the last fit has chosen, where there are members to keep; ``more``: of the fit."""
    learn = model.refit if again and hasattr(model, "refit") else model.fit
    if isinstance(X, Images):
        learn(X, **more)
    else:
        learn(X, y, **more)


def _card_figures(found: Evaluation, config: FitConfig) -> tuple[dict[str, float], str]:
    """The figures that the model's card shows, and what they are of."""
    if found.task == "classification":
        prior = "training" if config.prior == "training" else "balanced"
        return found.metrics[prior] | found.decided, f"{found.subject} They are under the {prior} class prior."
    main = next(iter(found.metrics.values()))
    return {name: value for name, value in main.items() if np.isfinite(value)}, found.subject


def _summary(path: Path, data: DataFile, target: Target) -> str:
    width = data.X.shape[1] if isinstance(data.X, pd.DataFrame) else 0
    columns = f"{width} column{'' if width == 1 else 's'}, " if width else ""
    start = f"{path.name}: {len(data.ids)} rows, {columns}"
    if target.task == "regression":
        return start + f"targets from {target.y.min():g} to {target.y.max():g}."
    if target.task == "multilabel":
        counts = target.y.sum(axis=0)
        return start + f"{len(counts)} labels, on {counts.min()} to {counts.max()} rows each."
    labels, counts = np.unique(target.y.astype(str), return_counts=True)
    if len(labels) == 1:
        return start + f"1 class, {str(labels[0])!r}."
    least, most = np.argsort(counts, kind="stable")[[0, -1]]
    rows = "row" if counts[least] == 1 else "rows"
    few, many = (f"{rows} of {str(labels[least])!r}", f"{counts[most]} of {str(labels[most])!r}")
    return start + f"{len(labels)} classes, from {counts[least]} {few} to {many}."


# --- predicting -------------------------------------------------------------------------------------------------------

PREDICTED, CARD_FILE = "predicted", "MODEL_CARD.md"
MOST_NAMES = 1_000_000
WRITERS: dict[str, Callable[[pd.DataFrame, Any], object]] = {
    ".csv": lambda table, file: table.to_csv(file, index=False),
    ".parquet": lambda table, file: table.to_parquet(file, index=False),
    ".jsonl": lambda table, file: file.writelines(_json_lines(table)),
}


@dataclass(frozen=True)
class FittedRun:
    """What ``ecrt fit`` left: the model and its settings."""

    model: Any
    config: FitConfig
    task: TaskName
    names: tuple[str, ...]
    columns: tuple[ColumnReading, ...] = ()

    @property
    def decision(self) -> tuple[float, int] | None:
        """From which probability on which class is predicted, if it is not the most probable one."""
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
        names = getattr(self.model, "feature_names_in_", None)
        if isinstance(data.X, pd.DataFrame) and names is None:
            raise InputError("The model was not fitted on a table with named columns.")
        if not isinstance(data.X, pd.DataFrame) and names is not None:
            raise InputError(f"The model was fitted on a table with columns {list(names)[:10]}; {path.name} has none.")
        of_images = self.model.table_ is None and not hasattr(self.model, "n_features_in_")
        if isinstance(data.X, Images) != of_images:
            raise InputError(f"{path.name} is not the kind of data that the model was fitted on.")
        return data

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
            decided = self.decision is not None
            predicted: Any = names[decide(probabilities, self.decision)] if decided else model.predict(X)
        else:
            predicted = [LABEL_SEPARATOR.join(names[row]) for row in np.asarray(model.predict(X)).astype(bool)]
        found = pd.DataFrame(probabilities, columns=[f"p_{name}" for name in names])
        found.insert(0, PREDICTED, predicted)
        return found

    def export(self, output: Path) -> tuple[str, ...]:
        """Write the model as an ONNX file, with its threshold if there is one; gives the names of its outputs."""
        module = self.model.to_module()
        told = {} if self.task == "classification" else {"targets": self.names}
        if self.task == "classification" and self.decision is not None:
            module.outcome.decide(*self.decision)
        self.model._write_onnx(module, output, **told)
        return module.output_names

    def evaluate(self, path: Path, **how: Any) -> Evaluation:
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
        columns = tuple(column_rows([column for column in data.columns if column.is_used]))
        return replace(found, subject=subject, columns=columns, decided=decided or found.decided)

    def _decided(self, X: Any, y: Any) -> dict[str, float]:
        """What the threshold gives, if there is one."""
        if self.decision is None:
            return {}
        threshold, place = self.decision
        predicted = decide(self.model.predict_proba(X), self.decision) == place
        truth = y == self.model.classes_[place]
        (right_no, false_alarms), (misses, hits) = confusion_matrix(truth, predicted, labels=[False, True])
        figures = {
            "threshold": threshold,
            "recall": hits / max(hits + misses, 1),
            "precision": hits / max(hits + false_alarms, 1),
            "false_alarm_rate": false_alarms / max(false_alarms + right_no, 1),
        }
        if (costs := self.config.costs) is not None:
            paid: Any = (costs["miss"], costs["false_alarm"])
            figures["cost_per_row"] = (paid[0] * misses + paid[1] * false_alarms) / len(y)
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
        model.set_params(class_prior=config.prior, costs=config.costs_by_class)
        _ = model.cost_matrix_  # refuses costs of other classes
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
    kinds = (ESTIMATORS[task], *((BaselineClassifier,) if task == "classification" else ()))
    fits = type(model) in kinds and getattr(model, "multilabel_", False) == (task == "multilabel")
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
    try:
        with replacing(output.resolve()) as unfinished:  # what a link names is written, and the link stays
            WRITERS[output.suffix](table, unfinished)
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error


def _json_lines(table: pd.DataFrame) -> Iterator[bytes]:
    """Rows as lines of JSON with every digit of a number; pandas rounds to 10 decimals, 15 at the most."""
    for row in table.astype(object).where(table.notna(), None).itertuples(index=False, name=None):
        yield json.dumps(dict(zip(table.columns, row, strict=True)), default=str).encode() + b"\n"
