"""Other people's risks: remix, virtual adversarial training and ISDA, for heads that are trained by steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.losses.isda import isda_shift
from ecrt.losses.mixing import remix_label_share
from ecrt.losses.smoothness import Divergence, kl_divergence, virtual_adversarial_loss
from ecrt.nn.randomness import generator_on
from ecrt.stages.heads import BatchRisk, HeadLoss, HeadSample, last_layer, mixup_risk, plain_risk

__all__ = ["RISK_OPTIONS", "RiskName", "make_risk"]

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


def make_risk(
    kind: RiskName,
    loss: HeadLoss,
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
    if kind == "vat":
        return _AdversarialRisk(loss, chosen, divergence)
    if kind == "isda":
        return _ISDARisk(loss, len(counts_m), chosen["strength"])
    if kind == "plain":
        return plain_risk(loss)
    if kind == "mixup":
        return mixup_risk(loss, chosen["alpha"], chosen["off"])

    def share_of_label(share: Tensor, y: Tensor, partner: Tensor) -> Tensor:
        counts = counts_m.to(share)
        return remix_label_share(share, counts[y], counts[partner], chosen["kappa"], chosen["tau"])

    return mixup_risk(loss, chosen["alpha"], chosen["off"], share_of_label)


@dataclass(frozen=True)
class _AdversarialRisk:
    """The loss, plus the virtual adversarial one of every row, at the input of the head and without dropout."""

    loss: HeadLoss
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

    loss: HeadLoss
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
