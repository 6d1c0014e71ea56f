"""Fitted estimators to files and back: what each of them has to keep, declared attribute by attribute.

A new attribute of a fitted estimator is one line in a table below. What no kind can say of it alone, such as that two
attributes must agree, stands in the ``check`` of the estimator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from torch import nn

from ecrt.data import TableEncoder
from ecrt.data.minority import TargetRegions
from ecrt.diagnostics import ClassDiagnosis, SourceDiagnostics
from ecrt.disk import typed
from ecrt.errors import BadContentError, InputError
from ecrt.estimators.base import ClassProbabilities, EstimatorBase, SeenImages
from ecrt.estimators.card import model_card
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.decisions import Decision, Saving
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.transformer import ECRTTransformer
from ecrt.flows import Demixer
from ecrt.io.attributes import (
    Array,
    DemixerNetwork,
    EncoderNetwork,
    HeadNetwork,
    Kind,
    Labels,
    Record,
    Rows,
    Subset,
    TensorStore,
    Value,
    encoder_width,
    from_plain,
    head_shape,
    pack,
    to_plain,
    unpack,
)
from ecrt.io.model_files import as_read, open_model, write_model
from ecrt.stages import Encoder, Member
from ecrt.stages.blending import Worth

QUICKLY_VERIFIED = 2**26
"""Bytes of tensors that take no time to compare with their digest."""

# --- what is kept -----------------------------------------------------------------------------------

Attributes = dict[str, Kind]

INPUT: Attributes = {
    "n_features_in_": Value(Annotated[int, Meta(ge=1, le=2**31)], optional=True),
    "feature_names_in_": Labels("columns", optional=True),
    "table_": Value(TableEncoder | None),
    "images_": Value(SeenImages, optional=True),
    "history_": Value(dict[str, Any]),
    "interrupted_": Value(str, optional=True),
    "metrics_": Value(dict[str, Any], optional=True),
    "metrics_of_": Value(str, optional=True),
}
"""Of every estimator."""

DEMIXED: Attributes = {"demixer_": DemixerNetwork(), "encoder_": EncoderNetwork()}
"""Of every estimator with one de-mixing."""

CLASSES: Attributes = {
    "classes_": Labels("classes"),
    "class_counts_": Array("classes", int, least=0, fractions=True),
    "minority_classes_": Subset("classes_"),
}
"""Of every estimator that knows classes."""

DECIDED: Attributes = {
    "decision_": Record(
        Decision,
        {"offsets": Array("classes"), "costs": Array("classes classes"), "class_prior": Value(str | list[float])},
        optional=True,
    ),
}
"""Of every classifier."""

OF_DEMIXING: Attributes = {
    "demixer": DemixerNetwork(),
    "signal_weight": Array("sources"),
    "within_variance": Array("sources", positive=True),
    "scale": Array("sources"),
}
"""Of the de-mixing of a member, which several members may share."""

MOST_MEMBERS = 64


@dataclass(frozen=True)
class Members(Kind):
    """Members that predict together; ``outputs`` is the name of the size of what they give."""

    outputs: str

    @property
    def _of_head(self) -> Attributes:
        number = Annotated[float, Meta(ge=0)]
        return {
            "demixing": Value(Any), "augmentation": Value(Any), "head": Value(Any), "setting": Value(float),
            "temperature": Value(Annotated[float, Meta(gt=0)]), "held_out": Value(float), "weight": Value(number),
            "taught": Value(bool), "network": HeadNetwork(self.outputs),
        }  # fmt: skip

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """One by one; a de-mixing that an earlier member has is not kept again."""
        packed = []
        for place, one in enumerate(value):
            first = next(number for number, other in enumerate(value) if other.demixer is one.demixer)
            kinds = self._of_head | (OF_DEMIXING if first == place else {})
            own = {key: kind.pack(getattr(one, key), f"{name}.{place}.{key}", store) for key, kind in kinds.items()}
            packed.append({"demixing_of": first, **own})
        return packed

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """One by one, each with its own number of sources."""
        found: list[Member] = []
        sizes = dict(store.sizes)
        for place, fields in enumerate(
            typed(plain, Annotated[list[dict[str, Any]], Meta(max_length=MOST_MEMBERS)], name)
        ):
            first = typed(fields.pop("demixing_of", place), Annotated[int, Meta(ge=0, le=place)], name)
            kinds = (OF_DEMIXING if first == place else {}) | self._of_head
            refuse(
                f"Member {place} of {name} does not have the fields {sorted(kinds)}.",
                when=fields.keys() != kinds.keys(),
            )
            shared = {key: getattr(found[first], key) for key in OF_DEMIXING} if first < place else {}
            store.sizes = dict(sizes)
            if shared:
                store.sizes["sources"] = len(shared["scale"])
            values = {key: kind.unpack(fields[key], f"{name}.{place}.{key}", store) for key, kind in kinds.items()}
            sizes.setdefault("features", store.sizes.get("features", 0))
            found.append(Member(**values, **shared))
        refuse("There are no members.", when=not found)
        store.sizes = sizes
        return tuple(found)


def _diagnosis(labels: str, *, positions: bool = False) -> Attributes:
    fields = {
        "classes": Rows(ClassDiagnosis, labels, positions),
        "round_trip_error": Value(float),
        "enough_classes": Value(bool),
        "smallest_singular_value": Value(float),
    }
    return {"_diagnosis": Record(SourceDiagnostics, fields)}


def _members(outputs: str) -> Attributes:
    return {"members_": Members(outputs), "encoder_": EncoderNetwork(), "parts_": Value(dict[str, Any])}


CLASSIFIER: Attributes = {
    **CLASSES,
    **DECIDED,
    **INPUT,
    **_members("classes"),
    **_diagnosis("classes_"),
    "demixed_on_": Subset("classes_"),
    "_examples": Record(
        tuple, {"z": Array("examples features"), "y": Array("examples", int, least=0, below="classes")}
    ),
    "multilabel_": Value(bool),
    "sparse_output_": Value(bool, optional=True),
    "label_log_odds_": Array("2 classes", optional=True),
    "thresholds_": Array("classes", nullable=True, optional=True),
    "selection_": Value(dict[str, Any], optional=True),
}

TRANSFORMER: Attributes = {
    **CLASSES,
    **INPUT,
    **DEMIXED,
    **_diagnosis("classes_"),
    "signal_weight_": Array("sources"),
    "demixing_": Value(Literal["none", "linear", "flow"]),
    "demixed_on_": Subset("classes_"),
    "reconstruction_error_": Value(float),
}

REGRESSOR: Attributes = {
    "bin_counts_": Array("classes", int, least=1),
    "minority_bins_": Subset("bin_counts_", positions=True),
    "demixed_on_": Subset("bin_counts_", positions=True),
    **INPUT,
    "regions_": Record(
        TargetRegions,
        {
            "center": Array("outputs"),
            "scale": Array("outputs", positive=True),
            "axis": Array("outputs"),
            "edges": Array("edges"),
            "counts": Array("regions", int, least=0),
        },
    ),
    **_members("outputs"),
    **_diagnosis("bin_counts_", positions=True),
    "_examples": Record(tuple, {"z": Array("examples features"), "y": Array("examples outputs")}),
    "one_output_": Value(bool),
    "weighted_": Value(bool),
    "region_mass_": Value(Annotated[float, Meta(ge=0, le=1)]),
    "augmentation_": Value(Literal["none", "interpolated", "donors"]),
}

# --- what must agree --------------------------------------------------------------------------------


def refuse(problem: str, *, when: bool) -> None:
    """Raise an error that names what is wrong with a file."""
    if when:
        raise BadContentError(problem)


def check_classes(clf: EstimatorBase) -> None:
    """Refuse classes that no fit could have had."""
    classes = clf.classes_
    try:
        in_order = len(classes) >= 2 and bool((classes[1:] > classes[:-1]).all())
    except TypeError:
        in_order = False
    bad = not in_order or (classes.dtype.kind == "f" and not np.isfinite(classes).all())
    refuse("The classes are not at least two different labels in order.", when=bad)
    refuse("A class has no samples.", when=clf.class_counts_.min() <= 0)


def check_decision(clf: ClassProbabilities) -> None:
    """Refuse costs that do not fit, and held-out figures that no fit could have had."""
    _ = clf.cost_matrix_
    gain, kinds = clf.history_.get("costs"), dict.fromkeys(Saving._fields, float) | {"rows": int}
    fits = _are(gain, kinds) if hasattr(clf, "decision_") else gain is None
    refuse("What was saved by moving cuts is not known.", when=not fits)


def _are(figures: Any, kinds: Mapping[str, type]) -> bool:
    """Whether figures have these names and types."""
    same = isinstance(figures, dict) and figures.keys() == kinds.keys()
    return same and all(type(figures[name]) is kind for name, kind in kinds.items())


def _check_labels(clf: ECRTClassifier) -> None:
    names = clf.classes_.tolist()
    refuse("The labels are not at least two different ones.", when=len(names) < 2 or len(set(names)) < len(names))


def _check_demixing(demixing: str, demixer: Demixer) -> None:
    differs = (demixing == "flow") != (demixer.flow is not None)
    refuse(f"De-mixing is {demixing!r}, which does not match the flow.", when=differs)


def _check_choices(estimator: ECRTClassifier | ECRTRegressor) -> None:
    """Parts must be of their roles, and networks of the same kinds as their parts."""
    for place, one in enumerate(estimator.members_):
        for name in ("demixing", "augmentation", "head"):
            fits = isinstance(getattr(one, name), estimator._roles[name].types)
            refuse(f"Member {place} has no part for its {name}.", when=not fits)
        _check_demixing(one.demixing.kind, one.demixer)
        kind = head_shape(one.network).kind
        refuse(f"The head of member {place} is {kind!r}, not {one.head.kind!r}.", when=kind != one.head.kind)
    first, parts = estimator.members_[0], estimator.parts_
    chosen = {"demixing": first.demixing, "augmentation": first.augmentation, "head": first.head}
    fits = isinstance(parts.get("encoder"), Encoder) and {**parts, "encoder": None} == {**chosen, "encoder": None}
    refuse("Its parts are not those of its first member.", when=not fits)


def _check_classifier(clf: ECRTClassifier) -> None:
    (_check_labels if clf.multilabel_ else check_classes)(clf)
    of_labels = [hasattr(clf, name) for name in ("sparse_output_", "label_log_odds_", "thresholds_")]
    refuse("It has some attributes of a model of several labels.", when=set(of_labels) != {clf.multilabel_})
    _check_choices(clf)
    worth, tried = (clf.history_.get(name) for name in ("transfer", "unlabelled"))
    figures = dict.fromkeys(Worth._fields, float)
    refuse("What transfer was worth is not known.", when=worth is not None and not _are(worth, figures))
    rows: dict[str, type] = {"rows": int, "alike": bool}
    fits = tried is None or _are(tried, rows) or _are(tried, rows | figures)
    refuse("What unlabelled rows were worth is not known.", when=not fits)
    _ = clf.log_class_prior_
    check_decision(clf)


def _check_transformer(transformer: ECRTTransformer) -> None:
    check_classes(transformer)
    _check_demixing(transformer.demixing_, transformer.demixer_)


def _check_regressor(reg: ECRTRegressor) -> None:
    _check_choices(reg)
    regions = reg.regions_
    fits = len(regions.edges) == len(regions.counts) + 1 and bool((np.diff(regions.edges) > 0).all())
    refuse("The regions of the target cannot be.", when=not fits or not len(regions.counts))
    outputs = len(regions.center)
    refuse(f"There are {outputs} outputs.", when=outputs < 1 or (reg.one_output_ and outputs > 1))
    refuse("A regressor has one member.", when=len(reg.members_) != 1)
    refuse("There are no bins, or no examples.", when=not len(reg.bin_counts_) or not len(reg._examples[0]))


def _check_input(estimator: EstimatorBase, own_encoder: bool) -> None:
    """Columns of X, table and encoder must fit together."""
    encoder, table = estimator.encoder_, estimator.table_
    given, names = (getattr(estimator, name, None) for name in ("n_features_in_", "feature_names_in_"))
    columns = None if table is None else [column.name for column in table.columns]
    refuse("feature_names_in_ are not the names of its columns.", when=names is not None and names.tolist() != columns)
    refuse(f"n_features_in_ is {given}, unlike its table.", when=columns is not None and given != len(columns))
    given = given if table is None else len(table.names_out)
    needed = estimator.demixer_.linear.n_features if type(encoder) is nn.Identity else encoder_width(encoder)
    differs = not own_encoder and None not in (given, needed) and given != needed
    refuse(f"n_features_in_ or the table gives {given} columns; the encoder needs {needed}.", when=differs)


# --- to files and back ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Saved:
    estimator: type[Any]
    attributes: Attributes
    check: Callable[[Any], None]


SAVED: dict[str, _Saved] = {}
"""Classes are looked up here, never by a name in a file."""


def declare(estimator: type[Any], attributes: Attributes, check: Callable[[Any], None]) -> None:
    """Let estimators of a class be saved and loaded.

    Parameters
    ----------
    attributes : all that a fit learns, in the order of reading: sizes and labels first.
    check : refuses attributes and options that do not agree.
    """
    SAVED[estimator.__name__] = _Saved(estimator, attributes, check)


declare(ECRTClassifier, CLASSIFIER, _check_classifier)
declare(ECRTRegressor, REGRESSOR, _check_regressor)
declare(ECRTTransformer, TRANSFORMER, _check_transformer)


def save_estimator(estimator: EstimatorBase, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a folder, in place of any model there, with a model card beside it.

    A ``random_state`` that is a generator, and a ``minority`` that is a function, are not kept: in their place are
    ``None`` and the labels that it named. Of the user's own encoder the tensors are kept, not the code.

    Parameters
    ----------
    path : the folder; made if need be.
    """
    name = type(estimator).__name__
    if name not in SAVED or type(estimator) is not SAVED[name].estimator:
        raise InputError(f"{name} cannot be saved; only {sorted(SAVED)} can.")
    saved = SAVED[name]
    if getattr(estimator, "model_", None) is not None:
        raise InputError(
            f"method={estimator.method!r} is a {type(estimator.model_).__name__} and cannot be saved: files hold our "
            "own networks only. Keep it with joblib.dump, and read it back only where you trust the file."
        )
    if "_diagnosis" in saved.attributes:
        _ = estimator.diagnostics_  # measured now, if not before
    options = {key: to_plain(value, f"The option {key}") for key, value in _options(estimator).items()}
    given = isinstance(estimator._encoder.network, nn.Module)
    attributes, tensors = pack(estimator, saved.attributes, estimator.encoder_ if given else None)
    document = {"estimator": name, "options": options, "attributes": attributes}
    try:  # what is written must load: find out now
        own_encoder = attributes["encoder_"]["kind"] == "own"
        _unpack(*as_read(document, tensors), estimator.encoder_ if own_encoder else None)
    except BadContentError as error:
        raise InputError(f"This {name} cannot be saved, because it could not be loaded: {error}") from error
    write_model(path, document, tensors, model_card(estimator, own_encoder=own_encoder))


