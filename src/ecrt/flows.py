"""Features to sources and back: linear de-mixing, then a masked autoregressive flow, with the source prior beside them.

Within-class whitening makes all coordinates uncorrelated given the label, which fixes the sources up to a rotation: the
part of the mechanism that class means and covariances reveal. A flow corrects it. The prior p(s | y) is one standard
Gaussian for all classes (1P), or one learned Gaussian for each (MP).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.covariance import ledoit_wolf
from torch import Tensor, nn
from zuko.flows import MAF
from zuko.transforms import MonotonicAffineTransform

from ecrt.arrays import Array
from ecrt.distributed import active, gathered, own_rows, part_of_table, rows_of, summed
from ecrt.errors import InputError
from ecrt.machine import ask
from ecrt.moments import Moments, within_class_residuals
from ecrt.nn import Standardise, column_spread, steady_linear

Rotation = Literal["none", "symmetric", "discriminant", "triangular"]
SourcePrior = Literal["shared", "per-class"]
Indices = NDArray[np.int64]

RIDGE = 3e-2
"""Added to the whitened covariance, as a share of the mean variance: keeps duplicated columns invertible."""

ROUNDING = 1e-12
"""Variance within classes, in units of that over all rows, that is rounding error and no variance."""

LOG_SCALE_BOUND = 2.0

ONE_BY_ONE = 1024
"""Up to this many classes are looked at one by one."""

VARIANCE_FLOOR = 1e-3
"""Without a floor five samples of a class make the likelihood unbounded."""


# --- the linear map --------------------------------------------------------------------------------------------------


class LinearDemixing(nn.Module):
    r"""An invertible linear map :math:`(s, r) = W u` of standardised features u: q signal sources s and d - q others r.

    Columns of z that never vary carry no information: they are left out of the map and restored by the inverse. Values
    far beyond those of training are drawn back to the bounds of :class:`~ecrt.nn.Standardise`, so that
    the inverse is exact within them.

    Parameters
    ----------
    standardise : to centred features in units of their spread.
    kept_k : the columns that vary.
    weight : W on those, a matrix or :class:`LowRank`.
    n_signal : q.
    """

    def __init__(self, standardise: Standardise, kept_k: Tensor, weight: Tensor | LowRank, n_signal: int) -> None:
        super().__init__()
        self.n_signal, self.standardise = n_signal, standardise
        self.kept_k = nn.Buffer(kept_k)
        self.weight = weight if isinstance(weight, LowRank) else Dense(weight)
        self.log_det = nn.Buffer(self.weight.log_det() - standardise.spread_d[kept_k].log().sum())

    @classmethod
    def identity(cls, n_features: int) -> LinearDemixing:
        """Leaves features as they are."""
        return cls(Standardise.nothing(n_features), torch.arange(n_features), _identity(n_features), n_features)

    @classmethod
    def of_columns(cls, z: Array, varies: NDArray[np.bool_], order: NDArray[np.int64]) -> LinearDemixing:
        """Leaves features as they are, in this order, but for those that never vary: these are no sources."""
        nothing = Standardise.nothing(z.shape[1])
        fixed_d = torch.from_numpy(~varies)
        nothing.center_d[fixed_d] = torch.from_numpy(z[0])[fixed_d]
        kept = order[varies[order]]
        return cls(nothing, torch.from_numpy(kept), _identity(len(kept)), len(kept))

    @property
    def n_features(self) -> int:
        """d, constant columns included."""
        return len(self.standardise.center_d)

    @property
    def n_rest(self) -> int:
        """Coordinates that are kept for inversion only."""
        return len(self.kept_k) - self.n_signal

    def forward(self, z_nd: Tensor) -> tuple[Tensor, Tensor]:
        """Signal and rest."""
        whitened_nk = self.weight(self.kept(self.standardise(z_nd)))
        return whitened_nk[:, : self.n_signal], whitened_nk[:, self.n_signal :]

    def kept(self, standard_nd: Tensor) -> Tensor:
        """The columns that vary."""
        if torch.equal(self.kept_k, torch.arange(self.n_features, device=self.kept_k.device)):
            return standard_nd
        return standard_nd[:, self.kept_k]

    def inverse(self, signal_nq: Tensor, rest_nr: Tensor | None = None) -> Tensor:
        """Features of a signal; the rest is set to its mean, zero, unless given."""
        if rest_nr is None:
            rest_nr = signal_nq.new_zeros(len(signal_nq), self.n_rest)
        standard_nd = signal_nq.new_zeros(len(signal_nq), self.n_features)
        standard_nd[:, self.kept_k] = self.weight.inverse(torch.cat([signal_nq, rest_nr], dim=1))
        return self.standardise.inverse(standard_nd)


class Dense(nn.Module):
    """A square matrix, with its inverse made when it is first needed."""

    def __init__(self, weight_kk: Tensor) -> None:
        super().__init__()
        self.weight_kk = nn.Buffer(weight_kk)
        self._inverse_kk: Tensor | None = None

    def forward(self, u_nk: Tensor) -> Tensor:
        """Rows times the matrix."""
        return u_nk @ self.weight_kk.T

    def transposed(self, v_kh: Tensor) -> Tensor:
        """The transposed matrix times columns."""
        return self.weight_kk.T @ v_kh

    def inverse(self, s_nk: Tensor) -> Tensor:
        """What ``forward`` makes of which the rows are."""
        if self._inverse_kk is None or self._inverse_kk.device != s_nk.device or self._inverse_kk.dtype != s_nk.dtype:
            try:
                self._inverse_kk = torch.linalg.inv(self.weight_kk)
            except RuntimeError as error:  # no fit gives one, but a model's file may hold anything
                raise InputError("The linear map of this model has no inverse.") from error
        return s_nk @ self._inverse_kk.T

    def log_det(self) -> Tensor:
        """Of its absolute value."""
        return torch.linalg.slogdet(self.weight_kk).logabsdet


class LowRank(nn.Module):
    r"""The matrix :math:`a I + L R^T` without its k x k entries: with fewer rows than columns whitening is such a one.

    Parameters
    ----------
    scale : a, a number.
    left_kr, right_kr : L and R; none of either makes a multiple of the identity.
    """

    def __init__(self, scale: Tensor, left_kr: Tensor, right_kr: Tensor) -> None:
        super().__init__()
        self.scale, self.left_kr, self.right_kr = nn.Buffer(scale), nn.Buffer(left_kr), nn.Buffer(right_kr)

    def forward(self, u_nk: Tensor) -> Tensor:
        """Rows times the matrix."""
        return u_nk * self.scale + (u_nk @ self.right_kr) @ self.left_kr.T

    def transposed(self, v_kh: Tensor) -> Tensor:
        """The transposed matrix times columns."""
        return v_kh * self.scale + self.right_kr @ (self.left_kr.T @ v_kh)

    def inverse(self, s_nk: Tensor) -> Tensor:
        """What ``forward`` makes of which the rows are, by Woodbury's identity."""
        try:
            inner_rn = torch.linalg.solve(self._capacitance(), (s_nk @ self.right_kr).T / self.scale)
        except RuntimeError as error:
            raise InputError("The linear map of this model has no inverse.") from error
        return (s_nk - inner_rn.T @ self.left_kr.T) / self.scale

    def log_det(self) -> Tensor:
        """Of its absolute value."""
        return len(self.left_kr) * self.scale.abs().log() + torch.linalg.slogdet(self._capacitance()).logabsdet

    def after(self, other: LowRank) -> LowRank:
        """The product of both, the other applied first."""
        # (a I + L R^T)(b I + M N^T) = a b I + L (b R)^T + ((a I + L R^T) M) N^T
        left_kr = torch.cat([self.left_kr, self(other.left_kr.T).T], dim=1)
        right_kr = torch.cat([other.scale * self.right_kr, other.right_kr], dim=1)
        return LowRank(self.scale * other.scale, left_kr, right_kr)

    def _capacitance(self) -> Tensor:
        r"""I + R^T L / a."""
        r = self.left_kr.shape[1]
        return torch.eye(r).to(self.left_kr) + self.right_kr.T @ self.left_kr / self.scale


