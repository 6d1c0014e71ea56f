"""A run: from a file to a folder with a model, and what that model says of other files.

The folder is built beside its place, sealed, and switched when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from numpy.typing import NDArray

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
from ecrt.estimators.decisions import cost_matrix, cut_of
from ecrt.estimators.inputs import resolve_device
from ecrt.io.model_files import package_versions
from ecrt.rivals import BaselineClassifier
from ecrt.runs.config import (
    ESTIMATORS,
    OURS,
    FitConfig,
    Target,
    TaskName,
    labelled,
    read_config,
    read_target,
    unlabelled,
    warn_of_copies,
    with_weights,
)
from ecrt.runs.evaluation import Evaluation, beside_plain, evaluate, measure, positive_figures
from ecrt.stages import Encoder
from ecrt.training import interrupted_at_once, stop_requested

MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE = "model", "config.yaml", "target.json", "run.json"
PLOTS = "plots"
HISTORY_FILE, VERSIONS_FILE = "history.json", "versions.json"
OWN = {MODEL_FOLDER, CONFIG_FILE, TARGET_FILE, SEAL_FILE, HISTORY_FILE, VERSIONS_FILE, "metrics.json",
       "evaluation.npz", "report.html", PLOTS}  # fmt: skip
NOT_SEALED = re.compile(r"run\.json|report\.html|plots/.*|.*\.npz|model/.*\.safetensors")
"""Pages and what they are made from, and tensors, whose digest is in ``model.json``."""

TENSORS = re.compile(r"model/model-[0-9a-f]{16}\.safetensors")

FORMAT = 1
MOST_FILES, MOST_PLOTS = 12, 1000
"""Sealed files of a run, none of them longer than the JSON that is read; and figures, whose names alone are kept."""


class _Seal(msgspec.Struct, forbid_unknown_fields=True):
    """What ``run.json`` says: the files of a run or a report, with their digests, and the names of figures."""

    format: Literal[1]
    interrupted: bool
    files: Annotated[dict[str, str], Meta(max_length=MOST_FILES)]
    plots: Annotated[tuple[str, ...], Meta(max_length=MOST_PLOTS)] = ()


def open_output(folder: Path, *, force: bool) -> NewFolder:
    """A folder to build a run in, to take the place of ``folder``; one that holds other things is left alone.

    ``force`` lets it replace what has the names of a run's files (``OWN``), whoever made it. All else is kept.
    """
    if not force:
        _refuse_others(folder, f"{MODEL_FOLDER}/model.json", ", or add --force to replace those that have our names")
    return NewFolder(folder, own=OWN)


def open_report(folder: Path, figures: str) -> NewFolder:
    """A folder to build figures and a page in, to take the place of those in ``folder``; not those of a run.

    ``figures``: file that the command writes, by which its own earlier folder is known.
    """
    if (folder / CONFIG_FILE).exists():
        raise InputError(f"The folder {folder} holds a fitted model and its figures. Choose another.")
    _refuse_others(folder, figures)
    return NewFolder(folder, own={figures, SEAL_FILE, "evaluation.npz", "report.html", PLOTS})


def _refuse_others(folder: Path, first: str, hint: str = "") -> None:
    """Refuse a folder with files, unless it is as a command left it that has sealed the file ``first`` there.

    Files beside those of the command do not matter: they are kept. Between its own there must be none.
    """
    recover(folder)
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    seal, strange = _seal_of(folder), []
    if seal is not None and first in seal.files:
        there = [name for name in seal.files if name == first or os.path.lexists(folder / name)]
        strange = [name for name in there if not _is_sealed(folder / name, seal.files[name])]
        parts = ((folder / part).rglob("*") for part in (MODEL_FOLDER, PLOTS))
        inside = [file.relative_to(folder).as_posix() for part in parts for file in part]
        strange += [name for name in inside if name not in {*seal.files, *seal.plots} and not TENSORS.fullmatch(name)]
        if not strange:
            return
    found = f"files that were changed or are not ours: {', '.join(strange[:MOST_NAMED])}" if strange else "other files"
    raise InputError(f"The folder {folder} holds {found}. Choose another{hint}.")


def _is_sealed(file: Path, digest: str) -> bool:
    try:
        return _digest(file) == digest
    except (ModelFileError, InputError):
        return False


def seal_run(folder: Path, *, interrupted: bool = False) -> None:
    """Write down the digests of a run's files, or a report's, so that a file from elsewhere is noticed."""
    files = {
        name: _digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not NOT_SEALED.fullmatch(name := file.relative_to(folder).as_posix())
    }
    plots = [f"{PLOTS}/{file.name}" for file in sorted((folder / PLOTS).glob("*"))]
    write_json(
        folder / SEAL_FILE, {"format": FORMAT, "interrupted": interrupted, "files": files, "plots": plots[:MOST_PLOTS]}
    )


def publish_run(new: NewFolder, *, interrupted: bool = False) -> Path:
    """Seal a run, or a report, and put it into its place, which is given back.

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
    seal = _seal_of(folder)
    if seal is None:
        raise ModelFileError(folder / SEAL_FILE, "The run has no such file, or not a readable one.", "Fit again.")
    files = seal.files
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


