"""Columns in units of their own spread, whatever their size, and never far beyond what was seen in training."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["BEYOND", "Standardise", "column_extent", "column_spread"]

Array = NDArray[np.float64]

BEYOND = 5.0
"""Values are held within their range in training and this many spreads beyond it on either side.

A column that is nearly constant in training, such as a pixel at the border of an image, has a tiny spread: without a
bound, one row in which it is not constant would decide everything.
"""

ROUNDING_STEPS = 8
"""A column whose spread is no more than so many rounding errors of its largest value varies by rounding alone."""

TINY = 1e-140
"""Squares of smaller values would be lost."""


class Standardise(nn.Module):
    """Columns less their centre, over their spread, within bounds; always computed in float64.

    Parameters
    ----------
    center_d, spread_d : of each column. A column of spread 0 never varies: it becomes 0, whatever its value.
    low_d, high_d : least and greatest value of each column in training.
    """

    center_d: Tensor
    spread_d: Tensor
    low_d: Tensor
    high_d: Tensor

    def __init__(self, center_d: Tensor, spread_d: Tensor, low_d: Tensor, high_d: Tensor) -> None:
        super().__init__()
        varies_d = spread_d > 0
        scale_d = torch.where(varies_d, spread_d, 1.0)
        self.register_buffer("center_d", center_d)
        self.register_buffer("spread_d", scale_d)
        self.register_buffer("low_d", torch.where(varies_d, (low_d - center_d) / scale_d - BEYOND, 0.0))
        self.register_buffer("high_d", torch.where(varies_d, (high_d - center_d) / scale_d + BEYOND, 0.0))

    @classmethod
    def of(cls, z: Array) -> Standardise:
        """By the columns of these rows."""
        center = z[0] + (z - z[0]).mean(axis=0)
        return cls(*(torch.from_numpy(values) for values in (center, column_spread(z), *column_extent(z))))

    @classmethod
    def nothing(cls, n_columns: int) -> Standardise:
        """Leaves columns as they are."""
        zeros, most = torch.zeros(n_columns, dtype=torch.float64), torch.finfo(torch.float64).max
        return cls(zeros, zeros + 1, zeros - most, zeros + most)

    @property
    def does_nothing(self) -> bool:
        """Whether columns stay as they are."""
        return bool((self.high_d == torch.finfo(torch.float64).max).all())

    def forward(self, z_nd: Tensor) -> Tensor:
        """Columns in units of their spread."""
        return ((z_nd.to(self.center_d) - self.center_d) / self.spread_d).clamp_(self.low_d, self.high_d)

    def inverse(self, standard_nd: Tensor) -> Tensor:
        """Columns in their own units; those that never vary at their one value."""
        return standard_nd * self.spread_d + self.center_d


def column_spread(z: Array) -> Array:
    """Standard deviation of each column, exactly 0 where it varies by rounding alone.

    >>> column_spread(np.array([[1.0, 1e10, 0.1], [2.0, 1e10 + 1, 0.1]])).tolist()
    [0.5, 0.5, 0.0]
    """
    low, high = column_extent(z)
    shifted = z - z[:1]  # exactly zero where nothing varies, and precise far from zero
    width = high - low
    tiny = (width > 0) & (width < TINY)
    if tiny.any():
        exponent = np.frexp(width)[1]
        shifted[:, tiny] = np.ldexp(shifted[:, tiny], -exponent[tiny])
    spread = shifted.std(axis=0)
    if tiny.any():
        spread[tiny] = np.ldexp(spread[tiny], exponent[tiny])
    largest = np.maximum(np.abs(low), np.abs(high))
    return np.where(spread > ROUNDING_STEPS * np.finfo(np.float64).eps * largest, spread, 0.0)


def column_extent(z: Array) -> tuple[Array, Array]:
    """Least and greatest value of each column."""
    return z.min(axis=0), z.max(axis=0)
