"""Rivals that are losses. The functions are in ``ecrt.losses``: ECRT's own heads and encoders take them by name."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from sklearn.base import clone
from sklearn.utils._param_validation import Interval

from ecrt.losses import LossName, LossRule, loss_rule
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Choice, Number, Space
from ecrt.stages import Encoder

__all__ = ["ERM", "LDAM", "LDAMDRW", "ClassBalanced", "Focal", "Hinge", "LogitAdjusted", "Weighted"]

ANY = [Interval(Real, 0, None, closed="left")]
MARGINS: Space = {"largest_margin": Number(0.1, 5.0, log=True)}


class NamedLoss(Rival):
    """A loss that heads and encoders take by name; its options are those of the rival."""

    loss_name: ClassVar[LossName]

    def _options(self) -> dict[str, float]:
        return {name: value for name, value in self.get_params(deep=False).items() if value is not None}

    def loss(self) -> LossRule:
        """The loss with these options."""
        return loss_rule(self.loss_name, self._options())

    def encoder(self, config: Encoder) -> Encoder:
        """By name, because LDAM's margins are in the units of the encoder's head."""
        return clone(config).set_params(loss=self.loss_name, loss_options=self._options())


@dataclass(kw_only=True, eq=False, repr=False)
class ERM(NamedLoss):
    """Empirical risk minimisation: softmax cross-entropy. With ``head="mlp"`` this is a plain MLP."""

    kind: ClassVar[str] = "erm"
    label: ClassVar[str] = "ERM"
    loss_name: ClassVar[LossName] = "cross-entropy"


@dataclass(kw_only=True, eq=False, repr=False)
class Hinge(NamedLoss):
    """The best wrong score must stay one below the true one. Not smooth, so a linear head is trained by steps.

    References
    ----------
    Crammer, Singer: On the algorithmic implementation of multiclass kernel-based vector machines, JMLR 2001.
    """

    kind: ClassVar[str] = "hinge"
    label: ClassVar[str] = "Hinge loss"
    loss_name: ClassVar[LossName] = "hinge"
    tuned: ClassVar[Space | None] = None


@dataclass(kw_only=True, eq=False, repr=False)
class Weighted(NamedLoss):
    """Importance weighting: every class has the same weight. A linear head is class-weighted logistic regression."""

    kind: ClassVar[str] = "weighted"
    label: ClassVar[str] = "Importance weighting"
    loss_name: ClassVar[LossName] = "weighted"


@dataclass(kw_only=True, eq=False, repr=False)
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

    kind: ClassVar[str] = "class-balanced"
    label: ClassVar[str] = "Class-balanced weights"
    loss_name: ClassVar[LossName] = "class-balanced"
    tuned: ClassVar[Space | None] = {"beta": Choice((0.9, 0.99, 0.999, 0.9999))}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"beta": [Interval(Real, 0, 1, closed="left")]}

    beta: float = 0.9999


@dataclass(kw_only=True, eq=False, repr=False)
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

    kind: ClassVar[str] = "focal"
    label: ClassVar[str] = "Focal loss"
    loss_name: ClassVar[LossName] = "focal"
    tuned: ClassVar[Space | None] = {"gamma": Number(0.5, 5.0)}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"gamma": ANY}

    gamma: float = 2.0


@dataclass(kw_only=True, eq=False, repr=False)
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

    kind: ClassVar[str] = "ldam"
    label: ClassVar[str] = "LDAM"
    loss_name: ClassVar[LossName] = "ldam"
    tuned: ClassVar[Space | None] = MARGINS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"largest_margin": ANY, "scale": [None, *ANY]}

    largest_margin: float = 0.5
    scale: float | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LDAMDRW(NamedLoss):
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

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma: Learning imbalanced datasets with label-distribution-aware margin loss,
    NeurIPS 2019.
    """

    kind: ClassVar[str] = "ldam-drw"
    label: ClassVar[str] = "LDAM-DRW"
    loss_name: ClassVar[LossName] = "ldam-drw"
    tuned: ClassVar[Space | None] = MARGINS
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "largest_margin": ANY,
        "scale": [None, *ANY],
        "beta": [Interval(Real, 0, 1, closed="left")],
        "reweight_from": ANY,
    }

    largest_margin: float = 0.5
    scale: float | None = None
    beta: float = 0.9999
    reweight_from: float = 0.8


@dataclass(kw_only=True, eq=False, repr=False)
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

    kind: ClassVar[str] = "logit-adjusted"
    label: ClassVar[str] = "Logit adjustment"
    loss_name: ClassVar[LossName] = "logit-adjusted"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"tau": ANY}

    tau: float = 1.0