def _seal_of(folder: Path) -> _Seal | None:
    """The list of a folder's files; None without a readable one."""
    try:
        seal: _Seal = read_json(folder / SEAL_FILE, _Seal)
    except InputError:
        return None
    outside = any(name.startswith("/") or ".." in name.split("/") for name in seal.files)
    return None if outside else seal


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
    columns = (*data.columns, *(left_out(config) if data.columns else ()))
    show(columns)
    if more:
        if config.method != OURS:
            raise InputError(
                f"use_unlabelled needs method {OURS!r}; {config.method!r} learns from labelled rows alone."
            )
        if target.task != "classification":
            raise InputError(f"use_unlabelled needs one label for each row; the task is {target.task}.")
        say(f"{len(more['X_unlabelled'])} rows without a label are tried as well.")
    config = with_positive(target, config, weight)
    costs = check_decision(target, config)
    model = make_estimator(data, target, config, costs, verbose=verbose).set_params(checkpoint=checkpoint)
    # A threshold is not moved by held-out rows, as costs of a fit may be: it is set afterwards.
    threshold = {} if config.threshold is None else {"costs": costs}
    train_rows, test_rows = stratified_holdout(_strata(target), config.test_size, np.random.default_rng(config.seed))

    found: Evaluation | None = None
    again = False
    if len(test_rows):
        say(f"Fitting on {len(train_rows)} rows, to be tested on the other {len(test_rows)}.")
        if target.task == "classification":
            warn_of_untested(target.y, target.y[test_rows])
    else:
        say(f"Fitting on all {len(target.y)} rows.")
    of_train: dict[str, Any] = {} if weight is None else {"sample_weight": weight[train_rows]}
    _fit(model, data.take(train_rows).X if len(test_rows) else data.X, target.y[train_rows], **more, **of_train)
    model.set_params(**threshold)
    interrupted = STOPPED if stop_requested() else ""
    if len(test_rows):
        tested, truth = data.take(test_rows).X, replace(target, y=target.y[test_rows])
        found = with_decision(measure(model, tested, truth, title=path.name), model, config)
        if target.task == "classification" and not interrupted:
            say("Fitting plain logit adjustment on the same rows, for comparison.")
            plain = _plain(model)
            _fit(plain, data.take(train_rows).X, target.y[train_rows], **of_train)
            found = replace(found, plain=beside_plain(found, evaluate(plain, tested, truth.y)))
        again = config.refit and not interrupted
        if again:
            say(f"Fitting on all {len(target.y)} rows.")
            of_all: dict[str, Any] = {} if weight is None else {"sample_weight": weight}
            model.set_params(**dict.fromkeys(threshold))
            again = _refitted(model, data.X, target.y, **more, **of_all)
            model.set_params(**threshold)
            interrupted = "" if again else NOT_REFITTED.format(len(train_rows))
        title = f"{found.title} ({interrupted})" if interrupted else found.title
        kept = "members and options" if config.method == OURS else "options"
        subject = subject_of(len(train_rows), len(target.y), again=again, kept=kept)
        if weight is not None:
            subject += (
                f" Rows had the weights of the column {config.weight!r} in the fit: these {len(train_rows):,} count as "
                f"{weight[train_rows].sum():,.6g}. Each test row counts once."
            )
        found = replace(found, title=title, subject=subject, columns=tuple(column_rows(columns)))
    if weight is not None:
        model.rows_weighed_ = len(target.y) if again or not len(test_rows) else len(train_rows)
    write_run(output, config, target, model, found, columns, data.columns, interrupted)
    return found, interrupted


def write_run(
    output: Path,
    config: FitConfig,
    target: Target,
    model: Any,
    found: Evaluation | None,
    columns: Sequence[ColumnReading],
    known: Sequence[ColumnReading],
    interrupted: str = "",
) -> None:
    """Write a fitted model, settings, history and figures.

    Parameters
    ----------
    columns, known : how columns were read, those included that were left out, as asked for; and without these.
    """
    if found is not None:
        model.metrics_, model.metrics_of_ = _card_figures(found, config)
    model.columns_read_ = tuple(column_rows(columns))
    if interrupted:
        model.interrupted_ = interrupted
    write_text(output / CONFIG_FILE, config.as_yaml())
    write_json(output / TARGET_FILE, msgspec.to_builtins(_TargetFile(target.task, target.names, tuple(known))))
    write_json(output / VERSIONS_FILE, {"python": platform.python_version()} | package_versions())
    if found is not None:
        found.write(output)
    model.save(output / MODEL_FOLDER)
    write_json(output / HISTORY_FILE, model.history_)


