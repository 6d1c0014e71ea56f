"""Synthetic sources of a rare class, drawn from its own few samples (Eq. 2), and synthetic rows of rare targets."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from ecrt.data.minority import TargetRegions
from ecrt.flows import shrunk_moments

Array = NDArray[np.float64]

ROWS_AT_ONCE = 512
LEAST_WIDTH = 1e-6
NEIGHBOURS = 5
RARE_COPIES = 3
"""Synthetic rows of either kind for each row with a rare target."""

MOST_ROWS = 10_000
"""Of more rows than this some are drawn to interpolate between: looking for neighbours would take too long."""

WIDTHS = (0.1, 0.2, 0.3, 0.45, 0.65, 1.0)
PSEUDO_SAMPLES = (1.0, 10.0)
"""Kernels that are tried on the rows of a class."""

BEYOND = (3**0.5 - 1) / 2
"""How far samples reach beyond a pair of rows, so that they vary as much as the rows do."""

JUDGED_ROWS = 200
"""Of a class with more rows than this so many choose its kernel."""


# --- classes ---------------------------------------------------------------------------------------------------------


def permutation(s_nd: Tensor, size: int, generator: torch.Generator) -> Tensor:
    r"""Non-parametric augmentation, Eq. 2: every coordinate from another sample, drawn with replacement.

    .. math:: \tilde s = ([s_{o_1}]_1, \ldots, [s_{o_d}]_d)

    Drawing with replacement instead of permuting gives any number of samples with the same marginals.
    """
    return s_nd.gather(0, one_donor_each(s_nd, size, generator))


def one_donor_each(s_nd: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """For every coordinate of every synthetic sample the row that it is taken from."""
    return torch.randint(len(s_nd), (size, s_nd.shape[1]), generator=generator).to(s_nd.device)


def parametric(
    s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, pseudo_samples: float
) -> Tensor:
    """Samples of a Gaussian with the class's mean and its variance shrunk towards ``variance_d``."""
    mean_d, shrunk_d = shrunk_moments(s_nd, variance_d, pseudo_samples)
    noise = torch.randn(size, s_nd.shape[1], generator=generator, dtype=s_nd.dtype).to(s_nd.device)
    return mean_d + noise * shrunk_d.sqrt()


def borrowed(
    s_nd: Tensor,
    size: int,
    generator: torch.Generator,
    variance_d: Tensor,
    pseudo_samples: float,
    residuals_rd: Tensor,
) -> Tensor:
    """The class's mean plus residuals of other classes, each a whole row, stretched to the class's shrunk variance.

    Whatever shape and dependence the other classes have around their means is lent to this one.
    """
    mean_d, shrunk_d = shrunk_moments(s_nd, variance_d, pseudo_samples)
    rows = torch.randint(len(residuals_rd), (size,), generator=generator).to(residuals_rd.device)
    return mean_d + residuals_rd[rows] * (shrunk_d / variance_d).sqrt()


def kernel(
    s_nd: Tensor, donors_k: Tensor, generator: torch.Generator, variance_d: Tensor, pseudo_samples: float, width: float
) -> Tensor:
    r"""Samples of the class, each drawn towards the class's mean and moved by Gaussian noise.

    .. math:: \tilde s = \bar s + \sqrt{1 - h^2} (s_o - \bar s) + h \sqrt{v} \, \epsilon

    The spread of the class stays what it is. h is the ``width``: near 0 the samples themselves, at 1 those of
    :func:`parametric`.
    """
    mean_d, shrunk_d = shrunk_moments(s_nd, variance_d, pseudo_samples)
    noise = torch.randn(len(donors_k), s_nd.shape[1], generator=generator, dtype=s_nd.dtype).to(s_nd.device)
    return mean_d + (1 - width**2) ** 0.5 * (s_nd[donors_k] - mean_d) + width * shrunk_d.sqrt() * noise


