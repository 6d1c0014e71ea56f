"""What estimators share: reading X in all its forms, features, sources, class probabilities, files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from importlib.metadata import version
from inspect import signature
from numbers import Integral, Real
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import Tags, TransformerTags, check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from ecrt.arrays import Array
from ecrt.checkpoints import digest_of, kept_in, registered
from ecrt.data import ClassRoles, MinorityRule, TableEncoder
from ecrt.data.streams import Block, ItemRows, MarkedRows, RowStream, held_out_rows, release
from ecrt.data.tables import MOST_NAMED, NOT_AS_FITTED, refuse_extremes
from ecrt.diagnostics import SourceDiagnostics, SourceRows, diagnose_sources
from ecrt.distributed import active, from_first, joined, processes, rank, refuse_differences
from ecrt.errors import InputError, NotEnoughMemoryError, hide_warnings, warn_user
from ecrt.estimators.decisions import Decision, Saving, choose_offsets, cost_matrix, cut_sentence, lowest_cost
from ecrt.estimators.export import ClassOutcome, LabelOutcome, ServedModel, write_onnx
from ecrt.estimators.inputs import (
    array_items,
    check_class_counts,
    class_indices,
    in_numpy,
    in_pandas,
    item_of,
    labelled_items,
    like_input,
    plain_labels,
    read_dataset,
    resolve_device,
    rows_to_score,
    stream_of,
)
from ecrt.flows import Demixer
from ecrt.io.attributes import head_shape
from ecrt.machine import SCORES_AT_ONCE, ask, one_thread
from ecrt.nn import RowEncoder, varies_by_rounding
from ecrt.randomness import own_draws_only, seeded
from ecrt.stages import (
    DEMIXING,
    ENCODER,
    Demixing,
    Encoder,
    EncodeResult,
    LinearHead,
    Member,
    Restart,
    Role,
    encode,
    features_of,
)
from ecrt.stages.encoding import check_encoder, module_dtype
from ecrt.stages.heads import Target
from ecrt.stages.parts import Composed, Rule, refuse_idle
from ecrt.stages.scoring import predict_sources, predict_together
from ecrt.stages.streaming import FeatureBlock, FeatureStream
from ecrt.stages.unlabelled import estimated_prior
from ecrt.training import BarProgress, Progress

Minority = Annotated[
    MinorityRule, StrOptions({"auto", "all"}), Interval(Integral, 1, None, closed="left"), "array-like", callable
]
"""What the option ``minority`` may be."""

Prior = Annotated[str | ArrayLike, StrOptions({"balanced", "training"}), "array-like"]
"""What the option ``class_prior`` may be."""

Costs = Annotated[ArrayLike | Mapping[str, Mapping[str, float]], "array-like", dict] | None
"""What the option ``costs`` may be."""

Space = Literal["source", "feature", "input"]
"""Where samples are drawn: as sources, as features of the encoder, or as its inputs."""

ROWS_AT_ONCE = 8192
"""Checking, encoding and de-mixing hold several copies of so many rows; a multiple of every batch size within."""

COPIES = 9
"""Of a large table of numbers that a fit holds at the same time, as measured: features, sources of folds, residuals."""

OTHER_UNITS = 20
"""Images whose values differ from those of the fit by more than this factor are in other units."""

FLOW_SOURCES = 64
"""``demixing="auto"`` tries a flow on at most this many sources: beyond, linear de-mixing has always been ahead."""

FLOW_ROWS = 500
"""... and on at least this many rows."""

MLP_SOURCES = 128
"""``head="auto"`` tries an MLP on at most this many sources: longer vectors are embeddings, to be read linearly."""


def learned_attributes(estimator: Composed) -> dict[str, Any]:
    """All that a fit has learned, by name."""
    private = ("_diagnosis", "_examples", "_report")
    return {name: value for name, value in vars(estimator).items() if name.endswith("_") or name in private}


def all_or_nothing(learn: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method that learns work on a copy, whose attributes the estimator takes together when it has succeeded.

    A call that fails or is interrupted leaves the estimator as it was. ``fit`` begins with nothing learned before;
    other methods go on from it, and a report of it is no longer theirs. Tensors become arrays.
    """

    @wraps(learn)
    def learn_all(self: Any, *args: Any, **kwargs: Any) -> Any:
        working = object.__new__(type(self))
        before = {"_report", *(learned_attributes(self) if learn.__name__ == "fit" else ())}
        vars(working).update({name: value for name, value in vars(self).items() if name not in before})
        args, kwargs = tuple(map(in_numpy, args)), {name: in_numpy(value) for name, value in kwargs.items()}
        args, kwargs = self._with_stream(learn, args, kwargs)
        folder = None if self.checkpoint is None else _folder_named(self.checkpoint) / learn.__name__
        with joined(), kept_in(folder, partial(identity_of, self, learn, args, kwargs)) as seed:
            if active():
                _refuse_timed_selection(self, "A fit under torchrun")
                facts = facts_of(self, learn, args, kwargs)
                facts.pop("random_state")  # that of the first process is used by all
                refuse_differences(facts)
            if seed is not None:
                working.random_state = seed
            try:
                learn(working, *args, **kwargs)
            except torch.OutOfMemoryError as error:
                raise NotEnoughMemoryError(
                    f"This fit needs more GPU memory than there is. Use device='cpu', or fewer rows. {error}"
                ) from error
        working.random_state = self.random_state
        self.__dict__ = vars(working)
        return self

    return learn_all


