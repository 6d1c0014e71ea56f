"""Rivals that change what a step of training minimises: mixup and remix, virtual adversarial training, and ISDA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, ClassVar

import torch
from sklearn.base import clone
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.randomness import generator_on
from ecrt.rivals.base import Number, Rival, Space
from ecrt.stages import Encoder
from ecrt.stages.heads import BatchRisk, HeadLoss, HeadSample, last_layer, mixup_risk
from ecrt.stages.parts import Count, NonNegative, Positive, Share

Function = Callable[[Tensor], Tensor]
Divergence = Callable[[Tensor, Tensor], Tensor]
"""Of logits from others that are held fixed, one value for each sample."""

BetaParameter = Annotated[float, Interval(Real, 0, 1e6, closed="right")]

MOST_COVARIANCES = 4_000_000
"""ISDA takes the class covariances in full up to this many entries in all, and variances alone beyond."""

# --- mixup ------------------------------------------------------------------------------------------


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


# --- virtual adversarial training -------------------------------------------------------------------


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
            s = sample.s[rows]
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


# --- implicit semantic data augmentation ------------------------------------------------------------


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
        logits = last(body(sample.s[rows])) + 0.5 * self.strength * done * shift_ym[y]
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
