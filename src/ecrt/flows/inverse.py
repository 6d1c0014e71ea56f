"""Inverse of a masked autoregressive flow that evaluates every hidden unit once, as soon as its inputs are known.

The usual inverse runs the whole network once for every feature. But feature k settles only those hidden units whose
last unknown input it was: with features and units in the order in which they become known, each step evaluates the few
units that feature k completed, and all steps together cost one forward pass. Nothing is approximated.

Three ways to the same figures: compiled for the CPU (numba), one kernel for CUDA (Triton), and plain torch, which
serves wherever neither is installed and which the other two are tested against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["DependencyOrder", "OrderedBlock", "dependency_order", "fastest_inverse", "invert_plain", "ordered_block"]

Indices = NDArray[np.int64]


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


@cache
def _compiled(device: str) -> Inverse | None:
    """The compiled inverse for a kind of device, imported when it is first needed."""
    if device == "cpu" and find_spec("numba"):
        from ecrt.flows.inverse_cpu import invert_compiled

        return invert_compiled
    if device == "cuda" and find_spec("triton"):
        from ecrt.flows.inverse_cuda import invert_kernel

        return invert_kernel
    return None


def fastest_inverse(orders: Sequence[DependencyOrder], s_nd: Tensor) -> Inverse:
    """The fastest inverse there is for blocks of these orders on the device of ``s_nd``."""
    compiled = _compiled(s_nd.device.type) if s_nd.dtype in (torch.float32, torch.float64) else None
    if compiled is not None and s_nd.device.type == "cuda":
        from ecrt.flows.inverse_cuda import fits_kernel

        compiled = compiled if all(fits_kernel(order, s_nd.dtype) for order in orders) else None
    return compiled or invert_plain
