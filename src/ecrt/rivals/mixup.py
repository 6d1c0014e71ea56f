"""Mixup and remix: a head learns from rows between two rows."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import torch
from sklearn.base import clone
from sklearn.utils._param_validation import Interval
from torch import Tensor

from ecrt.errors import InputError
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Number, Space
from ecrt.stages import Encoder
from ecrt.stages.heads import BatchRisk, HeadLoss, mixup_risk

__all__ = ["Mixup", "Remix", "remix_label_share"]

SHARE = [Interval(Real, 0, 1, closed="both")]
BETA = [Interval(Real, 0, 1e6, closed="right")]


@dataclass(kw_only=True, eq=False, repr=False)
class Mixup(Rival):
    """Samples and losses between two rows: at the input of the encoder where one is trained, or else of the head.

    Parameters
    ----------
    alpha : float, default=0.2
        Parameter of the Beta distribution of the shares; every row has a share of its own.
    off : float, default=0
        Share of the training, at its end, without mixup.

    References
    ----------
    Zhang, Cisse, Dauphin, Lopez-Paz: mixup: beyond empirical risk minimization, ICLR 2018.
    """

    kind: ClassVar[str] = "mixup"
    label: ClassVar[str] = "Mixup"
    tuned: ClassVar[Space | None] = {"alpha": Number(0.05, 2.0, log=True)}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"alpha": BETA, "off": SHARE}

    alpha: float = 0.2
    off: float = 0.0

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """Mixed losses of mixed rows."""
        return mixup_risk(loss, self.alpha, self.off)

    @property
    def trains_encoder(self) -> bool:
        """Yes, on mixed inputs."""
        return True

    def encoder(self, config: Encoder) -> Encoder:
        """The encoder with mixup."""
        if config.mixup > 0:
            raise InputError("Encoder: mixup is the method here. Set alpha and off of Mixup(...) instead.")
        return clone(config).set_params(mixup=self.alpha, mixup_off=self.off)


@dataclass(kw_only=True, eq=False, repr=False)
class Remix(Rival):
    """Mixup whose label leans to the rarer class.

    Parameters
    ----------
    alpha, off
        As in ``Mixup``, but ``alpha`` is 1.
    kappa : float, default=3
        How many times as frequent a class must be to lose its label.
    tau : float, default=0.5
        Share of the sample below which it loses it.

    References
    ----------
    Chou, Chang, Pan, Wei, Juan: Remix: rebalanced mixup, ECCV 2020 workshops.
    """

    kind: ClassVar[str] = "remix"
    label: ClassVar[str] = "Remix"
    tuned: ClassVar[Space | None] = {"tau": Number(0.0, 1.0)}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": BETA,
        "off": SHARE,
        "kappa": [Interval(Real, 0, None, closed="neither")],
        "tau": SHARE,
    }

    alpha: float = 1.0
    off: float = 0.0
    kappa: float = 3.0
    tau: float = 0.5

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """Mixed losses of mixed rows, labels with shares of their own."""

        def share_of_label(share: Tensor, y: Tensor, partner: Tensor) -> Tensor:
            counts = counts_m.to(share)
            return remix_label_share(share, counts[y], counts[partner], self.kappa, self.tau)

        return mixup_risk(loss, self.alpha, self.off, share_of_label)


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