def pairs(s_nd: Tensor, pairs_k2: Tensor, generator: torch.Generator) -> Tensor:
    r"""Samples between two rows and a little beyond, every coordinate by itself.

    .. math:: [\tilde s]_a = [s_o]_a + u_a ([s_p]_a - [s_o]_a), \quad u_a \sim U(-\beta, 1 + \beta)

    With :math:`\beta = (\sqrt 3 - 1) / 2` a pair of independent rows gives samples of their variance; between the two
    alone, as in SMOTE, it would shrink by a third.
    """
    first_kd, second_kd = s_nd[pairs_k2[:, 0]], s_nd[pairs_k2[:, 1]]
    uniform_kd = torch.rand(first_kd.shape, generator=generator, dtype=s_nd.dtype).to(s_nd.device)
    return first_kd + ((1 + 2 * BEYOND) * uniform_kd - BEYOND) * (second_kd - first_kd)


def near_pairs(s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor) -> Tensor:
    """A row at random and one of its nearest, distances in units of ``variance_d``; two rows at least are needed."""
    k = min(NEIGHBOURS, len(s_nd) - 1)
    scaled = (s_nd / variance_d.sqrt()).double().cpu().numpy()
    near = torch.from_numpy(NearestNeighbors(n_neighbors=k).fit(scaled).kneighbors(return_distance=False))
    first = torch.randint(len(s_nd), (size,), generator=generator)
    second = near[first, torch.randint(k, (size,), generator=generator)]
    return torch.stack([first, second], dim=1).to(s_nd.device)


def left_out_log_density(s: Array, variance: Array, pseudo_samples: float, width: float) -> float:
    """Mean log-density of the rows of a class under the kernel of the others, each row left out in turn.

    Parameters
    ----------
    s : three rows or more.
    variance, pseudo_samples, width : as in :func:`kernel`.
    """
    n, total = len(s), s.sum(axis=0)
    mean = (total - s) / (n - 1)  # of the others
    squares = (s**2).sum(axis=0) - s**2 - (n - 1) * mean**2
    spread = (np.maximum(squares, 0.0) + pseudo_samples * variance) / (n - 2 + pseudo_samples)
    keep, precision = np.sqrt(1 - width**2), 1 / (width**2 * spread)
    moved = s - (1 - keep) * mean
    distance = (moved**2 * precision).sum(axis=1)[:, None] - 2 * keep * (moved * precision) @ s.T
    exponent = -0.5 * (distance + keep**2 * precision @ (s**2).T)
    np.fill_diagonal(exponent, -np.inf)
    return float((logsumexp(exponent, axis=1) + 0.5 * np.log(precision).sum(axis=1)).mean())


# --- a continuous target ---------------------------------------------------------------------------------------------


