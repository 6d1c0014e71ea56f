"""Masked autoregressive flow on zuko's parts, with bounded scales and the identity as its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from zuko.flows import MAF
from zuko.transforms import MonotonicAffineTransform

from ecrt.flows.inverse import DependencyOrder, dependency_order, fastest_inverse, ordered_block
from ecrt.nn import steady_linear

__all__ = ["MaskedFlow"]

LOG_SCALE_BOUND = 2.0


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
        invert = fastest_inverse(self._orders, s_nd)
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
