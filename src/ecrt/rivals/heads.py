"""Rivals that fit a head differently: under another loss, by steps that minimise something else, or in a second step.

Losses are functions of ``ecrt.losses``: ECRT's own heads and encoders take them by name.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Annotated, ClassVar, cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from ecrt.arrays import Labels
from ecrt.errors import InputError
from ecrt.losses import LossRule, loss_rule, make_class_loss
from ecrt.metrics import nll_per_sample
from ecrt.nn import BalancedHead
from ecrt.randomness import generator_on
from ecrt.rivals.base import Choice, Number, Rival, Space
from ecrt.stages import Encoder, EncodeResult, head_outputs
from ecrt.stages.heads import (
    WEIGHT_DECAYS,
    BatchRisk,
    HeadFitter,
    HeadLoss,
    HeadSample,
    LinearFitter,
    NetworkHead,
    Watch,
    last_layer,
    mixup_risk,
)
from ecrt.stages.holdout import Watched
from ecrt.stages.parts import Count, NonNegative, Positive, Share, ShareBelowOne
from ecrt.stages.targets import ClassTarget

Function = Callable[[Tensor], Tensor]
Divergence = Callable[[Tensor, Tensor], Tensor]
"""Of logits from others that are held fixed, one value for each sample."""

BetaParameter = Annotated[float, Interval(Real, 0, 1e6, closed="right")]

MOST_COVARIANCES = 4_000_000
"""ISDA takes the class covariances in full up to this many entries in all, and variances alone beyond."""

NORM_POWERS = tuple(np.linspace(0, 1, 11).round(1).tolist())
"""Powers tried by tau-normalisation."""


# --- losses ----------------------------------------------------------------------------------------------------------


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


# --- mixup -----------------------------------------------------------------------------------------------------------


class Mixup(Rival):
    """Samples and losses between two rows: at the input of the encoder where one is trained, or else of the head.

    Parameters
    ----------
    alpha : float, default=0.2
        Parameter of the Beta distribution of the shares; every row has its own share.
    off : float, default=0
        Share of the training, at its end, without mixup.

    References
    ----------
    Zhang, Cisse, Dauphin, Lopez-Paz: mixup: beyond empirical risk minimization, ICLR 2018.
    """

    kind = "mixup"
    label = "Mixup"
    tuned: ClassVar[Space | None] = {"alpha": Number(0.05, 2.0, log=True)}
    trains_encoder = True

    alpha: BetaParameter = 0.2
    off: Share = 0.0

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """Mixed losses of mixed rows."""
        return mixup_risk(loss, self.alpha, self.off)

    def encoder(self, config: Encoder) -> Encoder:
        """The encoder with mixup."""
        if config.mixup > 0:
            raise InputError("Encoder: mixup is the method here. Set alpha and off of Mixup(...) instead.")
        return clone(config).set_params(mixup=self.alpha, mixup_off=self.off)


class Remix(Rival):
    """Mixup whose label leans to the rarer class.

    Parameters
    ----------
    alpha : float, default=1
        As in ``Mixup``.
    off : float, default=0
        As in ``Mixup``.
    kappa : float, default=3
        How many times as frequent a class must be to lose its label.
    tau : float, default=0.5
        Share of the sample below which it loses it.

    References
    ----------
    Chou, Chang, Pan, Wei, Juan: Remix: rebalanced mixup, ECCV 2020 workshops.
    """

    kind = "remix"
    label = "Remix"
    tuned: ClassVar[Space | None] = {"tau": Number(0.0, 1.0)}

    alpha: BetaParameter = 1.0
    off: Share = 0.0
    kappa: Positive = 3.0
    tau: Share = 0.5

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """Mixed losses of mixed rows; labels have other shares than rows."""

        def share_of_label(share: Tensor, y: Tensor, partner: Tensor) -> Tensor:
            counts = counts_m.to(share)
            return remix_label_share(share, counts[y], counts[partner], self.kappa, self.tau)

        return mixup_risk(loss, self.alpha, self.off, share_of_label)


def remix_label_share(share_n: Tensor, count_n: Tensor, partner_count_n: Tensor, kappa: float, tau: float) -> Tensor:
    r"""The share of the first *label*, where that of the first sample is lambda (Chou et al., 2020, Eq. 6).

    A class ``kappa`` times as frequent as its partner's loses the label when its sample's share is below ``tau``; the
    same holds the other way round; otherwise labels are mixed as samples are.
    """
    ratio_n = count_n / partner_count_n
    to_partner_n = (ratio_n >= kappa) & (share_n < tau)
    to_first_n = (ratio_n <= 1 / kappa) & (1 - share_n < tau)
    return share_n.masked_fill(to_partner_n, 0.0).masked_fill(to_first_n, 1.0)


# --- virtual adversarial training ------------------------------------------------------------------------------------


class VAT(Rival):
    """Virtual adversarial training: predictions must not change along the worst small step at the input of the head.

    No gradient goes through the clean prediction, and there is no dropout in either.

    Parameters
    ----------
    epsilon : float, default=0.2
        Length of the step, times the root of the number of inputs, which are standardised.
    xi : float, default=0.01
        Length of the step that the worst direction is found by.
    power_iterations : int, default=1
        Steps of the search for that direction.
    weight : float, default=1
        Of the change of predictions, beside the loss.

    References
    ----------
    Miyato, Maeda, Koyama, Ishii: Virtual adversarial training, IEEE TPAMI 2018.
    """

    kind = "vat"
    label = "Virtual adversarial training"
    tuned: ClassVar[Space | None] = {"epsilon": Number(0.02, 1.0, log=True)}
    recordable = True

    epsilon: Positive = 0.2
    xi: Positive = 1e-2
    power_iterations: Count = 1
    weight: NonNegative = 1.0

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """The loss, plus the virtual adversarial one; without classes to count, every column is a label."""
        divergence = kl_divergence if len(counts_m) else bernoulli_divergence

        def risk(head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
            s = sample.inputs(rows)
            plain = loss(head(s), sample.y[rows], done) * sample.weight[rows]
            training = head.training
            head.eval()  # dropout would make two predictions differ by itself
            start = torch.randn(s.shape, generator=generator_on(s.device), dtype=s.dtype, device=s.device)
            roughness = self.roughness(head, s, start, divergence)
            head.train(training)
            return plain + self.weight * roughness / len(sample.y)

        return risk

    def roughness(self, logits_of: Function, x: Tensor, start: Tensor, divergence: Divergence) -> Tensor:
        """Divergence of predictions at x, held fixed, from those a step away in the worst direction (Eq. 5).

        Parameters
        ----------
        logits_of : the network that is trained. The step is added to its input x.
        start : random directions to start from, of the shape of x.
        """
        step = self.epsilon * x[0].numel() ** 0.5 * self.direction(logits_of, x, start, divergence)
        return divergence(logits_of(x).detach(), logits_of(x + step))

    def direction(self, logits_of: Function, x: Tensor, start: Tensor, divergence: Divergence) -> Tensor:
        """Unit steps, one for each sample, along which its predictions change most.

        Power iteration on the Hessian of the divergence, by the gradient at ``xi`` times the direction (Eq. 12). A
        sample without any gradient keeps the direction it had.
        """
        reference = logits_of(x).detach()
        direction = nn.functional.normalize(start.flatten(1), dim=1)
        for _ in range(self.power_iterations):
            step = (self.xi * direction).view_as(x).requires_grad_()
            (slope,) = torch.autograd.grad(divergence(reference, logits_of(x + step)).sum(), step)
            length = slope.flatten(1).norm(dim=1, keepdim=True)
            direction = torch.where(length > 0, slope.flatten(1) / length.clamp(min=1e-30), direction)
        return direction.view_as(x).detach()


def kl_divergence(reference_nm: Tensor, logits_nm: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)) of each sample."""
    log_p_nm = torch.log_softmax(reference_nm, dim=1)
    return (log_p_nm.exp() * (log_p_nm - torch.log_softmax(logits_nm, dim=1))).sum(1)