def _folder_named(checkpoint: str | PathLike[str]) -> Path:
    if not fspath(checkpoint) or "\0" in fspath(checkpoint):
        raise InputError(f"checkpoint must name a folder; {fspath(checkpoint)!r} does not.")
    return Path(checkpoint)


def identity_of(
    estimator: Any, learn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, str]:
    """What a fit with a checkpoint is of: if all this is the same, so is its result."""
    if getattr(estimator, "time_budget", None) is not None:
        raise InputError("checkpoint cannot be used with time_budget: how far a fit gets in a given time varies.")
    _refuse_timed_selection(estimator, "checkpoint")
    if not isinstance(estimator.random_state, (int, np.integer, type(None))):
        raise InputError("checkpoint needs a number, or None, as random_state.")
    return facts_of(estimator, learn, args, kwargs)


def _refuse_timed_selection(estimator: Any, who: str) -> None:
    if getattr(estimator, "selection", None) and any(part.trials is None for part in estimator._parts("selection")):
        raise InputError(
            f"{who} needs PseudoMinority(trials=...) as selection: what a budget of seconds chooses varies."
        )


def facts_of(
    estimator: Composed, learn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, str]:
    """Versions, options and data of a fit. A model to go on from is known by its answers."""
    options = estimator.get_params()
    options = {name: _described(value) for name, value in options.items() if name not in ("checkpoint", "verbose")}
    given = signature(learn).bind(estimator, *args, **kwargs).arguments
    data = {name: _digest_of(value) for name, value in given.items() if name != "self" and value is not None}
    if learn.__name__ != "fit":
        check_is_fitted(estimator)
        answer = next(name for name in ("predict_proba", "predict", "transform") if hasattr(estimator, name))
        data["the model before"] = digest_of(getattr(estimator, answer)(given["X"]))
    where = {"ecrt": version("ecrt"), "torch": torch.__version__, "number of processes": str(processes())}
    return where | {"estimator": type(estimator).__name__} | options | data


def _digest_of(value: Any) -> str:
    """The same for rows that are read block by block, and for how they are read."""
    if not isinstance(value, RowStream):
        return digest_of(value)
    scan = value.scan()
    return f"{scan.counts.sum()} x {value.n_columns} {scan.digest} {digest_of(scan.X)}"


def _described(value: Any) -> str:
    """An option, so that two that are not the same look different."""
    if isinstance(value, (np.ndarray, pd.DataFrame, nn.Module)):
        return digest_of(value)
    code = getattr(value, "__code__", None)
    if code is not None:
        plain = [one for one in code.co_consts if isinstance(one, (bool, int, float, str, type(None)))]
        return f"{value.__qualname__} {digest_of(repr((code.co_code, code.co_names, plain)))}"
    return getattr(value, "__qualname__", repr(value)) if callable(value) else repr(value)


