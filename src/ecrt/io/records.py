"""What a fit reports, its history and its diagnostics, as JSON and tensors, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecrt.diagnostics.sources import ClassDiagnosis, SourceDiagnostics
from ecrt.io.fields import BadContentError, Fields, TensorStore
from ecrt.io.values import from_plain, number_from_plain, number_to_plain, to_plain
from ecrt.stages import Restart
from ecrt.training import History

__all__ = ["pack_diagnostics", "pack_history", "unpack_diagnostics", "unpack_history"]

MOST_EPOCHS = 10**6
MEASURES = {
    "n_samples": torch.int64,
    "demixed": torch.bool,
    "max_correlation": torch.float64,
    "hsic": torch.float64,
    "log_likelihood": torch.float64,
}
"""What is known of each class, a tensor each: with many classes JSON would be long."""


def pack_history(history: dict[str, Any]) -> dict[str, Any]:
    """Losses of every trained part; histories and restarts are marked, everything else is plain."""
    return {name: _pack_record(value, f"history_[{name!r}]") for name, value in history.items()}


def unpack_history(fields: Fields) -> dict[str, Any]:
    """The history that was packed."""
    return {name: _unpack_record(value, f"history.{name[:60]}") for name, value in fields.rest().items()}


def _pack_record(value: Any, where: str) -> Any:
    if isinstance(value, History):
        return {
            "$history": {
                "train_loss": [number_to_plain(loss) for loss in value.train_loss],
                "held_out_loss": [number_to_plain(loss) for loss in value.held_out_loss],
                "best_epoch": value.best_epoch,
                "best_loss": number_to_plain(value.best_loss),
            }
        }
    if isinstance(value, Restart):
        return {
            "$restart": {
                "n_blocks": value.n_blocks,
                "held_out_contrast": number_to_plain(value.held_out_contrast),
                "history": _pack_record(value.history, where),
                "error": value.error,
            }
        }
    if isinstance(value, tuple) and value and all(isinstance(item, Restart) for item in value):
        return {"$tuple": [_pack_record(item, where) for item in value]}
    return to_plain(value, where)


def _unpack_record(value: Any, where: str) -> Any:
    if isinstance(value, dict) and "$history" in value:
        with Fields(value, where) as outer, outer.part("$history") as fields:
            return History(
                train_loss=_losses(fields, "train_loss"),
                held_out_loss=_losses(fields, "held_out_loss"),
                best_epoch=fields.whole("best_epoch", 0, MOST_EPOCHS),
                best_loss=number_from_plain(fields.raw("best_loss"), where),
            )
    if isinstance(value, dict) and "$restart" in value:
        with Fields(value, where) as outer, outer.part("$restart") as fields:
            history = _unpack_record(fields.raw("history"), where)
            if not isinstance(history, History | None):
                raise BadContentError(f"{where} holds a restart whose history is none.")
            return Restart(
                n_blocks=fields.whole("n_blocks", 1, 4096),
                held_out_contrast=number_from_plain(fields.raw("held_out_contrast"), where),
                history=history,
                error=fields.text("error"),
            )
    if isinstance(value, dict) and "$tuple" in value:
        with Fields(value, where) as fields:
            return tuple(_unpack_record(item, where) for item in fields.items("$tuple", MOST_EPOCHS))
    return from_plain(value, where)


def _losses(fields: Fields, name: str) -> list[float]:
    return [number_from_plain(loss, f"{fields.where}.{name}") for loss in fields.items(name, MOST_EPOCHS)]


def pack_diagnostics(diagnostics: SourceDiagnostics) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Numbers of the whole as JSON, of the classes as tensors."""
    described = {
        "round_trip_error": number_to_plain(diagnostics.round_trip_error),
        "enough_classes": diagnostics.enough_classes,
        "smallest_singular_value": number_to_plain(diagnostics.smallest_singular_value),
    }
    return described, {
        f"diagnostics.{name}": torch.tensor([getattr(found, name) for found in diagnostics.classes], dtype=dtype)
        for name, dtype in MEASURES.items()
    }


def unpack_diagnostics(fields: Fields, store: TensorStore, classes: NDArray[np.generic]) -> SourceDiagnostics:
    """The diagnostics that were packed, of these classes."""
    columns = {
        name: store.take(f"diagnostics.{name}", classes.shape, dtype, finite=False).tolist()
        for name, dtype in MEASURES.items()
    }
    return SourceDiagnostics(
        classes=tuple(
            ClassDiagnosis(label, **dict(zip(columns, row, strict=True)))
            for label, row in zip(classes.tolist(), zip(*columns.values(), strict=True), strict=True)
        ),
        round_trip_error=number_from_plain(fields.raw("round_trip_error"), "diagnostics.round_trip_error"),
        enough_classes=fields.flag("enough_classes"),
        smallest_singular_value=number_from_plain(fields.raw("smallest_singular_value"), "diagnostics"),
    )
