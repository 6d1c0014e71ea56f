"""Mixup: samples and labels between two samples."""

from __future__ import annotations

from torch import Tensor

from ecrt.losses.classification import ClassLoss

__all__ = ["mix", "mixed_loss"]


def mix(x_n: Tensor, partner_n: Tensor, share_n: Tensor) -> Tensor:
    r""":math:`\lambda x + (1 - \lambda) x'`, a share for each sample.

    References
    ----------
    Zhang, Cisse, Dauphin, Lopez-Paz: mixup: beyond empirical risk minimization, ICLR 2018.
    """
    share = share_n.reshape(-1, *[1] * (x_n.ndim - 1)).to(x_n.dtype)
    return share * x_n + (1 - share) * partner_n


def mixed_loss(
    loss: ClassLoss, logits_nm: Tensor, y_n: Tensor, partner_y_n: Tensor, label_share_n: Tensor, done: float = 1.0
) -> tuple[Tensor, Tensor]:
    """The losses under either label, each times its share: two values for each sample, so that each may be weighted."""
    first_n = loss(logits_nm, y_n, done)
    second_n = loss(logits_nm, partner_y_n, done)
    share_n = label_share_n.to(first_n.dtype)
    return share_n * first_n, (1 - share_n) * second_n
