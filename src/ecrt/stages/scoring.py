"""From features to what a head gives, for prediction: linear maps in a row are made one, and nothing is kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.arrays import Array
from ecrt.flows import Demixer, LinearDemixing, LowRank
from ecrt.machine import ask
from ecrt.nn import MLP, BalancedHead, ClassGaussians, Standardise, Trees, steady_linear
from ecrt.stages.blending import Member
from ecrt.stages.demixing import sources_of

Map = Callable[[Tensor], Tensor]

ROWS_AT_ONCE = 1024
"""Hidden layers of so many rows stay in the processor's cache."""


class Way(NamedTuple):
    """A way from features to outputs: de-mixing, what its sources are multiplied by, head, and weight."""

    demixer: Demixer
    scale: Array
    network: nn.Module
    weight: float = 1.0


@torch.no_grad()
def predict_together(ways: Sequence[Way | Member], z: Array, dtype: torch.dtype = torch.float64) -> NDArray[Any]:
    """The sum of h(f(z) * scale) * weight over some ways, but for rounding.

    Without a flow the first layer of a head is multiplied into the linear map where that saves work: a linear head
    then costs what it would cost on the features themselves, and several of them cost what one does.

    Parameters
    ----------
    dtype : precision of all that follows the standardising of the features, and of the answer.
    """
    ways = [one for one in ways if one.weight != 0] or ways[:1]
    lines = _lines(ways, len(z), dtype)
    room = np.empty((min(len(z), ROWS_AT_ONCE), z.shape[1]))  # one for all parts: new memory costs more
    answer: Tensor | None = None
    for start in range(0, len(z), ROWS_AT_ONCE):
        part = z[start : start + ROWS_AT_ONCE]
        total: Any = None
        for columns, kind, steps, weight in lines:
            # Standardised before all else: folded into the map, a mean far from zero would cost digits, and a tiny
            # spread would be lost in a lower precision.
            values = _standardised(part, columns, room[: len(part)]).to(kind)
            for step in steps:
                values = step(values)
            values = values if weight == 1 else values * weight
            total = values if total is None else total + values
        if answer is None:
            ask(
                "Outputs", "Predict fewer rows at a time.", numbers=total.itemsize, copies=2, rows=len(z),
                outputs=total.shape[1],
            )  # fmt: skip
            answer = total.new_empty(len(z), total.shape[1])
        answer[start : start + ROWS_AT_ONCE] = total
    return np.empty((0, 0)) if answer is None else answer.numpy()


def predict_outputs(
    demixer: Demixer, head_scale: Array, head: nn.Module, z: Array, dtype: torch.dtype = torch.float64
) -> NDArray[Any]:
    """h(f(z) * scale) of every row: what ``head_outputs`` gives of scaled ``sources_of``, but for rounding."""
    return predict_together([Way(demixer, head_scale, head)], z, dtype)


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


Line = tuple[Standardise, torch.dtype, list[Map], float]
"""How features are standardised, in which precision, what is done to them step by step, and the weight of that."""


def _lines(ways: Sequence[Way | Member], n_rows: int, dtype: torch.dtype) -> list[Line]:
    """Each way by itself, but those that are one linear map of the same standardised features together."""
    if dtype != torch.float64:
        n_rows = ROWS_AT_ONCE  # the last digits of a row must not depend on how many come with it
    lines: list[Line] = []
    maps: list[tuple[Standardise, Tensor, Tensor]] = []
    for one in ways:
        columns, scale_q = one.demixer.linear.standardise, torch.from_numpy(one.scale)
        last = one.network.head if isinstance(one.network, BalancedHead) else one.network
        joins = isinstance(last, nn.Linear) and len(ways) > 1
        first = first_map(one.demixer, scale_q, one.network, n_rows, joins=joins)
        if first is None:
            # What has been rounded may be on the other side of a threshold, and then it is in another leaf.
            kind = torch.float64 if isinstance(last, Trees) else dtype
            sources: list[Map] = _to_signal(one.demixer.linear, kind)
            if one.demixer.flow is not None:
                sources = [*sources, _lowered(one.demixer.flow, kind).frozen()]
            scaled = partial(torch.mul, other=scale_q.to(kind))
            lines.append((columns, kind, [*sources, scaled, *_layers(one.network, dtype)], one.weight))
        elif joins:
            map_dm, bias_m = first
            mass_m = one.network.log_mass_m if isinstance(one.network, BalancedHead) else 0.0
            map_dm, bias_m = one.weight * map_dm, one.weight * (bias_m - mass_m)
            place = next((k for k, (known, _, _) in enumerate(maps) if _same(known, columns)), None)
            if place is None:
                maps.append((columns, map_dm, bias_m))
            else:
                maps[place] = columns, maps[place][1] + map_dm, maps[place][2] + bias_m
        else:
            step = steady_linear(first[0].T.to(dtype), first[1].to(dtype))
            lines.append((columns, dtype, [step, *_layers(one.network, dtype)[1:]], one.weight))
    joined: list[Line] = [
        (columns, dtype, [steady_linear(map_dm.T.to(dtype), bias_m.to(dtype))], 1.0) for columns, map_dm, bias_m in maps
    ]
    return joined + lines


def _same(one: Standardise, other: Standardise) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


def first_map(
    demixer: Demixer, scale_q: Tensor, head: nn.Module, n_rows: int, *, joins: bool
) -> tuple[Tensor, Tensor] | None:
    """The linear map and the first layer of the head as one, in float64; ``None`` where that saves no work.

    ``joins``: whether it becomes one with the maps of others, so that rows cost nothing more.
    """
    linear = demixer.linear
    first, *_ = _layers(head, torch.float64)
    d, q, k = linear.n_features, linear.n_signal, len(linear.kept_k)
    inner = 2 * linear.weight.left_kr.shape[1] if isinstance(linear.weight, LowRank) else q
    if demixer.flow is not None or not isinstance(first, nn.Linear):
        return None
    h = first.out_features
    if not (d * inner * h < n_rows * (d * inner + q * h) if joins else _saves_work(n_rows, d, inner, h)):
        return None
    map_kh = scale_q.new_zeros(k, first.out_features)
    map_kh[:q] = (first.weight * scale_q).T
    map_dh = scale_q.new_zeros(d, first.out_features)  # zero for columns that never vary
    map_dh[linear.kept_k] = linear.weight.transposed(map_kh)
    return map_dh, first.bias


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
    if isinstance(head, ClassGaussians | Trees):  # small differences of large squares
        return [lambda s_nq: head(s_nq.double()).to(dtype)]
    layers = list(_lowered(head, dtype)) if isinstance(head, MLP) else [_lowered(head, dtype)]
    steady = [
        steady_linear(layer.weight, layer.bias) if isinstance(layer, nn.Linear) and dtype != torch.float64 else layer
        for layer in layers
    ]
    return [torch.relu_ if isinstance(layer, nn.ReLU) else layer for layer in steady]
