"""What a classifier does when a row may have several labels: reading the indicator, fitting, thresholds."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.multiclass import type_of_target
from torch.utils.data import Dataset

from ecrt.data import assign_roles, thin_out
from ecrt.errors import InputError, warn_user
from ecrt.estimators.examples import keep_examples
from ecrt.estimators.inputs import array_items, item_of, labelled_items, read_target_arrays
from ecrt.estimators.options import demix_configs, label_head_config, log_class_prior
from ecrt.losses import label_odds, row_mass
from ecrt.metrics import best_thresholds
from ecrt.stages import Labelled, transfer_labels

__all__ = ["fit_labels", "has_several_labels", "predict_labels", "read_labels"]

Array = NDArray[np.float64]

EXAMPLES = 20_000
"""Sources kept to sample from, over all labels; 20 to 500 of each."""


def has_several_labels(X: Any, y: Any) -> bool:
    """Whether y is an indicator of labels: two columns or more of zeros and ones, dense or sparse.

    Of a Dataset, whether the first item's y is a row of them.
    """
    if isinstance(X, Dataset):
        first = item_of(X, 0) if y is None and hasattr(X, "__len__") and len(cast(Sized, X)) else None
        return isinstance(first, (tuple, list)) and len(first) == 2 and np.asarray(first[1]).size > 1
    if y is None:
        return False
    if sparse.issparse(y):
        return True
    try:
        return bool(type_of_target(y) == "multilabel-indicator")
    except (TypeError, ValueError):  # what it is wrong with is said where y is checked
        return False


def read_labels(y: Any) -> tuple[Labelled, NDArray[Any]]:
    """The indicator and the names of its columns: those of a data frame, or else numbers from 0."""
    names: NDArray[Any] | None = None
    if isinstance(y, pd.DataFrame):
        names = y.columns.to_numpy()
        if len(set(names.tolist())) < len(names):
            raise InputError(f"Columns of y must have different names, not {names.tolist()}.")
        names = names.astype(str) if names.dtype == object else names
    plain: Any = y if sparse.issparse(y) else np.asarray(y)
    matrix = sparse.csr_array(plain)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    if matrix.nnz and not (matrix.data == 1).all():
        raise InputError("y has several columns, so it must be an indicator of labels: zeros and ones alone.")
    if matrix.shape[1] < 2:
        raise InputError("A sparse y is an indicator of labels and needs two columns or more.")
    return Labelled(matrix.astype(np.int8)), np.arange(matrix.shape[1]) if names is None else names


def fit_labels(clf: Any, X: Any, y: Any) -> None:
    """Learn encoder, de-mixing and a column of logits for each label."""
    labelled, clf.classes_ = read_labels(read_target_arrays(X) if isinstance(X, Dataset) else y)
    items = _items(clf, X, labelled)
    counts, n_labels = labelled.counts, len(clf.classes_)
    if counts.max(initial=0) < 2 or (counts == labelled.indicator.shape[0]).all():
        raise InputError(f"None of the {n_labels} labels can be learned: one at least needs two rows with it.")
    _say_absent(clf.classes_[counts == 0])
    roles = assign_roles(counts, clf.classes_, minority=clf.minority, encode_on=clf.encode_on, demix_on=clf.demix_on)
    with clf._session() as session:
        # Rows without labels are a group after the last label: the encoder may see them.
        groups = replace(
            roles, encoded_on=np.append(roles.encoded_on, True), augmented=np.append(roles.augmented, False)
        )
        encoded = clf._encode(items, labelled.rarest, groups, session, labelled.sides())
        z, learned = encoded.features[encoded.learn_rows], labelled[encoded.learn_rows]
        result, (logits, present) = transfer_labels(
            z, learned, roles=roles, candidates=demix_configs(clf, *z.shape), validation=clf.validation_fraction,
            head_config=label_head_config(clf, *z.shape), fresh=encoded.fresh[encoded.learn_rows], **vars(session),
        )  # fmt: skip
    clf.multilabel_, clf.sparse_output_ = True, sparse.issparse(y)
    clf.label_log_odds_ = np.stack([
        label_odds(labelled.indicator), label_odds(labelled.indicator, row_mass(labelled.indicator, "balanced"))
    ])  # fmt: skip
    clf._take(encoded, result, counts, roles)
    clf.thresholds_ = None
    if clf.thresholds == "validation":
        clf.thresholds_ = best_thresholds(logits, present, -log_class_prior(clf))
    label, row = learned.label, learned.incidences.row
    most = int(np.clip(EXAMPLES // n_labels, 20, 500))
    keep = thin_out(label, dict.fromkeys(range(n_labels), most), session.rng)
    keep_examples(clf, z[row[keep]], label[keep], roles.demixed_on & (counts > 0), session.rng)


def predict_labels(clf: Any, X: Any) -> Any:
    """Indicator of the labels above their thresholds; sparse if y was."""
    prior = log_class_prior(clf)
    scores = clf._scores(X)
    cuts = np.zeros(len(prior)) if clf.thresholds_ is None else clf.thresholds_ + prior
    found = ((scores >= cuts) & (clf.class_counts_ > 0)).astype(np.int64)
    return sparse.csr_matrix(found) if clf.sparse_output_ else found


def _items(clf: Any, X: Any, labelled: Labelled) -> Dataset[Any]:
    """Rows with the rarest of their labels, which is what a supervised encoder learns to tell."""
    if isinstance(X, Dataset):
        clf.table_ = None
        return labelled_items(X, labelled.rarest)
    rows, _ = clf._learn_rows(X, labelled.rarest)
    return array_items(rows, labelled.rarest)


def _say_absent(labels: NDArray[Any]) -> None:
    if len(labels):
        shown = labels[:10].tolist()
        more = f" and {len(labels) - 10} more" if len(labels) > 10 else ""
        warn_user(f"No row has the label(s) {shown}{more}: they cannot be learned and will never be predicted.")
