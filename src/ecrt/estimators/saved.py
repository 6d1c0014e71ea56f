"""Fitted estimators to files and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch import nn

from ecrt.errors import InputError
from ecrt.estimators.baseline import BaselineClassifier
from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.estimators.saved_base import Document, Tensors
from ecrt.estimators.saved_baseline import baseline_facts, pack_baseline, unpack_baseline
from ecrt.estimators.saved_classes import (
    classifier_facts,
    pack_classifier,
    pack_transformer,
    transformer_facts,
    unpack_classifier,
    unpack_transformer,
)
from ecrt.estimators.saved_regressor import pack_regressor, regressor_facts, unpack_regressor
from ecrt.estimators.transformer import ECRTTransformer
from ecrt.io import BadContentError, CardFacts, Fields, TensorStore, as_read, model_card, open_model, write_model

__all__ = ["load", "save_estimator"]

QUICKLY_VERIFIED = 2**26
"""Bytes of tensors that take no time to compare with their digest."""


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
    facts = MAPPINGS[name].facts(estimator, own)
    if hasattr(estimator, "interrupted_"):
        facts = replace(facts, chosen={**facts.chosen, "Interrupted": estimator.interrupted_})
    write_model(path, document, tensors, model_card(facts))


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


def _unpack(document: Document, tensors: Mapping[str, Any], encoder: nn.Module | None) -> Any:
    store = TensorStore(tensors)
    with Fields(document, "document") as fields:
        mapping = MAPPINGS[fields.text("estimator", MAPPINGS)]
        estimator = mapping.unpack(mapping.estimator, fields, store, encoder)
    store.end()
    return estimator


@dataclass(frozen=True)
class _Mapping:
    """How one class of estimators goes to files and back. Classes are looked up here, never by a name in a file."""

    estimator: type[Any]
    pack: Callable[[Any], tuple[Document, Tensors]]
    unpack: Callable[[type[Any], Fields, TensorStore, nn.Module | None], Any]
    facts: Callable[[Any, bool], CardFacts]


MAPPINGS = {
    "BaselineClassifier": _Mapping(BaselineClassifier, pack_baseline, unpack_baseline, baseline_facts),
    "ECRTClassifier": _Mapping(ECRTClassifier, pack_classifier, unpack_classifier, classifier_facts),
    "ECRTRegressor": _Mapping(ECRTRegressor, pack_regressor, unpack_regressor, regressor_facts),
    "ECRTTransformer": _Mapping(ECRTTransformer, pack_transformer, unpack_transformer, transformer_facts),
}
