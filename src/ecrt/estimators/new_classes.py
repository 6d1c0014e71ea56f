"""Classes that come later: encoder and de-mixing stay as they are, the head learns the new classes beside the old."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from ecrt.data import ClassRoles
from ecrt.diagnostics import SourceDiagnostics, SourceRows, diagnose_sources
from ecrt.errors import InputError
from ecrt.estimators.inputs import read_dataset
from ecrt.estimators.options import head_config
from ecrt.flows import ClassPrior, Demixer, class_moments
from ecrt.stages import DemixResult, features_of, sources_of
from ecrt.stages.predict import fit_head

__all__ = ["add_classes"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def add_classes(clf: Any, X: Any, y: Any) -> None:
    """Let a fitted classifier tell new classes, from one sample each on."""
    check_is_fitted(clf)
    if clf.multilabel_:
        raise InputError("Classes cannot be added where a row may have several labels.")
    if not isinstance(clf.class_prior, str):
        raise InputError("class_prior has a number for each class: set it to 'balanced' or 'training' first.")
    z, names = _read(clf, X, y)
    s = sources_of(clf.demixer_, z)
    classes = _all_classes(clf.classes_, names)
    old, new = np.searchsorted(classes, clf.classes_), np.searchsorted(classes, names)
    counts = np.bincount(new, minlength=len(classes))
    counts[old] = clf.class_counts_
    arrived = ~np.isin(classes, clf.classes_)
    minority = arrived | np.isin(classes, clf.minority_classes_)
    demixed_on = np.isin(classes, clf.demixed_on_)
    roles = ClassRoles(
        counts=counts, minority=minority, augmented=minority, encoded_on=demixed_on, demixed_on=demixed_on
    )

    kept_s, kept_y = clf._examples
    all_s, all_y = np.concatenate([kept_s, s]), np.concatenate([old[kept_y], new])
    demixed = _as_demixed(clf, s, new, len(classes), old)
    chosen = clone(clf).set_params(**getattr(clf, "selection_", {"options": {}})["options"], head=clf.head_name_)
    with clf._session() as session:
        # De-mixing knows the labels of the rows that were kept: they cannot choose, and the choice of the fit stands.
        head = fit_head(
            all_s, all_y, setting=clf.history_["head_setting"], temperature=clf.history_["head_temperature"],
            roles=roles, demixed=demixed, config=head_config(chosen, *all_s.shape), **vars(session),
        )  # fmt: skip

    clf._diagnosis = _with_new(clf.diagnostics_, demixed.demixer, z, new, classes, demixed_on)
    clf.minority_classes_, clf.class_counts_ = classes[minority], counts
    clf.classes_, clf.demixer_, clf.head_ = classes, demixed.demixer, head
    clf._examples = all_s, all_y


def _read(clf: Any, X: Any, y: Any) -> tuple[Array, NDArray[Any]]:
    """Features and labels of the new rows."""
    if isinstance(X, Dataset):
        items, names, labels = read_dataset(X)
        return features_of(clf.encoder_, items, device=torch.device("cpu")), names[labels]
    names = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=None)
    check_consistent_length(X, names)
    return clf._features(X), names


def _all_classes(known: NDArray[Any], names: NDArray[Any]) -> NDArray[Any]:
    """Old and new labels in order."""
    again = np.intersect1d(known, names) if known.dtype.kind == names.dtype.kind else np.empty(0)
    if len(again):
        raise InputError(f"Known already: {again.tolist()[:10]}. Fit anew to learn from more rows of these classes.")
    numbers = [array.dtype.kind in "iufb" for array in (known, names)]
    if numbers[0] != numbers[1]:
        raise InputError(
            f"Known labels are such as {known[0]!r}, new ones such as {names[0]!r}: they must be of one kind."
        )
    return np.unique(np.concatenate([known, np.unique(names)]))


def _as_demixed(clf: Any, s: Array, y: Labels, n_classes: int, old: Labels) -> DemixResult:
    """The de-mixing of the fit, its prior with the Gaussians of the new classes."""
    demixer = clf.demixer_
    if isinstance(demixer.prior, ClassPrior):
        prior = ClassPrior(n_classes, s.shape[1]).double()
        prior.set_class(torch.from_numpy(old), demixer.prior.mean_md, demixer.prior.variance_md)
        variance = torch.from_numpy(clf.within_variance_)
        moments = class_moments(torch.from_numpy(s), torch.from_numpy(y), variance, clf._chosen("pseudo_samples"))
        prior.set_class(*moments)
        demixer = Demixer(demixer.linear, prior, demixer.flow).eval()
    share = np.minimum(clf.signal_weight_**2, 1 - 1e-12)
    return DemixResult(
        demixer=demixer,
        learned=s,
        within_variance=clf.within_variance_,
        signal_to_noise=share / (1 - share),
        weighted=clf.demixing_ != "none",
        restarts=(),
    )


def _with_new(
    before: SourceDiagnostics,
    demixer: Demixer,
    z: Array,
    y: Labels,
    classes: NDArray[Any],
    demixed_on: NDArray[np.bool_],
) -> SourceDiagnostics:
    """What was measured in the fit, and the new classes beside it."""
    rows = SourceRows.of(demixer, z, y)
    measured = {one.label: one for one in diagnose_sources(demixer, rows, classes, demixed_on).classes}
    measured |= {one.label: one for one in before.classes}
    return replace(before, classes=tuple(measured[label] for label in classes.tolist()))
