"""Linear de-mixing: the part of the mechanism that class means and covariances reveal.

Within-class whitening makes all coordinates uncorrelated given the label, which fixes the sources up to a rotation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn

from ecrt.flows.rotation import class_covariances, joint_diagonaliser

__all__ = [
    "ROUNDING",
    "LinearDemixing",
    "Rotation",
    "between_class_variance",
    "column_spread",
    "fit_linear_demixing",
    "within_class_residuals",
    "within_label_moments",
]

Rotation = Literal["none", "symmetric", "discriminant", "joint", "triangular"]
Array = NDArray[np.float64]

RIDGE = 3e-2
"""Added to the whitened covariance, as a share of the mean variance: keeps duplicated columns invertible."""

ROUNDING = 1e-12
"""Variance within classes, in units of that over all rows, that is rounding error and no variance."""


class LinearDemixing(nn.Module):
    r"""An invertible linear map :math:`(s, r) = W (z - c)`: q signal sources s and d - q rest coordinates r.

    Columns of z that never vary carry no information: they are left out of the map and restored by the inverse.

    Parameters
    ----------
    center_d, kept_k, weight_kk : c, the columns that vary, and W on those.
    n_signal : q.
    """

    center_d: Tensor
    kept_k: Tensor
    weight_kk: Tensor
    inverse_kk: Tensor
    log_det: Tensor

    def __init__(self, center_d: Tensor, kept_k: Tensor, weight_kk: Tensor, n_signal: int) -> None:
        super().__init__()
        self.n_signal = n_signal
        self.register_buffer("center_d", center_d)
        self.register_buffer("kept_k", kept_k)
        self.register_buffer("weight_kk", weight_kk)
        self.register_buffer("inverse_kk", torch.linalg.inv(weight_kk))
        self.register_buffer("log_det", torch.linalg.slogdet(weight_kk).logabsdet)

    @property
    def n_features(self) -> int:
        """d, constant columns included."""
        return len(self.center_d)

    @property
    def n_rest(self) -> int:
        """Coordinates that are kept for inversion only."""
        return len(self.kept_k) - self.n_signal

    def forward(self, z_nd: Tensor) -> tuple[Tensor, Tensor]:
        """Signal and rest."""
        centred_nk = z_nd - self.center_d
        if not torch.equal(self.kept_k, torch.arange(self.n_features, device=self.kept_k.device)):
            centred_nk = centred_nk[:, self.kept_k]
        whitened_nk = centred_nk @ self.weight_kk.T
        return whitened_nk[:, : self.n_signal], whitened_nk[:, self.n_signal :]

    def inverse(self, signal_nq: Tensor, rest_nr: Tensor | None = None) -> Tensor:
        """Features of a signal; the rest is set to its mean, zero, unless given."""
        if rest_nr is None:
            rest_nr = signal_nq.new_zeros(len(signal_nq), self.n_rest)
        z_nd = self.center_d.expand(len(signal_nq), -1).clone()
        z_nd[:, self.kept_k] += torch.cat([signal_nq, rest_nr], dim=1) @ self.inverse_kk.T
        return z_nd


def within_class_residuals(z: Array, y: NDArray[np.int64]) -> tuple[Array, Array, NDArray[np.int64]]:
    """Deviations from class means, the means of the classes present, and their counts."""
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    # The product with an indicator sums in the order of np.add.at, many times faster.
    indicator = sparse.csr_array((np.ones(len(y)), (member, np.arange(len(y)))), shape=(len(counts), len(y)))
    means: Array = np.asarray(indicator @ z) / counts[:, None]
    residuals = means[member]
    np.subtract(z, residuals, out=residuals)
    return residuals, means, counts


@dataclass(frozen=True)
class LabelMoments:
    """Means and masses of the labels present, and the covariance within them, plain and shrunk (Ledoit-Wolf)."""

    means: Array
    mass: Array
    covariance: Array
    shrunk: Array


def within_label_moments(z: Array, row: NDArray[np.int64], y: NDArray[np.int64], weight: Array) -> LabelMoments:
    r"""Moments within labels where a row may have several: of weighted pairs (row, label), no row being repeated.

    With :math:`a_i` the weights of row i together and :math:`\mu_m` the weighted mean of label m, the scatter within
    labels is :math:`\sum_i a_i z_i z_i^T - \sum_m W_m \mu_m \mu_m^T`: two matrix products.

    Parameters
    ----------
    z : all rows.
    row, y, weight : row, label and weight of each pair.
    """
    _, member = np.unique(y, return_inverse=True)
    pairs = sparse.csr_array((weight, (row, member)), shape=(len(z), int(member.max()) + 1))
    mass: Array = np.asarray(pairs.sum(axis=0)).ravel()
    row_mass: Array = np.asarray(pairs.sum(axis=1)).ravel()
    center = row_mass @ z / row_mass.sum()
    z = z - center  # products of centred values lose no digits
    means = np.asarray(pairs.T @ z) / mass[:, None]
    scatter = (z * row_mass[:, None]).T @ z - (means * mass[:, None]).T @ means
    # Ledoit and Wolf (2004) need the fourth moment: |z - mu|^4, expanded, at the pairs alone.
    squares = np.concatenate([
        (z[part] ** 2).sum(axis=1) - 2 * np.einsum("ij,ij->i", z[part], means[label]) + (means[label] ** 2).sum(axis=1)
        for part, label in zip(*(np.array_split(index, len(index) // 4096 + 1) for index in (row, member)), strict=True)
    ])  # fmt: skip
    total, d = float(weight.sum()), z.shape[1]
    plain = scatter / total
    spread = float((plain**2).sum()) - np.trace(plain) ** 2 / max(d, 1)
    noise = (float(weight @ squares**2) / total - float((plain**2).sum())) / len(row)
    shrinkage = min(max(noise, 0.0) / spread, 1.0) if spread > 0 else 0.0
    target = np.eye(d) * np.trace(plain) / max(d, 1)
    # One degree of freedom is lost to every label's mean.
    freedom = total / max(total - len(mass) * total / len(row), total / len(row))
    return LabelMoments(means + center, mass, plain * freedom, ((1 - shrinkage) * plain + shrinkage * target) * freedom)


def between_class_variance(means: Array, counts: NDArray[np.int64] | Array, within: Array) -> Array:
    """Variance of the true class means along each coordinate, in units of its within-class variance.

    That of the observed means, less what sampling adds to it, drawn towards the average over coordinates: K means say
    it with K - 1 degrees of freedom, the average counts for two more.
    """
    freedom = len(means) - 1
    if freedom < 1:
        return np.ones(means.shape[1])
    observed = means.var(axis=0, ddof=1) / within - (1 / counts).mean()
    observed = np.maximum(observed, 0.0)
    average = max(float(observed.mean()), 1e-3)
    return (freedom * observed + 2 * average) / (freedom + 2)


def column_spread(z: Array) -> Array:
    """Standard deviation of each column, exactly 0 where it varies by rounding alone."""
    spread = z.std(axis=0)
    largest = np.maximum(z.max(axis=0, initial=0.0), -z.min(axis=0, initial=0.0))
    return np.where(spread > 1e-9 * largest, spread, 0.0)


def fit_linear_demixing(
    z: Array,
    y: NDArray[np.int64],
    *,
    spread: Array | None = None,
    n_sources: int | None = None,
    rotation: Rotation = "symmetric",
    order: NDArray[np.int64] | None = None,
    row: NDArray[np.int64] | None = None,
    weight: Array | None = None,
) -> LinearDemixing:
    """Whiten within classes, in float64.

    Parameters
    ----------
    z, y : features and labels of the de-mixing classes.
    spread : standard deviation of each column, its unit here; columns of spread 0 are dropped. ``None`` measures z, but
        other classes may vary where these do not.
    n_sources : q; the rest of the map serves inversion only. ``None`` keeps every coordinate as a source.
    rotation : ``"none"`` standardises columns without whitening. The others settle what whitening leaves open.
        ``"symmetric"`` keeps every source as close to its own feature as can be. ``"discriminant"`` turns to the axes
        along which class means differ most, first things first; their covariance is shrunk (Ledoit-Wolf), for there may
        be fewer classes than axes. ``"joint"`` turns to the axes along which the covariances of all classes are as
        diagonal as can be (where rows have several labels it is symmetric). ``"triangular"`` lets source k depend on
        the first k features in ``order`` alone, so that an autoregressive flow on top stays autoregressive in the
        features themselves; its sources have unit variance over all classes instead of within them.
    order : order of the columns for ``"triangular"``.
    row, weight : for rows with several labels: row and weight of each pair (row, label) whose labels are ``y``; ``z``
        then holds all rows.
    """
    spread = column_spread(z) if spread is None else spread
    varies = spread > 0
    kept = np.flatnonzero(varies)
    if rotation == "triangular" and order is not None:
        kept = order[varies[order]]
    center = z.mean(axis=0)
    scale = spread[kept]
    n_signal = len(kept) if n_sources is None else min(n_sources, len(kept))

    standard = z - center
    if len(kept) < z.shape[1] or (kept[1:] < kept[:-1]).any():
        standard = standard[:, kept]
    standard /= scale
    whitener = np.eye(len(kept))
    if row is None or weight is None:
        residuals, means, counts = within_class_residuals(standard, y)
        shrunk = _shrunk_covariance(residuals, len(residuals) - len(counts))
    else:
        moments = within_label_moments(standard, row, y, weight)
        means, shrunk = moments.means, moments.shrunk
    if rotation != "none":
        whitener = _whitener(shrunk, symmetric=rotation in ("symmetric", "joint"))
    if rotation == "triangular":
        # A flow on top learns fastest on inputs of unit spread, classes and all.
        unit = (standard @ whitener.T).std(axis=0)
        whitener /= np.where(unit > 1e-6, unit, 1.0)[:, None]  # a column may vary in other classes alone
    if rotation == "joint" and row is None:
        whitener = joint_diagonaliser(*class_covariances(residuals @ whitener.T, y)) @ whitener
    if rotation == "discriminant":
        whitener = _discriminant_axes(means @ whitener.T) @ whitener
    return LinearDemixing(
        torch.from_numpy(center), torch.from_numpy(kept), torch.from_numpy(whitener / scale), n_signal
    )


def _shrunk_covariance(residuals: Array, degrees_of_freedom: int) -> Array:
    """Ledoit-Wolf covariance of the residuals."""
    if residuals.shape[1] == 0:
        return np.zeros((0, 0))
    covariance = ledoit_wolf(residuals, assume_centered=True)[0]
    return np.asarray(covariance * (len(residuals) / max(degrees_of_freedom, 1)))


def _whitener(covariance: Array, *, symmetric: bool) -> Array:
    """Inverse square root of a shrunk covariance: symmetric, or else lower triangular."""
    d = len(covariance)
    if d == 0:
        return np.zeros((0, 0))
    mean_variance = np.trace(covariance) / d
    if mean_variance <= ROUNDING:  # every class is a single point
        return np.eye(d)
    covariance = covariance + RIDGE * mean_variance * np.eye(d)
    if symmetric:
        variances, axes = np.linalg.eigh(covariance)
        return np.asarray((axes / np.sqrt(variances)) @ axes.T)
    return np.asarray(solve_triangular(np.linalg.cholesky(covariance), np.eye(d), lower=True))


def _discriminant_axes(means: Array) -> Array:
    """Rotation to the eigenvectors of the shrunk between-class covariance, largest first."""
    if len(means) < 2 or means.shape[1] == 0:
        return np.eye(means.shape[1])
    between = ledoit_wolf(means - means.mean(axis=0), assume_centered=True)[0]
    axes = np.linalg.eigh(between)[1][:, ::-1].T
    # An eigenvector's sign is arbitrary: make its largest entry positive, so that every machine agrees.
    return axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))
