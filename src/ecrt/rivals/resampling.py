"""SMOTE: points between neighbours of a class, in input space or among features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval
from torch.utils.data import Dataset, TensorDataset

from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.estimators.base import Session
from ecrt.estimators.inputs import array_items
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Number, Space

__all__ = ["SMOTE", "FeatureSMOTE", "smote"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_CELLS = 500_000_000
"""Numbers that SMOTE in input space may have to hold: 4 GB."""


@dataclass(kw_only=True, eq=False, repr=False)
class FeatureSMOTE(Rival):
    """Points between neighbours of a class, among the features of an encoder; every class as large as the largest.

    Parameters
    ----------
    k_neighbors : int, default=5
        Neighbours; a class of fewer rows uses those that it has, and a single row is repeated.

    References
    ----------
    Chawla, Bowyer, Hall, Kegelmeyer: SMOTE: synthetic minority over-sampling technique, JAIR 2002.
    """

    kind: ClassVar[str] = "feature-smote"
    label: ClassVar[str] = "SMOTE of features"
    tuned: ClassVar[Space | None] = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "k_neighbors": [Interval(Integral, 1, None, closed="left")]
    }

    k_neighbors: int = 5

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows that make every class as large as the largest."""
        return smote(z, y, session.rng, k_neighbors=self.k_neighbors)


@dataclass(kw_only=True, eq=False, repr=False)
class SMOTE(FeatureSMOTE):
    """Points between neighbours of a class, in input space. With the identity encoder the same as ``FeatureSMOTE``.

    Parameters
    ----------
    k_neighbors : int, default=5
        As in ``FeatureSMOTE``.

    References
    ----------
    Chawla, Bowyer, Hall, Kegelmeyer: SMOTE: synthetic minority over-sampling technique, JAIR 2002.
    """

    kind: ClassVar[str] = "smote"
    label: ClassVar[str] = "SMOTE"
    tuned: ClassVar[Space | None] = {"k_neighbors": Number(1, 10)}

    @property
    def trains_encoder(self) -> bool:
        """Yes, on real and synthetic inputs."""
        return True

    def oversample(
        self, items: Dataset[Any], labels: Labels, rng: np.random.Generator
    ) -> Callable[[Labels], tuple[Dataset[Any], Labels]]:
        """Rows, or images pixel by pixel, with what SMOTE makes of those that are learned from after them."""

        def with_synthetic(learned_from: Labels) -> tuple[Dataset[Any], Labels]:
            shape = tuple(items[0][0].shape)
            cells = int(np.prod(shape)) * len(np.unique(labels)) * int(np.bincount(labels).max())
            if cells > MOST_CELLS:
                raise InputError(
                    "SMOTE in input space would make too many rows of this size: use method='feature-smote'."
                )
            if isinstance(items, TensorDataset):
                x = items.tensors[0].double().numpy()
            else:
                x = np.stack([items[i][0].double().numpy() for i in range(len(labels))])
            flat = x[learned_from].reshape(len(learned_from), -1)
            drawn, drawn_y = smote(flat, labels[learned_from], rng, k_neighbors=self.k_neighbors)
            rows = np.concatenate([x, drawn.reshape(-1, *shape)])
            all_labels = np.concatenate([labels, drawn_y])
            return array_items(rows.astype(np.float64 if len(shape) == 1 else np.float32), all_labels), all_labels

        return with_synthetic


def smote(x: Array, y: Labels, rng: np.random.Generator, *, k_neighbors: int = 5) -> tuple[Array, Labels]:
    """Points between neighbours of a class, until every class is as large as the largest (imbalanced-learn's SMOTE).

    A class of fewer than ``k_neighbors`` + 1 rows uses the neighbours that it has; a single row is repeated.

    References
    ----------
    Chawla, Bowyer, Hall, Kegelmeyer: SMOTE: synthetic minority over-sampling technique, JAIR 2002.
    """
    from imblearn.over_sampling import SMOTE  # slow to import

    labels, counts = np.unique(y, return_counts=True)
    largest = counts.max()
    neighbours = np.minimum(k_neighbors, counts - 1)
    rows, classes = [np.empty((0, x.shape[1]))], [np.empty(0, dtype=np.int64)]
    for k in np.unique(neighbours[counts < largest]):
        short = (neighbours == k) & (counts < largest)
        if k == 0:
            single = np.repeat(np.flatnonzero(np.isin(y, labels[short])), largest - 1)
            drawn_x, drawn_y = x[single], y[single]
        else:
            sampler = SMOTE(
                sampling_strategy=dict.fromkeys(labels[short].tolist(), int(largest)),
                k_neighbors=int(k),
                random_state=int(rng.integers(2**31)),
            )
            resampled_x, resampled_y = sampler.fit_resample(x, y)[:2]
            drawn_x, drawn_y = resampled_x[len(y) :], resampled_y[len(y) :]  # real rows come first
        rows.append(np.asarray(drawn_x, dtype=np.float64))
        classes.append(np.asarray(drawn_y, dtype=np.int64))
    return np.concatenate(rows), np.concatenate(classes)