def in_blocks(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a method that maps rows one by one see no more than ``ROWS_AT_ONCE`` rows of an array of numbers.

    With many classes they are fewer. The array may be a memory-mapped file larger than memory. Tables, sparse matrices
    and Datasets go through whole. A tensor becomes an array and, under scikit-learn's array-API dispatch, what is found
    a tensor on its device.
    """

    @wraps(method)
    def by_blocks(self: Any, X: Any) -> Any:
        if isinstance(X, torch.Tensor):
            return like_input(by_blocks(self, in_numpy(X)), X)
        if isinstance(X, RowStream | IterableDataset):
            rows = X if isinstance(X, RowStream) else ItemRows(X)
            return np.concatenate([method(self, part) for part in rows.to_predict()])
        at_once = min(ROWS_AT_ONCE, max(SCORES_AT_ONCE // max(len(getattr(self, "classes_", ())), 1), 1))
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or len(X) <= at_once:
            return method(self, X)
        start = method(self, np.asarray(X[:at_once]))
        if not sparse.issparse(start):
            ask(
                f"What {method.__name__} gives", "Ask for fewer rows at a time.", numbers=start.itemsize, rows=len(X),
                columns=start[:1].size,
            )  # fmt: skip
        answer: Any = [start] if sparse.issparse(start) else np.empty((len(X), *start.shape[1:]), start.dtype)
        for first in range(0, len(X), at_once):
            try:
                part = start if first == 0 else method(self, np.asarray(X[first : first + at_once]))
                release(X)
            except InputError as error:
                raise InputError(f"From row {first} on (rows counted from there): {error}") from error
            if isinstance(answer, np.ndarray):
                answer[first : first + at_once] = part
            elif first:
                answer.append(part)
        return answer if isinstance(answer, np.ndarray) else sparse.vstack(answer, format="csr")

    return by_blocks


def _read_quickly(blocks: Iterator[Block]) -> Iterator[Block]:
    """The blocks, read at full speed: a Dataset that draws anew in each pass cannot be learned from anyway."""
    while True:
        with own_draws_only():
            block = next(blocks, None)
        if block is None:
            return
        yield block


@contextmanager
def input_errors() -> Iterator[None]:
    """Raise what another library says of the user's data as an ``InputError``."""
    try:
        yield
    except ValueError as error:
        raise InputError(str(error)) from error


class SeenImages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shape of one image of the fit, and the largest absolute value of all."""

    shape: tuple[int, ...]
    largest: float

    def check(self, X: Array) -> None:
        """Refuse images of another size, or in other units: a network would make something of them all the same."""
        if X.shape[1:] != self.shape:
            raise InputError(f"Images have the shape {X.shape[1:]}; those of the fit had {self.shape}.")
        largest = float(np.abs(X).max(initial=0.0))
        shrunk = largest <= 1 and self.largest > OTHER_UNITS and bool((X % 1).any())
        if shrunk or (self.largest > 0 and largest > OTHER_UNITS * self.largest):
            raise InputError(
                f"Values of the images go up to {largest:g}; those of the fit went up to {self.largest:g}. Give them "
                "in the same units, such as 0 to 255 or 0 to 1."
            )


@dataclass(frozen=True)
class Session:
    """What the stages of one fit share."""

    rng: np.random.Generator
    device: torch.device
    progress: Progress


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class FitBase(Composed):
    """Options of every fit, and how its rows are read.

    The options are described with ``ECRTClassifier``.
    """

    _takes_images = False
    """Whether X may be images."""

    _streams = False
    """Whether ``fit`` can read rows block by block."""

    validation_fraction: Annotated[float, Interval(Real, 0, 1, closed="neither")] = 0.2
    device: str = "auto"
    verbose: Annotated[bool | int, "verbose"] = False
    random_state: Annotated[int | np.random.RandomState | None, "random_state"] = None

    def _check_parts(self, rules: Iterable[Rule] = ()) -> None:
        """Raise an error if an option of a part cannot be what it is, or one was set and would have no effect."""
        for name in self._roles:
            for part in self._parts(name):
                part.check()
        refuse_idle(self, rules)

    def _with_stream(
        self, learn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments in which rows that are read block by block, with their labels, are X; refused where not read so."""
        given = [*args, *kwargs.values()]
        streams = [one for one in given if isinstance(one, RowStream | IterableDataset)]
        if streams and not (self._streams and learn.__name__ == "fit" and [*map(id, streams)] == [id(given[0])]):
            raise InputError(
                f"{type(self).__name__}.{learn.__name__} needs rows in memory, not some that are read block by block: "
                "take a sample of them."
            )
        if not self._streams or learn.__name__ != "fit":
            return args, kwargs
        named = signature(learn).bind(self, *args, **kwargs).arguments
        named.pop("self")
        stream = stream_of(named.get("X"), named.get("y"))
        return (args, kwargs) if stream is None else ((), named | {"X": stream, "y": None})

    def _refuse_beside_stream(self, **given: Any) -> None:
        """Refuse options that need all rows in memory."""
        for name, wanted in given.items():
            if wanted:
                raise InputError(
                    f"{name} needs all rows in memory, and these are read block by block: leave it out, or fit on a "
                    "sample of the rows."
                )

    def _feature_stream(self, rows: RowStream, fraction: float = 0.0) -> FeatureStream:
        """Features and classes of all rows, read as those in memory; a share of the latter is held out."""
        scan = rows.scan()
        held_out = held_out_rows(scan.hashes, scan.y, fraction)
        marked = MarkedRows(scan.stored[held_out], scan.classes[scan.y[held_out]]) if held_out.any() else None

        def blocks(rng: np.random.Generator | None) -> Iterator[FeatureBlock]:
            for X, y, out in _read_quickly(rows.blocks(rng, marked)):
                code, labels = pd.factorize(np.asarray(y), use_na_sentinel=False)
                place = np.minimum(np.searchsorted(self.classes_, labels), len(self.classes_) - 1)
                if (self.classes_[place] != labels).any():
                    raise InputError("A later pass over the rows finds a class that the first did not: they change.")
                try:
                    with hide_warnings(NOT_AS_FITTED):
                        z = self._encoded(self._read_rows(X))
                except InputError as error:
                    raise InputError(f"In a block of rows, counted from its first: {error}") from error
                yield FeatureBlock(z, place[code], np.zeros(len(z), dtype=bool) if out is None else out)

        return FeatureStream(blocks, held_out)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = replace(tags.input_tags, sparse=True, allow_nan=True, categorical=True, string=True)
        return tags

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Seeds, device and progress of a fit; the caller's random state is left as it was."""
        drawn = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        seed = from_first(lambda: drawn)
        with ExitStack() as stack:
            progress: Progress = stack.enter_context(BarProgress()) if self.verbose and not rank() else Progress()
            stack.enter_context(seeded(seed))
            stack.enter_context(one_thread())
            yield Session(registered(np.random.default_rng(seed)), resolve_device(self.device), progress)

    def _read_classes(self, X: Any, y: Any) -> tuple[Dataset[Any], NDArray[np.int64]]:
        """Items and class indices; ``classes_`` is learned on the way."""
        if isinstance(X, Dataset):
            if y is not None:
                raise InputError("A Dataset yields (x, y): do not pass y as well.")
            items, self.classes_, labels = read_dataset(X)
            self.table_: TableEncoder | None = None
        else:
            rows, y = self._learn_rows(X, plain_labels(y))
            self.classes_, labels = class_indices(y)
            items = array_items(rows, labels)
        check_class_counts(self.classes_, labels)
        return items, labels

    def _class_counts(self, labels: NDArray[np.int64], weight: Array | None) -> NDArray[Any]:
        """How often each class occurs; ``weight`` of the rows, ``None`` where all count for one."""
        counts = np.bincount(labels, weight, minlength=len(self.classes_))
        return counts if weight is None or (weight != np.rint(weight)).any() else np.rint(counts).astype(np.int64)

    def _learn_rows(self, X: Any, y: Any) -> tuple[Array, NDArray[Any]]:
        """X as numbers and y checked; how X is read is learned on the way."""
        rows, y = self._validated(X, y, reset=True)
        if rows.ndim == 2:
            lower = "Fit on fewer rows, or on fewer columns, for example with sklearn.decomposition.PCA in a Pipeline."
            ask("A fit on a table", lower, copies=COPIES - 1, rows=rows.shape[0], columns=rows.shape[1])
        self.table_ = TableEncoder.learn(rows) if isinstance(rows, pd.DataFrame) else None
        if self.table_ is None:
            return rows, y
        numbers = self.table_.encode(rows)
        lost = np.array(self.table_.names_out)[varies_by_rounding(numbers)].tolist()
        if lost:
            warn_user(
                f"Columns {lost[:MOST_NAMED]} are left out: their values are so large, for how little they differ, "
                "that rounding errors hide the differences. If these matter, subtract a number such as the mean first."
            )
        return numbers, y

    @input_errors()
    def _validated(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, Any]:
        """Rows as a data frame (tables) or an array (images), with the checks that scikit-learn makes."""
        least = 2 if reset else 1
        X = in_pandas(X)
        if np.ma.is_masked(X) or np.ma.is_masked(y):
            raise InputError("Masked arrays are not supported: pass X.filled(numpy.nan) and an unmasked y.")
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, y, reset=reset, skip_check_array=True)
            for name, kind in X.dtypes.items():
                if getattr(kind, "kind", "") == "c":
                    raise InputError(f"Complex data not supported: column {name!r} holds complex numbers.")
            if X.shape[0] < least or X.shape[1] == 0:
                raise InputError(
                    f"Found a table of {X.shape[0]} sample(s) and {X.shape[1]} feature(s) while a minimum of {least} "
                    "and 1 is required."
                )
            if reset:
                y = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=None)
                check_consistent_length(X, y)
            return X, y
        kind = "" if sparse.issparse(X) else np.asarray(X).dtype.kind
        if kind in ("m", "M"):  # NumPy would take them for counts of some unit
            raise InputError("X holds dates or times: pass a data frame, in which columns of dates are read as such.")
        text = kind in ("O", "U", "S")
        checked = validate_data(
            self, X, y, reset=reset, ensure_min_samples=least, allow_nd=self._takes_images, accept_sparse="csr",
            dtype=None if text else np.float64, ensure_all_finite=False,
        )  # fmt: skip
        X, y = checked if reset else (checked, None)
        if X.ndim > 2:
            if np.isnan(X).any():
                raise InputError("Images contain NaN: only tables may have missing values.")
            refuse_extremes(X)
            if reset:
                self.images_ = SeenImages(tuple(X.shape[1:]), float(np.abs(X).max()))
            elif hasattr(self, "images_"):
                self.images_.check(X)
            return X, y
        if isinstance(X, sparse.csr_array | sparse.csr_matrix):
            ask(
                "A sparse matrix that is made dense,",
                "Reduce its columns first, for example with sklearn.decomposition.TruncatedSVD in a Pipeline.",
                copies=COPIES if reset else 1, rows=X.shape[0], columns=X.shape[1],
            )  # fmt: skip
            X = X.toarray()
        return pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])]), y


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class EstimatorBase(FitBase):
    """Options that every model has, and what is done with them whatever the method.

    The options are described with ``ECRTClassifier``.
    """

    _roles: ClassVar[dict[str, Role]] = {"encoder": ENCODER}

    encoder: str | nn.Module | Encoder = "identity"
    checkpoint: str | PathLike[str] | None = None

    @property
    def _takes_images(self) -> bool:  # type: ignore[override]
        return self._encoder.takes_images

    @property
    def _encoder(self) -> Encoder:
        part: Encoder = self._parts("encoder")[0]
        return part

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to a folder: tensors, a JSON file and a model card. ``ecrt.load`` reads it."""
        from ecrt.estimators.saved import save_estimator

        check_is_fitted(self)
        if not rank():  # of processes that share a fit the first one writes
            save_estimator(self, path)

    def read_rows(self, X: ArrayLike) -> NDArray[Any]:
        """X as the numbers that ``to_module`` and the file of ``to_onnx`` take, read as in ``fit``.

        Categories become columns of zeros and ones, dates become numbers, and gaps are filled; ``table_.names_out``
        names the columns.
        """
        check_is_fitted(self)
        rows = self._read_rows(X)
        return rows.astype(np.float32) if module_dtype(self.encoder_) == torch.float32 else rows

    def to_module(self) -> ServedModel:
        """The whole prediction as one torch module, for ``torch.export`` or a service.

        It takes a tensor of what ``read_rows`` gives, without missing values. A classifier gives the places in
        ``classes_`` of the classes that it predicts, and probabilities; for multi-label data, an indicator and
        probabilities; a regressor gives targets, and a transformer sources. Options such as ``class_prior`` and
        ``precision`` are as they are now; what is done to the model later does not change the module.
        """
        check_is_fitted(self)
        return self._served()

    def to_onnx(self, path: str | PathLike[str], X: ArrayLike | Dataset[Any] | None = None) -> None:
        """Write ``to_module`` as an ONNX file of opset 18 for any number of rows; the extra ``onnx`` is needed.

        The input is ``X``: rows of float64 as ``read_rows`` gives them, or images of float32. The outputs are ``label``
        (the class itself) and ``probabilities`` of a classifier, ``prediction`` of a regressor, ``sources`` of a
        transformer.

        Parameters
        ----------
        path : the file.
        X : some rows or images as ``predict`` takes them. They are needed only where the model was fitted on a Dataset
            with an encoder that does not know their shape.
        """
        self._write_onnx(self.to_module(), path, X)

    def _write_onnx(self, module: ServedModel, path: str | PathLike[str], X: Any = None, **more: Any) -> None:
        """Write a module of this model; ``more`` is written into the file as well."""
        shape, classes = self._item_shape(X), None
        about = {"estimator": type(self).__name__, "columns": None if self.table_ is None else self.table_.names_out}
        if isinstance(self, ClassProbabilities):
            about["classes"], classes = self.classes_.tolist(), None if self.multilabel_ else self.classes_
        write_onnx(module, path, shape, classes, about | more)

    def _item_shape(self, X: Any) -> tuple[int, ...]:
        """Shape of a row, or of an image."""
        if X is not None:
            item = item_of(labelled_items(X), 0)[0] if isinstance(X, Dataset) else self._read_rows(X)[0]
            return tuple(item.shape)
        if hasattr(self, "images_"):
            return self.images_.shape
        if self.table_ is not None:
            return (len(self.table_.names_out),)
        if type(self.encoder_) is nn.Identity:
            return (self.demixer_.linear.n_features,)
        if isinstance(self.encoder_, RowEncoder):
            return (len(self.encoder_.columns.center_d),)
        raise InputError("The model was fitted on a Dataset: pass some of its items as X, which tell their shape.")

    def _served(self) -> ServedModel:
        raise NotImplementedError

    def _html_repr(self) -> str:
        """What notebooks show: scikit-learn's own view and, of a fitted model, what it is."""
        from ecrt.estimators.card import summary_html

        return str(super()._html_repr()) + summary_html(self)

    def _encode(
        self,
        items: Dataset[Any],
        labels: NDArray[np.int64],
        roles: ClassRoles,
        session: Session,
        config: Encoder | None = None,
        **options: Any,
    ) -> EncodeResult:
        """Stage 1, by the encoder's part or another one; the result stays on the CPU. ``options`` of ``encode``."""
        encoded = encode(items, labels, roles, config or self._encoder, **options, **vars(session))
        self.encoder_ = encoded.encoder.cpu()
        if items[0][0].ndim == 1:
            self.encoder_ = self.encoder_.double()  # rows cost little, and must not depend on their batch
        return encoded

    @input_errors()
    def _read_rows(self, X: Any) -> Array:
        """X as numbers, read as in ``fit``."""
        if self.table_ is not None and self.table_.plain and type(X) is np.ndarray and X.dtype.kind in "fiub":
            numbers = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
            return self.table_.filled(numbers)
        rows, _ = self._validated(X, "no_validation", reset=False)
        if self.table_ is not None:
            return self.table_.encode(rows)
        numbers = np.asarray(rows, dtype=np.float64)  # fitted on a Dataset, which has no columns to fill gaps of
        refuse_extremes(numbers)
        if np.isnan(numbers).any():
            raise InputError("X contains NaN, and the model was fitted on a Dataset, which cannot have missing values.")
        return numbers

    def _features(self, X: Any) -> Array:
        """z = e(x) of rows or of a Dataset."""
        check_is_fitted(self)
        features = self._encoded(X if isinstance(X, Dataset) else self._read_rows(X))
        expected = self.demixer_.linear.n_features
        if features.shape[1] != expected:
            raise InputError(
                f"X has the wrong shape: its rows have {features.shape[1]} features, those of the fit had {expected}."
            )
        return features

    def _encoded(self, rows: Array | Dataset[Any]) -> Array:
        """z = e(x) of rows that were read, or of a Dataset."""
        if not isinstance(rows, Dataset) and type(self.encoder_) is nn.Identity and rows.ndim == 2:
            return rows
        items = labelled_items(rows) if isinstance(rows, Dataset) else array_items(rows)
        check_encoder(self.encoder_, items, torch.device("cpu"))
        return features_of(self.encoder_, items, device=torch.device("cpu"))