def load(path: str | PathLike[str], encoder: nn.Module | None = None) -> Any:
    """Read a fitted estimator that ``save`` wrote; it predicts what it predicted, to the last bit.

    Files are data: nothing in them is run. Those that are damaged, forged or of another version raise a
    :class:`~ecrt.errors.ModelFileError`.

    Parameters
    ----------
    path : the folder.
    encoder : the user's own encoder, if it was fitted with one, built as it was then; it is copied.
    """
    if not isinstance(encoder, nn.Module | None):
        raise InputError(f"encoder must be an nn.Module, not {type(encoder).__name__}.")
    with open_model(path) as (document, tensors):
        try:
            estimator = _unpack(document, tensors, encoder)
        except BadContentError as error:
            if tensors.size <= QUICKLY_VERIFIED:  # what is damaged is called so
                tensors.verify()
            raise error.of_file(Path(path)) from error
        tensors.verify()
    report = Path(path).absolute().parent / "report.html"
    if report.is_file():  # of a run of the command, whose model this is
        estimator._report = report
    return estimator


def _options(estimator: EstimatorBase) -> dict[str, Any]:
    """Options of an estimator, with a stand-in for those that cannot be kept."""
    options: dict[str, Any] = estimator.get_params(deep=False)
    if callable(options.get("minority")):
        options["minority"] = estimator.minority_classes_.tolist() or 1  # no class has fewer samples than one
    if options.get("costs") is not None:
        options["costs"] = estimator.cost_matrix_.tolist()
    if isinstance(options["random_state"], np.random.RandomState):
        options["random_state"] = None
    return options | {"checkpoint": None}  # a folder of this machine


