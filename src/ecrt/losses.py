"""Losses: pure functions, one equation each. They return one value for each sample; nothing is reduced here.

A loss for classes has a name. :func:`loss_rule` gives it as a :class:`LossRule`, which says how it is bound to the
class counts and what its trained logits mean, so that every method can be asked for the same prior.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn

from ecrt.arrays import Array
from ecrt.errors import InputError, code_of_user

ClassLoss = Callable[..., Tensor]
"""Logits, labels and the share of training that lies behind (1 if left out) to one loss for each sample."""

LossName = Literal[
    "cross-entropy", "hinge", "weighted", "class-balanced", "focal", "ldam", "ldam-drw", "logit-adjusted"
]

LOSS_OPTIONS: dict[str, dict[str, float]] = {
    "cross-entropy": {},
    "hinge": {},
    "weighted": {},
    "class-balanced": {"beta": 0.9999},
    "focal": {"gamma": 2.0},
    "ldam": {"largest_margin": 0.5, "scale": 1.0},
    "ldam-drw": {"largest_margin": 0.5, "scale": 1.0, "beta": 0.9999, "reweight_from": 0.8},
    "logit-adjusted": {"tau": 1.0},
}
"""The options of each loss for classes, with their defaults."""

SHORT_ROW = 16
"""Rows of fewer numbers than this go through torch's softmax one number at a time, unless they lie side by side."""


# --- de-mixing: which label belongs to which source vector (nonlinear ICA) -------------------------------------------

# Scores g are those of the critic over its temperature: ``scores_bb[i, j]`` of sample i and the label of sample j,
# ``scores_bm[i, m]`` of sample i and label m.


def gcl_in_batch(positive_b: Tensor, negative_b: Tensor) -> Tensor:
    r"""Generalised contrastive learning, Eq. 1: :math:`h(-r(y_i, z_i)) + h(r(y_j, z_i))`, h the softplus.

    The negative label comes from the label marginal: permute the labels of the batch. A label that happens to equal
    the true one stays, as the density ratio p(z, y) / p(z) p(y) asks.
    """
    return nn.functional.softplus(-positive_b) + nn.functional.softplus(negative_b)