def left_out(config: FitConfig) -> list[ColumnReading]:
    """Readings of the columns that are left out as asked for."""
    return [ColumnReading(name=name, kind="left out", note="As asked for.") for name in config.drop]


def _strata(target: Target) -> NDArray[np.int64]:
    """Groups of rows that a split keeps in proportion."""
    y = target.y
    if target.task == "multilabel":  # by the rarest label of a row
        return np.argmin(np.where(y > 0, y.sum(axis=0), len(y) + 1), axis=1)
    if target.task == "regression":
        first = y if y.ndim == 1 else y[:, 0]
        return pd.qcut(first, 10, labels=False, duplicates="drop").astype(np.int64)
    return np.unique(y, return_inverse=True)[1].astype(np.int64)


def warn_of_untested(y: NDArray[Any], tested: NDArray[Any]) -> None:
    """Name the classes of y that no test row has."""
    names = np.setdiff1d(y.astype(str), tested.astype(str))
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


def subject_of(n_fitted: int, n_rows: int, *, again: bool, kept: str) -> str:
    """Which model the figures are of, and what it has to do with the saved one."""
    fitted = f"fitted on {n_fitted:,} of the {n_rows:,} rows ({n_fitted / n_rows:.0%})"
    if not again:
        return f"Figures are of the saved model, {fitted}, on the other rows."
    return (
        f"Figures are of a model {fitted}, on the other rows. The saved model has the same {kept} and was then fitted "
        "on all rows."
    )


def make_estimator(data: DataFile, target: Target, config: FitConfig, costs: Any, *, verbose: bool) -> Any:
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
        options |= {"class_prior": config.prior, "costs": costs if config.threshold is None else None}
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


def with_positive(target: Target, config: FitConfig, weight: NDArray[np.float64] | None) -> FitConfig:
    """The settings with the class that a threshold or costs are for, so that it is the same one ever after."""
    if target.task != "classification" or not (config.decides or config.positive is not None):
        return config
    classes, places = np.unique(target.y, return_inverse=True)
    place = config.positive_place(classes, np.bincount(places, weights=weight))
    return replace(config, positive=str(classes[place]))


def check_decision(target: Target, config: FitConfig) -> dict[str, Any] | None:
    """The model's costs. Whether prior, threshold and costs suit the classes should be known before the long run."""
    idle = [name for name in ("class_prior", "positive") if getattr(config, name) is not None]
    if idle and target.task == "regression":
        raise InputError(f"{' and '.join(idle)} would have no effect: the task is regression, which has no classes.")
    if isinstance(config.class_prior, tuple):
        several = target.task == "multilabel"
        log_prior_of(config.class_prior, np.array(target.names) if several else np.unique(target.y), several=several)
    if config.threshold is None and config.costs is None:
        return None
    if target.task != "classification":
        raise InputError(f"A threshold or costs need classes; the task is {target.task}.")
    classes, counts = np.unique(target.y, return_counts=True)
    costs = config.model_costs(classes, counts)
    cost_matrix(costs, classes)
    return costs


