"""Heads that tell classes: under which loss and risk, with which steps after, and what prior is taken off them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.losses import ClassMass, LossName, effective_prior, make_class_loss
from ecrt.metrics.calibration import LEAST_LOG_PROBABILITY, lowest_temperature
from ecrt.nn import GaussianHead
from ecrt.stages.augment import AugmentConfig
from ecrt.stages.heads import (
    WEIGHT_DECAYS,
    GaussianFitter,
    HeadFitter,
    HeadName,
    LinearFitter,
    MLPFitter,
    TwoStepFitter,
    device_outputs,
)
from ecrt.stages.risks import HeadSample, RiskName, last_layer, make_risk
from ecrt.training import Progress, TrainingConfig, torch_generator

__all__ = [
    "NORM_POWERS",
    "BalancedHead",
    "HeadConfig",
    "SecondStep",
    "balanced_head",
    "class_fitter",
    "head_temperature",
    "needs_temperature",
    "normalise_last_layer",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SecondStep = Literal["crt", "tau-norm", "post-hoc"]
DEFERRED_LOSSES = ("ldam-drw",)
IMPROPER_LOSSES = ("hinge", "focal", "ldam", "ldam-drw")
NORM_POWERS = tuple(np.linspace(0, 1, 11).round(1).tolist())
"""Powers tried by tau-normalisation."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Which head, under which risk.

    Attributes
    ----------
    heads : candidates, the simplest first; a later one must lower the held-out loss, every class counted alike, beyond
        noise.
    mass : w_m, the weight of classes in the risk.
    loss, loss_options : of a linear or MLP head, see :func:`~ecrt.losses.make_class_loss`. Classes count as often as
        their mass says, so that weighting and adjusting never correct twice. What prior the loss leaves in the logits
        is taken off afterwards. A linear head is fitted at once: what LDAM-DRW defers acts from the start.
    risk, risk_options : what a step minimises, see :func:`~ecrt.stages.risks.make_risk`. Other than the plain one they
        are random, and a linear head is then trained by steps too, as it is under the hinge loss, which is not smooth.
    second_step : what is made of the head once it is fitted, see :func:`class_fitter`; ``tau`` is of post-hoc
        adjustment.
    weight_decay : of the linear head, on the mean loss; ``None`` chooses on held-out rows.
    hidden, dropout, training : of a head trained by steps.
    augmentation : synthetic samples and their weight.
    """

    heads: tuple[HeadName, ...] = ("linear", "gaussian")
    mass: ClassMass = "training"
    loss: LossName = "logit-adjusted"
    loss_options: Mapping[str, float] = field(default_factory=dict)
    risk: RiskName = "plain"
    risk_options: Mapping[str, float] = field(default_factory=dict)
    second_step: SecondStep | None = None
    tau: float = 1.0
    weight_decay: float | None = None
    hidden: tuple[int, ...] = (256,)
    dropout: float = 0.1
    augmentation: AugmentConfig = AugmentConfig()
    training: TrainingConfig = TrainingConfig(epochs=100, batch_size=512, learning_rate=2e-3, weight_decay=1e-2)


class BalancedHead(nn.Module):
    """Balanced logits of a head that assumes some prior: its logits less the log of that, the mass of the classes."""

    log_mass_m: Tensor

    def __init__(self, head: nn.Module, log_mass_m: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("log_mass_m", log_mass_m)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Balanced logits."""
        return self.head(s_nd) - self.log_mass_m


def balanced_head(head: nn.Module, counts_m: Tensor, config: HeadConfig, temperature: float = 1.0) -> nn.Module:
    """A head of balanced logits: one that gives them already as it is, another less the log prior of its loss."""
    if isinstance(head, GaussianHead | BalancedHead):
        return head
    if temperature != 1:
        head = copy.deepcopy(head)
        _, last = last_layer(head)
        with torch.no_grad():
            last.weight.div_(temperature)
            last.bias.div_(temperature)
    prior_m = effective_prior(config.loss, counts_m, **config.loss_options)
    if torch.allclose(prior_m, prior_m.mean(), rtol=1e-12, atol=0.0):
        return head
    return BalancedHead(head, torch.log(prior_m).to(next(iter(head.parameters()))))


def needs_temperature(head: nn.Module, config: HeadConfig) -> bool:
    """Whether a head's logits have a scale of their own, which has to be found."""
    return config.loss in IMPROPER_LOSSES and not isinstance(head, GaussianHead | BalancedHead)


