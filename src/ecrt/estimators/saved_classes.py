"""Estimators of classes, the classifier and the transformer, to files and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ecrt.errors import InputError
from ecrt.estimators.options import log_class_prior
from ecrt.estimators.saved_base import Document, Tensors, card_extras, pack_base, unpack_base
from ecrt.estimators.saved_labels import pack_labels, unpack_label_names, unpack_labels
from ecrt.io import (
    BadContentError,
    CardFacts,
    CardRow,
    Fields,
    TensorStore,
    array_from_plain,
    array_to_plain,
    number_from_plain,
    number_to_plain,
    pack_head,
    unpack_head,
)

__all__ = [
    "classifier_facts",
    "pack_classifier",
    "pack_transformer",
    "transformer_facts",
    "unpack_classes",
    "unpack_classifier",
    "unpack_transformer",
]

TRANSFORMER_VECTORS = ("signal_weight",)


def pack_classifier(clf: Any) -> tuple[Document, Tensors]:
    """What a fitted classifier holds."""
    document, tensors = pack_base(clf, _stand_in(clf))
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
    tensors |= {**head_tensors, **label_tensors, **_pack_roles(clf), "examples.s": s, "examples.y": y}
    return document, tensors


def unpack_classifier(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    """A classifier as it was packed."""
    several = not fields.is_null("multilabel")
    names = fields.raw("classes")
    classes = unpack_label_names(names) if several else unpack_classes(names)
    clf = unpack_base(kind, fields, store, own_encoder, classes)
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
    _unpack_roles(clf, store, fewest=0 if several else 1)
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


def pack_transformer(transformer: Any) -> tuple[Document, Tensors]:
    """What a fitted transformer holds: no head, and no examples to sample from."""
    document, tensors = pack_base(transformer, _stand_in(transformer), TRANSFORMER_VECTORS)
    document |= {
        "classes": array_to_plain(transformer.classes_, "classes_"),
        "reconstruction_error": number_to_plain(transformer.reconstruction_error_),
    }
    return document, tensors | _pack_roles(transformer)


def unpack_transformer(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    """A transformer as it was packed."""
    classes = unpack_classes(fields.raw("classes"))
    transformer = unpack_base(kind, fields, store, own_encoder, classes, TRANSFORMER_VECTORS)
    transformer.classes_ = classes
    if (transformer.demixing == "flow") != (transformer.demixer_.flow is not None):
        raise BadContentError(f"De-mixing is {transformer.demixing!r}, but the flow says otherwise.")
    _unpack_roles(transformer, store, fewest=1)
    transformer.reconstruction_error_ = number_from_plain(fields.raw("reconstruction_error"), "reconstruction_error")
    return transformer


def _stand_in(estimator: Any) -> Any:
    """Labels for a ``minority`` that is a function; no class has fewer samples than one."""
    return estimator.minority_classes_.tolist() or 1


def _pack_roles(estimator: Any) -> Tensors:
    return {
        "class_counts": estimator.class_counts_,
        "minority": np.isin(estimator.classes_, estimator.minority_classes_),
        "demixed_on": np.isin(estimator.classes_, estimator.demixed_on_),
    }


def _unpack_roles(estimator: Any, store: TensorStore, fewest: int) -> None:
    classes = estimator.classes_
    estimator.class_counts_ = store.take("class_counts", (len(classes),), torch.int64).numpy()
    if estimator.class_counts_.min() < fewest:
        raise BadContentError("A class has no samples.")
    estimator.minority_classes_ = classes[store.take("minority", (len(classes),), torch.bool).numpy()]
    estimator.demixed_on_ = classes[store.take("demixed_on", (len(classes),), torch.bool).numpy()]


def unpack_classes(value: Any) -> np.ndarray[Any, Any]:
    """Labels in order."""
    classes = array_from_plain(value, "classes")
    try:
        in_order = len(classes) >= 2 and bool((classes[1:] > classes[:-1]).all())
    except TypeError:
        in_order = False
    if not in_order or (classes.dtype.kind == "f" and not np.isfinite(classes).all()):
        raise BadContentError("The classes are not at least two different labels in order.")
    return classes


def classifier_facts(clf: Any, own_encoder: bool) -> CardFacts:
    """What the card of a classifier tells."""
    return _facts(clf, own_encoder, clf.demixing_, {
        "Augmentation of minority classes": clf.augmentation,
        "Head": clf.head_name_,
        "Class prior of predictions": str(clf.class_prior),
    })  # fmt: skip


def transformer_facts(transformer: Any, own_encoder: bool) -> CardFacts:
    """What the card of a transformer tells."""
    lost = {"What sources leave out of the features, root mean square": f"{transformer.reconstruction_error_:.2g}"}
    return _facts(transformer, own_encoder, transformer.demixing, lost, use="transform")


def _facts(
    estimator: Any, own_encoder: bool, demixing: str, chosen: dict[str, str], use: str = "predict_proba"
) -> CardFacts:
    classes, n_sources = estimator.classes_, estimator.demixer_.linear.n_signal
    minority, demixed = (np.isin(classes, some) for some in (estimator.minority_classes_, estimator.demixed_on_))
    rows = zip(classes.tolist(), estimator.class_counts_.tolist(), minority, demixed, strict=True)
    encoder = type(estimator.encoder_).__name__ if own_encoder else str(estimator.encoder)
    return CardFacts(
        estimator=type(estimator).__name__,
        n_features=getattr(estimator, "n_features_in_", None),
        n_sources=n_sources,
        classes=[CardRow(*row) for row in rows],
        chosen={"Encoder": encoder, "De-mixing": f"{demixing}, {n_sources} sources", **chosen},
        diagnostics=estimator.diagnostics_,
        **card_extras(estimator),
        own_encoder=own_encoder,
        use=use,
    )
