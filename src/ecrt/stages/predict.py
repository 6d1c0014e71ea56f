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
from ecrt.losses import class_mass, sample_weights
from ecrt.metrics import better_under_weights
from ecrt.stages.augment import Synthetic, augment_classes
from ecrt.stages.class_heads import (
    BalancedHead,
    HeadConfig,
    balanced_head,
    class_fitter,
    head_temperature,
    needs_temperature,
)
from ecrt.stages.demix import DemixResult
from ecrt.stages.heads import HeadFitter, HeadName, HeadSample, device_outputs
from ecrt.training import Progress, seeded, stop_requested

__all__ = [
    "BalancedHead",
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
    draw: Callable[[Labels], Synthetic] | None = None,
) -> HeadChoice:
    """Choose head and setting on held-out rows; the choice can then be fitted on all rows.

    Synthetic sources are drawn here, each time from the very rows that the fit may see.

    Parameters
    ----------
    draw : rows to synthetic sources made from them; ``None`` for those of ``config.augmentation``.
    """
    counts_m = torch.from_numpy(roles.counts)
    mass_m = class_mass(counts_m, config.mass)
    risk_counts_m = counts_m if config.mass == "training" else mass_m * counts_m.sum()
    # On the device once; on the CPU this is the same memory.
    s_nd, scale_d = torch.from_numpy(s).to(device), torch.from_numpy(demixed.head_scale).to(device)

    def scaled(rows: Labels) -> Tensor:
        return s_nd[torch.from_numpy(rows).to(device)].mul_(scale_d)

    def sample(rows: Labels) -> HeadSample:
        synthetic = (
            draw(rows)
            if draw is not None
            else augment_classes(s, y, roles.augmented, demixed.within_variance, config.augmentation, rng, rows)
        )
        drawn = torch.from_numpy(synthetic.s).to(device) * scale_d
        return _sample(torch.cat([scaled(rows).float(), drawn.float()]), y[rows], synthetic, mass_m, roles, config)

    def temperature_on(rows: Labels, head: nn.Module) -> float:
        if not needs_temperature(head, config):
            return 1.0
        return head_temperature(head, scaled(rows), y[rows], risk_counts_m, config)

    def losses_on(rows: Labels, head: nn.Module) -> Array:
        head = balanced_head(head.eval(), risk_counts_m, config, temperature_on(rows, head.eval()))
        logits = device_outputs(head, scaled(rows))
        true = torch.from_numpy(y[rows]).to(logits.device)
        return nn.functional.cross_entropy(logits, true, reduction="none").cpu().numpy()

    folds = head_folds(y, train_rows, held_out_rows, rng)
    with seeded(int(rng.integers(2**62))):
        fitters = {
            name: class_fitter(name, risk_counts_m, demixed, config, rng, device, progress) for name in config.heads
        }
        chosen, candidates = choose_among(fitters, folds, sample, losses_on, lambda rows: _alike(y[rows]))
    everything = np.concatenate([train_rows, held_out_rows])

    def fit() -> nn.Module:
        with seeded(int(rng.integers(2**62))):
            final = fitters[chosen.name].fit(sample(everything), chosen.setting)
        temperature = temperature_on(held_out_rows, chosen.head)
        return balanced_head(final, risk_counts_m, config, temperature).double().cpu().eval()

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


def _synthetic_share(y: Labels, synthetic: Synthetic, roles: ClassRoles, weight: float) -> Array:
    """Share of each class's mass that its synthetic samples hold."""
    if not synthetic.alike:
        return np.asarray(roles.augmented * weight)
    real, drawn = (np.bincount(labels, minlength=len(roles.counts)) for labels in (y, synthetic.y))
    return np.asarray(drawn / np.maximum(real + drawn, 1))


def _sample(
    scaled: Tensor, y: Labels, synthetic: Synthetic, mass_m: Tensor, roles: ClassRoles, config: HeadConfig
) -> HeadSample:
    """Real and synthetic rows, scaled, with the weights that their classes give them."""
    labels = torch.from_numpy(np.concatenate([y, synthetic.y]))
    is_synthetic = torch.arange(len(labels)) >= len(y)
    share_m = torch.from_numpy(_synthetic_share(y, synthetic, roles, config.augmentation.weight))
    weight = sample_weights(labels, is_synthetic, mass_m, share_m)
    # Classes that none of these rows belong to (one sample, held out) leave some mass over.
    weight = weight / weight.sum()
    device = scaled.device
    return HeadSample(scaled, labels.to(device), weight.float().to(device), is_synthetic.to(device))
