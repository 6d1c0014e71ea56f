"""From features to what a head gives, for prediction: linear maps in a row are made one, and nothing is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.flows import Demixer
from ecrt.nn import MLP, GaussianHead
from ecrt.stages.class_heads import BalancedHead
from ecrt.stages.demix import sources_of

__all__ = ["predict_outputs", "predict_sources"]

Array = NDArray[np.float64]
Map = Callable[[Tensor], Tensor]

ROWS_AT_ONCE = 1024
"""Hidden layers of so many rows stay in the processor's cache."""


@torch.no_grad()
def predict_outputs(
    demixer: Demixer, head_scale: Array, head: nn.Module, z: Array, dtype: torch.dtype = torch.float64
) -> NDArray[Any]:
    """h(f(z) * scale) of every row: what ``head_outputs`` gives of scaled ``sources_of``, but for rounding.

    Without a flow the first layer of the head is multiplied into the linear map where that saves work: a linear head
    then costs what it would cost on the features themselves.

    Parameters
    ----------
    dtype : precision of all that follows the centring of the features, and of the answer.
    """
    center = demixer.linear.center_d.numpy()
    steps = _steps(demixer, torch.from_numpy(head_scale), head, len(z), dtype)
    room = np.empty((min(len(z), ROWS_AT_ONCE), len(center)))  # one for all parts: new memory costs more
    answer: Tensor | None = None
    for start in range(0, len(z), ROWS_AT_ONCE):
        part = z[start : start + ROWS_AT_ONCE]
        # Centred before all else: folded into a bias, a mean far from zero would cost digits.
        values = _less(part, center, room[: len(part)]).to(dtype)
        for step in steps:
            values = step(values)
        if answer is None:
            answer = values.new_empty(len(z), values.shape[1])
        answer[start : start + ROWS_AT_ONCE] = values
    return np.empty((0, 0)) if answer is None else answer.numpy()


def _less(rows_nd: Array, center_d: Array, room_nd: Array) -> Tensor:
    """The difference, in memory that is there already; torch is quicker, but takes no rows that are read-only."""
    if not (rows_nd.flags.writeable and rows_nd.flags.c_contiguous):
        return torch.from_numpy(np.subtract(rows_nd, center_d, out=room_nd))
    return torch.sub(torch.from_numpy(rows_nd), torch.from_numpy(center_d), out=torch.from_numpy(room_nd))


@torch.no_grad()
def predict_sources(demixer: Demixer, z: Array, dtype: torch.dtype) -> NDArray[Any]:
    """s = f(z) as ``sources_of`` gives it, or in a lower precision from the centred features on."""
    if dtype == torch.float64:
        return sources_of(demixer, z)
    return predict_outputs(demixer, np.ones(demixer.linear.n_signal), nn.Identity(), z, dtype)


def _steps(demixer: Demixer, scale_q: Tensor, head: nn.Module, n_rows: int, dtype: torch.dtype) -> list[Map]:
    """What is done to centred features, one after the other; maps are made one in float64, whatever they end up in."""
    map_dq = _signal_map(demixer)
    if demixer.flow is not None:
        map_dq, scale_q = map_dq.to(dtype), scale_q.to(dtype)
        flow = _lowered(demixer.flow, dtype).frozen()
        return [lambda centred: centred @ map_dq, flow, lambda s_nq: s_nq * scale_q, *_layers(head, dtype)]
    map_dq *= scale_q
    first, *others = _layers(head, torch.float64)
    if not isinstance(first, nn.Linear) or not _saves_work(n_rows, len(map_dq), len(scale_q), first.out_features):
        map_dq = map_dq.to(dtype)
        return [lambda centred: centred @ map_dq, *_layers(head, dtype)]
    map_dh, bias_h = (map_dq @ first.weight.T).to(dtype), first.bias.to(dtype)
    others = others if dtype == torch.float64 else _layers(head, dtype)[1:]
    return [lambda centred: torch.addmm(bias_h, centred, map_dh), *others]


def _signal_map(demixer: Demixer) -> Tensor:
    """The linear map to the signal, zero for columns that never vary."""
    linear = demixer.linear
    map_dq = linear.weight_kk.new_zeros(linear.n_features, linear.n_signal)
    map_dq[linear.kept_k] = linear.weight_kk[: linear.n_signal].T
    return map_dq


def _lowered(module: Any, dtype: torch.dtype) -> Any:
    """The module in another precision: a copy, since other threads may predict with it."""
    return module if dtype == torch.float64 else copy.deepcopy(module).to(dtype)


def _saves_work(n_rows: int, d: int, q: int, h: int) -> bool:
    """Whether rows times one d x h matrix, and that matrix itself, take fewer products than rows times d x q x h."""
    return n_rows * d * h + d * q * h < n_rows * (d * q + q * h)


def _layers(head: nn.Module, dtype: torch.dtype) -> list[Map]:
    """A head as layers, one after the other; what is their own to change they change in place."""
    if isinstance(head, BalancedHead):
        log_mass_m = head.log_mass_m.to(dtype)
        return [*_layers(head.head, dtype), lambda logits_nm: logits_nm - log_mass_m]
    if isinstance(head, GaussianHead):  # its densities are small differences of large squares
        return [lambda s_nq: head(s_nq.double()).to(dtype)]
    head = _lowered(head, dtype)
    if isinstance(head, MLP):
        return [torch.relu_ if isinstance(layer, nn.ReLU) else layer for layer in head]
    return [head]
