"""Implicit semantic data augmentation: cross-entropy over features blurred by the covariance of their class."""

from __future__ import annotations

import torch
from torch import Tensor

from ecrt.losses.classification import cross_entropy

__all__ = ["isda", "isda_shift"]


def isda_shift(weight_md: Tensor, covariance: Tensor) -> Tensor:
    r""":math:`(w_m - w_y)^\top \Sigma_y (w_m - w_y)`, a row for each y and a column for each m.

    Parameters
    ----------
    weight_md : last layer, a row for each class.
    covariance : of the features that enter it, for each class: ``(M, d, d)``, or ``(M, d)`` for variances alone.
    """
    if covariance.ndim == 2:
        image_ymd = covariance[:, None] * weight_md[None]
    else:
        image_ymd = torch.einsum("yde,me->ymd", covariance, weight_md)
    squares_ym = torch.einsum("ymd,md->ym", image_ymd, weight_md)
    cross_ym = torch.einsum("ymd,yd->ym", image_ymd, weight_md)
    own_y1 = squares_ym.diagonal()[:, None]
    return squares_ym - 2 * cross_ym + own_y1


def isda(logits_nm: Tensor, y_n: Tensor, shift_ym: Tensor, strength: float) -> Tensor:
    r"""Upper bound of the expected cross-entropy when features are drawn from :math:`N(z, \lambda \Sigma_y)`.

    .. math:: -\log \frac{e^{l_y}}{\sum_m e^{l_m + \frac\lambda2 (w_m - w_y)^\top \Sigma_y (w_m - w_y)}}

    References
    ----------
    Wang, Pan, Song, Zhang, Wu, Huang: Implicit semantic data augmentation for deep networks, NeurIPS 2019, Eq. 6.
    """
    return cross_entropy(logits_nm + 0.5 * strength * shift_ym[y_n], y_n)