@dataclass(frozen=True)
class LabelMoments:
    """Means and masses of the labels present, and the covariance within them, plain and shrunk (Ledoit-Wolf)."""

    means: Array
    mass: Array
    covariance: Array
    shrunk: Array


def within_label_moments(
    z: Array, row: NDArray[np.int64], y: NDArray[np.int64], weight: Array, size: float | None = None
) -> LabelMoments:
    r"""Moments within labels where a row may have several: of weighted pairs (row, label), no row being repeated.

    With :math:`a_i` the weights of row i together and :math:`\mu_m` the weighted mean of label m, the scatter within
    labels is :math:`\sum_i a_i z_i z_i^T - \sum_m W_m \mu_m \mu_m^T`: two matrix products.

    Parameters
    ----------
    z : all rows.
    row, y, weight : row, label and weight of each pair.
    size : how many pairs they stand for, ``None`` for their number.
    """
    size = len(row) if size is None else size
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
    total = float(weight.sum())
    plain = scatter / total
    # One degree of freedom is lost to every label's mean.
    freedom = total / max(total - len(mass) * total / size, total / size)
    shrunk = _shrunk_by(plain, float(weight @ squares**2) / total, size) * freedom
    return LabelMoments(means + center, mass, plain * freedom, shrunk)


def _shrunk_by(plain: Array, fourth: float, size: float) -> Array:
    """A covariance as Ledoit and Wolf shrink it, by the mean of the fourth powers of the lengths of so many rows."""
    d, squared = len(plain), float((plain**2).sum())
    spread = squared - np.trace(plain) ** 2 / max(d, 1)
    noise = (fourth - squared) / size
    shrinkage = min(max(noise, 0.0) / spread, 1.0) if spread > 0 else 0.0
    return (1 - shrinkage) * plain + shrinkage * (np.eye(d) * np.trace(plain) / max(d, 1))


