"""From features to what a head gives, for prediction: linear maps in a row are made one, and nothing is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.flows import Demixer, LinearDemixing, LowRank
from ecrt.nn import MLP, BalancedHead, ClassGaussians, Standardise, steady_linear
from ecrt.stages.demixing import sources_of

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
    dtype : precision of all that follows the standardising of the features, and of the answer.
    """
    columns = demixer.linear.standardise
    steps = _steps(demixer, torch.from_numpy(head_scale), head, len(z), dtype)
    room = np.empty((min(len(z), ROWS_AT_ONCE), z.shape[1]))  # one for all parts: new memory costs more
    answer: Tensor | None = None
    for start in range(0, len(z), ROWS_AT_ONCE):
        part = z[start : start + ROWS_AT_ONCE]
        # Standardised before all else: folded into the map, a mean far from zero would cost digits, and a tiny spread
        # would be lost in a lower precision.
        values = _standardised(part, columns, room[: len(part)]).to(dtype)
        for step in steps:
            values = step(values)
        if answer is None:
            answer = values.new_empty(len(z), values.shape[1])
        answer[start : start + ROWS_AT_ONCE] = values
    return np.empty((0, 0)) if answer is None else answer.numpy()


def _standardised(rows_nd: Array, columns: Standardise, room_nd: Array) -> Tensor:
    """The rows as ``columns`` gives them, in memory that is there already."""
    centred = torch.from_numpy(np.subtract(rows_nd, columns.center_d.numpy(), out=room_nd))
    return centred.div_(columns.spread_d).clamp_(columns.low_d, columns.high_d)


@torch.no_grad()
def predict_sources(demixer: Demixer, z: Array, dtype: torch.dtype) -> NDArray[Any]:
    """s = f(z) as ``sources_of`` gives it, or in a lower precision from the standardised features on."""
    if dtype == torch.float64:
        return sources_of(demixer, z)
    return predict_outputs(demixer, np.ones(demixer.linear.n_signal), nn.Identity(), z, dtype)


def _steps(demixer: Demixer, scale_q: Tensor, head: nn.Module, n_rows: int, dtype: torch.dtype) -> list[Map]:
    """What is done to standardised features, one after the other; maps are made one in float64."""
    linear = demixer.linear
    if demixer.flow is not None:
        flow, scale_q = _lowered(demixer.flow, dtype).frozen(), scale_q.to(dtype)
        return [*_to_signal(linear, dtype), flow, lambda s_nq: s_nq * scale_q, *_layers(head, dtype)]
    first, *_ = _layers(head, torch.float64)
    d, q, k = linear.n_features, linear.n_signal, len(linear.kept_k)
    inner = 2 * linear.weight.left_kr.shape[1] if isinstance(linear.weight, LowRank) else q
    if dtype != torch.float64:
        n_rows = ROWS_AT_ONCE  # the last digits of a row must not depend on how many come with it
    if not isinstance(first, nn.Linear) or not _saves_work(n_rows, d, inner, first.out_features):
        scale_q = scale_q.to(dtype)
        return [*_to_signal(linear, dtype), lambda s_nq: s_nq * scale_q, *_layers(head, dtype)]
    map_kh = scale_q.new_zeros(k, first.out_features)
    map_kh[:q] = (first.weight * scale_q).T
    map_dh = scale_q.new_zeros(d, first.out_features)  # zero for columns that never vary
    map_dh[linear.kept_k] = linear.weight.transposed(map_kh)
    return [steady_linear(map_dh.T.to(dtype), first.bias.to(dtype)), *_layers(head, dtype)[1:]]


def _to_signal(linear: LinearDemixing, dtype: torch.dtype) -> list[Map]:
    """The linear map from standardised features to the signal."""
    if isinstance(linear.weight, LowRank):
        weight, q = _lowered(linear.weight, dtype), linear.n_signal
        inner, outer = steady_linear(weight.right_kr.T), steady_linear(weight.left_kr[:q])
        return [linear.kept, lambda standard: standard[:, :q] * weight.scale + outer(inner(standard))]
    map_dq = linear.weight.weight_kk.new_zeros(linear.n_features, linear.n_signal)
    map_dq[linear.kept_k] = linear.weight.weight_kk[: linear.n_signal].T
    return [steady_linear(map_dq.T.to(dtype))]


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
    if isinstance(head, ClassGaussians):  # its densities are small differences of large squares
        return [lambda s_nq: head(s_nq.double()).to(dtype)]
    layers = list(_lowered(head, dtype)) if isinstance(head, MLP) else [_lowered(head, dtype)]
    steady = [
        steady_linear(layer.weight, layer.bias) if isinstance(layer, nn.Linear) and dtype != torch.float64 else layer
        for layer in layers
    ]
    return [torch.relu_ if isinstance(layer, nn.ReLU) else layer for layer in steady]
