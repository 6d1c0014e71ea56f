"""Synthetic sources at any value of a continuous target, from donors that lie near it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["donor_weights", "draw_from_donors"]

Array = NDArray[np.float64]

ROWS_AT_ONCE = 512
LEAST_WIDTH = 1e-6


def donor_weights(y: Array, targets: Array, n_donors: int) -> Array:
    r"""Gaussian kernel :math:`w_{mi} \propto \exp(-|y_i - y^*_m|^2 / 2 h_m^2)`, rows summing to one.

    The bandwidth follows the density: h is half the distance to the ``n_donors``-th nearest target, so that where data
    are sparse donors come from farther away.

    Parameters
    ----------
    y, targets : standardised targets of the donors (n, outputs), and those wanted (m, outputs).
    """
    squares = ((targets[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
    nearest = min(n_donors, len(y)) - 1
    width = np.maximum(np.sqrt(np.partition(squares, nearest, axis=1)[:, nearest]) / 2, LEAST_WIDTH)
    exponent = -squares / (2 * width**2)[:, None]
    weights = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def draw_from_donors(
    s: Array, y: Array, targets: Array, n_donors: int, rng: np.random.Generator, *, jointly: bool = False
) -> Array:
    r"""Every coordinate of every synthetic source from a donor of its own (Eq. 2 with a continuous label).

    A donor's coordinate belongs to its own target and not to :math:`y^*`. It is moved by the local slope of that
    coordinate in y, a weighted least-squares line: :math:`[s_i]_a + b_a^\top (y^* - y_i)`.

    Parameters
    ----------
    s, y : sources and standardised targets of the donors.
    targets : y*, (m, outputs).
    n_donors : sets the bandwidth.
    jointly : all coordinates from one donor, for sources that are not independent given y.
    """
    parts = []
    for start in range(0, len(targets), ROWS_AT_ONCE):
        wanted = targets[start : start + ROWS_AT_ONCE]
        weights = donor_weights(y, wanted, n_donors)
        cumulated = np.cumsum(weights, axis=1)
        uniform = np.broadcast_to(rng.random((len(wanted), 1 if jointly else s.shape[1])), (len(wanted), s.shape[1]))
        uniform = uniform * cumulated[:, -1:]
        drawn = np.empty((len(wanted), s.shape[1]))
        for row, (w, edges) in enumerate(zip(weights, cumulated, strict=True)):
            donors = np.minimum(np.searchsorted(edges, uniform[row]), len(y) - 1)
            step = wanted[row] - y[donors]
            drawn[row] = s[donors, np.arange(s.shape[1])] + (step * _slopes(s, y, w).T).sum(axis=1)
        parts.append(drawn)
    return np.concatenate(parts) if parts else np.empty((0, s.shape[1]))


def _slopes(s: Array, y: Array, w: Array) -> Array:
    """Weighted least-squares slopes (outputs, sources), drawn towards zero where targets hardly vary."""
    near = w > 1e-6 * w.max()
    w, s, y = w[near], s[near], y[near]
    w = w / w.sum()
    y_centred, s_centred = y - w @ y, s - w @ s
    covariance = (y_centred * w[:, None]).T @ y_centred
    ridge = (1e-2 * np.trace(covariance) / len(covariance) + 1e-12) * np.eye(len(covariance))
    return np.asarray(np.linalg.solve(covariance + ridge, (y_centred * w[:, None]).T @ s_centred))
