"""Synthetic sources of a class, drawn from its own few samples (Eq. 2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ecrt.errors import InputError
from ecrt.flows import shrunk_moments

__all__ = ["Augmentation", "augment", "parametric", "permutation"]

Augmentation = Literal["parametric", "permutation"]


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


def augment(
    kind: Augmentation,
    s_nd: Tensor,
    size: int,
    generator: torch.Generator,
    *,
    variance_d: Tensor,
    pseudo_samples: float = 10.0,
) -> Tensor:
    """``size`` synthetic sources of the class that ``s_nd`` comes from."""
    if kind == "permutation":
        return permutation(s_nd, size, generator)
    if kind == "parametric":
        return parametric(s_nd, size, generator, variance_d, pseudo_samples)
    raise InputError(f"augmentation={kind!r}: use 'parametric' or 'permutation'.")
