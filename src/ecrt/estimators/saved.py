"""Fitted estimators to files and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ecrt.data import TableEncoder
from ecrt.errors import InputError
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.options import log_class_prior
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved_labels import pack_labels, unpack_label_names, unpack_labels
from ecrt.estimators.saved_regressor import pack_targets, regressor_facts, unpack_targets
from ecrt.io import (
    BadContentError,
    CardFacts,
    CardRow,
    Fields,
    TensorStore,
    array_from_plain,
    array_to_plain,
    as_read,
    encoder_width,
    from_plain,
    model_card,
    pack_demixer,
    pack_diagnostics,
    pack_encoder,
    pack_head,
    pack_history,
    read_model,
    to_plain,
    unpack_demixer,
    unpack_diagnostics,
    unpack_encoder,
    unpack_head,
    unpack_history,
    write_model,
)

__all__ = ["load", "save_estimator"]

Document = dict[str, Any]
Tensors = dict[str, Tensor | np.ndarray[Any, Any]]

PLAIN_ATTRIBUTES: dict[str, type] = {"metrics_": dict}
"""Attributes of plain values that an estimator may have, with their types."""


def save_estimator(estimator: Any, path: str | PathLike[str]) -> None:
    """Write a fitted estimator to a folder, in place of any model there, with a model card beside it.

    A ``random_state`` that is a generator, and a ``minority`` that is a function, are not kept: in their place are
    ``None`` and the labels that it named. Of an encoder of the user's own the tensors are kept, not the code.

    Parameters
    ----------
    path : the folder; made if need be.
    """
    check_is_fitted(estimator)
    name = type(estimator).__name__
    if name not in MAPPINGS or type(estimator) is not MAPPINGS[name].estimator:
        raise InputError(f"{name} cannot be saved; only {sorted(MAPPINGS)} can.")
    document, tensors = MAPPINGS[name].pack(estimator)
    document["estimator"] = name
    own = document["encoder"]["kind"] == "own"
    try:  # what is written must load: find out now
        _unpack(*as_read(document, tensors), encoder=estimator.encoder_ if own else None)
    except BadContentError as error:
        raise InputError(f"This {name} cannot be saved, for it could not be loaded: {error}") from error
    write_model(path, document, tensors, model_card(MAPPINGS[name].facts(estimator, own)))


def load(path: str | PathLike[str], encoder: nn.Module | None = None) -> ECRTClassifier:
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
    document, tensors = read_model(path)
    try:
        return _unpack(document, tensors, encoder)
    except BadContentError as error:
        raise error.of_file(Path(path)) from error


def _unpack(document: Document, tensors: dict[str, Tensor], encoder: nn.Module | None) -> Any:
    store = TensorStore(tensors)
    with Fields(document, "document") as fields:
        mapping = MAPPINGS[fields.text("estimator", MAPPINGS)]
        estimator = mapping.unpack(mapping.estimator, fields, store, encoder)
    store.end()
    return estimator


def _pack_base(estimator: Any, minority: Any) -> tuple[Document, Tensors]:
    """What every estimator has: options, how X is read, encoder, de-mixing, history, diagnostics."""
    own = isinstance(estimator.encoder, nn.Module)
    options = estimator.get_params(deep=False)
    if own:
        options["encoder"] = None
    if callable(options.get("minority")):
        options["minority"] = minority
    if isinstance(options["random_state"], np.random.RandomState):
        options["random_state"] = None
    table = getattr(estimator, "table_", None)
    names = getattr(estimator, "feature_names_in_", None)
    encoder, encoder_tensors = pack_encoder(estimator.encoder_, own=own)
    demixer, demixer_tensors = pack_demixer(estimator.demixer_)
    diagnostics, diagnostics_tensors = pack_diagnostics(estimator.diagnostics_)
    document = {
        "options": {name: to_plain(value, f"The option {name}") for name, value in options.items()},
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": None if names is None else array_to_plain(names, "feature_names_in_"),
        "table": None if table is None else to_plain(table.state(), "table_"),
        "encoder": encoder,
        "demixer": demixer,
        "history": pack_history(estimator.history_),
        "diagnostics": diagnostics,
        "attributes": {
            name: to_plain(getattr(estimator, name), name) for name in PLAIN_ATTRIBUTES if hasattr(estimator, name)
        },
    }
    vectors = {name: getattr(estimator, f"{name}_") for name in ("signal_weight", "head_scale", "within_variance")}
    return document, {**encoder_tensors, **demixer_tensors, **diagnostics_tensors, **vectors}


def _unpack_base(
    kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None, classes: Any
) -> Any:
    """An estimator with all that ``_pack_base`` wrote of it."""
    with fields.part("demixer") as part:
        demixer = unpack_demixer(part, store, len(classes))
    with fields.part("encoder") as part:
        encoder = unpack_encoder(part, store, demixer.linear.n_features, own_encoder)
    estimator = _unpack_options(kind, fields.part("options"), own_encoder)
    estimator.encoder_, estimator.demixer_ = encoder, demixer
    width = None
    if own_encoder is None:
        width = demixer.linear.n_features if type(encoder) is nn.Identity else encoder_width(encoder)
    _unpack_input(estimator, fields, width)
    estimator.history_ = unpack_history(fields.part("history"))
    with fields.part("diagnostics") as part:
        estimator.diagnostics_ = unpack_diagnostics(part, store, classes)
    estimator.theory_met_ = estimator.diagnostics_.theory_met
    for name in ("signal_weight", "head_scale", "within_variance"):
        setattr(estimator, f"{name}_", store.take(name, (demixer.linear.n_signal,), torch.float64).numpy())
    if not (estimator.within_variance_ > 0).all():
        raise BadContentError("Variances of the sources are not positive.")
    for name, plain in fields.part("attributes").rest().items():
        value = from_plain(plain, f"attributes.{name[:60]}")
        if type(value) is not PLAIN_ATTRIBUTES.get(name):
            raise BadContentError(f"It has no attribute {name[:60]!r} of type {type(value).__name__}.")
        setattr(estimator, name, value)
    return estimator


def _unpack_options(kind: type[Any], fields: Fields, own_encoder: nn.Module | None) -> Any:
    options = {name: from_plain(value, f"options.{name[:60]}") for name, value in fields.rest().items()}
    unknown = set(options) - set(kind._get_param_names())
    if unknown:
        raise BadContentError(f"{kind.__name__} has no options {sorted(unknown)[:5]}.")
    if options.get("encoder") is None:
        options["encoder"] = own_encoder
    estimator = kind(**options)
    try:
        estimator._validate_params()
    except (TypeError, ValueError) as error:
        raise BadContentError(f"An option cannot be what it is: {str(error)[:300]}") from error
    return estimator


def _unpack_input(estimator: Any, fields: Fields, width: int | None) -> None:
    """How X is read; ``width`` is the number of columns or channels that the encoder takes, if known."""
    names = None if fields.is_null("feature_names_in") else fields.raw("feature_names_in")
    estimator.table_ = None
    if not fields.is_null("table"):
        try:
            estimator.table_ = TableEncoder.from_state(from_plain(fields.part("table").rest(), "table"))
        except InputError as error:
            raise BadContentError(str(error)) from error
        if width is not None and len(estimator.table_.names_out) != width:
            raise BadContentError(f"Its table gives {len(estimator.table_.names_out)} columns, not {width}.")
    if fields.is_null("n_features_in"):
        if names is not None or estimator.table_ is not None:
            raise BadContentError("A table needs n_features_in.")
        return
    n_features_in = fields.whole("n_features_in", 1, 2**31)
    wanted = width if estimator.table_ is None else len(estimator.table_.columns)
    if wanted is not None and n_features_in != wanted:
        raise BadContentError(f"n_features_in is {n_features_in}, not {wanted}.")
    estimator.n_features_in_ = n_features_in
    if names is not None:
        estimator.feature_names_in_ = array_from_plain(names, "feature_names_in")
        known = [] if estimator.table_ is None else [column.name for column in estimator.table_.columns]
        if estimator.feature_names_in_.tolist() != known:
            raise BadContentError("feature_names_in are not the names of its columns.")


def _pack_classifier(clf: Any) -> tuple[Document, Tensors]:
    minority = clf.minority_classes_.tolist() or 1  # no class has fewer samples than one
    document, tensors = _pack_base(clf, minority)
    s, y = clf._examples
    head, head_tensors = pack_head(clf.head_)
    labels, label_tensors = pack_labels(clf)
    document |= {
        "multilabel": labels,
        "classes": array_to_plain(clf.classes_, "classes_"),
        "demixing": clf.demixing_,
        "head": head,
        "n_examples": len(y),
    }
    tensors |= {
        **head_tensors,
        **label_tensors,
        "class_counts": clf.class_counts_,
        "minority": np.isin(clf.classes_, clf.minority_classes_),
        "demixed_on": np.isin(clf.classes_, clf.demixed_on_),
        "examples.s": s,
        "examples.y": y,
    }
    return document, tensors


def _unpack_classifier(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    several = not fields.is_null("multilabel")
    names = fields.raw("classes")
    classes = unpack_label_names(names) if several else _unpack_classes(names)
    clf = _unpack_base(kind, fields, store, own_encoder, classes)
    clf.classes_, clf.multilabel_ = classes, several
    if several:
        with fields.part("multilabel") as part:
            unpack_labels(clf, part, store)
    n_classes, n_sources = len(classes), clf.demixer_.linear.n_signal
    clf.demixing_ = fields.text("demixing", ("none", "linear", "flow"))
    if (clf.demixing_ == "flow") != (clf.demixer_.flow is not None):
        raise BadContentError(f"De-mixing is {clf.demixing_!r}, but the flow says otherwise.")
    with fields.part("head") as part:
        clf.head_name_, clf.head_ = unpack_head(part, store, n_sources, n_classes)
    clf.class_counts_ = store.take("class_counts", (n_classes,), torch.int64).numpy()
    if clf.class_counts_.min() < (0 if several else 1):
        raise BadContentError("A class has no samples.")
    clf.minority_classes_ = classes[store.take("minority", (n_classes,), torch.bool).numpy()]
    clf.demixed_on_ = classes[store.take("demixed_on", (n_classes,), torch.bool).numpy()]
    n_examples = fields.whole("n_examples", 0, 2**40)
    s = store.take("examples.s", (n_examples, n_sources), torch.float64).numpy()
    y = store.take("examples.y", (n_examples,), torch.int64).numpy()
    if len(y) and (y.min() < 0 or y.max() >= n_classes):
        raise BadContentError("An example is of no class.")
    clf._examples = s, y
    try:
        log_class_prior(clf)
    except (InputError, TypeError, ValueError) as error:
        raise BadContentError(f"The class prior cannot be used: {str(error)[:300]}") from error
    return clf


def _unpack_classes(value: Any) -> np.ndarray[Any, Any]:
    classes = array_from_plain(value, "classes")
    try:
        in_order = len(classes) >= 2 and bool((classes[1:] > classes[:-1]).all())
    except TypeError:
        in_order = False
    if not in_order or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
        raise BadContentError("The classes are not at least two different labels in order.")
    return classes


def _classifier_facts(clf: Any, own_encoder: bool) -> CardFacts:
    minority, demixed = (np.isin(clf.classes_, some) for some in (clf.minority_classes_, clf.demixed_on_))
    rows = zip(clf.classes_.tolist(), clf.class_counts_.tolist(), minority, demixed, strict=True)
    encoder = type(clf.encoder_).__name__ if own_encoder else str(clf.encoder)
    return CardFacts(
        estimator=type(clf).__name__,
        n_features=getattr(clf, "n_features_in_", None),
        n_sources=clf.demixer_.linear.n_signal,
        classes=[CardRow(*row) for row in rows],
        chosen={
            "Encoder": encoder,
            "De-mixing": f"{clf.demixing_}, {clf.demixer_.linear.n_signal} sources",
            "Augmentation of minority classes": clf.augmentation,
            "Head": clf.head_name_,
            "Class prior of predictions": str(clf.class_prior),
        },
        diagnostics=clf.diagnostics_,
        metrics=getattr(clf, "metrics_", None) or {},
        own_encoder=own_encoder,
    )


def _pack_regressor(reg: Any) -> tuple[Document, Tensors]:
    document, tensors = _pack_base(reg, None)
    own_document, own_tensors = pack_targets(reg)
    return document | own_document, tensors | own_tensors


def _unpack_regressor(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    n_bins = fields.whole("n_bins", 1, 2**24)
    store.check("bin_counts", (n_bins,), (torch.int64,))
    reg = _unpack_base(kind, fields, store, own_encoder, np.arange(n_bins))
    unpack_targets(reg, fields, store, n_bins)
    return reg


@dataclass(frozen=True)
class _Mapping:
    """How one class of estimators goes to files and back. Classes are looked up here, never by a name in a file."""

    estimator: type[Any]
    pack: Callable[[Any], tuple[Document, Tensors]]
    unpack: Callable[[type[Any], Fields, TensorStore, nn.Module | None], Any]
    facts: Callable[[Any, bool], CardFacts]


MAPPINGS = {
    "ECRTClassifier": _Mapping(ECRTClassifier, _pack_classifier, _unpack_classifier, _classifier_facts),
    "ECRTRegressor": _Mapping(ECRTRegressor, _pack_regressor, _unpack_regressor, regressor_facts),
}
