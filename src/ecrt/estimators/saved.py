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
from ecrt.estimators.base import EstimatorBase, SeenImages
from ecrt.estimators.card import model_card
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.transformer import ECRTTransformer
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
    Value,
    encoder_width,
    from_plain,
    head_shape,
    pack,
    to_plain,
    unpack,
)
from ecrt.io.model_files import as_read, open_model, write_model

QUICKLY_VERIFIED = 2**26
"""Bytes of tensors that take no time to compare with their digest."""

# --- what is kept -----------------------------------------------------------------------------------

Attributes = dict[str, Kind]

INPUT: Attributes = {
    "n_features_in_": Value(Annotated[int, Meta(ge=1, le=2**31)], optional=True),
    "feature_names_in_": Labels("columns", optional=True),
    "table_": Value(TableEncoder | None),
    "images_": Value(SeenImages, optional=True),
    "demixer_": DemixerNetwork(),
    "encoder_": EncoderNetwork(),
    "history_": Value(dict[str, Any]),
    "interrupted_": Value(str, optional=True),
    "metrics_": Value(dict[str, Any], optional=True),
    "metrics_of_": Value(str, optional=True),
}
"""Of every estimator."""

CLASSES: Attributes = {
    "classes_": Labels("classes"),
    "class_counts_": Array("classes", int, least=0),
    "minority_classes_": Subset("classes_"),
}
"""Of every estimator that knows classes."""

SOURCES: Attributes = {
    "signal_weight_": Array("sources"),
    "head_scale_": Array("sources"),
    "within_variance_": Array("sources", positive=True),
    "demixing_": Value(Literal["none", "linear", "flow"]),
    "parts_": Value(dict[str, Any]),
}


def _diagnosis(labels: str, *, positions: bool = False) -> Attributes:
    fields = {
        "classes": Rows(ClassDiagnosis, labels, positions),
        "round_trip_error": Value(float),
        "enough_classes": Value(bool),
        "smallest_singular_value": Value(float),
    }
    return {"_diagnosis": Record(SourceDiagnostics, fields)}


CLASSIFIER: Attributes = {
    **CLASSES,
    **INPUT,
    **SOURCES,
    **_diagnosis("classes_"),
    "demixed_on_": Subset("classes_"),
    "head_name_": Value(Literal["linear", "mlp", "gaussian"]),
    "head_": HeadNetwork("classes"),
    "_examples": Record(tuple, {"s": Array("examples sources"), "y": Array("examples", int, least=0, below="classes")}),
    "multilabel_": Value(bool),
    "sparse_output_": Value(bool, optional=True),
    "label_log_odds_": Array("2 classes", optional=True),
    "thresholds_": Array("classes", nullable=True, optional=True),
    "selection_": Value(dict[str, Any], optional=True),
}

TRANSFORMER: Attributes = {
    **CLASSES,
    **INPUT,
    **_diagnosis("classes_"),
    "signal_weight_": SOURCES["signal_weight_"],
    "demixing_": SOURCES["demixing_"],
    "demixed_on_": Subset("classes_"),
    "reconstruction_error_": Value(float),
}

REGRESSOR: Attributes = {
    "bin_counts_": Array("classes", int, least=1),
    "minority_bins_": Subset("bin_counts_", positions=True),
    "demixed_on_": Subset("bin_counts_", positions=True),
    **INPUT,
    **SOURCES,
    **_diagnosis("bin_counts_", positions=True),
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
    "head_name_": Value(Literal["linear", "mlp"]),
    "head_": HeadNetwork("outputs"),
    "_examples": Record(tuple, {"s": Array("examples sources"), "y": Array("examples outputs")}),
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
    refuse("A class has no samples.", when=clf.class_counts_.min() < 1)


def _check_labels(clf: ECRTClassifier) -> None:
    names = clf.classes_.tolist()
    refuse("The labels are not at least two different ones.", when=len(names) < 2 or len(set(names)) < len(names))


def _check_demixing(demixing: str, estimator: EstimatorBase) -> None:
    differs = (demixing == "flow") != (estimator.demixer_.flow is not None)
    refuse(f"De-mixing is {demixing!r}, which does not match the flow.", when=differs)


def _check_choices(estimator: ECRTClassifier | ECRTRegressor) -> None:
    """Names, networks and parts must be of the same choices, and the parts of their roles."""
    demixing, head, parts = estimator.demixing_, estimator.head_name_, estimator.parts_
    _check_demixing(demixing, estimator)
    kind = head_shape(estimator.head_).kind
    refuse(f"The head is {kind!r}, not {head!r}.", when=head != kind)
    names = ("encoder", "demixing", "augmentation", "head")
    fits = parts.keys() == set(names) and all(isinstance(parts[name], estimator._roles[name].types) for name in names)
    refuse(f"Its parts are not {', '.join(names)}.", when=not fits)
    chosen = (parts["demixing"].kind, parts["head"].kind) == (demixing, head)
    refuse("Its parts are not those that were chosen.", when=not chosen)


def _check_classifier(clf: ECRTClassifier) -> None:
    (_check_labels if clf.multilabel_ else check_classes)(clf)
    of_labels = [hasattr(clf, name) for name in ("sparse_output_", "label_log_odds_", "thresholds_")]
    refuse("It has some attributes of a model of several labels.", when=set(of_labels) != {clf.multilabel_})
    _check_choices(clf)
    _ = clf.log_class_prior_


def _check_transformer(transformer: ECRTTransformer) -> None:
    check_classes(transformer)
    _check_demixing(transformer.demixing_, transformer)


def _check_regressor(reg: ECRTRegressor) -> None:
    _check_choices(reg)
    regions = reg.regions_
    fits = len(regions.edges) == len(regions.counts) + 1 and bool((np.diff(regions.edges) > 0).all())
    refuse("The regions of the target cannot be.", when=not fits or not len(regions.counts))
    outputs = len(regions.center)
    refuse(f"There are {outputs} outputs.", when=outputs < 1 or (reg.one_output_ and outputs > 1))
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
    return estimator


def _options(estimator: EstimatorBase) -> dict[str, Any]:
    """Options of an estimator, with a stand-in for those that cannot be kept."""
    options: dict[str, Any] = estimator.get_params(deep=False)
    if callable(options.get("minority")):
        options["minority"] = estimator.minority_classes_.tolist() or 1  # no class has fewer samples than one
    if isinstance(options["random_state"], np.random.RandomState):
        options["random_state"] = None
    return options


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
