"""Second steps: what is made of a head once it is fitted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, cast

import numpy as np
import torch
from torch import nn

from ecrt.losses import make_class_loss
from ecrt.metrics import nll_per_sample
from ecrt.nn import BalancedHead
from ecrt.rivals.base import Labels, Rival
from ecrt.stages import EncodeResult, head_outputs
from ecrt.stages.heads import (
    WEIGHT_DECAYS,
    HeadFitter,
    HeadSample,
    LinearFitter,
    NetworkHead,
    Watch,
    last_layer,
)
from ecrt.stages.holdout import Watched
from ecrt.stages.parts import NonNegative
from ecrt.stages.targets import ClassTarget

NORM_POWERS = tuple(np.linspace(0, 1, 11).round(1).tolist())
"""Powers tried by tau-normalisation."""


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
        losses, weight = self.watched.losses_on(head), self.watched.weight
        kept: nn.Module | None = None
        for number, rows in enumerate(self.voters):
            loss = float(weight[rows] @ losses[rows])
            if loss < self.lowest[number]:
                kept = copy.deepcopy(head) if kept is None else kept
                self.lowest[number], self.heads[number] = loss, kept
        return float(weight @ losses)

    def second(self, adapt: Callable[[nn.Module], nn.Module]) -> nn.Module:
        """The second head after the first of all rows; the watch keeps losses of rows after the first of the others."""
        made = {id(head): adapt(head) for head in self.heads}
        losses = np.empty(len(self.watched.weight))
        for head, (mine, _) in zip(self.heads[:-1], self.watched.sides, strict=True):
            losses[mine] = self.watched.losses_on(made[id(head)])[mine]
        self.watched.kept = losses
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
