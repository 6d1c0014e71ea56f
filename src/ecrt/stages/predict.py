"""Stage 4: the head h(s), trained on real and synthetic sources, chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.data import ClassRoles, stratified_holdout
from ecrt.errors import InputError
from ecrt.losses import ClassMass, class_mass, logit_adjusted, sample_weights
from ecrt.metrics import better_under_weights, nll_per_sample
from ecrt.nn import GaussianHead
from ecrt.stages.augment import AugmentConfig, Synthetic, augment_classes
from ecrt.stages.demix import DemixResult
from ecrt.stages.heads import GaussianFitter, HeadFitter, HeadName, HeadSample, LinearFitter, MLPFitter, head_outputs
from ecrt.training import Progress, TrainingConfig, seeded, stop_requested, torch_generator

__all__ = [
    "Candidate",
    "HeadChoice",
    "HeadConfig",
    "choose_among",
    "choose_head",
    "head_folds",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


FEW_ROWS = 5000
"""Up to this many rows heads are chosen by cross-validation: one held-out fifth would leave too few of a rare class."""


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """Which head, under which risk.

    Attributes
    ----------
    heads : candidates, the simplest first; a later one must lower the held-out loss, every class counted alike, beyond
        noise.
    mass : w_m, the weight of classes in the risk.
    logit_adjustment : train logits + log of the classes' mass, so that the logits are balanced ones. Without it the
        log mass is taken off afterwards.
    weight_decay : of the linear head, on the mean loss; ``None`` chooses on held-out rows.
    hidden, dropout, training : of the MLP head.
    augmentation : synthetic samples and their weight.
    """

    heads: tuple[HeadName, ...] = ("linear", "gaussian")
    mass: ClassMass = "training"
    logit_adjustment: bool = True
    weight_decay: float | None = None
    hidden: tuple[int, ...] = (256,)
    dropout: float = 0.1
    augmentation: AugmentConfig = AugmentConfig()
    training: TrainingConfig = TrainingConfig(epochs=100, batch_size=512, learning_rate=2e-3, weight_decay=1e-2)


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """The head that held-out rows chose.

    Attributes
    ----------
    name, setting : which head, with which weight decay, epochs or pseudo-samples.
    held_out_losses : balanced NLL of each held-out row under the choice.
    candidates : held-out balanced NLL, every class counted alike, of all that was tried.
    fit : fits the choice on all rows: scaled sources to balanced logits, float64 on the CPU.
    """

    name: HeadName
    setting: float
    held_out_losses: Array
    candidates: dict[str, float]
    fit: Callable[[], nn.Module]


class BalancedHead(nn.Module):
    """Balanced logits of a head trained without adjustment: its logits less the log mass of the classes."""

    log_mass_m: Tensor

    def __init__(self, head: nn.Module, log_mass_m: Tensor) -> None:
        super().__init__()
        self.head = head
        self.register_buffer("log_mass_m", log_mass_m)

    def forward(self, s_nd: Tensor) -> Tensor:
        """Balanced logits."""
        return self.head(s_nd) - self.log_mass_m


def choose_head(
    s: Array,
    y: Labels,
    *,
    train_rows: Labels,
    held_out_rows: Labels,
    roles: ClassRoles,
    demixed: DemixResult,
    config: HeadConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> HeadChoice:
    """Choose head and setting on held-out rows; the choice can then be fitted on all rows.

    Synthetic sources are drawn here, each time from the very rows that the fit may see.
    """
    mass_m = class_mass(torch.from_numpy(roles.counts), config.mass)
    scale = demixed.head_scale

    def sample(rows: Labels) -> HeadSample:
        synthetic = augment_classes(
            s[rows], y[rows], roles.augmented, demixed.within_variance, config.augmentation, rng
        )
        return _sample(s[rows], y[rows], synthetic, scale, mass_m, roles, config, device)

    def losses_on(rows: Labels, head: nn.Module) -> Array:
        logits = head_outputs(_balanced(head.eval(), mass_m, config), s[rows] * scale)
        return nll_per_sample(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), y[rows])

    folds = head_folds(y, train_rows, held_out_rows, rng)
    with seeded(int(rng.integers(2**62))):
        fitters = {name: _fitter(name, mass_m, demixed, config, rng, device, progress) for name in config.heads}
        chosen, candidates = choose_among(fitters, folds, sample, losses_on, lambda rows: _alike(y[rows]))
    everything = np.concatenate([train_rows, held_out_rows])

    def fit() -> nn.Module:
        with seeded(int(rng.integers(2**62))):
            final = fitters[chosen.name].fit(sample(everything), chosen.setting)
        return _balanced(final, mass_m, config).double().cpu().eval()

    return HeadChoice(
        name=chosen.name,
        setting=chosen.setting,
        held_out_losses=chosen.losses[: len(held_out_rows)],  # of the first fold, the given split
        candidates=candidates,
        fit=fit,
    )


@dataclass(frozen=True)
class Candidate:
    """A head under one setting, with its losses on all rows that were held out in turn.

    ``loss`` is their weighted mean, ``head`` the one that has not seen the given held-out rows.
    """

    name: HeadName
    setting: float
    losses: Array
    loss: float
    head: nn.Module


def choose_among(
    fitters: dict[HeadName, HeadFitter],
    folds: list[tuple[Labels, Labels]],
    sample: Callable[[Labels], HeadSample],
    losses_on: Callable[[Labels, nn.Module], Array],
    weights_of: Callable[[Labels], Array],
) -> tuple[Candidate, dict[str, float]]:
    """The head and setting that serve held-out rows best, and the loss of all that was tried.

    Parameters
    ----------
    fitters : the simplest first; a later one must be better beyond noise.
    folds : rows to learn from and rows to check on.
    sample : rows to what a head learns from.
    losses_on : losses of rows under a head.
    weights_of : weights of rows that are checked on together.
    """
    weight = weights_of(np.concatenate([check for _, check in folds]))
    weight = weight / weight.sum()
    best: Candidate | None = None
    tried: dict[str, float] = {}
    for name, fitter in fitters.items():
        if best is not None and stop_requested():
            break
        paths = [_walk(fitter, sample(learn), weights_of(check), partial(losses_on, check)) for learn, check in folds]
        lowest: Candidate | None = None
        for steps in zip(*paths, strict=False):
            # The same step of the path in every fold; where the setting was found in training, its median.
            losses = np.concatenate([losses for _, losses, _ in steps])
            setting = float(np.median([setting for setting, _, _ in steps]))
            step = Candidate(name, setting, losses, float(weight @ losses), steps[0][2])
            tried[f"{name} {setting:g}"] = step.loss
            lowest = step if lowest is None or step.loss < lowest.loss else lowest
        if lowest is not None and (best is None or better_under_weights(lowest.losses, best.losses, weight)):
            best = lowest
    if best is None:
        raise InputError("No head to choose from: name at least one of 'linear', 'mlp', 'gaussian'.")
    return best, tried


def head_folds(
    y: Labels, train_rows: Labels, held_out_rows: Labels, rng: np.random.Generator
) -> list[tuple[Labels, Labels]]:
    """The given split; with few rows also others that hold out the training rows in turn, for a steadier choice."""
    folds = [(train_rows, held_out_rows)]
    everything = np.concatenate([train_rows, held_out_rows])
    if len(everything) <= FEW_ROWS:
        left = train_rows
        for share in (1 / 4, 1 / 3, 1 / 2):
            kept, taken = stratified_holdout(y[left], share, rng)
            folds.append((np.setdiff1d(everything, left[taken]), left[taken]))
            left = left[kept]
    return [(learn, check) for learn, check in folds if len(check)]


def _alike(y: Labels) -> Array:
    """Weights of rows under which every class counts alike."""
    return np.asarray((1 / np.maximum(np.bincount(y), 1))[y])


def _walk(
    fitter: HeadFitter, sample: HeadSample, weight: Array, losses_of: Callable[[nn.Module], Array]
) -> list[tuple[float, Array, nn.Module]]:
    """Settings along a fitter's path with the losses of held-out rows, until these have risen twice."""
    steps: list[tuple[float, Array, nn.Module]] = []
    lowest, rises = np.inf, 0
    weight = weight / weight.sum()
    for setting, head in fitter.path(sample, lambda head: float(weight @ losses_of(head))):
        losses = losses_of(head)
        steps.append((setting, losses, head))
        loss = float(weight @ losses)
        rises = rises + 1 if loss >= lowest else 0
        lowest = min(lowest, loss)
        if rises == 2:
            break
    return steps


