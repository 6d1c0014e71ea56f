"""The likelihood term of Eq. 5."""

from __future__ import annotations

from torch import Tensor

__all__ = ["flow_nll"]


def flow_nll(log_density_n: Tensor, log_det_n: Tensor, n_features: int) -> Tensor:
    r"""Negative log-likelihood in feature space, per dimension: :math:`-(\log p(s|y) + \log|\det J_f(z)|) / d`.

    Eq. 5 has no 1/d; dividing makes one likelihood weight serve all dimensions.
    """
    return -(log_density_n + log_det_n) / n_features