def with_decision(found: Evaluation, model: Any, config: FitConfig) -> Evaluation:
    """Test results with what a threshold, or costs of a miss and a false alarm, give for the positive class."""
    if found.task != "classification" or not config.decides:
        return found
    place = config.positive_place(model.classes_, model.class_counts_)
    threshold = {"threshold": cut_of(model.cost_matrix_, place, model._offsets)}
    paid = found.decided if config.threshold is None else {}
    decided = threshold | positive_figures(found, place) | paid
    return replace(found, positive=str(model.classes_[place]), decided=decided)


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
        said = f"{found.subject} They are under the {prior} class prior."
        if found.positive:
            said += f" Threshold, recall, precision and false alarms are those of the class {found.positive!r}."
        return found.metrics[prior] | found.decided, said
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
WRITERS = (".csv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class FittedRun:
    """What ``ecrt fit`` left: the model and its settings."""

    model: Any
    config: FitConfig
    task: TaskName
    names: tuple[str, ...]
    columns: tuple[ColumnReading, ...] = ()

    @property
    def decision(self) -> str:
        """How it is decided under a threshold or costs, in a sentence; empty without these."""
        return str(self.model.decision_verdict_) if self.task == "classification" else ""

    @property
    def of_images(self) -> bool:
        """Whether the model was fitted on a folder of images."""
        return self.model.table_ is None and not hasattr(self.model, "n_features_in_")

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
        if isinstance(data.X, Images) != self.of_images:
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
            ids, found = data.ids.reset_index(drop=True), self.predictions(data.X)
        taken = [name for name in ids if name in found]
        if taken:
            raise InputError(f"The id columns {taken} have the names of columns that predict adds.")
        return pd.concat([ids, found], axis=1)

    def predictions(self, X: Any) -> pd.DataFrame:
        """Columns with predictions, and with probabilities where the task has them."""
        model, names = self.model, np.array(self.names, dtype=object)
        if self.task == "regression":
            columns = [PREDICTED] if len(names) == 1 else [f"{PREDICTED}_{name}" for name in names]
            return pd.DataFrame(model.predict(X), columns=columns)
        probabilities = model.predict_proba(X)
        if self.task == "classification":
            names = model.classes_
            predicted: Any = model.predict(X)
        else:
            predicted = [LABEL_SEPARATOR.join(names[row]) for row in np.asarray(model.predict(X)).astype(bool)]
        found = pd.DataFrame(probabilities, columns=[f"p_{name}" for name in names])
        found.insert(0, PREDICTED, predicted)
        return found

    def export(self, output: Path) -> tuple[str, ...]:
        """Write the model as an ONNX file, with its costs if there are any; gives the names of its outputs."""
        size = self.config.image_size
        shown = Images(np.zeros((1, 3, size, size), np.uint8)) if self.of_images else None
        module = self.model.to_module()
        more = {} if self.task == "classification" else {"targets": self.names}
        self.model._write_onnx(module, output, shown, **more)
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
            found = with_decision(measure(self.model, data.X, target, title=path.name), self.model, self.config)
        subject = f"Figures are of the saved model, on the rows of {path.name}, whether it was fitted on them or not."
        columns = tuple(column_rows([column for column in data.columns if column.is_used]))
        return replace(found, subject=subject, columns=columns)


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
        config = replace(config, threshold=changes.get("threshold"), costs=changes.get("costs"))
    if "positive" in changes:
        config = replace(config, positive=changes["positive"])
        if not config.decides:
            raise InputError("--positive has no effect without a threshold, or costs of a miss and a false alarm.")
    model = load(_model_folder(folder))
    target = _read_target_file(folder / TARGET_FILE, model)
    task = target.task
    if task == "classification":
        config = replace(config, class_prior=changes.get("class_prior", prior))
        model.set_params(class_prior=config.prior)
        if changes.keys() & {"threshold", "costs", "positive"}:
            model.set_params(costs=config.model_costs(model.classes_, model.class_counts_))
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


def check_output(output: Path, endings: Collection[str] = WRITERS, source: Path | None = None) -> None:
    """See that predictions, or a model, can be written to a file, and not over the one to read, before they are made.

    The file is replaced if it is there, so that its name must have the ending of what is written.
    """
    if source is not None and output.exists() and source.exists() and output.samefile(source):
        raise InputError(f"{output} is the file to predict, which would be lost. Name another file with -o.")
    if output.suffix not in endings:
        raise InputError(f"Cannot write {output.name}: its name must end in {', '.join(endings)}.")
    if output.exists() and not output.is_file() and not output.is_dir():
        raise InputError(f"Cannot write {output}: it is a pipe or a device, not a file.")
    check_writable(output.resolve())


def write_predictions(tables: pd.DataFrame | Iterable[pd.DataFrame], output: Path) -> int:
    """As CSV, JSON lines or Parquet, by the ending of the file; whole or not at all.

    Several tables have the same columns, and are written one after the other. The number of rows is given back.
    """
    check_output(output)
    n_rows = 0
    try:
        with replacing(output.resolve()) as unfinished, ExitStack() as stack:  # what a link names is written
            write = _writer(unfinished, output.suffix, stack)
            for table in [tables] if isinstance(tables, pd.DataFrame) else tables:
                write(table, n_rows == 0)
                n_rows += len(table)
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'ecrt[parquet]'.") from error
    return n_rows


def _writer(file: BinaryIO, suffix: str, stack: ExitStack) -> Callable[[pd.DataFrame, bool], None]:
    """What adds a table, the first one or another, to a file; Parquet is finished when the stack is closed."""
    if suffix == ".parquet":
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        files: list[Any] = []

        def write(table: pd.DataFrame, first: bool) -> None:
            rows = pyarrow.Table.from_pandas(table, preserve_index=False)
            if first:
                files.append(stack.enter_context(ParquetWriter(file, rows.schema)))
            files[0].write_table(rows)

        return write
    if suffix == ".jsonl":
        return lambda table, first: file.writelines(_json_lines(table))
    return lambda table, first: table.to_csv(file, index=False, header=first)


def _json_lines(table: pd.DataFrame) -> Iterator[bytes]:
    """Rows as lines of JSON with every digit of a number; pandas rounds to 10 decimals, 15 at the most."""
    for row in table.astype(object).where(table.notna(), None).itertuples(index=False, name=None):
        yield json.dumps(dict(zip(table.columns, row, strict=True)), default=str).encode() + b"\n"
