"""Rivals that are networks, to files and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ecrt.errors import InputError
from ecrt.estimators.baseline_methods import BASELINE_METHODS, resolve_options
from ecrt.estimators.options import log_class_prior
from ecrt.estimators.saved_base import Document, Tensors, card_extras, pack_base, unpack_base
from ecrt.estimators.saved_classes import unpack_classes
from ecrt.io import (
    BadContentError,
    CardFacts,
    CardRow,
    Fields,
    TensorStore,
    array_to_plain,
    pack_head,
    unpack_head,
)

__all__ = ["baseline_facts", "pack_baseline", "unpack_baseline"]


def pack_baseline(clf: Any) -> tuple[Document, Tensors]:
    """What a fitted rival holds."""
    if clf.model_ is not None:
        raise InputError(
            f"method={clf.method!r} is a {type(clf.model_).__name__} and cannot be saved: files hold our own "
            "networks only. Keep it with joblib.dump, and read it back only where you trust the file."
        )
    document, tensors = pack_base(clf, clf.minority_classes_.tolist() or 1, (), diagnosed=False)
    head, head_tensors = pack_head(clf.head_)
    document |= {
        "classes": array_to_plain(clf.classes_, "classes_"),
        "head": head,
        "end_to_end": clf.end_to_end_,
    }
    minority = np.isin(clf.classes_, clf.minority_classes_)
    own = {"class_counts": clf.class_counts_, "minority": minority, "powered": clf._powered}
    return document, {**tensors, **head_tensors, **own}


def unpack_baseline(kind: type[Any], fields: Fields, store: TensorStore, own_encoder: nn.Module | None) -> Any:
    """A rival as it was packed."""
    classes = unpack_classes(fields.raw("classes"))
    clf = unpack_base(kind, fields, store, own_encoder, classes, (), diagnosed=False)
    clf.classes_, clf.multilabel_, clf.model_ = classes, False, None
    clf.end_to_end_ = fields.flag("end_to_end")
    linear = clf.demixer_.linear
    with fields.part("head") as part:
        _, clf.head_ = unpack_head(part, store, linear.n_signal, len(classes))
    clf.class_counts_ = store.take("class_counts", (len(classes),), torch.int64).numpy()
    if clf.class_counts_.min() < 1:
        raise BadContentError("A class has no samples.")
    clf.minority_classes_ = classes[store.take("minority", (len(classes),), torch.bool).numpy()]
    clf._powered = store.take("powered", (linear.n_features,), torch.bool).numpy()
    try:
        log_class_prior(clf)
        resolve_options(clf.method, clf.loss, clf.loss_options, clf.method_options)
    except (InputError, TypeError, ValueError) as error:
        raise BadContentError(f"An option cannot be used: {str(error)[:300]}") from error
    return clf


def baseline_facts(clf: Any, own_encoder: bool) -> CardFacts:
    """What the card of a rival tells."""
    rows = zip(clf.classes_.tolist(), clf.class_counts_.tolist(), strict=True)
    encoder = type(clf.encoder_).__name__ if own_encoder else str(clf.encoder)
    return CardFacts(
        estimator=type(clf).__name__,
        n_features=getattr(clf, "n_features_in_", None),
        n_sources=clf.demixer_.linear.n_signal,
        classes=[CardRow(label, n, label in clf.minority_classes_.tolist(), False) for label, n in rows],
        chosen={
            "Method": f"{clf.method} ({BASELINE_METHODS[clf.method].reference.rstrip('.')})",
            "Encoder": encoder,
            "Head": "trained with the encoder" if clf.end_to_end_ else clf.head,
            "Class prior of predictions": str(clf.class_prior),
        },
        diagnostics=None,
        **card_extras(clf),
        own_encoder=own_encoder,
    )
