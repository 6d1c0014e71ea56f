"""Heads h(s): from (signal-weighted) sources to one logit for each class."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ecrt.nn.mlp import MLP

__all__ = ["BalancedHead", "ClassGaussians", "CosineHead", "make_head"]


class ClassGaussians(nn.Module):
    r"""Class-conditional Gaussians with independent coordinates: logits are :math:`\log N(s; \mu_m, v_m)`.

    >>> head = ClassGaussians(torch.tensor([[0.0], [2.0]]), torch.ones(2, 1))
    >>> head(torch.tensor([[1.0]])).diff().abs().item()
    0.0
    """

    mean_md: Tensor
    variance_md: Tensor

    def __init__(self, mean_md: Tensor, variance_md: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean_md", mean_md)
        self.register_buffer("variance_md", variance_md)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Log-densities under every class."""
        precision_md = 1 / self.variance_md
        # Expanded square: two matrix products instead of an n x M x d array.
        squares_nm = (
            s_nd**2 @ precision_md.T
            - 2 * s_nd @ (self.mean_md * precision_md).T
            + (self.mean_md**2 * precision_md).sum(1)
        )
        return -0.5 * (squares_nm + torch.log(2 * torch.pi * self.variance_md).sum(1))


class BalancedHead(nn.Module):
    """Balanced logits of a head that assumes some prior: its logits minus the log of the mass of the classes."""

    log_mass_m: Tensor

    def __init__(self, head: nn.Module, log_mass_m: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("log_mass_m", log_mass_m)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Balanced logits."""
        return self.head(s_nd) - self.log_mass_m


class CosineHead(nn.Module):
    """Cosines between features and class directions, times a fixed scale: the head that LDAM's margins are meant for.

    References
    ----------
    Wang, Xiang, Cheng, Yuille: NormFace, ACM Multimedia 2017; Cao et al., NeurIPS 2019.
    """

    def __init__(self, n_inputs: int, n_classes: int, scale: float = 30.0) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(nn.functional.normalize(torch.randn(n_classes, n_inputs), dim=1))

    def forward(self, s_nd: Tensor) -> Tensor:
        """Scaled cosines, one for each class."""
        cosine_nm = nn.functional.normalize(s_nd, dim=1) @ nn.functional.normalize(self.weight, dim=1).T
        return self.scale * cosine_nm


def make_head(n_inputs: int, n_classes: int, hidden: tuple[int, ...] = (), dropout: float = 0.0) -> nn.Module:
    """A linear head (``hidden`` empty, all weights zero at the start) or an MLP."""
    if hidden:
        return MLP(n_inputs, hidden, n_classes, dropout)
    linear = nn.Linear(n_inputs, n_classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