def _shared_moments(z: Array, y: NDArray[np.int64]) -> tuple[Array, Array]:
    """Class means, and the shrunk covariance within classes, where each process looks at some of the rows."""
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    own, n = own_rows(len(y)), len(y)
    moments = Moments.of(z[own], member[own], len(counts)).of_all_processes()
    lengths = ((z[own] - moments.mean_md[member[own]]) ** 2).sum(axis=1)
    fourth = summed(torch.tensor(float(lengths @ lengths), dtype=torch.float64)).item() / n
    return moments.mean_md, _shrunk_by(moments.scatter_dd / n, fourth, n) * (n / max(n - len(counts), 1))


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


def fit_linear_demixing(
    z: Array,
    y: NDArray[np.int64],
    *,
    spread: Array | None = None,
    extent: tuple[Array, Array] | None = None,
    n_sources: int | None = None,
    rotation: Rotation = "symmetric",
    order: NDArray[np.int64] | None = None,
    row: NDArray[np.int64] | None = None,
    weight: Array | None = None,
    size: float | None = None,
) -> LinearDemixing:
    """Whiten within classes, in float64.

    Parameters
    ----------
    z, y : features and labels of the de-mixing classes.
    spread : standard deviation of each column, its unit here; columns of spread 0 are dropped. ``None`` measures z, but
        other classes may vary where these do not.
    extent : least and greatest value of each column; ``None`` measures z.
    n_sources : q; the rest of the map serves inversion only. ``None`` keeps every coordinate as a source.
    rotation : ``"none"`` standardises columns without whitening. The others settle what whitening leaves open.
        ``"symmetric"`` keeps every source as close to its own feature as can be. ``"discriminant"`` turns to the axes
        along which class means differ most, first things first; their covariance is shrunk (Ledoit-Wolf), for there may
        be fewer classes than axes. ``"triangular"`` lets source k depend on the first k features in ``order`` alone,
        so that an autoregressive flow on top stays autoregressive in the features themselves; its sources have unit
        variance over all classes instead of within them.
    order : order of the columns for ``"triangular"``.
    row, weight : for rows with several labels: row and weight of each pair (row, label) whose labels are ``y``; ``z``
        then holds all rows.
    size : how many pairs these stand for, ``None`` for their number.
    """
    spread = column_spread(z) if spread is None else spread
    varies = spread > 0
    kept = np.flatnonzero(varies)
    if rotation == "triangular" and order is not None:
        kept = order[varies[order]]
    n_signal = len(kept) if n_sources is None else min(n_sources, len(kept))
    standardise = Standardise.of(z, spread, extent)
    kept_k = torch.from_numpy(kept)
    if rotation == "none":
        return LinearDemixing(standardise, kept_k, _identity(len(kept)), n_signal)

    standard = standardise(torch.from_numpy(z)).numpy()
    if len(kept) < z.shape[1] or (kept[1:] < kept[:-1]).any():
        standard = standard[:, kept]
    if active() and row is None and len(y) >= len(kept):
        means, shrunk = _shared_moments(standard, y)
    elif row is None or weight is None:
        residuals, means, counts = within_class_residuals(standard, y)
        freedom = len(residuals) - len(counts)
        if rotation in ("symmetric", "discriminant") and 2 * (len(residuals) + len(counts)) < len(kept):
            return LinearDemixing(standardise, kept_k, _low_rank(residuals, means, freedom, rotation), n_signal)
        _ask_for_covariance(len(kept))
        shrunk = _shrunk_covariance(residuals, freedom)
    else:
        _ask_for_covariance(len(kept))
        moments = within_label_moments(standard, row, y, weight, size)
        means, shrunk = moments.means, moments.shrunk
    whitener = _turned_whitener(shrunk, means, rotation)
    if rotation == "triangular":
        # A flow on top learns fastest on inputs of unit spread, classes and all.
        unit = (standard @ whitener.T).std(axis=0)
        whitener /= np.where(unit > 1e-6, unit, 1.0)[:, None]  # a column may vary in other classes alone
    return LinearDemixing(standardise, kept_k, torch.from_numpy(whitener), n_signal)


