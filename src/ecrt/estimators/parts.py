"""Large arrays through an estimator a part at a time, so that memory does not grow with the rows but for the answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from scipy import sparse

from ecrt.errors import InputError

__all__ = ["ROWS_AT_ONCE", "in_parts"]

ROWS_AT_ONCE = 8192
"""Checking, encoding and de-mixing hold several copies of so many rows; a multiple of every batch size within."""


def in_parts(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let a method that maps rows one by one see no more than ``ROWS_AT_ONCE`` rows of an array of numbers.

    The array may be a memory-mapped file larger than memory. Tables, sparse matrices and Datasets go through whole.
    """

    @wraps(method)
    def by_parts(self: Any, X: Any) -> Any:
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub" or len(X) <= ROWS_AT_ONCE:
            return method(self, X)
        start = method(self, X[:ROWS_AT_ONCE])
        answer: Any = [start] if sparse.issparse(start) else np.empty((len(X), *start.shape[1:]), start.dtype)
        for first in range(0, len(X), ROWS_AT_ONCE):
            try:
                part = start if first == 0 else method(self, X[first : first + ROWS_AT_ONCE])
            except InputError as error:
                raise InputError(f"From row {first} on (rows counted from there): {error}") from error
            if isinstance(answer, np.ndarray):
                answer[first : first + ROWS_AT_ONCE] = part
            elif first:
                answer.append(part)
        return answer if isinstance(answer, np.ndarray) else sparse.vstack(answer, format="csr")

    return by_parts