def gcl_exact(scores_bm: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
    r"""Eq. 1 with the expectation over the label marginal p(m) in place of one sampled negative label.

    .. math:: h(-r(y_i, z_i)) + \sum_m p(m) h(r(m, z_i))
    """
    positive_b = scores_bm.gather(1, y_b[:, None]).squeeze(1)
    return nn.functional.softplus(-positive_b) + nn.functional.softplus(scores_bm) @ label_prior_m


def fdv_in_batch(scores_bb: Tensor, first: int = 0) -> Tensor:
    r"""Fenchel-Donsker-Varadhan, Eq. 4 (negated, to be minimised), with all other labels of the batch as negatives.

    With :math:`D_i = \sum_{j \ne i} e^{g_{ij} - g_{ii}}` the value is :math:`-I_{DV} = \log(D_i / (B - 1))` and the
    gradient that of :math:`\log D_i`: the log is detached and the ratio of :math:`D_i` to its detached self, minus 1,
    is added. The supplement's "-1" is used; the main text's "+1" is a misprint. Sample i itself is no negative: with
    it this would be InfoNCE.

    Scores may be of some samples with the labels of a whole batch, among which that of sample 0 is ``first``.
    """
    size = scores_bb.shape[1]
    if size < 2:
        return scores_bb.new_zeros(0)
    contrast_bb = scores_bb - scores_bb.diagonal(first)[:, None]
    own_bb = torch.eye(size, dtype=torch.bool, device=scores_bb.device)[first : first + len(scores_bb)]
    contrast_bb = contrast_bb.masked_fill(own_bb, -torch.inf)
    log_sum_b = torch.logsumexp(contrast_bb, dim=1).detach()
    ratio_b = torch.exp(contrast_bb - log_sum_b[:, None]).sum(1)
    return log_sum_b - math.log(size - 1) + ratio_b - 1


def fdv_own_label(scores_bb: Tensor, labels_b: Tensor, label_prior_m: Tensor, first: int = 0) -> Tensor:
    r"""FDV for more labels than a batch holds: negatives from the batch, but for a sample's own label, taken exactly.

    .. math:: \log\bigl(p(y_i) + (1 - p(y_i)) \, \mathrm{mean}_{j: y_j \ne y_i} e^{g_{ij} - g_{ii}}\bigr)

    Among labels drawn from the marginal a sample's own comes up with probability :math:`p(y_i)`. That rare event alone
    bounds the objective, at :math:`\log p(y_i)`; where a batch is too small to see it, :func:`fdv_in_batch` falls
    without end, scores growing, while every label that the batch happened to leave out is scored at random. This is
    the same expectation with that event summed and the others sampled.

    As in :func:`fdv_in_batch`, scores may be of some samples from ``first`` on, with the labels of a whole batch.
    """
    y_b = labels_b[first : first + len(scores_bb)]
    same_bb = y_b[:, None] == labels_b
    contrast_bb = (scores_bb - scores_bb.diagonal(first)[:, None]).masked_fill(
        same_bb, torch.finfo(scores_bb.dtype).min
    )
    others_b = (~same_bb).sum(1).clamp(min=1).to(scores_bb.dtype)
    own_b = label_prior_m[y_b]
    return torch.logaddexp(
        torch.log(own_b), torch.logsumexp(contrast_bb, dim=1) - torch.log(others_b) + torch.log1p(-own_b)
    )


def infonce_in_batch(scores_bb: Tensor, first: int = 0) -> Tensor:
    r"""InfoNCE: as :func:`fdv_in_batch`, but with sample i among its own negatives.

    .. math:: -g_{ii} + \log \mathrm{mean}_j e^{g_{ij}}
    """
    log_mean_b = torch.logsumexp(scores_bb, dim=1) - math.log(scores_bb.shape[1])
    return log_mean_b - scores_bb.diagonal(first)


def dv_exact(scores_bm: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
    r"""Donsker-Varadhan with the exact label marginal: :math:`-g(y_i, z_i) + \log \sum_m p(m) e^{g(m, z_i)}`.

    The limit of FDV and of InfoNCE for many negatives, without sampling noise. It is the cross-entropy of a
    classifier with logits g + log p, less the constant -log p(y_i).
    """
    positive_b = scores_bm.gather(1, y_b[:, None]).squeeze(1)
    return torch.logsumexp(scores_bm + torch.log(label_prior_m), dim=1) - positive_b


def flow_nll(log_density_n: Tensor, log_det_n: Tensor, n_features: int) -> Tensor:
    r"""Negative log-likelihood in feature space, per dimension: :math:`-(\log p(s|y) + \log|\det J_f(z)|) / d`.

    Eq. 5 has no 1/d; dividing makes one likelihood weight serve all dimensions.
    """
    return -(log_density_n + log_det_n) / n_features


# --- classes ---------------------------------------------------------------------------------------------------------


def cross_entropy(logits_nm: Tensor, y_n: Tensor) -> Tensor:
    """Softmax cross-entropy."""
    return nn.functional.cross_entropy(logits_nm, y_n, reduction="none")


def class_logits(s_nd: Tensor, weight_md: Tensor, bias_m: Tensor) -> Tensor:
    """A linear map to the logits of classes, laid out in memory as ``log_softmax`` takes them."""
    if len(weight_md) >= SHORT_ROW:
        return torch.addmm(bias_m, s_nd, weight_md.T)
    return torch.addmm(bias_m[:, None], weight_md, s_nd.T).T


def log_softmax(logits_nm: Tensor) -> Tensor:
    """Log-probabilities of the classes."""
    if logits_nm.is_cuda or logits_nm.shape[1] >= SHORT_ROW:
        return torch.log_softmax(logits_nm, dim=1)
    return torch.log_softmax(logits_nm.T.contiguous(), dim=0).T


def cross_entropy_slopes(logits_nm: Tensor, y_n: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax cross-entropy without a graph, and its derivatives by the logits: probabilities less the truth."""
    log_p_nm, true_n1 = log_softmax(logits_nm), y_n[:, None]
    losses_n = -log_p_nm.gather(1, true_n1)[:, 0]
    return losses_n, log_p_nm.exp_().scatter_add_(1, true_n1, log_p_nm.new_full((1, 1), -1.0).expand_as(true_n1))


def hinge(logits_nm: Tensor, y_n: Tensor) -> Tensor:
    """Multi-class hinge (Crammer and Singer, 2001): the best wrong logit must stay one below the true one."""
    true_n = logits_nm.gather(1, y_n[:, None]).squeeze(1)
    wrong_nm = logits_nm.scatter(1, y_n[:, None], -torch.inf)
    return torch.relu(1 + wrong_nm.amax(1) - true_n)


def logit_adjusted(logits_nm: Tensor, y_n: Tensor, label_prior_m: Tensor, tau: float = 1.0) -> Tensor:
    """Cross-entropy of logits + tau log p (Menon et al., 2021), so that the logits themselves are balanced ones."""
    return cross_entropy(logits_nm + _like(tau * torch.log(label_prior_m), logits_nm), y_n)


def focal(logits_nm: Tensor, y_n: Tensor, gamma: float = 2.0) -> Tensor:
    r"""Cross-entropy that fades for samples already right: :math:`(1 - p_y)^\gamma (-\log p_y)`.

    The paper's class weight alpha is left at one: weights are a separate choice here.

    References
    ----------
    Lin, Goyal, Girshick, He, Dollar: Focal loss for dense object detection, ICCV 2017, Eq. 4.
    """
    loss_n = cross_entropy(logits_nm, y_n)
    # -expm1(-loss) is 1 - p; the floor keeps the power's slope finite where p rounds to one
    wrong_n = (-torch.expm1(-loss_n)).clamp(min=torch.finfo(loss_n.dtype).tiny)
    return wrong_n**gamma * loss_n


def ldam_margins(counts_m: Tensor, largest: float = 0.5) -> Tensor:
    """Margins as n_m^(-1/4), scaled so that the rarest class has the largest (Cao et al., 2019, Eq. 13)."""
    margin_m = _counted(counts_m) ** -0.25
    return margin_m * (largest / margin_m.max())


def ldam(logits_nm: Tensor, y_n: Tensor, margin_m: Tensor) -> Tensor:
    r"""Cross-entropy after the true logit was lowered by the margin of its class.

    The paper's logits are cosines of a normalised head times a scale s = 30, and its margins (0.5 at most) are in
    units of cosine. That scale belongs to the head: logits come here as the head gives them, and margins in the same
    units, so with a cosine head of scale 30 the margins are 30 times larger (15 at most). A linear head has no such
    unit: its margins stay 0.5 at most, on the logits themselves.

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma: Learning imbalanced datasets with label-distribution-aware margin loss,
    NeurIPS 2019.
    """
    lowered_n1 = logits_nm.gather(1, y_n[:, None]) - margin_m[y_n][:, None]
    return cross_entropy(logits_nm.scatter(1, y_n[:, None], lowered_n1.to(logits_nm.dtype)), y_n)


def _counted(counts_m: Tensor) -> Tensor:
    """Counts in double precision; a class without samples counts as one, whatever weights the others have."""
    n_m = counts_m.double()
    return torch.where(n_m > 0, n_m, 1.0)


def importance_weights(counts_m: Tensor) -> Tensor:
    """n / (M n_m): every class has the same weight in all, and the mean weight of a sample is one."""
    n_m = _counted(counts_m)
    return n_m.sum() / (len(n_m) * n_m)


def effective_number_weights(counts_m: Tensor, beta: float = 0.9999) -> Tensor:
    r"""Class-balanced weights: the inverse of the effective number of samples, :math:`(1 - \beta) / (1 - \beta^{n_m})`.

    Between no weights (beta = 0) and importance weights (beta towards 1). The paper lets weights sum to M; here the
    mean weight of a *sample* is one, so that step size and weight decay mean the same under every weighting.

    References
    ----------
    Cui, Jia, Lin, Song, Belongie: Class-balanced loss based on effective number of samples, CVPR 2019, Eq. 2.
    """
    n_m = _counted(counts_m)
    if not 0 <= beta < 1:
        raise InputError(f"beta={beta!r}: the class-balanced weights need a number from 0 up to, but not including, 1.")
    weight_m = (1 - beta) / (1 - beta**n_m)
    return weight_m * (n_m.sum() / (n_m @ weight_m))


@dataclass(frozen=True)
class _BoundLoss:
    """A loss of logits and labels, weighted from some share of training on."""

    per_sample: Callable[[Tensor, Tensor], Tensor]
    weight_m: Tensor | None = None
    weighted_from: float = 0.0

    def __call__(self, logits_nm: Tensor, y_n: Tensor, done: float = 1.0) -> Tensor:
        losses_n = self.per_sample(logits_nm, y_n)
        if self.weight_m is None or done < self.weighted_from:
            return losses_n
        return losses_n * _like(self.weight_m, losses_n)[y_n]


def _like(values_m: Tensor, reference: Tensor) -> Tensor:
    """On the same device and in the same precision, but never below float32."""
    return values_m.to(reference.device, torch.promote_types(reference.dtype, torch.float32))


def check_loss(
    name: str, options: Mapping[str, float] | None = None, losses: Mapping[str, dict[str, float]] = LOSS_OPTIONS
) -> dict[str, float]:
    """All options of one of the losses, defaults filled in; an unknown loss or option is refused."""
    if name not in losses:
        raise InputError(f"loss={name!r}: choose one of {sorted(losses)}.")
    known = losses[name]
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        takes = f"it takes {sorted(known)}" if known else "it takes none"
        raise InputError(f"loss={name!r} has no option {unknown[0]!r}: {takes}.")
    for option, value in (options or {}).items():
        if not isinstance(value, Real) or not 0 <= value < math.inf:
            raise InputError(f"loss={name!r}: {option} must be a finite number from 0 on, got {value!r}.")
    return {**known, **(options or {})}


def make_class_loss(name: LossName, counts_m: Tensor, **options: float) -> ClassLoss:
    """Bind a loss to class counts (a class without samples counts as one).

    Parameters
    ----------
    name : ``"weighted"`` is importance-weighted cross-entropy, ``"class-balanced"`` has the weights of
        :func:`effective_number_weights`; ``"ldam-drw"`` has those weights from the share ``reweight_from`` of training
        on (deferred re-weighting); the others are the functions of this module.
    counts_m : samples of each class.
    options : of that loss, see ``LOSS_OPTIONS``; ``tau`` multiplies the log prior of logit adjustment, ``scale`` is
        that of a cosine head whose logits LDAM is given.
    """
    chosen = check_loss(name, options)
    n_m = _counted(counts_m)
    if name == "cross-entropy":
        return _BoundLoss(cross_entropy)
    if name == "hinge":
        return _BoundLoss(hinge)
    if name == "weighted":
        return _BoundLoss(cross_entropy, importance_weights(n_m))
    if name == "class-balanced":
        return _BoundLoss(cross_entropy, effective_number_weights(n_m, chosen["beta"]))
    if name == "focal":
        return _BoundLoss(lambda logits_nm, y_n: focal(logits_nm, y_n, chosen["gamma"]))
    if name in ("ldam", "ldam-drw"):
        margin_m = chosen["scale"] * ldam_margins(n_m, chosen["largest_margin"])
        weight_m = effective_number_weights(n_m, chosen["beta"]) if name == "ldam-drw" else None
        return _BoundLoss(
            lambda logits_nm, y_n: ldam(logits_nm, y_n, _like(margin_m, logits_nm)),
            weight_m,
            chosen.get("reweight_from", 0.0),
        )
    prior_m, tau = training_prior(counts_m), chosen["tau"]
    return _BoundLoss(lambda logits_nm, y_n: logit_adjusted(logits_nm, y_n, prior_m, tau))


def training_prior(counts_m: Tensor) -> Tensor:
    """Class frequencies; a class without samples counts as one."""
    n_m = _counted(counts_m)
    return n_m / n_m.sum()


def _log_prior(counts_m: Tensor, tau: float) -> Tensor:
    """Of the classes, times tau."""
    return tau * torch.log(training_prior(counts_m))


def effective_prior(name: LossName, counts_m: Tensor, **options: float) -> Tensor:
    r"""The class prior that logits trained under a loss assume; log of it taken off gives balanced logits.

    Weights turn the frequencies :math:`\pi_m` into :math:`\pi_m w_m`; adjustment by tau leaves :math:`\pi_m^{1-\tau}`.
    Focal, LDAM and hinge losses are improper, and their logits are no log-posteriors under any prior: what is
    returned for them is the frequency under which their classes were weighed.
    """
    chosen, prior_m = check_loss(name, options), training_prior(counts_m)
    if name == "weighted":
        return torch.full_like(prior_m, 1 / len(prior_m))
    if name == "logit-adjusted":
        prior_m = prior_m ** (1 - chosen["tau"])
    elif name == "class-balanced" or (name == "ldam-drw" and chosen["reweight_from"] <= 1):
        prior_m = prior_m * effective_number_weights(counts_m, chosen["beta"])
    return prior_m / prior_m.sum()


@dataclass(frozen=True, kw_only=True)
class LossRule:
    """A loss for classes, before it knows how many samples each class has.

    Attributes
    ----------
    bind : from class counts to the loss of each sample.
    prior : from class counts to the class prior that trained logits assume.
    proper : whether trained logits are log-probabilities under that prior; others are given a temperature.
    smooth : whether a linear head can be fitted at once, by L-BFGS.
    changes : whether the loss changes in the course of training, which then never stops early.
    shift : from class counts to what is added to logits, if the loss is the cross-entropy of these sums; their slopes
        are then known.
    """

    bind: Callable[[Tensor], ClassLoss]
    prior: Callable[[Tensor], Tensor] = training_prior
    proper: bool = True
    smooth: bool = True
    changes: bool = False
    shift: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        for name in ("bind", "prior"):
            if not callable(getattr(self, name)):
                raise InputError(f"LossRule: {name} must be a function of class counts; got {getattr(self, name)!r}.")

    def tried(self, counts_m: Tensor) -> ClassLoss:
        """The loss with the class counts in it, tried on two rows: trouble is better found here than in training."""
        who = f"loss={getattr(self.bind, '__name__', self.bind)}"
        logits_2m = torch.zeros(2, len(counts_m), device=counts_m.device)
        with code_of_user(f"{who}: bind or prior of the class counts"):
            loss: Any = self.bind(counts_m)
            prior_m = torch.as_tensor(self.prior(counts_m))
        if prior_m.shape != counts_m.shape or not ((prior_m > 0) & prior_m.isfinite()).all():
            raise InputError(
                f"{who}: prior gave {prior_m}; a positive number for each of {len(counts_m)} classes is needed."
            )
        with torch.enable_grad(), code_of_user(f"{who}: loss(logits, y, done) of 2 rows"):
            y = torch.tensor([0, len(counts_m) - 1], device=logits_2m.device)
            found: Any = loss(logits_2m.requires_grad_(), y, 0.0)
        if not isinstance(found, Tensor) or found.shape != (2,) or not found.requires_grad:
            gave = f"a {type(found).__name__}"
            if isinstance(found, Tensor):
                gave = f"a tensor of shape {tuple(found.shape)}" + " without a gradient" * (not found.requires_grad)
            raise InputError(f"{who}: of 2 rows it gave {gave}; a tensor of shape (2,) with a gradient is needed.")
        return loss


def loss_rule(name: str | LossRule, options: Mapping[str, float] | None = None) -> LossRule:
    """A loss by its name, or a rule as it is; an unknown name or option is refused."""
    if isinstance(name, LossRule):
        if options:
            raise InputError("A LossRule has no options: leave loss_options out.")
        return name
    chosen = check_loss(name, options)
    tau = {"cross-entropy": 0.0, "logit-adjusted": chosen.get("tau")}.get(name)
    return LossRule(
        bind=partial(make_class_loss, name, **(options or {})),  # type: ignore[arg-type]
        prior=partial(effective_prior, name, **(options or {})),  # type: ignore[arg-type]
        proper=name not in ("hinge", "focal", "ldam", "ldam-drw"),
        smooth=name != "hinge",
        changes=name == "ldam-drw",
        shift=None if tau is None else partial(_log_prior, tau=tau),
    )


# --- mixup -----------------------------------------------------------------------------------------------------------


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


# --- weights of samples ----------------------------------------------------------------------------------------------

ClassMass = Literal["training", "tempered", "balanced"]


def class_mass(counts_m: Tensor, mass: ClassMass) -> Tensor:
    """w_m: ``"training"`` gives n_m / n (empirical risk), ``"balanced"`` 1 / M (importance weighting); sums to one.

    ``"tempered"`` is their geometric mean, as the square root of n_m.
    """
    if mass == "tempered":
        root_m = counts_m.double().sqrt()
        return root_m / root_m.sum()
    if mass == "balanced":
        return torch.full_like(counts_m, 1 / len(counts_m), dtype=torch.float64)
    return counts_m.double() / counts_m.sum()


def sample_weights(y_n: Tensor, synthetic_n: Tensor, mass_m: Tensor, augmentation_weight_m: Tensor) -> Tensor:
    r"""Weights under which the sum of losses is the augmented risk, Eq. 3; those of a class sum to its mass exactly.

    .. math:: L = \sum_m w_m [(1 - \lambda_m) \mathrm{mean}_{real} + \lambda_m \mathrm{mean}_{synthetic}]

    Read literally, Eq. 3 gives real minority samples the coefficient n_m/n - lambda, which can be negative, and
    Algorithm 1 adds mass instead of moving it. Here synthetic samples replace a share lambda_m of a class's mass and
    never change the mass itself.

    Parameters
    ----------
    y_n : labels of real and synthetic samples together.
    synthetic_n : which of them are synthetic.
    mass_m : w_m.
    augmentation_weight_m : lambda_m; it counts as 0 for classes without synthetic samples and as 1 for classes
        without real ones.
    """
    n_classes = len(mass_m)
    n_real_m = torch.bincount(y_n[~synthetic_n], minlength=n_classes).double()
    n_synthetic_m = torch.bincount(y_n[synthetic_n], minlength=n_classes).double()
    share_m = torch.where(n_synthetic_m > 0, augmentation_weight_m.double(), torch.zeros_like(n_real_m))
    share_m = torch.where(n_real_m > 0, share_m, torch.ones_like(share_m))
    real_m = mass_m * (1 - share_m) / n_real_m.clamp(min=1)
    artificial_m = mass_m * share_m / n_synthetic_m.clamp(min=1)
    return torch.where(synthetic_n, artificial_m[y_n], real_m[y_n])


# --- labels, any number for each row ---------------------------------------------------------------------------------

UNKNOWN, ABSENT, PRESENT, SYNTHETIC = -1, 0, 1, 2
"""Targets of a row and a label. A synthetic row of a label says that it holds, and nothing of the other labels."""


def masked_bce(logits_nm: Tensor, target_nm: Tensor, log_odds_m: Tensor, real_share_m: Tensor) -> Tensor:
    r"""Adjusted binary cross-entropy of each row, summed over its known labels.

    With :math:`l = logit + \log(\pi / (1 - \pi))` a label that is absent costs :math:`h(l)`, one that is present
    :math:`(1 - \lambda_m) h(-l)`, and that of a synthetic row :math:`h(-l)` on its own column alone; h is the softplus.

    Parameters
    ----------
    target_nm : ``ABSENT``, ``PRESENT``, ``SYNTHETIC`` (present, in a synthetic row) or ``UNKNOWN`` (no loss).
    log_odds_m : log-odds of each label's frequency, so that the logits themselves are free of it; 0 for none.
    real_share_m : 1 - lambda_m, the share of a label's positive mass that real rows hold.
    """
    shifted_nm = logits_nm + log_odds_m
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    # softplus(-l) = softplus(l) - l: one softplus serves both signs
    losses_nm = nn.functional.softplus(shifted_nm) * (positive_nm + absent_nm) - shifted_nm * positive_nm
    return losses_nm.sum(1)


def masked_focal(logits_nm: Tensor, target_nm: Tensor, real_share_m: Tensor, gamma: float = 2.0) -> Tensor:
    r"""Focal loss of each label on its own, which is how it was proposed: :math:`(1 - p)^\gamma (-\log p)`.

    p is the probability of what holds, that the label is present or that it is absent.

    References
    ----------
    Lin, Goyal, Girshick, He, Dollar: Focal loss for dense object detection, ICCV 2017, Eq. 4.
    """
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    log_present_nm, log_absent_nm = nn.functional.logsigmoid(logits_nm), nn.functional.logsigmoid(-logits_nm)
    faded_nm = (gamma * log_absent_nm).exp() * log_present_nm * positive_nm
    faded_nm = faded_nm + (gamma * log_present_nm).exp() * log_absent_nm * absent_nm
    return -faded_nm.sum(1)


def label_margins(counts_m: Tensor, n_rows: int, largest: float = 0.5) -> tuple[Tensor, Tensor]:
    """LDAM's margins where every label is a problem of two classes: of presence, and of absence."""
    present_m, absent_m = ldam_margins(torch.cat([counts_m, n_rows - counts_m]), largest).chunk(2)
    return present_m, absent_m


def masked_ldam(
    logits_nm: Tensor, target_nm: Tensor, real_share_m: Tensor, present_margin_m: Tensor, absent_margin_m: Tensor
) -> Tensor:
    """Binary cross-entropy after each logit was moved to the wrong side by the margin of what holds.

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma: Learning imbalanced datasets with label-distribution-aware margin loss,
    NeurIPS 2019.
    """
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    present_nm = nn.functional.softplus(present_margin_m - logits_nm) * positive_nm
    return (present_nm + nn.functional.softplus(logits_nm + absent_margin_m) * absent_nm).sum(1)


def _shares(target_nm: Tensor, real_share_m: Tensor) -> tuple[Tensor, Tensor]:
    """How much each entry counts as present, and as absent."""
    return (target_nm == PRESENT) * real_share_m + (target_nm == SYNTHETIC), target_nm == ABSENT


def row_mass(indicator: sparse.csr_array, mass: ClassMass) -> Array:
    r"""Weights of rows that sum to one: all equal, or as if a label were drawn first and then a row that has it.

    The latter, ``"balanced"``, is :math:`w_i = \frac1M \sum_{m \in i} 1 / n_m` over the M labels that occur; rows
    without labels get nothing. With one label for each row it gives every class the mass 1 / M. ``"tempered"`` is the
    geometric mean of both.

    >>> row_mass(sparse.csr_array(np.array([[1, 0], [1, 0], [1, 1]])), "balanced").round(3).tolist()
    [0.167, 0.167, 0.667]
    """
    n = indicator.shape[0]
    counts = np.asarray(indicator.sum(axis=0), dtype=np.float64).ravel()
    if mass == "training" or not counts.any():
        return np.full(n, 1 / n)
    inverse = np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)
    weight = np.asarray(indicator @ inverse, dtype=np.float64) / (counts > 0).sum()
    if mass == "tempered":
        weight = np.sqrt(weight) / np.sqrt(weight).sum()
    return weight


def label_odds(indicator: sparse.csr_array, weight: Array | None = None, multiple: Array | float = 1.0) -> Array:
    """Log-odds of each label's frequency among rows of such weights; half a row more on either side keeps it finite.

    ``multiple``: by which the rows that have a label count more, where synthetic ones are added to them.

    >>> label_odds(sparse.csr_array(np.array([[1, 0], [0, 0]]))).round(3).tolist()
    [0.0, -1.609]
    """
    n = indicator.shape[0]
    weight = np.full(n, 1 / n) if weight is None else weight
    present = n * np.asarray(indicator.T @ weight, dtype=np.float64)
    return np.asarray(np.log((present * multiple + 0.5) / (np.maximum(n - present, 0.0) + 0.5)))


# --- numbers ---------------------------------------------------------------------------------------------------------

RegressionLoss = Literal["squared", "absolute", "huber"]

REGRESSION_LOSS_OPTIONS: dict[str, dict[str, float]] = {"squared": {}, "absolute": {}, "huber": {"delta": 1.0}}


def regression_loss(name: RegressionLoss, predicted_nk: Tensor, y_nk: Tensor, delta: float = 1.0) -> Tensor:
    """(f - y)^2, the absolute difference or Huber's loss (1964), the mean over outputs.

    Huber's is half the square up to ``delta``, and a straight line of slope ``delta`` beyond.
    """
    if name == "squared":
        return ((predicted_nk - y_nk) ** 2).mean(1)
    if name == "absolute":
        return (predicted_nk - y_nk).abs().mean(1)
    if name == "huber":
        return nn.functional.huber_loss(predicted_nk, y_nk, reduction="none", delta=delta).mean(1)
    raise InputError(f"loss={name!r}: use 'squared', 'absolute' or 'huber'.")
