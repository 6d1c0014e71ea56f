"""Synthetic sources of a class, drawn from its own few samples (Eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor

from ecrt.flows import shrunk_moments

__all__ = ["borrowed", "parametric", "permutation"]


def permutation(s_nd: Tensor, size: int, generator: torch.Generator) -> Tensor:
    r"""Non-parametric augmentation, Eq. 2: every coordinate from a sample of its own, drawn with replacement.

    .. math:: \tilde s = ([s_{o_1}]_1, \ldots, [s_{o_d}]_d)

    Drawing with replacement instead of permuting gives any number of samples with the same marginals.
    """
    n, d = s_nd.shape
    donors = torch.randint(n, (size, d), generator=generator).to(s_nd.device)
    return s_nd.gather(0, donors)


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
