"""Mixup: samples and labels between two samples."""

from __future__ import annotations

import torch
from torch import Tensor

from ecrt.losses.classification import ClassLoss

__all__ = ["mix", "mixed_loss", "remix_label_share"]


def mix(x_n: Tensor, partner_n: Tensor, share_n: Tensor) -> Tensor:
    r""":math:`\lambda x + (1 - \lambda) x'`, a share for each sample.

    References
    ----------
    Zhang, Cisse, Dauphin, Lopez-Paz: mixup: beyond empirical risk minimization, ICLR 2018.
    """
    share = share_n.reshape(-1, *[1] * (x_n.ndim - 1)).to(x_n.dtype)
    return share * x_n + (1 - share) * partner_n


def remix_label_share(
    share_n: Tensor, count_n: Tensor, partner_count_n: Tensor, kappa: float = 3.0, tau: float = 0.5
) -> Tensor:
    r"""The share of the first *label*, where that of the first sample is lambda.

    A class ``kappa`` times as frequent as its partner's loses the label altogether when its sample's share is below
    ``tau``; the same holds the other way round; else labels are mixed as samples are.

    References
    ----------
    Chou, Chang, Pan, Wei, Juan: Remix: rebalanced mixup, ECCV 2020 workshops, Eq. 6.
    """
    ratio_n = count_n / partner_count_n
    to_partner_n = (ratio_n >= kappa) & (share_n < tau)
    to_first_n = (ratio_n <= 1 / kappa) & (1 - share_n < tau)
    label_share_n = torch.where(to_partner_n, torch.zeros_like(share_n), share_n)
    return torch.where(to_first_n, torch.ones_like(share_n), label_share_n)


def mixed_loss(
    loss: ClassLoss, logits_nm: Tensor, y_n: Tensor, partner_y_n: Tensor, label_share_n: Tensor, done: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The losses under either label, each times its share: two values for each sample, so that each may be weighted."""
    first_n = loss(logits_nm, y_n, done)
    second_n = loss(logits_nm, partner_y_n, done)
    share_n = label_share_n.to(first_n.dtype)
    return share_n * first_n, (1 - share_n) * second_n
