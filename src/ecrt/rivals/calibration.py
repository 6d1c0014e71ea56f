"""Distribution calibration: rows of few-shot classes with statistics borrowed from the nearest majority classes."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.estimators.base import Session
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Number, Space

__all__ = ["DistributionCalibration", "calibrated_distribution", "tukey_power"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
ANY = [Interval(Real, 0, None, closed="left")]


@dataclass(kw_only=True, eq=False, repr=False)
class DistributionCalibration(Rival):
    """Synthetic rows of minority classes from Gaussians with statistics of the nearest majority classes.

    Parameters
    ----------
    power : float, default=0.5
        Of the Tukey transform, on columns that are never negative.
    n_nearest : int, default=2
        Majority classes that each row borrows from.
    spread : float, default=0.21
        Added to the diagonal of the covariance, not to every entry.

    References
    ----------
    Yang, Liu, Xu: Free lunch for few-shot learning: distribution calibration, ICLR 2021.
    """

    kind: ClassVar[str] = "distribution-calibration"
    label: ClassVar[str] = "Distribution calibration"
    tuned: ClassVar[Space | None] = {
        "spread": Number(0.01, 1.0, log=True),
        "n_nearest": Number(1, 3),
    }
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "power": ANY,
        "n_nearest": [Interval(Integral, 1, None, closed="left")],
        "spread": ANY,
    }

    power: float = 0.5
    n_nearest: int = 2
    spread: float = 0.21

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows of the minority classes."""
        return calibrated_distribution(
            z, y, ~roles.minority, session.rng, n_nearest=self.n_nearest, spread=self.spread
        )  # fmt: skip

    def transform(self, z: Array, nonnegative: NDArray[np.bool_]) -> Array:
        """Columns that are never negative, less skewed."""
        return np.where(nonnegative, tukey_power(np.maximum(z, 0.0), self.power), z)


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