def _ask_for_covariance(k: int) -> None:
    lower = (
        "Reduce the columns first, for example with sklearn.decomposition.PCA in a Pipeline, or use demixing='none'."
    )
    ask("The covariance within classes", lower, copies=5, columns=k, columns_=k)


def linear_demixing_of(
    moments: Moments, fourth: float, *, spread: Array, n_sources: int, rotation: Rotation
) -> LinearDemixing:
    """What ``fit_linear_demixing`` gives, from moments of the rows alone.

    Parameters
    ----------
    moments : the de-mixing classes are the pooled ones.
    fourth : of the deviations from class means, in units of ``spread``: the mean of their squared squared lengths,
        which says how far Ledoit and Wolf shrink; a sample is enough, since many rows are shrunk little.
    spread, n_sources, rotation : as there; not triangular.
    """
    kept = np.flatnonzero(spread > 0)
    n_signal = min(n_sources, len(kept))
    parts = (moments.pooled_center_d, spread, moments.low_d, moments.high_d)
    standardise = Standardise(*(torch.from_numpy(part) for part in parts))
    kept_k = torch.from_numpy(kept)
    if rotation == "none":
        return LinearDemixing(standardise, kept_k, _identity(len(kept)), n_signal)
    _ask_for_covariance(len(kept))
    used = moments.pooled_m & (moments.count_m > 0)
    n, unit = float(moments.count_m[used].sum()), spread[kept]
    plain = moments.scatter_dd[np.ix_(kept, kept)] / np.outer(unit, unit) / n
    shrunk = _shrunk_by(plain, fourth, n) * (n / max(n - used.sum(), 1))
    means = standardise(torch.from_numpy(moments.mean_md[used])).numpy()[:, kept]
    return LinearDemixing(standardise, kept_k, torch.from_numpy(_turned_whitener(shrunk, means, rotation)), n_signal)


def _turned_whitener(shrunk: Array, means: Array, rotation: Rotation) -> Array:
    """Inverse square root of a covariance, under the rotation that is asked for."""
    whitener = _whitener(shrunk, symmetric=rotation == "symmetric")
    return _discriminant_axes(means @ whitener.T) @ whitener if rotation == "discriminant" else whitener


def _identity(k: int) -> LowRank:
    none = torch.zeros(k, 0, dtype=torch.float64)
    return LowRank(torch.ones((), dtype=torch.float64), none, none.clone())


def _low_rank(residuals: Array, means: Array, degrees_of_freedom: int, rotation: Rotation) -> LowRank:
    """What the other path gives, but for rounding and the arbitrary axes of equal variance, where rows are few.

    The shrunk covariance is then a multiple of the identity but for as many axes as there are rows.
    """
    n, k = residuals.shape
    squares = (residuals**2).sum(axis=1)
    mean_variance, trace = squares.sum() / n / k, squares.sum() / n
    if mean_variance <= ROUNDING:
        whitener = _identity(k)
    else:
        # Ledoit and Wolf's shrinkage from the n x n products of rows, not the k x k ones of columns.
        _, scales, axes = np.linalg.svd(residuals, full_matrices=False)
        size = float((scales**4).sum()) / n**2
        far = size - trace * mean_variance
        noise = min((float(squares @ squares) / n - size) / n, far)
        shrinkage = noise / far if noise > 0 else 0.0
        unbiased = n / max(degrees_of_freedom, 1)
        floor = (shrinkage + RIDGE) * mean_variance * unbiased
        variances = (1 - shrinkage) * scales**2 / n * unbiased + floor
        gain = 1 / np.sqrt(variances) - 1 / np.sqrt(floor)
        whitener = LowRank(*(torch.from_numpy(part) for part in (np.array(floor**-0.5), axes.T * gain, axes.T.copy())))
    if rotation == "symmetric" or len(means) < 2:
        return whitener
    return _rotation_to(_centred_axes(whitener(torch.from_numpy(means)).numpy())).after(whitener)


def _centred_axes(means: Array) -> Array:
    """Orthonormal axes along which the means differ, most first."""
    _, scales, axes = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    return _signed(axes[scales > 1e-10 * scales[0]]) if scales[0] > 0 else axes[:0]


