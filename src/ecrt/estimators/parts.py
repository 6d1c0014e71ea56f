"""Large arrays through an estimator a part at a time, so that memory does not grow with the rows but for the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError

__all__ = ["ROWS_AT_ONCE", "in_parts"]

ROWS_AT_ONCE = 8192
"""Checking, encoding and de-mixing hold several copies of so many rows; a multiple of every batch size within."""


def in_parts(method: Callable[[Any, Any], NDArray[Any]]) -> Callable[[Any, Any], NDArray[Any]]:
    """Let a method that maps rows one by one see no more than ``ROWS_AT_ONCE`` rows of an array of numbers.

    The array may be a memory-mapped file larger than memory. Tables, sparse matrices and Datasets go through whole.
    """

    @wraps(method)
    def by_parts(self: Any, X: Any) -> NDArray[Any]:
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or len(X) <= ROWS_AT_ONCE:
            return method(self, X)
        start = method(self, X[:ROWS_AT_ONCE])
        answer = np.empty((len(X), *start.shape[1:]), start.dtype)
        answer[:ROWS_AT_ONCE] = start
        for first in range(ROWS_AT_ONCE, len(X), ROWS_AT_ONCE):
            try:
                answer[first : first + ROWS_AT_ONCE] = method(self, X[first : first + ROWS_AT_ONCE])
            except InputError as error:
                raise InputError(f"From row {first} on (rows counted from there): {error}") from error
        return answer

    return by_parts
