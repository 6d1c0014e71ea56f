"""What a classifier has besides when a row may have several labels, to files and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ecrt.io import BadContentError, Fields, TensorStore, array_from_plain

__all__ = ["pack_labels", "unpack_label_names", "unpack_labels"]


def pack_labels(clf: Any) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """A description and tensors; ``None`` and nothing for one label a row."""
    if not clf.multilabel_:
        return None, {}
    tensors = {"label_log_odds": clf.label_log_odds_}
    if clf.thresholds_ is not None:
        tensors["thresholds"] = clf.thresholds_
    return {"sparse": bool(clf.sparse_output_), "thresholds": clf.thresholds_ is not None}, tensors


def unpack_labels(clf: Any, fields: Fields, store: TensorStore) -> None:
    """Give a classifier what was packed."""
    n_labels = len(clf.classes_)
    clf.sparse_output_ = fields.flag("sparse")
    clf.label_log_odds_ = store.take("label_log_odds", (2, n_labels), torch.float64).numpy()
    clf.thresholds_ = None
    if fields.flag("thresholds"):
        clf.thresholds_ = store.take("thresholds", (n_labels,), torch.float64).numpy()


def unpack_label_names(value: Any) -> np.ndarray[Any, Any]:
    """Names of the labels, at least two and all different, in the order of the columns."""
    names = array_from_plain(value, "classes")
    if len(names) < 2 or len(set(names.tolist())) < len(names):
        raise BadContentError("The labels are not at least two different ones.")
    return names
