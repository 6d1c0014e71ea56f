"""Rivals that are losses. The functions are in ``ecrt.losses``: ECRT's own heads and encoders take them by name."""

from __future__ import annotations

from typing import ClassVar

from sklearn.base import clone

from ecrt.losses import LossRule, loss_rule
from ecrt.rivals.base import Choice, Number, Rival, Space
from ecrt.stages import Encoder
from ecrt.stages.parts import NonNegative, ShareBelowOne


class NamedLoss(Rival):
    """A loss that heads and encoders take by name; its options are those of the rival."""

    loss_name: ClassVar[str] = ""
    """Its name there, if that is not the short name of the rival."""

    def _options(self) -> dict[str, float]:
        return {name: value for name, value in self.get_params(deep=False).items() if value is not None}

    def loss(self) -> LossRule:
        """The loss with these options."""
        return loss_rule(self.loss_name or self.kind, self._options())

    def encoder(self, config: Encoder) -> Encoder:
        """By name, because LDAM's margins are in the units of the encoder's head."""
        return clone(config).set_params(loss=self.loss_name or self.kind, loss_options=self._options())


class ERM(NamedLoss):
    """Empirical risk minimisation: softmax cross-entropy. With ``head="mlp"`` this is a plain MLP."""

    kind = "erm"
    label = "ERM"
    loss_name = "cross-entropy"


class Hinge(NamedLoss):
    """The best wrong score must stay one below the true one. Not smooth, so a linear head is trained by steps.

    References
    ----------
    Crammer, Singer: On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2001.
    """

    kind = "hinge"
    label = "Hinge loss"
    tuned = None


class Weighted(NamedLoss):
    """Importance weighting: every class has the same weight. A linear head is class-weighted logistic regression."""

    kind = "weighted"
    label = "Importance weighting"


class ClassBalanced(NamedLoss):
    """Weights by the effective number of samples. The mean weight of a sample, not of a class, is one.

    Parameters
    ----------
    beta : float, default=0.9999
        From 0, no weights, towards 1, importance weights.

    References
    ----------
    Cui, Jia, Lin, Song, Belongie: Class-balanced loss based on effective number of samples, CVPR 2019.
    """

    kind = "class-balanced"
    label = "Class-balanced weights"
    tuned: ClassVar[Space | None] = {"beta": Choice((0.9, 0.99, 0.999, 0.9999))}

    beta: ShareBelowOne = 0.9999


class Focal(NamedLoss):
    """Cross-entropy that fades for samples that are already right, without class weights.

    Parameters
    ----------
    gamma : float, default=2
        How fast it fades.

    References
    ----------
    Lin, Goyal, Girshick, He, Dollar: Focal loss for dense object detection, ICCV 2017.
    """

    kind = "focal"
    label = "Focal loss"
    tuned: ClassVar[Space | None] = {"gamma": Number(0.5, 5.0)}

    gamma: NonNegative = 2.0


class LDAM(NamedLoss):
    """The true score is lowered by a margin, as n_m^(-1/4), which is largest for the rarest class.

    Parameters
    ----------
    largest_margin : float, default=0.5
        Margin of the rarest class.
    scale : float or None, default=None
        What margins are multiplied by, and the cosines of an encoder's cosine head. The paper's scale of 30 belongs to
        such a head: ``None`` is 30 with one and 1 otherwise.

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma: Learning imbalanced datasets with label-distribution-aware margin loss,
    NeurIPS 2019.
    """

    kind = "ldam"
    label = "LDAM"
    tuned: ClassVar[Space | None] = {"largest_margin": Number(0.1, 5.0, log=True)}

    largest_margin: NonNegative = 0.5
    scale: NonNegative | None = None


class LDAMDRW(LDAM):
    """LDAM with class-balanced weights in the last part of the training, which never stops early.

    A linear head that is fitted at once has these weights from the start.

    Parameters
    ----------
    largest_margin, scale
        As in ``LDAM``.
    beta : float, default=0.9999
        Of the weights, as in ``ClassBalanced``.
    reweight_from : float, default=0.8
        Share of the training after which classes are weighted.
    """

    kind = "ldam-drw"
    label = "LDAM-DRW"

    beta: ShareBelowOne = 0.9999
    reweight_from: NonNegative = 0.8


class LogitAdjusted(NamedLoss):
    """Log frequencies are added to the scores in training. With ``tau=1`` this is also balanced softmax.

    Parameters
    ----------
    tau : float, default=1
        What log frequencies are multiplied by.

    References
    ----------
    Menon, Jayasumana, Rawat, Jain, Veit, Kumar: Long-tail learning via logit adjustment, ICLR 2021.
    """

    kind = "logit-adjusted"
    label = "Logit adjustment"

    tau: NonNegative = 1.0