def donor_weights(y: Array, targets: Array, n_donors: int) -> Array:
    r"""Gaussian kernel :math:`w_{mi} \propto \exp(-|y_i - y^*_m|^2 / 2 h_m^2)`, rows summing to one.

    The bandwidth follows the density: h is half the distance to the ``n_donors``-th nearest target, so that where data
    are sparse donors come from farther away.

    Parameters
    ----------
    y, targets : standardised targets of the donors (n, outputs), and those wanted (m, outputs).
    """
    squares = ((targets[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
    nearest = min(n_donors, len(y)) - 1
    width = np.maximum(np.sqrt(np.partition(squares, nearest, axis=1)[:, nearest]) / 2, LEAST_WIDTH)
    exponent = -squares / (2 * width**2)[:, None]
    weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def draw_from_donors(
    s: Array, y: Array, targets: Array, n_donors: int, rng: np.random.Generator, *, jointly: bool = False
) -> Array:
    r"""Every coordinate of every synthetic source from another donor (Eq. 2 with a continuous label).

    A donor's coordinate belongs to its own target and not to :math:`y^*`. It is moved by the local slope of that
    coordinate in y, a weighted least-squares line: :math:`[s_i]_a + b_a^\top (y^* - y_i)`.

    Parameters
    ----------
    s, y : sources and standardised targets of the donors.
    targets : y*, (m, outputs).
    n_donors : sets the bandwidth.
    jointly : all coordinates from one donor, for sources that are not independent given y.
    """
    parts = []
    for start in range(0, len(targets), ROWS_AT_ONCE):
        wanted = targets[start : start + ROWS_AT_ONCE]
        weights = donor_weights(y, wanted, n_donors)
        cumulated = np.cumsum(weights, axis=1)
        uniform = np.broadcast_to(rng.random((len(wanted), 1 if jointly else s.shape[1])), (len(wanted), s.shape[1]))
        uniform = uniform * cumulated[:, -1:]
        drawn = np.empty((len(wanted), s.shape[1]))
        for row, (w, edges) in enumerate(zip(weights, cumulated, strict=True)):
            donors = np.minimum(np.searchsorted(edges, uniform[row]), len(y) - 1)
            step = wanted[row] - y[donors]
            drawn[row] = s[donors, np.arange(s.shape[1])] + (step * _slopes(s, y, w).T).sum(axis=1)
        parts.append(drawn)
    return np.concatenate(parts) if parts else np.empty((0, s.shape[1]))


def _slopes(s: Array, y: Array, w: Array) -> Array:
    """Weighted least-squares slopes (outputs, sources), drawn towards zero where targets hardly vary."""
    near = w > 1e-6 * w.max()
    w, s, y = w[near], s[near], y[near]
    w = w / w.sum()
    y_centred, s_centred = y - w @ y, s - w @ s
    covariance = (y_centred * w[:, None]).T @ y_centred
    ridge = (1e-2 * np.trace(covariance) / len(covariance) + 1e-12) * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(covariance + ridge, (y_centred * w[:, None]).T @ s_centred))


def draw_targets(y: Array, regions: TargetRegions, size: int, rng: np.random.Generator) -> Array:
    """Targets in rare regions, each region as likely as the others.

    Within a region they are uniform; with several outputs they are those of its rows.
    """
    region = regions.region_of(y)
    wanted = np.flatnonzero(regions.rare & (np.bincount(region, minlength=len(regions.counts)) > 0))
    if len(wanted) == 0:
        return np.empty((0, y.shape[1]))
    chosen = rng.choice(wanted, size)
    if y.shape[1] > 1:
        return np.stack([y[rng.choice(np.flatnonzero(region == number))] for number in chosen])
    position = rng.uniform(regions.edges[chosen], regions.edges[chosen + 1])
    return np.asarray(regions.restore((position * regions.axis[0])[:, None]))


def interpolate(s: Array, y: Array, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows on the line between a row and one of its nearest neighbours, sources and target.

    References
    ----------
    Torgo, Ribeiro, Pfahringer and Branco (2013), SMOTE for regression: there for rare targets, between features.
    """
    k = min(NEIGHBOURS, len(s) - 1)
    if k < 1:
        return s[:0], y[:0]
    neighbours = NearestNeighbors(n_neighbors=k + 1).fit(s).kneighbors(s, return_distance=False)[:, 1:]
    start = rng.integers(len(s), size=size)
    end = neighbours[start, rng.integers(k, size=size)]
    step = rng.random((size, 1))
    return s[start] + step * (s[end] - s[start]), y[start] + step * (y[end] - y[start])


def rows_between(
    s: Array, y: Array, regions: TargetRegions, n_donors: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """As many rows as there are, between all; and for each rare one three between rare rows and three moved ones.

    A moved row is a row with a target near the one drawn, carried there along the local slopes of its sources: its
    residuals stay together.

    Parameters
    ----------
    s, y : sources in the units that distances are measured in, and targets in their own.
    n_donors : how many nearest targets set the bandwidth of the slopes.
    """
    some = np.sort(rng.permutation(len(s))[:MOST_ROWS])
    parts = [interpolate(s[some], y[some], len(some), rng)]
    rare = np.flatnonzero(regions.is_rare(y))
    if len(rare) > 1:
        rare = np.sort(rng.permutation(rare)[:MOST_ROWS])
        parts.append(interpolate(s[rare], y[rare], RARE_COPIES * len(rare), rng))
        wanted = draw_targets(y, regions, RARE_COPIES * len(rare), rng)
        standard = regions.standardise
        parts.append((draw_from_donors(s, standard(y), standard(wanted), n_donors, rng, jointly=True), wanted))
    return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])
