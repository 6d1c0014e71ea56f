"""Implicit semantic data augmentation: cross-entropy over features blurred by the covariance of their class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from ecrt.losses import cross_entropy
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Number, Space
from ecrt.stages.heads import BatchRisk, HeadLoss, HeadSample, last_layer

__all__ = ["ISDA", "ISDARisk", "isda_loss", "isda_shift"]

MOST_COVARIANCES = 4_000_000
"""Entries of all class covariances up to which they are taken in full; beyond, variances alone."""


@dataclass(kw_only=True, eq=False, repr=False)
class ISDA(Rival):
    """Features blurred by the covariance of their class, in closed form.

    Parameters
    ----------
    strength : float, default=0.5
        Of the blur at the end of training; it grows from 0.

    References
    ----------
    Wang, Pan, Song, Zhang, Wu, Huang: Implicit semantic data augmentation for deep networks, NeurIPS 2019.
    """

    kind: ClassVar[str] = "isda"
    label: ClassVar[str] = "ISDA"
    tuned: ClassVar[Space | None] = {"strength": Number(0.05, 2.0, log=True)}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"strength": [Interval(Real, 0, None, closed="left")]}

    strength: float = 0.5

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """The loss of logits that are shifted by the covariances."""
        return ISDARisk(loss, len(counts_m), self.strength)


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


def isda_loss(logits_nm: Tensor, y_n: Tensor, shift_ym: Tensor, strength: float) -> Tensor:
    r"""Upper bound of the expected cross-entropy when features are drawn from :math:`N(z, \lambda \Sigma_y)`.

    .. math:: -\log \frac{e^{l_y}}{\sum_m e^{l_m + \frac\lambda2 (w_m - w_y)^\top \Sigma_y (w_m - w_y)}}

    References
    ----------
    Wang, Pan, Song, Zhang, Wu, Huang: Implicit semantic data augmentation for deep networks, NeurIPS 2019, Eq. 6.
    """
    return cross_entropy(logits_nm + 0.5 * strength * shift_ym[y_n], y_n)


@dataclass
class ISDARisk:
    """ISDA: class covariances of what enters the last layer, taken anew over all rows once an epoch.

    The strength grows from nothing with the share of training done, as in the paper. Its authors update covariances by
    batches; all rows are at hand here.
    """

    loss: HeadLoss
    n_classes: int
    strength: float
    calls: int = field(default=0, init=False)
    covariance: Tensor | None = field(default=None, init=False)

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        """Weighted losses of the rows."""
        body, last = last_layer(head)
        if self.calls % max(1, len(sample.y) // len(rows)) == 0 or self.covariance is None:
            self.covariance = self._covariances(body, sample)
        self.calls += 1
        y = sample.y[rows]
        shift_ym = isda_shift(last.weight, self.covariance)
        logits = last(body(sample.s[rows])) + 0.5 * self.strength * done * shift_ym[y]
        return self.loss(logits, y, done) * sample.weight[rows]

    @torch.no_grad()
    def _covariances(self, body: Callable[[Tensor], Tensor], sample: HeadSample) -> Tensor:
        z = body(sample.s)
        counts = torch.bincount(sample.y, minlength=self.n_classes).to(z)
        mean = z.new_zeros(self.n_classes, z.shape[1]).index_add_(0, sample.y, z) / counts.clamp(min=1)[:, None]
        centred = z - mean[sample.y]
        if self.n_classes * z.shape[1] ** 2 > MOST_COVARIANCES:
            squares = torch.zeros_like(mean).index_add_(0, sample.y, centred**2)
            return squares / counts.clamp(min=1)[:, None]
        parts = [centred[sample.y == label] for label in range(self.n_classes)]
        return torch.stack([part.T @ part / max(len(part), 1) for part in parts])