def _rotation_to(axes: Array) -> LowRank:
    r"""An orthogonal matrix whose first rows are the given orthonormal ones.

    With B the axes as columns, E the first unit vectors and S the orthogonal matrix nearest to :math:`-E^T B`, a block
    reflection :math:`I - Y (Y^T B)^{-1} Y^T`, :math:`Y = B - E S`, takes B to E S; then S is undone.
    """
    m, k = axes.shape
    columns, unit = axes.T, np.eye(k, m)
    u, _, v = np.linalg.svd(-columns[:m])
    turn = u @ v
    difference = columns - unit @ turn
    reflection = -difference @ np.linalg.inv(difference.T @ columns)
    one = torch.ones((), dtype=torch.float64)
    reflect = LowRank(one, torch.from_numpy(reflection), torch.from_numpy(difference))
    undo = LowRank(one, torch.from_numpy(unit @ (turn.T - np.eye(m))), torch.from_numpy(unit))
    return undo.after(reflect)


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
    return _signed(np.linalg.eigh(between)[1][:, ::-1].T)


def _signed(axes: Array) -> Array:
    """The sign of an axis is arbitrary: make its largest entry positive, so that every machine agrees."""
    return axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1))


# --- the flow --------------------------------------------------------------------------------------------------------


class MaskedFlow(nn.Module):
    r"""s = f(z): blocks of :math:`[s]_k = e^{a_k(z_{<k})} [z]_k + b_k(z_{<k})`, the order reversed between blocks.

    The log-scale is bounded smoothly, :math:`|a| < 2`, without which the inverse of a trained flow overflows a few
    standard deviations out. Last layers start at zero, so f starts as the identity.

    References
    ----------
    Papamakarios, Pavlakou and Murray (2017), Masked autoregressive flow for density estimation.

    Parameters
    ----------
    n_features : d.
    n_blocks, hidden : the paper's are 4 blocks of two layers of 128.
    """

    def __init__(self, n_features: int, n_blocks: int = 4, hidden: Sequence[int] = (128, 128)) -> None:
        super().__init__()
        bounded = partial(MonotonicAffineTransform, slope=math.exp(-LOG_SCALE_BOUND))
        blocks = MAF(
            n_features, transforms=n_blocks, hidden_features=tuple(hidden), univariate=bounded, activation=nn.SiLU
        )
        self.blocks = nn.ModuleList(blocks.transform.transforms)
        for block in self.blocks:
            for last in self.last_layer(block):
                nn.init.zeros_(last)

    @staticmethod
    def last_layer(block: nn.Module) -> list[nn.Parameter]:
        """Parameters that set scale and shift of a block."""
        network = getattr(block, "hyper", None)
        if isinstance(network, nn.Sequential):
            return list(network[-1].parameters())
        return list(block.parameters())  # one feature: zuko has no network, the parameters are scale and shift

    def forward(self, z_nd: Tensor) -> tuple[Tensor, Tensor]:
        """Sources and log|det J|, in one pass."""
        log_det_n = z_nd.new_zeros(len(z_nd))
        for block in self.blocks:
            z_nd, block_log_det = block().call_and_ladj(z_nd)
            log_det_n = log_det_n + block_log_det
        return z_nd, log_det_n

    @torch.no_grad()
    def frozen(self) -> Callable[[Tensor], Tensor]:
        """f as it stands, for sources alone and without gradients: masks applied once, work done in place."""
        maps = [_frozen_block(block) for block in self.blocks]

        @torch.no_grad()
        def sources(z_nd: Tensor) -> Tensor:
            for block in maps:
                z_nd = block(z_nd)
            return z_nd

        return sources

    @torch.no_grad()
    def inverse(self, s_nd: Tensor) -> Tensor:
        """Features of given sources, without gradients: every hidden unit is evaluated once."""
        if self.blocks and not hasattr(self.blocks[0], "hyper"):  # one feature: scale and shift are constants
            for block in reversed(self.blocks):
                s_nd = block().inv(s_nd)
            return s_nd
        invert = fastest_inverse(s_nd.dtype)
        for block, order in zip(reversed(self.blocks), reversed(self._orders), strict=True):
            s_nd = invert(ordered_block(block, order), s_nd, LOG_SCALE_BOUND)
        return s_nd

    @cached_property
    def _orders(self) -> list[DependencyOrder]:
        """Dependency orders of the blocks, which their masks fix once and for all."""
        return [dependency_order(block) for block in self.blocks]


