"""Masked autoregressive flow on zuko's parts, with bounded scales and the identity as its start; and its inverse.

The usual inverse runs the whole network once for every feature. But feature k settles only those hidden units whose
last unknown input it was: with features and units in the order in which they become known, each step evaluates the few
units that feature k completed, and all steps together cost one forward pass. Nothing is approximated.

Three ways to the same figures: compiled for the CPU (numba), one kernel for CUDA (Triton), and plain torch, which
serves wherever neither is installed and which the other two are tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from zuko.flows import MAF
from zuko.transforms import MonotonicAffineTransform

from ecrt.nn import steady_linear

Indices = NDArray[np.int64]

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


# --- the inverse ------------------------------------------------------------------------------------


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
    shift_weight, scale_weight, shift_bias, scale_bias : of the last layer, a row for each feature.
    """

    order: DependencyOrder
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    shift_weight: Tensor
    scale_weight: Tensor
    shift_bias: Tensor
    scale_bias: Tensor


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
    shift_weight, scale_weight = (last.mask * last.weight).unflatten(0, (-1, 2))[features][..., units[-1]].unbind(1)
    shift_bias, scale_bias = last.bias.unflatten(0, (-1, 2))[features].unbind(1)
    return OrderedBlock(order, tuple(weights), tuple(biases), shift_weight, scale_weight, shift_bias, scale_bias)


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
        shift_n = block.shift_bias[k] + block.shift_weight[k, seen] @ layers[-1][seen]
        scale_n = block.scale_bias[k] + block.scale_weight[k, seen] @ layers[-1][seen]
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


def fastest_inverse(orders: Sequence[DependencyOrder], s_nd: Tensor) -> Inverse:
    """The fastest inverse there is for blocks of these orders on the device of ``s_nd``; imported when needed."""
    device = s_nd.device.type if s_nd.dtype in (torch.float32, torch.float64) else ""
    if device == "cpu" and find_spec("numba"):
        from ecrt.flows.inverse_cpu import invert_compiled

        return invert_compiled
    if device == "cuda" and find_spec("triton"):
        from ecrt.flows.inverse_cuda import fits_kernel, invert_kernel

        if all(fits_kernel(order, s_nd.dtype) for order in orders):
            return invert_kernel
    return invert_plain
