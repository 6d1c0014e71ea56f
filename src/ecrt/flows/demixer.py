"""The de-mixing function whole: linear map, then a flow on the signal, with the source prior p(s | y) beside it.

The prior is one standard Gaussian for all classes (1P), or one learned Gaussian for each (MP).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ecrt.flows.linear import LinearDemixing
from ecrt.flows.maf import MaskedFlow

SourcePrior = Literal["shared", "per-class"]

ONE_BY_ONE = 1024
"""Up to this many classes are looked at one by one."""

VARIANCE_FLOOR = 1e-3
"""Without a floor five samples of a class make the likelihood unbounded."""


def gaussian_log_density(s_nd: Tensor, mean_nd: Tensor, variance_nd: Tensor) -> Tensor:
    """log N(s; mean, variance), summed over independent coordinates."""
    per_coordinate = (s_nd - mean_nd) ** 2 / variance_nd + torch.log(variance_nd) + math.log(2 * math.pi)
    return -0.5 * per_coordinate.sum(-1)


def shrunk_moments(s_nd: Tensor, variance_d: Tensor, pseudo_samples: float) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of one class, the variance drawn towards v: :math:`((n-1) \hat v + \nu v) / (n - 1 + \nu)`.

    Defined for a single sample, where it is v.

    >>> shrunk_moments(torch.tensor([[3.0]]), torch.tensor([2.0]), 5.0)
    (tensor([3.]), tensor([2.]))
    """
    n = len(s_nd)
    mean_d = s_nd.mean(0)
    squares_d = ((s_nd - mean_d) ** 2).sum(0)
    return mean_d, (squares_d + pseudo_samples * variance_d) / (n - 1 + pseudo_samples)


def class_moments(
    s_nd: Tensor, y_n: Tensor, variance_d: Tensor, pseudo_samples: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The labels present, with :func:`shrunk_moments` of the rows of each: time and memory grow with rows alone.

    >>> s_nd, y_n = torch.tensor([[3.0], [1.0], [5.0]]), torch.tensor([7, 2, 7])
    >>> labels, means, _ = class_moments(s_nd, y_n, torch.ones(1), 5.0)
    >>> labels.tolist(), means.tolist()
    ([2, 7], [[1.0], [4.0]])
    """
    labels_m, member_n, counts_m = torch.unique(y_n, return_inverse=True, return_counts=True)
    if len(labels_m) <= ONE_BY_ONE:
        by_label = torch.argsort(member_n, stable=True).split(counts_m.tolist())
        moments = [shrunk_moments(s_nd[rows], variance_d, pseudo_samples) for rows in by_label]
        means, variances = zip(*moments, strict=True)
        return labels_m, torch.stack(means), torch.stack(variances)
    # A hundred thousand small calls take longer than all their sums at once, which round differently.
    zeros_md = s_nd.new_zeros(len(labels_m), s_nd.shape[1])
    mean_md = zeros_md.index_add(0, member_n, s_nd) / counts_m[:, None]
    squares_md = zeros_md.index_add(0, member_n, (s_nd - mean_md[member_n]) ** 2)
    return (
        labels_m,
        mean_md,
        (squares_md + pseudo_samples * variance_d) / (counts_m[:, None] - 1 + pseudo_samples),
    )


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

    def forward(self, s_nd: Tensor, y_n: Tensor) -> Tensor:
        """log p(s | y)."""
        return gaussian_log_density(s_nd, self.mean_md[y_n], self.variance_md[y_n])


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

    def inverse(self, s_nq: Tensor) -> Tensor:
        """Features whose signal is ``s_nq`` and whose rest is at its mean: ``forward(inverse(s))`` is s."""
        return self.linear.inverse(s_nq if self.flow is None else self.flow.inverse(s_nq))

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