def _balanced(head: nn.Module, mass_m: Tensor, config: HeadConfig) -> nn.Module:
    """Gaussian heads, and heads trained with adjustment, give balanced logits as they are."""
    if config.logit_adjustment or isinstance(head, GaussianHead):
        return head
    return BalancedHead(head, torch.log(mass_m).to(next(iter(head.parameters()))))


def _sample(
    s: Array,
    y: Labels,
    synthetic: Synthetic,
    scale: Array,
    mass_m: Tensor,
    roles: ClassRoles,
    config: HeadConfig,
    device: torch.device,
) -> HeadSample:
    labels = torch.from_numpy(np.concatenate([y, synthetic.y]))
    is_synthetic = torch.arange(len(labels)) >= len(y)
    share_m = torch.from_numpy(roles.augmented * config.augmentation.weight)
    weight = sample_weights(labels, is_synthetic, mass_m, share_m)
    # Classes that none of these rows belong to (one sample, held out) leave some mass over.
    weight = weight / weight.sum()
    scaled = torch.from_numpy(np.concatenate([s, synthetic.s]) * scale)
    return HeadSample(scaled.float().to(device), labels.to(device), weight.float().to(device), is_synthetic.to(device))


def _fitter(
    name: HeadName,
    mass_m: Tensor,
    demixed: DemixResult,
    config: HeadConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> HeadFitter:
    log_prior_m = torch.log(mass_m) if config.logit_adjustment else torch.zeros_like(mass_m)
    loss = partial(logit_adjusted, log_prior_m=log_prior_m.float().to(device))
    if name == "linear":
        return LinearFitter(len(mass_m), loss, config.weight_decay)
    if name == "mlp":
        return MLPFitter(
            len(mass_m), loss, config.hidden, config.dropout, config.training, torch_generator(rng), progress
        )
    if name == "gaussian":
        variance = demixed.within_variance * demixed.head_scale**2
        between = demixed.signal_to_noise * variance
        return GaussianFitter(torch.from_numpy(variance), torch.from_numpy(between), len(mass_m))
    raise InputError(f"head={name!r}: use 'auto', 'linear', 'mlp' or 'gaussian'.")
