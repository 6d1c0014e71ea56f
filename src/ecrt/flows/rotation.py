"""The rotation that whitening leaves open, settled by variances that differ between classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["class_covariances", "joint_diagonaliser"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_SWEEPS = 30


def class_covariances(residuals: Array, y: Labels) -> tuple[Array, Array]:
    """Covariance of each class and its number of samples, for residuals of within-class mean zero."""
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    order = np.argsort(member, kind="stable")
    parts = np.split(residuals[order], np.cumsum(counts)[:-1])
    return np.stack([part.T @ part / max(len(part) - 1, 1) for part in parts]), counts.astype(np.float64)


def joint_diagonaliser(covariance_kdd: Array, weight_k: Array, tolerance: float = 1e-3) -> Array:
    r"""The rotation R that makes all :math:`R C_k R^T` as diagonal as can be, by Jacobi rotations in parallel.

    Sources that are independent given the class have diagonal covariances in every class. After whitening, mixed ones
    do too on average, but not class by class: that fixes R where classes differ in their variances.
    Each sweep turns every pair of axes once by the angle that makes the weighted sum of squares off the diagonal least,
    d/2 disjoint pairs at a time.

    Parameters
    ----------
    covariance_kdd, weight_k : covariances and how much each counts.
    tolerance : stop after a sweep that turned no pair further than this, in radians.

    References
    ----------
    Cardoso and Souloumiac (1996), Jacobi angles for simultaneous diagonalization.
    """
    d = covariance_kdd.shape[1]
    c = covariance_kdd * np.sqrt(weight_k / weight_k.sum())[:, None, None]
    rotation = np.eye(d)
    for _ in range(MOST_SWEEPS if d > 1 else 0):
        largest = 0.0
        for p, q in _disjoint_pairs(d):
            difference, off = c[:, p, p] - c[:, q, q], 2 * c[:, p, q]
            on = (difference**2 - off**2).sum(axis=0)
            cross = 2 * (difference * off).sum(axis=0)
            angle = 0.5 * np.arctan2(cross, on + np.hypot(on, cross))
            largest = max(largest, float(np.abs(angle).max(initial=0.0)))
            cosine, sine = np.cos(angle), np.sin(angle)
            rotation[p], rotation[q] = _turn(rotation[p].T, rotation[q].T, cosine, sine, transposed=True)
            c[:, p], c[:, q] = _turn(c[:, p], c[:, q], cosine[:, None], sine[:, None])
            c[:, :, p], c[:, :, q] = _turn(c[:, :, p], c[:, :, q], cosine, sine)
        if largest < tolerance:
            break
    return rotation


def _turn(first: Array, second: Array, cosine: Array, sine: Array, *, transposed: bool = False) -> tuple[Array, Array]:
    """Both axes of every pair turned by its angle."""
    turned = cosine * first + sine * second, cosine * second - sine * first
    return (turned[0].T, turned[1].T) if transposed else turned


def _disjoint_pairs(d: int) -> Iterator[tuple[Labels, Labels]]:
    """Every pair of d axes once, in rounds of pairs that share no axis (a round-robin tournament)."""
    size = d + d % 2
    seats = np.arange(size)
    for _ in range(size - 1):
        left, right = seats[: size // 2], seats[size // 2 :][::-1]
        real = (left < d) & (right < d)
        yield left[real].copy(), right[real].copy()
        seats[1:] = np.roll(seats[1:], 1)