@torch.no_grad()
def head_temperature(head: nn.Module, s_nd: Tensor, y: Labels, counts_m: Tensor, config: HeadConfig) -> float:
    """What logits are to be divided by, from rows that the head has not seen, before any prior is taken off them.

    Proper losses leave log-probabilities, whose temperature is 1. Those of improper ones have a scale of their own, and
    a log prior means nothing to them; one number, fitted under the prior that the loss leaves, mends that.
    """
    if not needs_temperature(head, config):
        return 1.0
    prior = effective_prior(config.loss, counts_m, **config.loss_options).cpu().numpy()
    weight = prior[y] / np.bincount(y, minlength=len(prior))[y]
    log_proba_nm = torch.log_softmax(device_outputs(head, s_nd), dim=1).clamp_(min=LEAST_LOG_PROBABILITY)
    labels_n, weight_n = (torch.from_numpy(values).to(log_proba_nm.device) for values in (y, weight / weight.sum()))

    def loss(temperature: float) -> float:
        return float(weight_n @ nn.functional.cross_entropy(log_proba_nm / temperature, labels_n, reduction="none"))

    return lowest_temperature(loss)


def class_fitter(
    name: HeadName,
    counts_m: Tensor,
    config: HeadConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> HeadFitter:
    """How a head of that name is fitted.

    A second step follows where one is named (Kang et al.: Decoupling representation and classifier for long-tailed
    recognition, ICLR 2020; Menon et al.: Long-tail learning via logit adjustment, ICLR 2021):

    - ``"crt"`` keeps all layers but the last, which is fitted anew with every class counted alike: by L-BFGS under
      balanced weights, the expectation of the authors' class-balanced sampling. On a linear head nothing is kept.
    - ``"tau-norm"`` divides the weights of each class by a power of their norm and drops the biases; held-out rows
      choose the power, and a common factor, which changes no prediction, keeps the mean norm.
    - ``"post-hoc"`` takes tau times the log prior off.

    Parameters
    ----------
    counts_m : how often classes count in the risk.
    """
    if name == "gaussian" and config.second_step is None:
        return GaussianFitter(len(counts_m))
    if name not in ("linear", "mlp"):
        raise InputError(f"head={name!r}: use 'auto', 'linear', 'mlp' or 'gaussian'.")
    counts_m = counts_m.to(device)
    loss = make_class_loss(config.loss, counts_m, **config.loss_options)
    fitter: HeadFitter
    if name == "linear" and config.risk == "plain" and config.loss != "hinge":  # L-BFGS fails at its corners
        fitter = LinearFitter(len(counts_m), loss, config.weight_decay)
    else:
        training = config.training if name == "mlp" else _many_steps(config.training, int(counts_m.sum()))
        fitter = MLPFitter(
            len(counts_m), loss, config.hidden if name == "mlp" else (), config.dropout, training,
            torch_generator(rng), progress,
            risk_of=partial(make_risk, config.risk, counts_m=counts_m, options=config.risk_options),
            all_epochs=config.loss in DEFERRED_LOSSES,
            steps_alike=config.risk in ("plain", "vat") and config.loss not in DEFERRED_LOSSES,
        )  # fmt: skip
    return fitter if config.second_step is None else _two_steps(fitter, counts_m, config)


def _many_steps(training: TrainingConfig, n_rows: int) -> TrainingConfig:
    """A linear head starts at zero and has far to go: smaller batches, and ten times the rate of an MLP."""
    size = min(training.batch_size, max(32, n_rows // 16))
    return replace(training, batch_size=size, learning_rate=10 * training.learning_rate)


def _two_steps(first: HeadFitter, counts_m: Tensor, config: HeadConfig) -> TwoStepFitter:
    nothing_m = torch.zeros(len(counts_m), device=counts_m.device)
    if config.second_step == "crt":
        refit = LinearFitter(len(counts_m), make_class_loss("weighted", counts_m))
        settings = WEIGHT_DECAYS if config.weight_decay is None else (config.weight_decay,)

        def adapt(head: nn.Module, sample: HeadSample, setting: float) -> nn.Module:
            with torch.no_grad():
                body, _ = last_layer(head.eval())
                features = HeadSample(body(sample.s), sample.y, sample.weight, sample.synthetic)
            return BalancedHead(_with_last(head, refit.fit(features, setting)), nothing_m)

        return TwoStepFitter(first, adapt, settings)
    if config.second_step == "tau-norm":
        return TwoStepFitter(
            first,
            lambda head, sample, setting: BalancedHead(normalise_last_layer(head, setting), nothing_m),
            NORM_POWERS,
        )
    log_prior_m = torch.log(effective_prior(config.loss, counts_m, **config.loss_options)).float()
    return TwoStepFitter(first, lambda head, sample, setting: BalancedHead(head, setting * log_prior_m), (config.tau,))


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
