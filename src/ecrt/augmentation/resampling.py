"""Synthetic rows of rare classes by other people's methods: SMOTE and distribution calibration.

Each takes rows and class indices and returns synthetic rows alone, with their classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

__all__ = ["calibrated_distribution", "smote", "tukey_power"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


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


def tukey_power(z: Array, power: float = 0.5) -> Array:
    """Features to the power given, to make them less skewed; only features that are never negative can be (Eq. 2).

    Columns with a negative value are left as they are. ``power`` 0 stands for the logarithm of one plus the feature.
    """
    skewed = (z >= 0).all(axis=0)
    powered = np.log1p(np.abs(z)) if power == 0 else np.abs(z) ** power
    return np.where(skewed, powered, z)


def calibrated_distribution(
    z: Array,
    y: Labels,
    base: NDArray[np.bool_],
    rng: np.random.Generator,
    *,
    n_nearest: int = 2,
    spread: float = 0.21,
) -> tuple[Array, Labels]:
    r"""Rows of few-shot classes from Gaussians whose statistics are borrowed from the nearest base classes.

    For each row z of a class that is not a base class, with S the ``n_nearest`` base classes of nearest mean:
    :math:`\mu' = (z + \sum_{i \in S} \mu_i) / (|S| + 1)` and :math:`\Sigma' = \frac{1}{|S|} \sum_{i \in S} \Sigma_i +
    \alpha I`. As many are drawn as make the class as large as the largest. The authors add alpha to every entry of the
    covariance; here it is added to the diagonal, which is a variance whatever the features. A normal vector times the
    residuals of a class has just its covariance, so none is ever built.

    Parameters
    ----------
    z : standardised features, after :func:`tukey_power` where they are non-negative.
    base : mask over classes: those with samples enough for a mean and a covariance.
    spread : alpha.

    References
    ----------
    Yang, Liu, Xu: Free lunch for few-shot learning: distribution calibration, ICLR 2021, Eqs. 2 to 6.
    """
    counts = np.bincount(y, minlength=len(base))
    donors = np.flatnonzero(base & (counts >= 2))
    short = np.flatnonzero(~base & (counts > 0))
    if len(donors) == 0:
        raise InputError("Distribution calibration needs a majority class of two samples at least to borrow from.")
    rows_of = {m: z[y == m] for m in donors}
    means = np.stack([rows_of[m].mean(axis=0) for m in donors])
    residuals = [(rows_of[m] - mean) / np.sqrt(len(rows_of[m]) - 1) for m, mean in zip(donors, means, strict=True)]
    n_nearest = min(n_nearest, len(donors))
    rows, classes = [np.empty((0, z.shape[1]))], [np.empty(0, dtype=np.int64)]
    for label in short:
        own = z[y == label]
        squares = ((own[:, None] - means[None]) ** 2).sum(axis=2)
        nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_nearest]
        # As many from each row as possible, the remainder from the first rows.
        size = np.full(len(own), (counts.max() - len(own)) // len(own))
        size[: (counts.max() - len(own)) % len(own)] += 1
        for row, chosen, n in zip(own, nearest, size, strict=True):
            mean = (row + means[chosen].sum(axis=0)) / (n_nearest + 1)
            noise = np.sqrt(spread) * rng.standard_normal((n, z.shape[1]))
            for place in chosen:
                normal = rng.standard_normal((n, len(residuals[place])))
                noise += normal @ residuals[place] / np.sqrt(n_nearest)
            rows.append(mean + noise)
        classes.append(np.full(int(size.sum()), label))
    return np.concatenate(rows), np.concatenate(classes)