def bernoulli_divergence(reference_nm: Tensor, logits_nm: Tensor) -> Tensor:
    """The same where each column is a label that holds or does not: KL of every label, summed."""
    total_n = torch.zeros_like(reference_nm[:, 0])
    for sign in (1, -1):
        log_p_nm = nn.functional.logsigmoid(sign * reference_nm)
        total_n = total_n + (log_p_nm.exp() * (log_p_nm - nn.functional.logsigmoid(sign * logits_nm))).sum(1)
    return total_n


# --- implicit semantic data augmentation -----------------------------------------------------------------------------


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

    kind = "isda"
    label = "ISDA"
    tuned: ClassVar[Space | None] = {"strength": Number(0.05, 2.0, log=True)}

    strength: NonNegative = 0.5

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """The loss of logits that are shifted by the covariances."""
        return ISDARisk(loss, len(counts_m), self.strength)


def isda_shift(weight_md: Tensor, covariance: Tensor) -> Tensor:
    r""":math:`(w_m - w_y)^\top \Sigma_y (w_m - w_y)`, a row for each y and a column for each m.

    With half of it times lambda added to the logits, cross-entropy is an upper bound of its expectation when features
    are drawn from :math:`N(z, \lambda \Sigma_y)` (Wang et al., 2019, Eq. 6).

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


@dataclass
class ISDARisk:
    """ISDA: class covariances of what enters the last layer, taken anew over all rows once an epoch.

    The strength grows from 0 with the share of training done, as in the paper. Its authors update covariances by
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
        logits = last(body(sample.inputs(rows))) + 0.5 * self.strength * done * shift_ym[y]
        return self.loss(logits, y, done) * sample.weight[rows]

    @torch.no_grad()
    def _covariances(self, body: Function, sample: HeadSample) -> Tensor:
        z = body(sample.s)
        counts = torch.bincount(sample.y, minlength=self.n_classes).to(z).clamp(min=1)
        mean = z.new_zeros(self.n_classes, z.shape[1]).index_add_(0, sample.y, z) / counts[:, None]
        centred = z - mean[sample.y]
        if self.n_classes * z.shape[1] ** 2 > MOST_COVARIANCES:
            return torch.zeros_like(mean).index_add_(0, sample.y, centred**2) / counts[:, None]
        by_class = [centred[sample.y == label] for label in range(self.n_classes)]
        return torch.stack([rows.T @ rows / max(len(rows), 1) for rows in by_class])


