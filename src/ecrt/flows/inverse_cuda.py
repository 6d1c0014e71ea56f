"""The inverse of :mod:`ecrt.flows.maf` as one Triton kernel, for blocks of two hidden layers, the usual ones.

A program is one warp with a few rows and keeps what it has summed up for every unit of theirs in registers. When a
feature or a unit becomes known, its value times its outgoing weights is added to all sums of the next layer; then its
own sum is never needed again. So nothing but s, z and weights goes through memory.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from ecrt.flows.maf import DependencyOrder, OrderedBlock

LANES = tl.constexpr(32)
"""Threads of a warp: sums lie in groups of one for each."""

SUMS_A_WARP = 3072
"""Sums that a warp keeps, 96 for each thread, of the 255 numbers its registers hold."""


@triton.jit
def _value_at(sums, groups, column):  # type: ignore[no-untyped-def]
    """One column of sums that lie in registers: its register first, then the lane that has it."""
    mine = tl.sum(tl.where(groups[None, :, None] == column // LANES, sums, 0.0), axis=1)
    return tl.gather(mine, tl.full((sums.shape[0], 1), 0, tl.int32) + column % LANES, axis=1)


@triton.jit
def _silu(x):  # type: ignore[no-untyped-def]
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _invert(  # type: ignore[no-untyped-def]
    s_ptr, z_ptr, features_ptr, starts_1_ptr, starts_2_ptr, weight_1_ptr, weight_2_ptr, shift_ptr, scale_ptr,
    bias_1_ptr, bias_2_ptr, shift_bias_ptr, scale_bias_ptr, n_rows, n_features, inverse_bound,
    ROWS: tl.constexpr, FEATURES: tl.constexpr, UNITS_1: tl.constexpr, UNITS_2: tl.constexpr,
):  # fmt: skip
    """Rows of this program: see ``invert_plain``, whose steps these are. Widths are padded to powers of two."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = row[:, None]
    exists = row < n_rows
    lane = tl.arange(0, LANES)[None, :]
    feature_groups = tl.arange(0, FEATURES // LANES)
    groups_1 = tl.arange(0, UNITS_1 // LANES)
    groups_2 = tl.arange(0, UNITS_2 // LANES)
    feature_columns = feature_groups[:, None] * LANES + lane
    columns_1 = groups_1[:, None] * LANES + lane
    columns_2 = groups_2[:, None] * LANES + lane
    sums_1 = tl.broadcast_to(tl.load(bias_1_ptr + columns_1)[None, :, :], (ROWS, UNITS_1 // LANES, LANES))
    sums_2 = tl.broadcast_to(tl.load(bias_2_ptr + columns_2)[None, :, :], (ROWS, UNITS_2 // LANES, LANES))
    shifts = tl.broadcast_to(tl.load(shift_bias_ptr + feature_columns)[None, :, :], (ROWS, FEATURES // LANES, LANES))
    scales = tl.broadcast_to(tl.load(scale_bias_ptr + feature_columns)[None, :, :], (ROWS, FEATURES // LANES, LANES))
    for k in range(n_features):
        place = row * n_features + tl.load(features_ptr + k)
        s = tl.load(s_ptr + place, mask=exists, other=0.0)
        scale = _value_at(scales, feature_groups, k)
        z = (s - _value_at(shifts, feature_groups, k)) * tl.exp(-scale / (1.0 + tl.abs(scale * inverse_bound)))
        tl.store(z_ptr + place, z, mask=exists)
        sums_1 += z[:, :, None] * tl.load(weight_1_ptr + k * UNITS_1 + columns_1)[None, :, :]
        # Both ends are loaded: Triton 3.6 takes an end that is carried over to the next turn for a constant.
        for unit in range(tl.load(starts_1_ptr + k), tl.load(starts_1_ptr + k + 1)):
            h = _silu(_value_at(sums_1, groups_1, unit))
            sums_2 += h[:, :, None] * tl.load(weight_2_ptr + unit * UNITS_2 + columns_2)[None, :, :]
        for unit in range(tl.load(starts_2_ptr + k), tl.load(starts_2_ptr + k + 1)):
            h = _silu(_value_at(sums_2, groups_2, unit))
            shifts += h[:, :, None] * tl.load(shift_ptr + unit * FEATURES + feature_columns)[None, :, :]
            scales += h[:, :, None] * tl.load(scale_ptr + unit * FEATURES + feature_columns)[None, :, :]


def _padded(tensor: Tensor, *sizes: int) -> Tensor:
    """Zeros after the end of each dimension."""
    larger = tensor.new_zeros(sizes)
    larger[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return larger


def _widths(order: DependencyOrder) -> list[int]:
    """Numbers of features and hidden units, padded."""
    return [max(int(triton.next_power_of_2(size)), LANES.value) for size in order.sizes]


def _rows(order: DependencyOrder, dtype: torch.dtype) -> int:
    """Rows whose sums the registers of a warp hold."""
    features, *units = _widths(order)
    return SUMS_A_WARP * 4 // (dtype.itemsize * (2 * features + sum(units)))


def fits_kernel(order: DependencyOrder, dtype: torch.dtype) -> bool:
    """Whether the kernel is made for such a block: two hidden layers, not too wide for the registers."""
    return len(order.units) == 2 and _rows(order, dtype) > 0


@lru_cache(maxsize=256)
def _table(order: DependencyOrder, device: torch.device) -> Tensor:
    """Features in order, and how many units of each layer are known at every step."""
    padded = np.append(order.features, 0)
    return torch.from_numpy(np.stack([padded, *order.starts])).to(device, torch.int32)


def invert_kernel(block: OrderedBlock, s_nd: Tensor, log_scale_bound: float) -> Tensor:
    """z of a block from s, on the GPU."""
    s_nd = s_nd.contiguous()
    z_nd = torch.empty_like(s_nd)
    if not len(s_nd):
        return z_nd
    features, units_1, units_2 = _widths(block.order)
    rows = 1 << (_rows(block.order, s_nd.dtype).bit_length() - 1)
    with torch.cuda.device_of(s_nd):
        _invert[(triton.cdiv(len(s_nd), rows),)](
            s_nd, z_nd, *_table(block.order, s_nd.device),
            _padded(block.weights[0].T, features, units_1), _padded(block.weights[1].T, units_1, units_2),
            _padded(block.shift_weight.T, units_2, features), _padded(block.scale_weight.T, units_2, features),
            _padded(block.biases[0], units_1), _padded(block.biases[1], units_2),
            _padded(block.shift_bias, features), _padded(block.scale_bias, features),
            len(s_nd), s_nd.shape[1], 1 / log_scale_bound,
            ROWS=rows, FEATURES=features, UNITS_1=units_1, UNITS_2=units_2, num_warps=1,
        )  # fmt: skip
    return z_nd