def log_prior_of(prior: Any, classes: NDArray[Any], *, several: bool) -> Array:
    """Logs of frequencies that were given for the classes; log-odds of labels of which a row may have several."""
    try:
        given = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    fits = given.shape == classes.shape and bool(np.isfinite(given).all() and (given > 0).all())
    if several:
        if not fits or (given >= 1).any():
            raise InputError(
                f"class_prior must hold a frequency between 0 and 1 for each of the {len(classes)} labels; "
                f"got {prior!r}."
            )
        return np.asarray(np.log(given) - np.log1p(-given))
    if not fits:
        raise InputError(
            f"class_prior must hold one positive number for each of the {len(classes)} classes "
            f"{classes.tolist()}; got {prior!r}."
        )
    return np.asarray(np.log(given / given.sum()))


class ClassProbabilities(ClassifierMixin):
    """Predictions of classes, or of labels of which a row may have several, under a class prior."""

    class_prior: Any
    costs: Any
    history_: dict[str, Any]
    decision_: Decision
    classes_: NDArray[Any]
    class_counts_: NDArray[Any]
    multilabel_: bool
    label_log_odds_: Array
    thresholds_: Array | None
    sparse_output_: bool

    def _scores(self, X: Any) -> Array:
        """Balanced logits plus ``log_class_prior_``."""
        raise NotImplementedError

    @property
    def log_class_prior_(self) -> Array:
        """Log of the prior that predictions assume, one entry for each class; log-odds for multi-label data."""
        prior, counts = self.class_prior, self.class_counts_
        if isinstance(prior, str) and prior not in ("balanced", "training"):  # set after fit
            raise InputError(f"class_prior={prior!r}: use 'balanced', 'training' or a number for each class.")
        if isinstance(prior, str) and self.multilabel_:
            return np.asarray(self.label_log_odds_[1 if prior == "balanced" else 0])
        if isinstance(prior, str):
            return np.zeros(len(counts)) if prior == "balanced" else np.log(self._training_frequencies)
        return log_prior_of(prior, self.classes_, several=self.multilabel_)

    @property
    def _training_frequencies(self) -> Array:
        """How often each class occurs in training."""
        return np.asarray(self.class_counts_ / self.class_counts_.sum())

    def _keep_counts(self, counts: NDArray[Any], *, multilabel: bool) -> None:
        """Keep how often each class occurs, and refuse a class prior that does not fit, before the work begins."""
        self.class_counts_, self.multilabel_ = counts, multilabel
        if not isinstance(self.class_prior, str):
            _ = self.log_class_prior_
        _ = self.cost_matrix_

    @property
    def cost_matrix_(self) -> Array | None:
        """Costs in the order of ``classes_``, true classes in rows and predicted ones in columns; ``None`` for none."""
        return None if self.costs is None else cost_matrix(self.costs, self.classes_)

    def _decide(self, trial: Callable[[], tuple[Array, NDArray[np.int64]]] | None, y: NDArray[np.int64]) -> None:
        """With costs, let held-out rows move the cuts between classes; ``trial`` gives their balanced logits."""
        costs = self.cost_matrix_
        if costs is None:
            return
        logits, rows = (np.zeros((0, len(costs))), y[:0]) if trial is None else trial()
        offsets, saving = choose_offsets(logits + self.log_class_prior_, y[rows], costs, softmax(self.log_class_prior_))
        prior = self.class_prior if isinstance(self.class_prior, str) else np.asarray(self.class_prior).tolist()
        self.decision_ = Decision(offsets, costs, prior)
        self.history_["costs"] = saving._asdict()

    def _forget_decision(self) -> None:
        """Classes are others now, and the cuts between them must be, too."""
        if hasattr(self, "decision_"):
            del self.decision_
        self.history_ = {name: value for name, value in self.history_.items() if name != "costs"}

    @property
    def _offsets(self) -> Array | None:
        """What held-out rows add to expected costs; nothing under other costs or another prior than theirs."""
        decision, prior, costs = getattr(self, "decision_", None), self.class_prior, self.cost_matrix_
        if decision is None or costs is None:
            return None
        prior = prior if isinstance(prior, str) else np.asarray(prior).tolist()
        same = decision.class_prior == prior and np.array_equal(decision.costs, costs)
        return decision.offsets if same else None

    @property
    def decision_verdict_(self) -> str:
        """How ``predict`` decides under costs, and what moved cuts saved on held-out rows; empty without costs."""
        check_is_fitted(self)
        if (costs := self.cost_matrix_) is None:
            return ""
        cut = cut_sentence(self.classes_, self.class_counts_, costs, self._offsets)
        if self._offsets is None and cut:  # costs that were set after the fit, or a threshold
            return cut
        saving = Saving() if self._offsets is None else Saving(**self.history_["costs"])
        return f"{saving.sentence} {cut}".rstrip()

    @in_blocks
    def decision_function(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Balanced logits plus log class prior; for two classes, that of the second less that of the first.

        For multi-label data, log-odds of each label.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 and not self.multilabel_ else scores

    @in_blocks
    def predict_log_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Log-probabilities under ``class_prior``."""
        scores = self._scores(X)
        return np.asarray(log_expit(scores) if self.multilabel_ else log_softmax(scores, axis=1))

    @in_blocks
    def predict_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Probabilities under ``class_prior``, one column for each of ``classes_``.

        For multi-label data they need not sum to one.
        """
        scores = torch.from_numpy(self._scores(X))
        return np.asarray(torch.sigmoid(scores) if self.multilabel_ else torch.softmax(scores, dim=1))

    @in_blocks
    def predict(self, X: ArrayLike | Dataset[Any]) -> NDArray[Any]:
        """The most probable label under ``class_prior``, or with ``costs`` that of the lowest expected cost.

        For multi-label data, an indicator of the labels that are predicted.
        """
        scores = self._scores(X)
        if not self.multilabel_:
            costs = self.cost_matrix_
            return self.classes_[scores.argmax(axis=1) if costs is None else lowest_cost(scores, costs, self._offsets)]
        cuts = 0.0 if self.thresholds_ is None else self.thresholds_ + self.log_class_prior_
        found = ((scores >= cuts) & (self.class_counts_ > 0)).astype(np.int64)
        return sparse.csr_matrix(found) if self.sparse_output_ else found  # type: ignore[return-value]

    def _outcome(self, dtype: torch.dtype = torch.float64) -> ClassOutcome | LabelOutcome:
        """From balanced logits to labels and probabilities, under the class prior as it is now."""
        prior = self.log_class_prior_
        if not self.multilabel_:
            return ClassOutcome(prior, dtype, self.cost_matrix_, self._offsets)
        cuts = np.zeros(len(prior)) if self.thresholds_ is None else self.thresholds_ + prior
        return LabelOutcome(prior, cuts, self.class_counts_ == 0, self.label_log_odds_[0], dtype)

    def estimate_prior(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Class frequencies among rows without labels, such as those that the model will be used on.

        Expectation and maximisation in turn, from the frequencies of training on: how probable are the classes of each
        row under these frequencies, and how frequent are the classes then? It holds where rows of a class look as they
        did in training. The answer can be set as ``class_prior``.

        References
        ----------
        Saerens, Latinne and Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities.

        Parameters
        ----------
        X : rows without labels, as ``predict`` takes them; the more, the better.
        """
        check_is_fitted(self)
        if self.multilabel_:
            raise InputError("Frequencies are estimated for rows with one class each, not for multi-label data.")
        return estimated_prior(softmax(self._balanced_scores(X), axis=1), self.class_counts_.astype(np.float64))

    @in_blocks
    def _balanced_scores(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Scores of every class without any prior: log-likelihoods of the row, up to a constant."""
        return np.asarray(self._scores(X) - self.log_class_prior_, dtype=np.float64)

    def score(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy; labels that were not in training count as wrong, with a warning.

        For multi-label data, the share of rows with all labels right. A Dataset has y in its items.
        """
        check_is_fitted(self)
        X, y = in_numpy(X), in_numpy(y)
        X, y = rows_to_score(X, y, one_label=not self.multilabel_)
        unknown = [] if self.multilabel_ else np.setdiff1d(np.asarray(y), self.classes_).tolist()
        if unknown:
            warn_user(f"Labels that were not in training count as wrong: {unknown}.")
        return float(super().score(X, y, in_numpy(sample_weight)))


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTBase(ClassNamePrefixFeaturesOutMixin, TransformerMixin, EstimatorBase):
    """Options of de-mixing, for every task.

    The options are described with ``ECRTClassifier``.
    """

    _roles = EstimatorBase._roles | {"demixing": DEMIXING}
    _learn_from: ClassVar[Literal["majority", "all"]] = "majority"
    """What ``learn_from="auto"`` of encoder and de-mixing is."""

    demixing: str | Demixing | Sequence[str | Demixing] = "auto"
    precision: Literal["float64", "float32"] = "float64"

    def _learns_from(self, name: str) -> Literal["majority", "all"]:
        """Classes that encoder or de-mixing learn from."""
        found = {self._learn_from if part.learn_from == "auto" else part.learn_from for part in self._parts(name)}
        if len(found) > 1:
            raise InputError(f"All parts of {name} must learn from the same classes: give each the same learn_from.")
        learn_from: Literal["majority", "all"] = found.pop() if found else self._learn_from
        return learn_from

    @property
    def _learners(self) -> dict[str, Literal["majority", "all"]]:
        """Classes that each stage learns from, for the functions that assign roles."""
        return {"encode_on": self._learns_from("encoder"), "demix_on": self._learns_from("demixing")}

    def _n_sources(self, n_features: int) -> int:
        """Sources that are asked for, of so many features."""
        return max((part.wanted_sources(n_features) for part in self._parts("demixing")), default=n_features)

    def _rules(self) -> Iterator[Rule]:
        """Options that have an effect only with some others."""
        if self._encoder.trains and self._encoder.holdout == 0:
            raise InputError("Encoder: holdout=0 leaves no row for de-mixing and head. Set holdout above 0.")
        yield from ()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = TransformerTags(preserves_dtype=[self.precision])
        return tags

    @property
    def diagnostics_(self) -> SourceDiagnostics:
        """What ``fit`` kept of the sources, measured when it is first asked for."""
        check_is_fitted(self)
        found = self._diagnosis
        if not isinstance(found, SourceDiagnostics):
            self._diagnosis: SourceDiagnostics | Callable[[], SourceDiagnostics] = (found := found())
        return found

    @property
    def theory_met_(self) -> bool:
        """Whether the theorem's conditions on the classes hold."""
        return self.diagnostics_.theory_met

    @property
    def _n_features_out(self) -> int:
        return int(self.demixer_.linear.n_signal)

    @in_blocks
    def transform(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Signal sources of X, unscaled."""
        features = self._features(X)
        return predict_sources(self.demixer_, features, self._dtype)

    @property
    def _dtype(self) -> torch.dtype:
        """Precision that predictions are made in; it may have been set after ``fit``."""
        if self.precision not in ("float64", "float32"):
            raise InputError(f"precision={self.precision!r}: use 'float64' or 'float32'.")
        return torch.float32 if self.precision == "float32" else torch.float64


class ECRTPredictor(ECRTBase):
    """What classifier and regressor share: members that predict together, and rows that are kept to draw from.

    The first member is the one whose sources ``transform``, ``sample`` and the diagnostics are of.
    """

    members_: tuple[Member, ...]

    @property
    def demixer_(self) -> Demixer:
        """The de-mixing of the first member."""
        return self.members_[0].demixer

    @property
    def head_(self) -> nn.Module:
        """The head of the first member."""
        return self.members_[0].network

    @property
    def demixing_(self) -> str:
        """Kind of the first member's de-mixing."""
        return self.members_[0].demixing.kind

    @property
    def head_name_(self) -> str:
        """Kind of the first member's head."""
        return self.members_[0].head.kind

    @property
    def signal_weight_(self) -> Array:
        """Share of signal in each source."""
        return self.members_[0].signal_weight

    def _check_heads(self, target: Target) -> None:
        """Refuse heads that cannot learn such a target, before an encoder is trained."""
        for head in self._parts("head"):
            head.fitter(target, np.random.default_rng(0), None)

    def _keep_members(self, members: tuple[Member, ...], restarts: tuple[Restart, ...], encoded: EncodeResult) -> None:
        """Keep what the stages found."""
        self.members_ = tuple(
            replace(one, **{name: clone(getattr(one, name)) for name in ("demixing", "augmentation", "head")})
            for one in members
        )
        first = self.members_[0]
        self.parts_ = {
            "encoder": clone(self._encoder), "demixing": first.demixing, "augmentation": first.augmentation,
            "head": first.head,
        }  # fmt: skip
        self.history_: dict[str, Any] = {"encoder": encoded.history, "restarts": restarts}

    def _keep_examples(
        self, z: Array, y: NDArray[Any], groups: NDArray[np.int64], names: NDArray[Any], demixed_on: NDArray[np.bool_]
    ) -> None:
        """Keep features of some rows, to draw from; independence is measured on them when it is asked for.

        ``groups`` are classes or bins of the rows, ``names`` those of all groups.
        """
        self._examples = z, y
        self._diagnosis = partial(_diagnose_later, self.demixer_, z, groups, names, demixed_on)

    def _outputs(self, X: Any) -> Array:
        """What the members give together."""
        features = self._features(X)  # first of all: it refuses a model that is not fitted
        return predict_together(self.members_, features, self._dtype)

    def _served(self) -> ServedModel:
        return ServedModel(self.encoder_, self.members_, self._outcome(self._dtype), self._dtype)

    def _outcome(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        """From what the members give to what is predicted."""
        raise NotImplementedError

    def _check_draw(self, n_samples: int, space: Space) -> None:
        """Raise an error if the model is not fitted, or such samples cannot be drawn."""
        check_is_fitted(self)
        if isinstance(n_samples, bool) or not isinstance(n_samples, Integral) or n_samples < 1:
            raise InputError(f"The number of samples must be a whole number from 1 on; got {n_samples!r}.")
        if space not in get_args(Space):
            raise InputError(f"space={space!r}: use 'source', 'feature' or 'input'.")
        if space == "input" and not (type(self.encoder_) is nn.Identity or hasattr(self.encoder_, "decode")):
            raise InputError(
                "space='input' needs an encoder that can be undone: 'identity', 'autoencoder', or a module of your own "
                "with a method decode. Use space='feature'."
            )

    @torch.no_grad()
    def _restored(self, s: Array, space: Space) -> Array:
        """Sources as they are, the features that they come from, or the inputs that an encoder maps there."""
        if space == "source":
            return s
        z: Any = self.demixer_.inverse(torch.from_numpy(s))
        if space == "input" and type(self.encoder_) is not nn.Identity:
            decode: Any = self.encoder_.decode
            first = next(self.encoder_.parameters(), z)
            z = decode(z.to(first))
        return np.asarray(z.double().cpu().numpy())

    def _settled(self) -> tuple[Member, ...]:
        """The members, their parts with what was found out in the fit: blocks of a flow, layers of a network."""
        check_is_fitted(self)
        settled = []
        for one in self.members_:
            demixing, head, shape = clone(one.demixing), clone(one.head), head_shape(one.network)
            if one.demixer.flow is not None:
                demixing.set_params(blocks=len(one.demixer.flow.blocks))
            if shape.kind == "mlp":
                head.set_params(hidden=shape.hidden, dropout=shape.dropout)
            elif isinstance(head, LinearHead) and not head.by_steps:
                head.weight_decay = one.setting
            settled.append(replace(one, demixing=demixing, head=head))
        return tuple(settled)


def _diagnose_later(
    demixer: Demixer, z: Array, groups: NDArray[np.int64], names: NDArray[Any], demixed_on: NDArray[np.bool_]
) -> SourceDiagnostics:
    return diagnose_sources(demixer, SourceRows.of(demixer, z, groups), names, demixed_on)


def generator_of(random_state: Any) -> np.random.Generator:
    """A numpy generator from what scikit-learn calls a random state."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