def _frozen_block(block: nn.Module) -> Callable[[Tensor], Tensor]:
    network = getattr(block, "hyper", None)
    if not isinstance(network, nn.Sequential):  # one feature: scale and shift are constants
        transform: Callable[[Tensor], Tensor] = block()
        return transform
    layers = [
        steady_linear(layer.get_buffer("mask") * layer.weight, layer.bias)
        for layer in network
        if isinstance(layer, nn.Linear)
    ]

    def sources(z_nd: Tensor) -> Tensor:
        values = layers[0](z_nd)
        for layer in layers[1:]:
            values = layer(nn.functional.silu(values, inplace=True))
        shift_nd, scale_nd = values.unflatten(-1, (-1, 2)).unbind(-1)
        divisor_nd = (scale_nd / LOG_SCALE_BOUND).abs_().add_(1)
        return torch.div(scale_nd, divisor_nd, out=divisor_nd).exp_().mul_(z_nd).add_(shift_nd)

    return sources


# --- its inverse -----------------------------------------------------------------------------------------------------

# The usual inverse runs the whole network once for every feature. But feature k settles only those hidden units whose
# last unknown input it was: with features and units in the order in which they become known, each step evaluates the
# few units that feature k completed, and all steps together cost one forward pass. Nothing is approximated. It is
# compiled by numba where that is installed; plain torch serves elsewhere, and the compiled one is tested against it.


