"""The inverse of a block of a masked flow, compiled for the CPU by numba (``pip install ecrt[fast]``).

Rows are taken ``LANES`` at a time and stored with a unit's values for all of them side by side, so that every
operation is one on whole vectors, and what a row gives does not depend on the rows beside it. The compiled function
holds no lock and shares nothing: threads are plain ones, as many as torch may use, and callers may have their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]

LANES = 64
"""Rows at a time: enough vectors to hide latency, few enough for all units to stay in cache."""

ROWS_A_TASK = 1024
"""Fewer are not worth their own thread: starting one takes longer."""

EXPONENT_LIMIT = {"float32": 87.0, "float64": 708.0}
"""Beyond, exp leaves the numbers the type has; where it is cut a bounded scale and the SiLU are flat."""

EXPONENT_BITS = {"float32": (127, 23, np.int32), "float64": (1023, 52, np.int64)}


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call, without the interpreter lock, kept on disk where there is a place for it."""
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract", "nsz", "arcp"}, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder that may be written to
        return numba.njit(**options)(function)


@_jit
def _weighted_sum(total: Values, weight: Values, values: Values, length: int) -> None:
    """Add weight[j] * values[j] to total, eight inputs at a time so that total is seldom read and written."""
    whole = length - length % 8
    for j in range(0, whole, 8):
        w0, w1, w2, w3 = weight[j], weight[j + 1], weight[j + 2], weight[j + 3]
        w4, w5, w6, w7 = weight[j + 4], weight[j + 5], weight[j + 6], weight[j + 7]
        for r in range(LANES):
            total[r] += (
                (w0 * values[j, r] + w1 * values[j + 1, r])
                + (w2 * values[j + 2, r] + w3 * values[j + 3, r])
                + ((w4 * values[j + 4, r] + w5 * values[j + 5, r]) + (w6 * values[j + 6, r] + w7 * values[j + 7, r]))
            )
    for j in range(whole, length):
        w0 = weight[j]
        for r in range(LANES):
            total[r] += w0 * values[j, r]


@_jit
def _exponential(
    x: Values, rest: Values, bits: Values, powers: Values, constants: Values, bias: int, shift: int
) -> None:
    """x becomes exp(x): 2^n times the Taylor polynomial of what is left, at most ln(2) / 2.

    The library's exp is a call for every number; this is arithmetic on vectors. ``powers`` are the numbers that
    ``bits`` spell, ``rest`` is room to work in.
    """
    limit, log2_e, half, ln2_high, ln2_low = constants[0], constants[1], constants[2], constants[3], constants[4]
    for r in range(LANES):
        value = x[r]
        value = limit if value > limit else value
        value = -limit if value < -limit else value
        n = np.floor(value * log2_e + half)
        bits[r] = (np.int64(n) + bias) << shift
        rest[r] = (value - n * ln2_high) - n * ln2_low
        x[r] = constants[5]
    for place in range(6, len(constants)):
        coefficient = constants[place]
        for r in range(LANES):
            x[r] = x[r] * rest[r] + coefficient
    for r in range(LANES):
        x[r] *= powers[r]


@_jit
def _invert_rows(
    s: Values, z: Values, first: int, last: int, features: Values, sizes: Values, starts: Values, weights: Values,
    biases: Values, outer: Values, outer_bias: Values, bound: float, constants: Values, bias: int, shift: int,
    bits: Values,
) -> None:  # fmt: skip
    """Rows from first up to last: see ``ecrt.flows.invert_plain``, whose steps these are, for ``LANES`` rows at once.

    ``weights`` and ``biases`` hold the hidden layers one after the other, ``outer`` shift and scale of each feature.
    """
    d = len(features)
    one = constants[-1]
    values = np.zeros((sizes.sum(), LANES), z.dtype)
    room = np.zeros((4, LANES), z.dtype)
    shift_r, scale_r, power_r, rest = room[0], room[1], room[2], room[3]
    powers = bits.view(z.dtype)
    n_hidden = len(sizes) - 1
    for row in range(first, last, LANES):
        many = min(LANES, last - row)
        known = 0
        for k in range(d):
            shift_r[:] = outer_bias[k, 0]
            scale_r[:] = outer_bias[k, 1]
            final = values[len(values) - sizes[n_hidden] :]
            _weighted_sum(shift_r, outer[k, 0], final, known)
            _weighted_sum(scale_r, outer[k, 1], final, known)
            for r in range(LANES):
                scale_r[r] = -scale_r[r] / (one + abs(scale_r[r] * bound))
            _exponential(scale_r, rest, bits, powers, constants, bias, shift)
            for r in range(many):
                values[k, r] = s[row + r, features[k]]
            for r in range(LANES):
                values[k, r] = (values[k, r] - shift_r[r]) * scale_r[r]
            for r in range(many):
                z[row + r, features[k]] = values[k, r]
            known, before, unit_place, weight_place = k + 1, 0, 0, 0
            for layer in range(n_hidden):
                width = sizes[layer]
                inputs = values[before : before + width]
                before += width
                for unit in range(starts[layer, k], starts[layer, k + 1]):
                    at = values[before + unit]
                    at[:] = biases[unit_place + unit]
                    row_place = weight_place + unit * width
                    _weighted_sum(at, weights[row_place : row_place + known], inputs, known)
                    for r in range(LANES):
                        power_r[r] = -at[r]
                    _exponential(power_r, rest, bits, powers, constants, bias, shift)
                    for r in range(LANES):
                        at[r] = at[r] / (one + power_r[r])
                unit_place += sizes[layer + 1]
                weight_place += sizes[layer + 1] * width
                known = starts[layer, k + 1]


def _constants(kind: np.dtype[Any]) -> Values:
    """What :func:`_exponential` needs: limit, log2(e), 1/2, ln 2 in two parts, then 1/k! from the highest k."""
    degree = 7 if kind == np.float32 else 13
    # The first part has few digits, so that its product with n is exact.
    high = math.floor(math.log(2) * 2**12) / 2**12 if kind == np.float32 else math.floor(math.log(2) * 2**32) / 2**32
    taylor = [1 / math.factorial(k) for k in range(degree, -1, -1)]
    return np.array([EXPONENT_LIMIT[kind.name], 1 / math.log(2), 0.5, high, math.log(2) - high, *taylor], dtype=kind)


def invert_rows(s: Values, bound: float, n_threads: int, *block: Values) -> Values:
    """z of a block from s, by that many threads; ``block`` is what ``_invert_rows`` takes of it."""
    z = np.empty_like(s)
    bias, shift, integer = EXPONENT_BITS[s.dtype.name]
    arguments = (*block, s.dtype.type(bound), _constants(s.dtype), bias, shift)

    def task(first: int) -> None:
        _invert_rows(s, z, first, min(first + ROWS_A_TASK, len(s)), *arguments, np.empty(LANES, integer))

    firsts = range(0, len(s), ROWS_A_TASK)
    if min(n_threads, len(firsts)) < 2:
        for first in firsts:
            task(first)
    else:
        with ThreadPoolExecutor(min(n_threads, len(firsts))) as pool:
            list(pool.map(task, firsts))
    return z
