"""A fit whose options are chosen first."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from torch.utils.data import Dataset, Subset, TensorDataset

from ecrt.data import minority_mask
from ecrt.diagnostics import unique_feature
from ecrt.errors import warn_user
from ecrt.estimators.effects import set_options
from ecrt.estimators.selection import select

__all__ = ["fit_selected"]


def fit_selected(clf: Any, X: Any, y: Any) -> None:
    """Choose options on problems with known answers, fit with them on all rows, and keep what came of it in ``clf``."""
    items, labels = clf._read_classes(X, y)
    n_classes = len(clf.classes_)
    minority = minority_mask(np.bincount(labels, minlength=n_classes), clf.classes_, clf.minority)

    def fit(candidate: Any, rows: NDArray[np.int64], rare: list[int]) -> Any:
        return candidate.set_params(minority=rare, class_prior="balanced").fit(*_training_rows(items, labels, rows))

    def log_proba(candidate: Any, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.full((len(rows), n_classes), -np.inf)
        found[:, candidate.classes_] = candidate.predict_log_proba(_training_rows(items, labels, rows)[0])
        return found

    def unfamiliar() -> bool:
        if _n_columns(items) is None or clf.encoder != "identity" or not isinstance(items, TensorDataset):
            return False
        found = unique_feature(items.tensors[0].double().numpy(), labels, minority, session.rng)
        return found is not None and found.found

    with clf._session() as session:
        selection = select(
            clf, fit, log_proba, labels, minority, _n_columns(items), unfamiliar=unfamiliar,
            trials=clf.selection_trials, budget=clf.selection_budget, rng=session.rng, progress=session.progress,
        )  # fmt: skip
    if not selection.transfer:
        warn_user(selection.sentence)
    chosen = set_options(clone(clf), **selection.options, selection=None).fit(X, y)
    for name, value in vars(chosen).items():
        if name.endswith("_") or name in ("_examples", "_diagnosis"):
            setattr(clf, name, value)
    clf.selection_ = asdict(selection)


def _training_rows(
    items: Dataset[Any], labels: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[Any, NDArray[np.int64]] | tuple[Any]:
    """Rows of a table with their class indices, or a Dataset of those rows."""
    if isinstance(items, TensorDataset) and items.tensors[0].ndim == 2:
        return items.tensors[0][rows].numpy(), labels[rows]
    return (Subset(items, rows.tolist()),)


def _n_columns(items: Dataset[Any]) -> int | None:
    shape = items[0][0].shape
    return int(shape[0]) if len(shape) == 1 else None