@dataclass(frozen=True, eq=False)
class DependencyOrder:
    """In which order the features and hidden units of a block become known.

    Attributes
    ----------
    features : features, first known first.
    units : the same for the units of each hidden layer.
    starts : for each hidden layer, how many of its units are known before feature k is, for k from 0 to d: feature k
        completes the units from ``starts[k]`` up to ``starts[k + 1]``.
    """

    features: Indices
    units: tuple[Indices, ...]
    starts: tuple[Indices, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Features and units of each hidden layer."""
        return (len(self.features), *map(len, self.units))


@dataclass(frozen=True, eq=False)
class OrderedBlock:
    """Weights and biases of a block with features and units in the order in which they become known.

    Attributes
    ----------
    order : that order.
    weights, biases : of the hidden layers; a unit's inputs come first in its row, zeros follow.
    outer_weight, outer_bias : of the last layer, for each feature a row for its shift and one for its scale.
    """

    order: DependencyOrder
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    outer_weight: Tensor
    outer_bias: Tensor


Inverse = Callable[[OrderedBlock, Tensor, float], Tensor]


def _layers(block: Any) -> list[Any]:
    """Masked layers of a block of zuko's, which has no types."""
    return [layer for layer in block.hyper if hasattr(layer, "mask")]


def dependency_order(block: Any) -> DependencyOrder:
    """Read the order off the masks of a block."""
    features = np.argsort(block.order.cpu().numpy(), kind="stable")
    known_at = np.empty_like(features)  # the step at which each input of the layer is known
    known_at[features] = steps = np.arange(len(features))
    units, starts = [], []
    for layer in _layers(block)[:-1]:
        known_at = np.where(layer.mask.cpu().numpy(), known_at, 0).max(axis=1)
        units.append(np.argsort(known_at, kind="stable"))
        starts.append(np.searchsorted(known_at[units[-1]], np.append(steps, len(steps))))
    return DependencyOrder(features, tuple(units), tuple(starts))


@lru_cache(maxsize=256)
def _indices(order: DependencyOrder, device: torch.device) -> tuple[Tensor, ...]:
    """Orders of features and units on a device: to copy them there anew would wait for all work before."""
    return tuple(torch.from_numpy(indices).to(device) for indices in (order.features, *order.units))


@torch.no_grad()
def ordered_block(block: Any, order: DependencyOrder) -> OrderedBlock:
    """The parameters of a block as they are now, put in order."""
    *hidden, last = _layers(block)
    features, *units = _indices(order, last.weight.device)
    weights = [
        (layer.mask * layer.weight)[outputs][:, inputs]
        for layer, outputs, inputs in zip(hidden, units, [features, *units], strict=False)
    ]
    biases = [layer.bias[outputs] for layer, outputs in zip(hidden, units, strict=True)]
    # zuko interleaves: shift and scale of the first feature, of the second, and so on.
    outer_weight = (last.mask * last.weight).unflatten(0, (-1, 2))[features][..., units[-1]]
    outer_bias = last.bias.unflatten(0, (-1, 2))[features]
    return OrderedBlock(order, tuple(weights), tuple(biases), outer_weight, outer_bias)


@torch.no_grad()
def invert_plain(block: OrderedBlock, s_nd: Tensor, log_scale_bound: float) -> Tensor:
    """z of a block from s, in plain torch: d steps, each evaluating the units it completes."""
    s_dn = s_nd.T
    z_dn = s_nd.new_empty(s_dn.shape)
    # A unit is a row: those known are then one block of memory, ready for a matrix product.
    layers = [z_dn, *(s_nd.new_empty(len(bias), len(s_nd)) for bias in block.biases)]
    known = [0] * len(layers)
    for k, feature in enumerate(block.order.features.tolist()):
        seen = slice(0, known[-1])
        shift_n, scale_n = torch.addmm(block.outer_bias[k, :, None], block.outer_weight[k, :, seen], layers[-1][seen])
        z_dn[k] = (s_dn[feature] - shift_n) * torch.exp(-scale_n / (1 + (scale_n / log_scale_bound).abs()))
        known[0] = k + 1
        for number, (weight, bias, starts) in enumerate(
            zip(block.weights, block.biases, block.order.starts, strict=True)
        ):
            new = slice(int(starts[k]), int(starts[k + 1]))
            if new.start < new.stop:
                seen = slice(0, known[number])
                before = torch.addmm(bias[new, None], weight[new, seen], layers[number][seen])
                layers[number + 1][new] = nn.functional.silu(before)
            known[number + 1] = new.stop
    z_nd = torch.empty_like(s_nd, memory_format=torch.contiguous_format)
    z_nd[:, _indices(block.order, z_nd.device)[0]] = z_dn.T
    return z_nd


@torch.no_grad()
def invert_compiled(block: OrderedBlock, s_nd: Tensor, log_scale_bound: float) -> Tensor:
    """The same compiled, on the CPU wherever s is, with as many threads as torch may use."""
    from ecrt.inverse import invert_rows

    found = invert_rows(
        s_nd.cpu().contiguous().numpy(),
        1 / log_scale_bound,
        torch.get_num_threads(),
        block.order.features,
        np.array(block.order.sizes),
        np.stack(block.order.starts),
        torch.cat([weight.flatten() for weight in block.weights]).cpu().numpy(),
        torch.cat(block.biases).cpu().numpy(),
        block.outer_weight.cpu().contiguous().numpy(),
        block.outer_bias.cpu().contiguous().numpy(),
    )
    return torch.from_numpy(found).to(s_nd.device)


def fastest_inverse(dtype: torch.dtype) -> Inverse:
    """The fastest inverse there is for values of a type."""
    compiled = dtype in (torch.float32, torch.float64) and find_spec("numba")
    return invert_compiled if compiled else invert_plain


# --- priors, and the whole -------------------------------------------------------------------------------------------


def gaussian_log_density(s_nd: Tensor, mean_nd: Tensor, variance_nd: Tensor) -> Tensor:
    """log N(s; mean, variance), summed over independent coordinates."""
    per_coordinate = (s_nd - mean_nd) ** 2 / variance_nd + torch.log(variance_nd) + math.log(2 * math.pi)
    return -0.5 * per_coordinate.sum(-1)


def shrunk_moments(s_nd: Tensor, variance_d: Tensor, pseudo_samples: float) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of one class, the variance drawn towards v: :math:`((n-1) \hat v + \nu v) / (n - 1 + \nu)`.

    Defined for a single sample, where it is v; without pseudo-samples, 0.

    >>> shrunk_moments(torch.tensor([[3.0]]), torch.tensor([2.0]), 5.0)
    (tensor([3.]), tensor([2.]))
    """
    n = len(s_nd)
    mean_d = s_nd.mean(0)
    squares_d = ((s_nd - mean_d) ** 2).sum(0)
    return mean_d, (squares_d + pseudo_samples * variance_d) / (n - 1 + pseudo_samples or 1.0)


def class_moments(
    s_nd: Tensor, y_n: Tensor, variance_d: Tensor, pseudo_samples: float, weight_n: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The labels present, with :func:`shrunk_moments` of the rows of each: time and memory grow with rows alone.

    ``weight_n`` says how often each row occurs, ``None`` for once.

    >>> s_nd, y_n = torch.tensor([[3.0], [1.0], [5.0]]), torch.tensor([7, 2, 7])
    >>> labels, means, _ = class_moments(s_nd, y_n, torch.ones(1), 5.0)
    >>> labels.tolist(), means.tolist()
    ([2, 7], [[1.0], [4.0]])
    """
    labels_m, member_n, counts_m = torch.unique(y_n, return_inverse=True, return_counts=True)
    if len(labels_m) <= ONE_BY_ONE and weight_n is None:
        by_label = torch.argsort(member_n, stable=True).split(counts_m.tolist())
        moments = [shrunk_moments(s_nd[rows], variance_d, pseudo_samples) for rows in by_label]
        means, variances = zip(*moments, strict=True)
        return labels_m, torch.stack(means), torch.stack(variances)
    # A hundred thousand small calls take longer than all their sums at once, which round differently.
    zeros_md = s_nd.new_zeros(len(labels_m), s_nd.shape[1])
    each_n1 = s_nd.new_ones(len(s_nd), 1) if weight_n is None else weight_n[:, None].to(s_nd)
    counts_m = counts_m if weight_n is None else zeros_md[:, :1].index_add(0, member_n, each_n1)[:, 0]
    mean_md = zeros_md.index_add(0, member_n, s_nd * each_n1) / counts_m[:, None]
    squares_md = zeros_md.index_add(0, member_n, (s_nd - mean_md[member_n]) ** 2 * each_n1)
    freedom_m1 = (counts_m[:, None] - 1).clamp(min=0) + pseudo_samples
    variance_md = (squares_md + pseudo_samples * variance_d) / torch.where(freedom_m1 > 0, freedom_m1, 1.0)
    return labels_m, mean_md, variance_md


class SharedPrior(nn.Module):
    """1P: N(0, I) whatever the label."""

    def forward(self, s_nd: Tensor, y_n: Tensor) -> Tensor:
        """log p(s)."""
        return gaussian_log_density(s_nd, torch.zeros_like(s_nd), torch.ones_like(s_nd))


class ClassPrior(nn.Module):
    """MP: a learned mean and a learned, floored variance for each class and coordinate."""

    def __init__(self, n_classes: int, n_sources: int) -> None:
        super().__init__()
        self.mean_md = nn.Parameter(torch.zeros(n_classes, n_sources))
        self.log_variance_md = nn.Parameter(torch.zeros(n_classes, n_sources))

    @property
    def variance_md(self) -> Tensor:
        """Variances, never below the floor."""
        return VARIANCE_FLOOR + torch.exp(self.log_variance_md)

    @torch.no_grad()
    def set_class(self, label: int | Tensor, mean: Tensor, variance: Tensor) -> None:
        """Fix the Gaussian of a class, or of many: a start, or classes that took no part in de-mixing."""
        self.mean_md[label] = mean
        self.log_variance_md[label] = torch.log((variance - VARIANCE_FLOOR).clamp(min=VARIANCE_FLOOR))

    @torch.no_grad()
    def take(self, labels: Tensor, other: ClassPrior) -> None:
        """The Gaussians of another prior, whose classes are these in order."""
        self.mean_md[labels] = other.mean_md
        self.log_variance_md[labels] = other.log_variance_md

    def forward(self, s_nd: Tensor, y_n: Tensor) -> Tensor:
        """log p(s | y)."""
        part = part_of_table(self.mean_md)
        if part is None:
            return gaussian_log_density(s_nd, self.mean_md[y_n], self.variance_md[y_n])
        labels_k, first = gathered(y_n)
        rows_kd = rows_of(torch.cat([self.mean_md, self.variance_md], dim=1), labels_k, part)
        return gaussian_log_density(s_nd, *rows_kd[first : first + len(y_n)].chunk(2, dim=1))


class Demixer(nn.Module):
    """s = f(z), with its inverse and likelihood.

    Parameters
    ----------
    linear : the linear de-mixing.
    prior : p(s | y) of the signal; the rest is N(0, I) and knows no class.
    flow : a correction on top of the linear map; ``None`` for linear de-mixing alone.
    """

    def __init__(self, linear: LinearDemixing, prior: SharedPrior | ClassPrior, flow: MaskedFlow | None = None) -> None:
        super().__init__()
        self.linear, self.flow, self.prior = linear, flow, prior

    def forward(self, z_nd: Tensor) -> Tensor:
        """Signal sources."""
        signal_nq, _ = self.linear(z_nd)
        return signal_nq if self.flow is None else self.flow(signal_nq)[0]

    def inverse(self, s_nq: Tensor, rest_nr: Tensor | None = None) -> Tensor:
        """Features whose signal is ``s_nq`` and whose rest is given, or at its mean: ``forward(inverse(s))`` is s."""
        return self.linear.inverse(s_nq if self.flow is None else self.flow.inverse(s_nq), rest_nr)

    def sources_and_volume(self, z_nd: Tensor) -> tuple[Tensor, Tensor]:
        """Signal sources, and log p(z | y) less that of the signal's prior: what knows no class."""
        signal_nq, rest_nr = self.linear(z_nd)
        log_rest_n = -0.5 * (rest_nr**2 + math.log(2 * math.pi)).sum(1)
        log_det_n = self.linear.log_det
        if self.flow is not None:
            signal_nq, flow_log_det_n = self.flow(signal_nq)
            log_det_n = log_det_n + flow_log_det_n
        return signal_nq, log_rest_n + log_det_n

    def log_prob(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """log p(z | y)."""
        signal_nq, log_volume_n = self.sources_and_volume(z_nd)
        return self.prior(signal_nq, y_n) + log_volume_n
