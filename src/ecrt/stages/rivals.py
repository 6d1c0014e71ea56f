"""Rival heads and rival ways to synthetic rows, for heads that learn from standardised features."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.augmentation.resampling import calibrated_distribution, smote
from ecrt.data import ClassRoles
from ecrt.losses import make_class_loss
from ecrt.nn import BalancedHead
from ecrt.stages.augmenting import Parametric, Synthetic, augment_classes
from ecrt.stages.choosing import Draw, Drawing
from ecrt.stages.demixing import DEMIXING, Demixing, DemixResult, demix
from ecrt.stages.generate import generate_rows
from ecrt.stages.heads import (
    WEIGHT_DECAYS,
    BatchRisk,
    ClassTarget,
    HeadFitter,
    HeadLoss,
    HeadSample,
    LinearFitter,
    LinearHead,
    MLPHead,
    NetworkHead,
    Target,
    TwoStepFitter,
    last_layer,
)
from ecrt.stages.risks import RiskName, make_risk
from ecrt.training import Progress, seeded

__all__ = ["NORM_POWERS", "DrawName", "LinearRival", "MLPRival", "SecondStep", "make_drawing", "normalise_last_layer"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DrawName = Literal["smote", "distribution-calibration", "cgan", "flow-augmentation"]
SecondStep = Literal["crt", "tau-norm", "post-hoc"]

NORM_POWERS = tuple(np.linspace(0, 1, 11).round(1).tolist())
"""Powers tried by tau-normalisation."""


@dataclass(kw_only=True, eq=False, repr=False)
class Rival(NetworkHead):
    """A head under another risk, or with a second step after its fit.

    A second step follows where one is named (Kang et al.: Decoupling representation and classifier for long-tailed
    recognition, ICLR 2020; Menon et al.: Long-tail learning via logit adjustment, ICLR 2021):

    - ``"crt"`` keeps all layers but the last, which is fitted anew with every class at the same weight: by L-BFGS under
      balanced weights, the expectation of the authors' class-balanced sampling. On a linear head nothing is kept.
    - ``"tau-norm"`` divides the weights of each class by a power of their norm and drops the biases; held-out rows
      choose the power, and a common factor, which changes no prediction, keeps the mean norm.
    - ``"post-hoc"`` takes ``tau`` times the log prior off.

    Parameters
    ----------
    risk_name, risk_options : what a step minimises, see :func:`~ecrt.stages.risks.make_risk`.
    second_step, tau : what is made of the head once it is fitted.
    loss, loss_options, class_mass, mixup, weight_decay, epochs, learning_rate
        As in ``LinearHead``.
    """

    risk_name: RiskName = "plain"
    risk_options: Mapping[str, float] | None = None
    second_step: SecondStep | None = None
    tau: float = 1.0

    @property
    def plain(self) -> bool:
        """Whether the risk is the loss itself."""
        return self.risk_name == "plain"

    @property
    def steps_alike(self) -> bool:
        """Whether a step asks nothing of the host."""
        return self.risk_name in ("plain", "vat")

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """What a step minimises."""
        return make_risk(self.risk_name, loss, counts_m, self.risk_options or {})

    def fitter(
        self, target: Target, rng: np.random.Generator, device: torch.device, progress: Progress | None
    ) -> HeadFitter:
        """What fits the head, and takes the second step."""
        first = super().fitter(target, rng, device, progress)
        return first if self.second_step is None else _two_steps(first, cast(ClassTarget, target), self)


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRival(Rival, LinearHead):
    """A linear rival."""


@dataclass(kw_only=True, eq=False, repr=False)
class MLPRival(Rival, MLPHead):
    """A rival with hidden layers."""


def _two_steps(first: HeadFitter, target: ClassTarget, head: Rival) -> TwoStepFitter:
    counts_m = target.counts_of(head)
    nothing_m = torch.zeros(len(counts_m), device=counts_m.device)
    if head.second_step == "crt":
        refit = LinearFitter(len(counts_m), make_class_loss("weighted", counts_m))
        settings = WEIGHT_DECAYS if head.weight_decay is None else (head.weight_decay,)

        def adapt(module: nn.Module, sample: HeadSample, setting: float) -> nn.Module:
            with torch.no_grad():
                body, _ = last_layer(module.eval())
                features = HeadSample(body(sample.s), sample.y, sample.weight, sample.synthetic)
            return BalancedHead(_with_last(module, refit.fit(features, setting)), nothing_m)

        return TwoStepFitter(first, adapt, settings)
    if head.second_step == "tau-norm":
        return TwoStepFitter(
            first,
            lambda module, sample, setting: BalancedHead(normalise_last_layer(module, setting), nothing_m),
            NORM_POWERS,
        )
    log_prior_m = torch.log(target.prior_left_by(head)).float()
    return TwoStepFitter(
        first, lambda module, sample, setting: BalancedHead(module, setting * log_prior_m), (head.tau,)
    )  # fmt: skip


def _with_last(head: nn.Module, last: nn.Module) -> nn.Module:
    """A copy of a head with another last layer."""
    if isinstance(head, nn.Linear):
        return last
    changed = cast(nn.Sequential, copy.deepcopy(head))
    changed[-1] = last
    return changed


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


def make_drawing(
    name: DrawName,
    roles: ClassRoles,
    options: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> Drawing:
    """How synthetic rows are made: from the rows of a fit alone, in the space of standardised features.

    ``"flow-augmentation"`` learns ECRT's de-mixing, augments rare classes among its sources, and returns through the
    inverse: Algorithm 1 with a head on z instead of s. A flow is learned once, from the training rows.
    """
    if name == "flow-augmentation":
        return _flow_drawing(roles, options, rng=rng, device=device, progress=progress)
    chosen = {key: value for key, value in options.items() if key != "power"}

    def rows_of(s: Array, y: Labels) -> tuple[Array, Labels]:
        if name == "smote":
            return smote(s, y, rng, **chosen)
        if name == "distribution-calibration":
            return calibrated_distribution(s, y, ~roles.minority, rng, **chosen)
        with seeded(int(rng.integers(2**62))):
            return generate_rows(s, y, rng=rng, device=device, progress=progress, **chosen)

    def drawing(z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels) -> Draw:
        return Draw(lambda part, learn: lambda rows: Synthetic(*rows_of(part.learned[rows], y[rows]), same_weight=True))

    return drawing


def _flow_drawing(
    roles: ClassRoles,
    options: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> Drawing:
    config = cast(Demixing, DEMIXING.part(options["demixing"], "demixing"))
    augmentation = Parametric(weight=options["weight"])

    def drawing(z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels) -> Draw:
        whole = demix(
            z, y, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=roles.demixed_on, config=config,
            rng=rng, device=device, progress=progress,
        )  # fmt: skip

        def made_from(part: DemixResult, learn: Labels) -> Callable[[Labels], Synthetic]:
            mechanism = whole if whole.refit is None else whole.refit(learn)

            def draw(rows: Labels) -> Synthetic:
                s, variance = mechanism.learned[rows], mechanism.within_variance
                drawn = augment_classes(s, y[rows], roles.augmented, variance, augmentation, rng)
                with torch.no_grad():
                    features = mechanism.demixer.inverse(torch.from_numpy(drawn.s)).numpy()
                return Synthetic(part.sources(features), drawn.y)

            return draw

        return Draw(made_from, whole.fresh)

    return drawing