# --- second steps ----------------------------------------------------------------------------------------------------


class CRT(Rival):
    """Classifier re-training: the last layer is fitted anew, with every class at the same weight.

    By L-BFGS under balanced weights, the expectation of the authors' class-balanced sampling, and on the rows of the
    encoder too, as its authors do. With a linear head and no encoder nothing of the first fit is left.

    References
    ----------
    Kang, Xie, Rohrbach, Yan, Gordo, Feng, Kalantidis: Decoupling representation and classifier for long-tailed
    recognition, ICLR 2020.
    """

    kind = "crt"
    label = "Decoupling, cRT"
    learns_from_encoded_rows = True
    refits_last_layer = True

    def second_step(self, first: HeadFitter, target: ClassTarget, head: NetworkHead) -> HeadFitter:
        """All layers but the last are kept."""
        counts_m = target.counts_of(head)
        refit = LinearFitter(len(counts_m), make_class_loss("weighted", counts_m))
        settings = WEIGHT_DECAYS if head.weight_decay is None else (head.weight_decay,)

        def adapt(sample: HeadSample, setting: float, module: nn.Module) -> nn.Module:
            with torch.no_grad():
                body, _ = last_layer(module.eval())
                features = HeadSample(body(sample.s), sample.y, sample.weight, sample.synthetic)
            last = refit.fit(features, setting)
            if not isinstance(module, nn.Linear):
                whole = cast(nn.Sequential, copy.deepcopy(module))
                whole[-1] = last
                last = whole
            return _unadjusted(last, target)

        return TwoStepFitter(first, adapt, settings)


class TauNorm(Rival):
    """The weights of each class are divided by a power of their norm, and biases are dropped.

    Held-out rows choose the power from 0 to 1, by log-loss. A common factor, which changes no prediction, keeps the
    mean norm.

    References
    ----------
    Kang, Xie, Rohrbach, Yan, Gordo, Feng, Kalantidis: Decoupling representation and classifier for long-tailed
    recognition, ICLR 2020.
    """

    kind = "tau-norm"
    label = "Decoupling, tau-normalised"
    trains_encoder = True

    def second_step(self, first: HeadFitter, target: ClassTarget, head: NetworkHead) -> HeadFitter:
        """The last layer is normalised."""
        return TwoStepFitter(
            first, lambda _, power, module: _unadjusted(normalise_last_layer(module, power), target), NORM_POWERS
        )

    @torch.no_grad()
    def adapt(self, head: BalancedHead, encoded: EncodeResult, labels: Labels) -> nn.Module:
        """The power is chosen on rows that the encoder has not looked at; without any it is 1."""
        rows = np.flatnonzero(encoded.fresh)
        y = labels[rows]

        def normed(power: float) -> nn.Module:
            return BalancedHead(normalise_last_layer(head.head, power), torch.zeros_like(head.log_mass_m))

        if len(rows) == 0:
            return normed(1.0)
        weight = (1 / np.maximum(np.bincount(y), 1))[y]

        def loss(power: float) -> float:
            logits = head_outputs(normed(power), encoded.features[rows])
            return float(weight @ nll_per_sample(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), y))

        return normed(min(NORM_POWERS, key=loss))


