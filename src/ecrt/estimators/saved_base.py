"""What every estimator has, to files and back: options, how X is read, encoder, de-mixing, history, diagnostics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ecrt.data import TableEncoder, rows_of_table
from ecrt.errors import InputError
from ecrt.io import (
    BadContentError,
    Fields,
    TensorStore,
    array_from_plain,
    array_to_plain,
    encoder_width,
    from_plain,
    pack_demixer,
    pack_diagnostics,
    pack_encoder,
    pack_history,
    to_plain,
    unpack_demixer,
    unpack_diagnostics,
    unpack_encoder,
    unpack_history,
)

__all__ = ["Document", "Tensors", "card_extras", "pack_base", "unpack_base"]

Document = dict[str, Any]
Tensors = dict[str, Tensor | np.ndarray[Any, Any]]

PLAIN_ATTRIBUTES: dict[str, type] = {"interrupted_": str, "metrics_": dict, "metrics_of_": str, "selection_": dict}
"""Attributes of plain values that an estimator may have, with their types."""

ALL_VECTORS = ("signal_weight", "head_scale", "within_variance")


def pack_base(
    estimator: Any, minority: Any, vectors: Sequence[str] = ALL_VECTORS, *, diagnosed: bool = True
) -> tuple[Document, Tensors]:
    """The common parts of an estimator.

    Parameters
    ----------
    minority : what stands for a ``minority`` that is a function, which cannot be kept.
    vectors : attributes that hold a number for each source.
    diagnosed : whether it has ``diagnostics_``.
    """
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
    diagnostics, diagnostics_tensors = pack_diagnostics(estimator.diagnostics_) if diagnosed else (None, {})
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
    values = {name: getattr(estimator, f"{name}_") for name in vectors}
    return document, {**encoder_tensors, **demixer_tensors, **diagnostics_tensors, **values}


def card_extras(estimator: Any) -> dict[str, Any]:
    """What the card tells of figures that were given with the model, and of how named columns were read.

    ``columns_read_`` is what reading a file has told; it is not stored, for a loaded model reads tables alone.
    """
    columns = getattr(estimator, "columns_read_", ())
    if not columns and hasattr(estimator, "feature_names_in_") and estimator.table_ is not None:
        columns = [row.cells for row in rows_of_table(estimator.table_)]
    metrics, subject = (getattr(estimator, name, None) for name in ("metrics_", "metrics_of_"))
    return {"metrics": metrics or {}, "metrics_of": subject or "", "columns": columns}


def unpack_base(
    kind: type[Any],
    fields: Fields,
    store: TensorStore,
    own_encoder: nn.Module | None,
    classes: Any,
    vectors: Sequence[str] = ALL_VECTORS,
    *,
    diagnosed: bool = True,
) -> Any:
    """An estimator with all that ``pack_base`` wrote of it."""
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
    if diagnosed:
        with fields.part("diagnostics") as part:
            estimator._diagnosis = unpack_diagnostics(part, store, classes)
    elif not fields.is_null("diagnostics"):
        raise BadContentError("It has diagnostics, and should have none.")
    for name in vectors:
        setattr(estimator, f"{name}_", store.take(name, (demixer.linear.n_signal,), torch.float64).numpy())
    if "within_variance" in vectors and not (estimator.within_variance_ > 0).all():
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
