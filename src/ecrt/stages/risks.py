"""What a step of training minimises: the plain loss, or one on mixed, perturbed or implicitly augmented inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.losses import ClassLoss
from ecrt.losses.isda import isda_shift
from ecrt.losses.mixing import mix, mixed_loss, remix_label_share
from ecrt.losses.smoothness import Divergence, kl_divergence, virtual_adversarial_loss
from ecrt.nn.randomness import generator_on

__all__ = ["RISK_OPTIONS", "BatchRisk", "HeadSample", "RiskName", "last_layer", "make_risk", "plain_risk"]

RiskName = Literal["plain", "mixup", "remix", "vat", "isda"]

RISK_OPTIONS: dict[RiskName, dict[str, float]] = {
    "plain": {},
    "mixup": {"alpha": 0.2, "off": 0.0},
    "remix": {"alpha": 1.0, "off": 0.0, "kappa": 3.0, "tau": 0.5},
    "vat": {"epsilon": 0.2, "xi": 1e-2, "power_iterations": 1, "weight": 1.0},
    "isda": {"strength": 0.5},
}
"""The options of each risk, with their defaults.

``alpha`` is the parameter of mixup's Beta distribution and ``off`` the share of the epochs, the last ones, without it;
VAT's step has length ``epsilon`` times the root of the number of inputs, which are standardised.
"""

MOST_COVARIANCES = 4_000_000
"""Entries of all class covariances up to which ISDA takes them in full; beyond, variances alone."""


@dataclass(frozen=True)
class HeadSample:
    """Rows that a head learns from: scaled sources, targets, weights that sum to one, and what is synthetic.

    Targets are class indices, codes of all labels where a row may have several, or standardised numbers. ``variance``
    and ``between``, for Gaussian heads: of the scaled sources within classes, and of class means.
    """

    s: Tensor
    y: Tensor
    weight: Tensor
    synthetic: Tensor
    variance: Tensor | None = None
    between: Tensor | None = None


class BatchRisk(Protocol):
    """Weighted losses of a batch."""

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        """One value for each of the rows, its weight included; ``done`` is the share of training that lies behind."""


def plain_risk(loss: Callable[[Tensor, Tensor], Tensor]) -> BatchRisk:
    """The loss times the weight of the row."""

    def risk(head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        return loss(head(sample.s[rows]), sample.y[rows]) * sample.weight[rows]

    return risk


def make_risk(
    kind: RiskName,
    loss: ClassLoss,
    counts_m: Tensor,
    options: Mapping[str, float],
    divergence: Divergence = kl_divergence,
) -> BatchRisk:
    """A risk for one run of training, over any loss; ``divergence`` is what VAT keeps small."""
    if kind not in RISK_OPTIONS:
        raise InputError(f"risk={kind!r}: choose one of {sorted(RISK_OPTIONS)}.")
    unknown = sorted(set(options) - set(RISK_OPTIONS[kind]))
    if unknown:
        raise InputError(f"{kind!r} has no option {unknown[0]!r}: it takes {sorted(RISK_OPTIONS[kind])}.")
    chosen = {**RISK_OPTIONS[kind], **options}
    if kind in ("mixup", "remix"):
        return _MixupRisk(loss, counts_m if kind == "remix" else None, chosen)
    if kind == "vat":
        return _AdversarialRisk(loss, chosen, divergence)
    if kind == "isda":
        return _ISDARisk(loss, len(counts_m), chosen["strength"])

    def risk(head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        return loss(head(sample.s[rows]), sample.y[rows], done) * sample.weight[rows]

    return risk


@dataclass(frozen=True)
class _MixupRisk:
    """Mixup, or remix where counts are given; it acts on the input of the head, each row with a share of its own."""

    loss: ClassLoss
    counts_m: Tensor | None
    options: Mapping[str, float]

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        s, y, weight = sample.s[rows], sample.y[rows], sample.weight[rows]
        if done >= 1 - self.options["off"]:
            return self.loss(head(s), y, done) * weight
        alpha = torch.full_like(weight, self.options["alpha"])
        share = torch._sample_dirichlet(torch.stack([alpha, alpha], dim=-1), generator_on(alpha.device))[..., 0]
        partner = torch.randperm(len(rows), generator=generator_on(torch.device("cpu"))).to(rows.device)
        label_share = share
        if self.counts_m is not None:
            counts = self.counts_m.to(share)
            label_share = remix_label_share(
                share, counts[y], counts[y[partner]], self.options["kappa"], self.options["tau"]
            )
        first, second = mixed_loss(self.loss, head(mix(s, s[partner], share)), y, y[partner], label_share, done)
        return first * weight + second * weight[partner]


@dataclass(frozen=True)
class _AdversarialRisk:
    """The loss, plus the virtual adversarial one of every row alike, at the input of the head and without dropout."""

    loss: ClassLoss
    options: Mapping[str, float]
    divergence: Divergence

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        s = sample.s[rows]
        plain = self.loss(head(s), sample.y[rows], done) * sample.weight[rows]
        training = head.training
        head.eval()  # dropout would make two predictions differ by itself
        roughness = virtual_adversarial_loss(
            head, s, torch.randn(s.shape, generator=generator_on(s.device), dtype=s.dtype, device=s.device),
            epsilon=self.options["epsilon"] * s[0].numel() ** 0.5, xi=self.options["xi"],
            power_iterations=int(self.options["power_iterations"]), divergence=self.divergence,
        )  # fmt: skip
        head.train(training)
        return plain + self.options["weight"] * roughness / len(sample.y)


@dataclass
class _ISDARisk:
    """ISDA: class covariances of what enters the last layer, taken anew over all rows once an epoch.

    The strength grows from nothing with the share of training done, as in the paper. Its authors update covariances by
    batches; all rows are at hand here.
    """

    loss: ClassLoss
    n_classes: int
    strength: float
    calls: int = field(default=0, init=False)
    covariance: Tensor | None = field(default=None, init=False)

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
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


def last_layer(head: nn.Module) -> tuple[Callable[[Tensor], Tensor], nn.Linear]:
    """A head as what comes before its last layer, and that layer."""
    if isinstance(head, nn.Linear):
        return lambda s: s, head
    layers = list(head.children())
    if not layers or not isinstance(layers[-1], nn.Linear):
        raise InputError(f"{type(head).__name__} does not end in a linear layer.")

    def body(s: Tensor) -> Tensor:
        for layer in layers[:-1]:
            s = layer(s)
        return s

    return body, layers[-1]
