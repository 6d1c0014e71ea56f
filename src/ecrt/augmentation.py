"""Synthetic sources of a rare class, drawn from its own few samples (Eq. 2), and synthetic rows of rare targets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.special import logsumexp, softmax
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from ecrt.arrays import Array
from ecrt.data.minority import TargetRegions
from ecrt.errors import InputError
from ecrt.flows import class_moments

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

Moments = tuple[Tensor, Tensor]
"""Means and variances, a row for each class."""


class ClassSources:
    """Sources of the rows of each class, to draw from: for any number of classes in one call.

    Parameters
    ----------
    s_nd : sources of rows.
    row_k, label_k : pairs of a row and its class, those of a class together and classes in order.
    n_classes : of which some may have no row.
    variance_d : mean variance within classes.
    residuals_rd : deviations of other classes from their means, if they are to be lent.
    prior : Gaussians that were trained with a flow, and the mask of the classes that have one; ``None`` for none.
    weight_k : how often each pair occurs, ``None`` for once.
    """

    def __init__(
        self, s_nd: Tensor, row_k: Tensor, label_k: Tensor, n_classes: int, variance_d: Tensor,
        residuals_rd: Tensor | None = None, prior: tuple[Tensor, Moments] | None = None,
        weight_k: Tensor | None = None,
    ) -> None:  # fmt: skip
        self.s_nd, self.row_k, self.label_k, self.n_classes = s_nd, row_k, label_k, n_classes
        self.variance_d, self.residuals_rd, self.prior = variance_d, residuals_rd, prior
        self.count_m = torch.bincount(label_k, minlength=n_classes)
        self.start_m = self.count_m.cumsum(0) - self.count_m
        self.weight_k = weight_k
        self._moments: dict[float, Moments] = {}
        self._kernels: dict[tuple[float, ...], tuple[Tensor, ...]] = {}
        self._near_kj: Tensor | None = None

    @classmethod
    def of_one(cls, s_nd: Tensor, variance_d: Tensor | None = None) -> ClassSources:
        """Of a single class, number 0."""
        rows = torch.arange(len(s_nd))
        return cls(
            s_nd, rows, torch.zeros_like(rows), 1, torch.ones(s_nd.shape[1]) if variance_d is None else variance_d
        )

    def on(self, device: torch.device, dtype: torch.dtype) -> ClassSources:
        """The same on a device, with the rows that it draws from and no others; kernels and neighbours stay."""

        def moved(values: Tensor) -> Tensor:
            return values.to(device, dtype)

        prior = self.prior
        there = ClassSources(
            moved(self.s_nd[self.row_k]), torch.arange(len(self.row_k), device=device), self.label_k.to(device),
            self.n_classes, moved(self.variance_d), None if self.residuals_rd is None else moved(self.residuals_rd),
            None if prior is None else (prior[0].to(device), (moved(prior[1][0]), moved(prior[1][1]))),
            None if self.weight_k is None else self.weight_k.to(device),
        )  # fmt: skip
        there._kernels = {widths: tuple(map(moved, made)) for widths, made in self._kernels.items()}
        there._near_kj = None if self._near_kj is None else self._near_kj.to(device)
        return there

    def uniform(self, y_b: Tensor, n_each: int, generator: torch.Generator | None) -> Tensor:
        """Numbers from 0 to 1, ``n_each`` for each of the classes ``y_b``."""
        return torch.rand(len(y_b), n_each, generator=generator, dtype=torch.float64, device=self.s_nd.device)

    def places(self, y_b: Tensor, n_each: int, generator: torch.Generator | None) -> Tensor:
        """Places in ``row_k`` of the classes ``y_b``, drawn with replacement, ``n_each`` for every entry."""
        uniform_bn = self.uniform(y_b, n_each, generator)
        if self.weight_k is not None:  # the end of each pair on a line where pairs are as long as their weights
            end_k = torch.nn.functional.pad(self.weight_k.cumsum(0), (1, 0))
            low, high = end_k[self.start_m[y_b], None], end_k[(self.start_m + self.count_m)[y_b], None]
            place = torch.searchsorted(end_k[1:], low + uniform_bn * (high - low), right=True)
            first, last = self.start_m[y_b, None], (self.start_m + self.count_m)[y_b, None] - 1
            return place.clamp(min=first, max=last)
        place = self.start_m[y_b, None] + (uniform_bn * self.count_m[y_b, None]).long()
        return place.clamp_(max=len(self.row_k) - 1)

    def rows(self, y_b: Tensor, n_each: int, generator: torch.Generator | None) -> Tensor:
        """Rows of the classes ``y_b``, drawn with replacement, ``n_each`` for every entry."""
        return self.row_k[self.places(y_b, n_each, generator)]

    def samples(self, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sources of a row of each of the classes ``y_b``."""
        return self.s_nd[self.rows(y_b, 1, generator)[:, 0]]

    def noise(self, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """Standard normal numbers, a row for each of the classes ``y_b``."""
        return torch.randn(
            len(y_b), self.s_nd.shape[1], generator=generator, dtype=self.s_nd.dtype, device=self.s_nd.device
        )

    def moments(self, pseudo_samples: float) -> Moments:
        """Mean of each class, and its variance drawn towards the one within classes; made once."""
        if pseudo_samples not in self._moments:
            labels_p, mean_pd, variance_pd = class_moments(
                self.s_nd[self.row_k], self.label_k, self.variance_d, pseudo_samples, self.weight_k
            )
            mean_md = self.s_nd.new_zeros(self.n_classes, self.s_nd.shape[1])
            variance_md = torch.ones_like(mean_md)
            mean_md[labels_p], variance_md[labels_p] = mean_pd, variance_pd
            self._moments[pseudo_samples] = mean_md, variance_md
        return self._moments[pseudo_samples]

    def trained_moments(self, pseudo_samples: float) -> Moments:
        """Mean and variance of each class's trained prior; those of its rows where none was trained."""
        if self.prior is None:
            raise InputError("source='prior' needs a flow with source_prior='per-class': no other prior is trained.")
        mean_md, variance_md = self.moments(pseudo_samples)
        known_m1, (prior_mean_md, prior_variance_md) = self.prior[0][:, None], self.prior[1]
        return torch.where(known_m1, prior_mean_md, mean_md), torch.where(known_m1, prior_variance_md, variance_md)

    def kernels(self, widths: tuple[float, ...]) -> tuple[Tensor, ...]:
        """Place in ``PSEUDO_SAMPLES``, width (k) and shares, added up (m, k), of the kernels; found once."""
        if widths not in self._kernels:
            s, common = _numpy(self.s_nd[self.row_k]), _numpy(self.variance_d)
            share_mk = np.zeros((self.n_classes, len(PSEUDO_SAMPLES) * len(widths)))
            for label, mine in self._each_class():
                share_mk[label] = kernel_shares(s[mine], common, widths)
            end_mk = share_mk.cumsum(axis=1)
            end_mk[:, -1] = 1.0
            width_k = self.s_nd.new_tensor(widths).repeat(len(PSEUDO_SAMPLES))
            place_k = torch.arange(len(PSEUDO_SAMPLES), device=width_k.device).repeat_interleave(len(widths))
            self._kernels[widths] = place_k, width_k, torch.from_numpy(end_mk).to(width_k.device)
        return self._kernels[widths]

    def near(self) -> Tensor:
        """Places of the rows that are nearest to each of the same class, in units of ``variance_d``; found once.

        A class of n rows fills the first n - 1 columns.
        """
        if self._near_kj is None:
            scaled = _numpy(self.s_nd[self.row_k] / self.variance_d.sqrt())
            near = np.tile(np.arange(len(scaled))[:, None], (1, NEIGHBOURS))
            for _, mine in self._each_class():
                k = min(NEIGHBOURS, mine.stop - mine.start - 1)
                if k > 0:
                    found = NearestNeighbors(n_neighbors=k).fit(scaled[mine]).kneighbors(return_distance=False)
                    near[mine, :k] = mine.start + found
            self._near_kj = torch.from_numpy(near).to(self.s_nd.device)
        return self._near_kj

    def _each_class(self) -> Iterator[tuple[int, slice]]:
        """Classes that have rows, and their places."""
        for label, (start, count) in enumerate(zip(self.start_m.tolist(), self.count_m.tolist(), strict=True)):
            if count > 0:
                yield label, slice(start, start + count)


def _numpy(values: Tensor) -> Array:
    return np.asarray(values.double().cpu().numpy())


def permutation(sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    r"""Non-parametric augmentation, Eq. 2: every coordinate from another sample, drawn with replacement.

    .. math:: \tilde s = ([s_{o_1}]_1, \ldots, [s_{o_d}]_d)

    Drawing with replacement instead of permuting gives any number of samples with the same marginals. The second result
    holds the rows :math:`o`.
    """
    donors_bd = sources.rows(y_b, sources.s_nd.shape[1], generator)
    return sources.s_nd.gather(0, donors_bd), donors_bd


def gaussian(moments: Moments, y_b: Tensor, noise_bd: Tensor) -> Tensor:
    """Noise with the mean and the variance of each of the classes ``y_b``."""
    mean_md, variance_md = moments
    return mean_md[y_b] + noise_bd * variance_md[y_b].sqrt()


def borrowed(sources: ClassSources, y_b: Tensor, generator: torch.Generator | None, pseudo_samples: float) -> Tensor:
    """The class's mean plus residuals of other classes, each a whole row, stretched to the class's shrunk variance.

    Whatever shape and dependence the other classes have around their means is lent to this one. Where there are none,
    noise is Gaussian.
    """
    moments, residuals_rd = sources.moments(pseudo_samples), sources.residuals_rd
    if residuals_rd is None or len(residuals_rd) == 0:
        return gaussian(moments, y_b, sources.noise(y_b, generator))
    rows = torch.randint(len(residuals_rd), (len(y_b),), generator=generator, device=residuals_rd.device)
    mean_md, variance_md = moments
    return mean_md[y_b] + residuals_rd[rows] * (variance_md[y_b] / sources.variance_d).sqrt()


def kernel(
    sources: ClassSources, y_b: Tensor, generator: torch.Generator | None, widths: tuple[float, ...]
) -> tuple[Tensor, Tensor]:
    r"""Samples of each class, drawn towards its mean and moved by Gaussian noise; and the row :math:`o` of each.

    .. math:: \tilde s = \bar s + \sqrt{1 - h^2} (s_o - \bar s) + h \sqrt{v} \, \epsilon

    The spread of the class stays what it is. Near h = 0 these are the samples themselves, at 1 those of
    :func:`gaussian`. h and v are drawn for every sample, see :func:`kernel_shares`.
    """
    place_k, width_k, end_mk = sources.kernels(widths)
    donors_b1 = sources.rows(y_b, 1, generator)
    which_b = (sources.uniform(y_b, 1, generator) > end_mk[y_b]).sum(1)
    (mean_md, few_md), (_, many_md) = (sources.moments(samples) for samples in PSEUDO_SAMPLES)
    mean_bd, place_b1, width_b1 = mean_md[y_b], place_k[which_b, None], width_k[which_b, None]
    kept_bd = (1 - width_b1**2).sqrt() * (sources.s_nd[donors_b1[:, 0]] - mean_bd)
    spread_bd = torch.where(place_b1 == 0, few_md[y_b], many_md[y_b]).sqrt()
    return mean_bd + kept_bd + width_b1 * spread_bd * sources.noise(y_b, generator), donors_b1


def kernel_shares(s: Array, variance: Array, widths: tuple[float, ...]) -> Array:
    """How likely each kernel is: by the rows of a class, left out one at a time, under it; of sum one.

    Kernels are in the order of their pseudo-samples, then of their widths. With fewer than three rows, when none can be
    left out, the last one has all.
    """
    tried = [(samples, width) for samples in PSEUDO_SAMPLES for width in widths]
    if len(s) < 3:
        return np.eye(len(tried))[-1]
    judged = s[:: -(-len(s) // JUDGED_ROWS)]
    return np.asarray(softmax([len(judged) * left_out_log_density(judged, variance, *one) for one in tried]))


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


def pairs(sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    r"""Samples between two near rows and a little beyond, every coordinate by itself; and the two rows.

    .. math:: [\tilde s]_a = [s_o]_a + u_a ([s_p]_a - [s_o]_a), \quad u_a \sim U(-\beta, 1 + \beta)

    With :math:`\beta = (\sqrt 3 - 1) / 2` a pair of independent rows gives samples of their variance; between the two
    alone, as in SMOTE, it would shrink by a third. A class with one row gets that row with Gaussian noise.
    """
    s_nd, count_b1 = sources.s_nd, sources.count_m[y_b, None]
    first_b1 = sources.places(y_b, 1, generator)
    which_b1 = (sources.uniform(y_b, 1, generator) * (count_b1 - 1).clamp(1, NEIGHBOURS)).long()
    donors_b2 = sources.row_k[torch.cat([first_b1, sources.near()[first_b1, which_b1]], dim=1)]
    first_bd, second_bd = s_nd[donors_b2[:, 0]], s_nd[donors_b2[:, 1]]
    share_bd = (1 + 2 * BEYOND) * sources.uniform(y_b, s_nd.shape[1], generator).to(s_nd.dtype) - BEYOND
    noise_bd = sources.variance_d.sqrt() * sources.noise(y_b, generator)
    return first_bd + share_bd * (second_bd - first_bd) + torch.where(count_b1 == 1, noise_bd, 0.0), donors_b2


# --- a continuous target ---------------------------------------------------------------------------------------------


def donor_widths(squares: Array, n_donors: int) -> Array:
    """h, half the distance to the ``n_donors``-th nearest target: where data are sparse donors come from farther away.

    ``squares`` are squared distances of the targets wanted (rows) from those of the donors.
    """
    nearest = min(n_donors, squares.shape[1]) - 1
    return np.maximum(np.sqrt(np.partition(squares, nearest, axis=1)[:, nearest]) / 2, LEAST_WIDTH)


def donor_weights(y: Array, targets: Array, n_donors: int) -> Array:
    r"""Gaussian kernel :math:`w_{mi} \propto \exp(-|y_i - y^*_m|^2 / 2 h_m^2)`, rows summing to one.

    The bandwidth follows the density: see ``donor_widths``.

    Parameters
    ----------
    y, targets : standardised targets of the donors (n, outputs), and those wanted (m, outputs).
    """
    squares = ((targets[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
    width = donor_widths(squares, n_donors)
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


class DonorDraws:
    """The same for some targets again and again, in torch: sources of the same targets from other donors.

    Parameters
    ----------
    s, y, targets, n_donors : as in ``draw_from_donors``.
    device : where sources are drawn, in float32.
    """

    def __init__(self, s: Array, y: Array, targets: Array, n_donors: int, device: torch.device) -> None:
        widths, slopes = [], []
        for start in range(0, len(targets), ROWS_AT_ONCE):
            wanted = targets[start : start + ROWS_AT_ONCE]
            widths.append(donor_widths(((wanted[:, None, :] - y[None, :, :]) ** 2).sum(axis=2), n_donors))
            slopes += [_slopes(s, y, w) for w in donor_weights(y, wanted, n_donors)]

        def moved(values: Array) -> Tensor:
            return torch.from_numpy(values).float().to(device)

        self.s_nd, self.y_no, self.targets_mo = moved(s), moved(y), moved(targets)
        self.width_m, self.slopes_mod = moved(np.concatenate(widths)), moved(np.stack(slopes))

    def __call__(self, places_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """Sources of the targets at these places."""
        targets_bo, d = self.targets_mo[places_b], self.s_nd.shape[1]
        exponent_bn = -0.5 * (torch.cdist(targets_bo, self.y_no) / self.width_m[places_b, None]) ** 2
        edges_bn = torch.softmax(exponent_bn.double(), dim=1).cumsum(1)
        uniform_bd = torch.rand(len(places_b), d, generator=generator, dtype=torch.float64, device=edges_bn.device)
        donors_bd = torch.searchsorted(edges_bn, uniform_bd * edges_bn[:, -1:]).clamp_(max=len(self.y_no) - 1)
        step_bdo = targets_bo[:, None, :] - self.y_no[donors_bd]
        return self.s_nd.gather(0, donors_bd) + (step_bdo * self.slopes_mod[places_b].mT).sum(2)


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