def _unpack(document: Mapping[str, Any], tensors: Mapping[str, Any], encoder: nn.Module | None) -> Any:
    if document.keys() != {"estimator", "options", "attributes"}:
        raise BadContentError(f"It holds {sorted(document)[:5]}, not an estimator, options and attributes.")
    name = document["estimator"]
    if name == "BaselineClassifier":
        import_module("ecrt.rivals")  # a room after this one, which declares it
    if not isinstance(name, str) or name not in SAVED:
        raise BadContentError(f"The estimator is {str(name)[:60]!r}, not one of {sorted(SAVED)}.")
    saved = SAVED[name]
    options, attributes = (typed(document[part], dict[str, Any], part) for part in ("options", "attributes"))
    found = unpack(attributes, saved.attributes, tensors, encoder)
    values = {key: from_plain(value, f"options.{key[:60]}", encoder) for key, value in options.items()}
    if unknown := values.keys() - set(saved.estimator._get_param_names()):
        raise BadContentError(f"{name} has no options {sorted(unknown)[:5]}.")
    named = values.get("checkpoint") is not None
    refuse("It names a checkpoint, a folder to write to, as no saved model does.", when=named)
    estimator = saved.estimator(**values)
    vars(estimator).update(found)
    try:
        estimator._validate_params()
        estimator._check_parts()
        _check_input(estimator, encoder is not None)
        saved.check(estimator)
    except (TypeError, ValueError) as error:
        raise BadContentError(f"An option has a value that is not allowed: {str(error)[:300]}") from error
    return estimator
