"""From features to what a head gives, for prediction: linear maps in a row are made one, and nothing is kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.flows import Demixer
from ecrt.nn import MLP
from ecrt.stages.class_heads import BalancedHead

__all__ = ["predict_outputs"]

Array = NDArray[np.float64]
Map = Callable[[Tensor], Tensor]

ROWS_AT_ONCE = 1024
"""Hidden layers of so many rows stay in the processor's cache."""


@torch.no_grad()
def predict_outputs(demixer: Demixer, head_scale: Array, head: nn.Module, z: Array) -> Array:
    """h(f(z) * scale) of every row: what ``head_outputs`` gives of scaled ``sources_of``, but for rounding.

    Without a flow the first layer of the head is multiplied into the linear map where that saves work: a linear head
    then costs what it would cost on the features themselves.
    """
    steps, center = _steps(demixer, torch.from_numpy(head_scale), head, len(z)), demixer.linear.center_d.numpy()
    outputs = []
    for start in range(0, len(z), ROWS_AT_ONCE):
        # Centred before all else: folded into a bias, a mean far from zero would cost digits.
        values = torch.from_numpy(z[start : start + ROWS_AT_ONCE] - center)
        for step in steps:
            values = step(values)
        outputs.append(values.numpy())
    return np.concatenate(outputs)


def _steps(demixer: Demixer, scale_q: Tensor, head: nn.Module, n_rows: int) -> list[Map]:
    """What is done to centred features, one after the other."""
    linear, flow = demixer.linear, demixer.flow
    map_dq = scale_q.new_zeros(linear.n_features, linear.n_signal)  # zero for columns that never vary
    map_dq[linear.kept_k] = linear.weight_kk[: linear.n_signal].T
    layers = _layers(head)
    if flow is not None:
        return [lambda centred: centred @ map_dq, flow.frozen(), lambda s_nq: s_nq * scale_q, *layers]
    map_dq *= scale_q
    first = layers[0]
    if not isinstance(first, nn.Linear) or not _saves_work(n_rows, len(map_dq), len(scale_q), first.out_features):
        return [lambda centred: centred @ map_dq, *layers]
    map_dh, bias_h = map_dq @ first.weight.T, first.bias
    return [lambda centred: torch.addmm(bias_h, centred, map_dh), *layers[1:]]


def _saves_work(n_rows: int, d: int, q: int, h: int) -> bool:
    """Whether rows times one d x h matrix, and that matrix itself, take fewer products than rows times d x q x h."""
    return n_rows * d * h + d * q * h < n_rows * (d * q + q * h)


def _layers(head: nn.Module) -> list[Map]:
    """A head as layers, one after the other; what is their own to change they change in place."""
    if isinstance(head, BalancedHead):
        return [*_layers(head.head), lambda logits_nm: logits_nm - head.log_mass_m]
    if isinstance(head, MLP):
        return [torch.relu_ if isinstance(layer, nn.ReLU) else layer for layer in head]
    return [head]
