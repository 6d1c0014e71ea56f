"""The inverse of :mod:`ecrt.flows.inverse` as one Triton kernel, for blocks of two hidden layers, the usual ones.

A program has a few rows and keeps what it has summed up for every unit of theirs in registers. When a feature or a
unit becomes known, its value times its outgoing weights is added to all sums of the next layer; then its own sum is
never needed again. So weights are read once for each program, and nothing but s and z goes through memory.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ecrt.flows.inverse import OrderedBlock

__all__ = ["fits_kernel", "invert_kernel"]

MOST_SUMS = 2048
"""Sums of one row, at most, that a warp's registers hold."""

REGISTER_SUMS = 3072
"""Sums that a warp keeps: 96 registers of each of its threads."""


@triton.jit
def _value_at(sums, columns, column):  # type: ignore[no-untyped-def]
    """One column of sums that lie in registers, which have no addresses."""
    return tl.sum(tl.where(columns[None, :] == column, sums, 0.0), axis=1)


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
    exists = row < n_rows
    feature_columns = tl.arange(0, FEATURES)
    columns_1 = tl.arange(0, UNITS_1)
    columns_2 = tl.arange(0, UNITS_2)
    sums_1 = tl.broadcast_to(tl.load(bias_1_ptr + columns_1)[None, :], (ROWS, UNITS_1))
    sums_2 = tl.broadcast_to(tl.load(bias_2_ptr + columns_2)[None, :], (ROWS, UNITS_2))
    shifts = tl.broadcast_to(tl.load(shift_bias_ptr + feature_columns)[None, :], (ROWS, FEATURES))
    scales = tl.broadcast_to(tl.load(scale_bias_ptr + feature_columns)[None, :], (ROWS, FEATURES))
    first_1 = tl.load(starts_1_ptr)
    first_2 = tl.load(starts_2_ptr)
    for k in range(n_features):
        place = row * n_features + tl.load(features_ptr + k)
        s = tl.load(s_ptr + place, mask=exists, other=0.0)
        scale = _value_at(scales, feature_columns, k)
        z = (s - _value_at(shifts, feature_columns, k)) * tl.exp(-scale / (1.0 + tl.abs(scale * inverse_bound)))
        tl.store(z_ptr + place, z, mask=exists)
        sums_1 += z[:, None] * tl.load(weight_1_ptr + k * UNITS_1 + columns_1)[None, :]
        last_1 = tl.load(starts_1_ptr + k + 1)
        for unit in range(first_1, last_1):
            h = _silu(_value_at(sums_1, columns_1, unit))
            sums_2 += h[:, None] * tl.load(weight_2_ptr + unit * UNITS_2 + columns_2)[None, :]
        first_1 = last_1
        last_2 = tl.load(starts_2_ptr + k + 1)
        for unit in range(first_2, last_2):
            h = _silu(_value_at(sums_2, columns_2, unit))
            shifts += h[:, None] * tl.load(shift_ptr + unit * FEATURES + feature_columns)[None, :]
            scales += h[:, None] * tl.load(scale_ptr + unit * FEATURES + feature_columns)[None, :]
        first_2 = last_2


def _padded(tensor: Tensor, *sizes: int) -> Tensor:
    """Zeros after the end of each dimension."""
    larger = tensor.new_zeros(sizes)
    larger[tuple(slice(0, size) for size in tensor.shape)] = tensor
    return larger


def _widths(block: OrderedBlock) -> tuple[int, ...]:
    """Widths of features and hidden layers, padded."""
    return tuple(max(triton.next_power_of_2(size), 16) for size in (len(block.features), *map(len, block.biases)))


def fits_kernel(block: OrderedBlock) -> bool:
    """Whether the kernel is made for such a block: two hidden layers, not too wide for the registers of a warp."""
    if len(block.biases) != 2:
        return False
    features, *units = _widths(block)
    return (2 * features + sum(units)) * block.shift_bias.element_size() // 4 <= MOST_SUMS


def invert_kernel(block: OrderedBlock, s_nd: Tensor, log_scale_bound: float) -> Tensor:
    """z of a block from s, on the GPU."""
    s_nd = s_nd.contiguous()
    z_nd = torch.empty_like(s_nd)
    if not len(s_nd):
        return z_nd
    features, units_1, units_2 = _widths(block)
    words = s_nd.element_size() // 4
    rows = max(REGISTER_SUMS // (words * (2 * features + units_1 + units_2)), 1)
    rows = 1 << (rows.bit_length() - 1)
    index: dict[str, Any] = {"device": s_nd.device, "dtype": torch.int32}
    orders = torch.stack(
        [torch.nn.functional.pad(torch.from_numpy(values), (0, len(block.starts[0]) - len(values)))
         for values in (block.features, *block.starts)]
    ).to(**index)  # fmt: skip
    with torch.cuda.device_of(s_nd):
        _invert[(triton.cdiv(len(s_nd), rows),)](
            s_nd, z_nd, *orders,
            _padded(block.weights[0].T, features, units_1), _padded(block.weights[1].T, units_1, units_2),
            _padded(block.shift_weight.T, units_2, features), _padded(block.scale_weight.T, units_2, features),
            _padded(block.biases[0], units_1), _padded(block.biases[1], units_2),
            _padded(block.shift_bias, features), _padded(block.scale_bias, features),
            len(s_nd), s_nd.shape[1], 1 / log_scale_bound,
            ROWS=rows, FEATURES=features, UNITS_1=units_1, UNITS_2=units_2, num_warps=1,
        )  # fmt: skip
    return z_nd