class PostHoc(Rival):
    """Post-hoc logit adjustment: tau times the log frequencies is taken off the scores of ERM.

    Parameters
    ----------
    tau : float, default=1
        With 1 this is ``ERM`` under the balanced prior.

    References
    ----------
    Menon, Jayasumana, Rawat, Jain, Veit, Kumar: Long-tail learning via logit adjustment, ICLR 2021.
    """

    kind = "post-hoc"
    label = "Post-hoc logit adjustment"
    tuned = None
    trains_encoder = True

    tau: NonNegative = 1.0

    def second_step(self, first: HeadFitter, target: ClassTarget, head: NetworkHead) -> HeadFitter:
        """A share of the log prior is taken off."""
        log_prior_m = torch.log(target.prior_left_by(head)).float()
        return TwoStepFitter(first, lambda _, tau, module: BalancedHead(module, tau * log_prior_m), (self.tau,))

    def adapt(self, head: BalancedHead, encoded: EncodeResult, labels: Labels) -> nn.Module:
        """The same share of what was taken off."""
        return BalancedHead(head.head, self.tau * head.log_mass_m)


def _unadjusted(module: nn.Module, target: ClassTarget) -> nn.Module:
    """A head whose scores are balanced as they are."""
    return BalancedHead(module, torch.zeros(target.n_outputs, device=target.device))


@torch.no_grad()
def normalise_last_layer(head: nn.Module, power: float) -> nn.Module:
    """A copy of a head with class weights divided by a power of their norm, without biases; the mean norm is kept."""
    changed = copy.deepcopy(head)
    _, last = last_layer(changed)
    norm_m1 = last.weight.norm(dim=1, keepdim=True).clamp(min=1e-12)
    mean = norm_m1.mean()
    last.weight.div_(norm_m1**power)
    last.weight.mul_(mean / last.weight.norm(dim=1).mean().clamp(min=1e-12))
    last.bias.zero_()
    return changed


class FirstHeads:
    """Of heads that a second step starts from: the one that each half of the rows likes best, and the one of all.

    Held-out losses of the second step then are of rows that had no part in choosing the first.
    """

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.voters = [*(others for _, others in watched.sides), np.ones(len(watched.weight), dtype=bool)]
        self.lowest = [np.inf] * len(self.voters)
        self.heads: list[nn.Module] = [nn.Identity()] * len(self.voters)

    def __call__(self, head: nn.Module) -> float:
        """Weighted mean of the losses of all rows."""
        watched = self.watched
        losses, weight = watched.losses_of(watched.logits_of(head, watched.every), watched.every), watched.weight
        kept: nn.Module | None = None
        for number, rows in enumerate(self.voters):
            loss = float(weight[rows] @ losses[rows])
            if loss < self.lowest[number]:
                kept = copy.deepcopy(head) if kept is None else kept
                self.lowest[number], self.heads[number] = loss, kept
        return float(weight @ losses)

    def second(self, adapt: Callable[[nn.Module], nn.Module]) -> nn.Module:
        """The second head after the first of all rows; the watch keeps logits of rows after the first of the others."""
        made = {id(head): adapt(head) for head in self.heads}
        logits = [self.watched.logits_of(made[id(head)], self.watched.every) for head in self.heads[:-1]]
        kept = logits[0].clone()
        for one, (mine, _) in zip(logits, self.watched.sides, strict=True):
            kept[mine] = one[mine]
        self.watched.kept = kept
        return made[id(self.heads[-1])]


@dataclass(frozen=True)
class TwoStepFitter:
    """A head made from another one that was fitted first; the setting is that of the second step.

    Parameters
    ----------
    first : fits the first head, under the setting that held-out rows like best.
    adapt : from the sample, a setting and the first head to the second head.
    settings : of the second step.
    first_settings : those found, of which the final fit takes the median.
    """

    first: HeadFitter
    adapt: Callable[[HeadSample, float, nn.Module], nn.Module]
    settings: tuple[float, ...]
    first_settings: list[float] = field(default_factory=list)
    chooses_on_path: ClassVar[bool] = True

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """All settings of the second step, from the best head of the first."""
        if not isinstance(watched, Watched):
            raise TypeError("A second step needs held-out rows.")
        first = FirstHeads(watched)
        tried = [(first(head), setting) for setting, head in self.first.path(sample, first)]
        self.first_settings.append(min(tried)[1])
        for setting in self.settings:
            yield setting, first.second(partial(self.adapt, sample, setting))

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Both steps on all rows."""
        return self.adapt(sample, setting, self.first.fit(sample, float(np.median(self.first_settings))))
