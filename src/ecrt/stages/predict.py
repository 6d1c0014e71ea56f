"""Stage 4: the head h(s), trained on real and synthetic sources, chosen on held-out rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.data import ClassRoles
from ecrt.errors import InputError, StoppedError
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
from ecrt.stages.holdout import Watched, across_halves, all_fresh, halves, head_folds
from ecrt.training import Progress, seeded, stop_requested

__all__ = [
    "BalancedHead",
    "Candidate",
    "Choice",
    "Draw",
    "Fold",
    "HeadChoice",
    "HeadConfig",
    "choose_among",
    "choose_head",
    "fit_head",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """The head that held-out rows chose.

    Attributes
    ----------
    name, setting : which head, with which weight decay, epochs or pseudo-samples.
    rows : those that were held out from the fits that they judge.
    held_out_losses : balanced NLL of each of these rows under what the other half of them would have chosen.
    held_out : mean of these, every class counted alike.
    candidates : held-out balanced NLL, every class counted alike, of all that was tried.
    temperature : what logits are divided by; 1 unless the loss gives them a scale of their own.
    fit : fits the choice on all rows: scaled sources to balanced logits, float64 on the CPU.
    """

    name: HeadName
    setting: float
    rows: Labels
    held_out_losses: Array
    held_out: float
    candidates: dict[str, float]
    fit: Callable[[], nn.Module]
    temperature: float = 1.0


@dataclass(frozen=True)
class Draw:
    """Another way to synthetic sources.

    Attributes
    ----------
    made_from : a de-mixing and the rows it may learn from, to a function from rows to synthetic sources made of them.
    fresh : rows that had no part in what is learned once; ``None`` for all.
    """

    made_from: Callable[[DemixResult, Labels], Callable[[Labels], Synthetic]]
    fresh: Mask | None = None


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
    draw: Draw | None = None,
    fresh: Mask | None = None,
) -> HeadChoice:
    """Choose head and setting on held-out rows; the choice can then be fitted on all rows.

    Whatever a fit needs, it learns from the rows that it may see: linear de-mixing is learned anew for every fold, and
    synthetic sources are drawn each time from the very rows of the fit.

    Parameters
    ----------
    s, y : sources by ``demixed``, and classes.
    draw : makes synthetic sources; ``None`` for those of ``config.augmentation``.
    fresh : rows that earlier stages have not looked at, ``None`` for all.
    """
    risk = _Risk(roles, config)

    def view(part: DemixResult, learn: Labels) -> _View:
        return _View(part, y, risk, rng, device, None if draw is None else draw.made_from(part, learn))

    final = replace(demixed, learned=s)
    everything = np.concatenate([train_rows, held_out_rows])
    known = all_fresh(fresh, demixed.fresh, None if draw is None else draw.fresh)
    splits = head_folds(y, train_rows, held_out_rows, rng, known)
    views = [view(final if demixed.refit is None else demixed.refit(learn), learn) for learn, _ in splits]
    folds = [
        Fold(check, partial(one.sample, learn), partial(one.losses, check))
        for one, (learn, check) in zip(views, splits, strict=True)
    ]
    with seeded(int(rng.integers(2**62))):
        fitters = {name: class_fitter(name, risk.counts_m, config, rng, device, progress) for name in config.heads}
        chosen = choose_among(fitters, folds, y, lambda rows: _alike(y[rows]))
    temperature = views[0].temperature(splits[0][1], chosen.best.head)

    def fit() -> nn.Module:
        with seeded(int(rng.integers(2**62))):
            head = fitters[chosen.best.name].fit(view(final, everything).sample(everything), chosen.best.setting)
        return balanced_head(head, risk.counts_m, config, temperature).double().cpu().eval()

    return HeadChoice(
        name=chosen.best.name, setting=chosen.best.setting, rows=chosen.rows, held_out_losses=chosen.losses,
        held_out=chosen.loss, candidates=chosen.tried, fit=fit, temperature=temperature,
    )  # fmt: skip


def fit_head(
    s: Array,
    y: Labels,
    *,
    setting: float,
    temperature: float,
    roles: ClassRoles,
    demixed: DemixResult,
    config: HeadConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> nn.Module:
    """A head under a setting that was chosen before, the first of ``config``, on all rows; see ``HeadChoice.fit``."""
    risk = _Risk(roles, config)
    view = _View(replace(demixed, learned=s), y, risk, rng, device, None)
    with seeded(int(rng.integers(2**62))):
        fitter = class_fitter(config.heads[0], risk.counts_m, config, rng, device, progress)
        head = fitter.fit(view.sample(np.arange(len(y))), setting)
    return balanced_head(head, risk.counts_m, config, temperature).double().cpu().eval()


class _Risk:
    """What classes count in the loss of a head."""

    def __init__(self, roles: ClassRoles, config: HeadConfig) -> None:
        counts_m = torch.from_numpy(roles.counts)
        self.roles, self.config = roles, config
        self.mass_m = class_mass(counts_m, config.mass)
        self.counts_m = counts_m if config.mass == "training" else self.mass_m * counts_m.sum()


class _View:
    """Rows as one de-mixing shows them to heads: samples to learn from, and losses."""

    def __init__(
        self,
        demixed: DemixResult,
        y: Labels,
        risk: _Risk,
        rng: np.random.Generator,
        device: torch.device,
        drawn: Callable[[Labels], Synthetic] | None,
    ) -> None:
        self.demixed, self.y, self.risk, self.config = demixed, y, risk, risk.config
        self.rng, self.device, self.drawn = rng, device, drawn
        # On the device once; on the CPU this is the same memory.
        self.s_nd = torch.from_numpy(demixed.learned).to(device)
        self.scale_d = torch.from_numpy(demixed.head_scale).to(device)

    def scaled(self, rows: Labels) -> Tensor:
        return self.s_nd[torch.from_numpy(rows).to(self.device)].mul_(self.scale_d)

    def sample(self, rows: Labels) -> HeadSample:
        demixed, config = self.demixed, self.config
        synthetic = (
            self.drawn(rows)
            if self.drawn is not None
            else augment_classes(
                demixed.learned, self.y, self.risk.roles.augmented, demixed.within_variance, config.augmentation,
                self.rng, rows,
            )
        )  # fmt: skip
        drawn = torch.from_numpy(synthetic.s).to(self.device) * self.scale_d
        scaled = torch.cat([self.scaled(rows).float(), drawn.float()])
        sample = _sample(scaled, self.y[rows], synthetic, self.risk.mass_m, self.risk.roles, config)
        variance = demixed.within_variance * demixed.head_scale**2
        return replace(
            sample,
            variance=torch.from_numpy(variance),
            between=torch.from_numpy(demixed.signal_to_noise * variance),
        )

    def temperature(self, rows: Labels, head: nn.Module) -> float:
        if not needs_temperature(head, self.config):
            return 1.0
        return head_temperature(head, self.scaled(rows), self.y[rows], self.risk.counts_m, self.config)

    def losses(self, rows: Labels, head: nn.Module) -> Array:
        """Balanced NLL; where logits need a temperature, each half of the rows has that of the other."""

        def at_temperature_of(mine: Mask) -> Array:
            ready = balanced_head(head, self.risk.counts_m, self.config, self.temperature(rows[mine], head))
            logits = device_outputs(ready, self.scaled(rows))
            true = torch.from_numpy(self.y[rows]).to(logits.device)
            return nn.functional.cross_entropy(logits, true, reduction="none").cpu().numpy()

        head = head.eval()
        if not needs_temperature(head, self.config):
            return at_temperature_of(np.ones(len(rows), dtype=bool))
        return across_halves(halves(self.y[rows]), at_temperature_of)


@dataclass(frozen=True)
class Fold:
    """Rows to check on, what a head may learn from before, and losses of the rows under a head."""

    check: Labels
    sample: Callable[[], HeadSample]
    losses_on: Callable[[nn.Module], Array]


@dataclass(frozen=True)
class Candidate:
    """A head under one setting, with the losses of all rows that were checked on.

    ``head`` is the one that has not seen the given held-out rows.
    """

    name: HeadName
    setting: float
    losses: Array
    head: nn.Module


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what that is worth.

    Attributes
    ----------
    best : the choice.
    tried : held-out loss of all candidates.
    rows : all rows that were checked on.
    losses, loss : of these rows, each under what the other half of them would have chosen, and their weighted mean.
    """

    best: Candidate
    tried: dict[str, float]
    rows: Labels
    losses: Array
    loss: float


def choose_among(
    fitters: dict[HeadName, HeadFitter],
    folds: list[Fold],
    strata: Labels,
    weights_of: Callable[[Labels], Array],
) -> Choice:
    """The head and setting that serve held-out rows best.

    Parameters
    ----------
    fitters : the simplest first; a later one must be better beyond noise.
    folds : whose checked rows may overlap.
    strata : of all rows, to take halves by.
    weights_of : weights of rows that are checked on together.
    """
    rows, place = np.unique(np.concatenate([fold.check for fold in folds]), return_inverse=True)
    times = np.bincount(place)
    weight = _shares(weights_of(rows))
    half = halves(strata[rows])
    kinds: list[list[Candidate]] = []
    for name, fitter in fitters.items():
        if kinds and stop_requested():
            break
        try:
            paths = [_walk(fitter, fold, _shares(weights_of(fold.check)), halves(strata[fold.check])) for fold in folds]
        except StoppedError:
            if not kinds:
                raise
            break
        kinds.append([
            # The same step of the path in every fold; where the setting was found in training, its median.
            Candidate(
                name,
                float(np.median([setting for setting, _, _ in steps])),
                np.bincount(place, weights=np.concatenate([losses for _, losses, _ in steps])) / times,
                steps[0][2],
            )
            for steps in zip(*paths, strict=False)
        ])  # fmt: skip
    kinds = [kind for kind in kinds if kind]
    if not kinds:
        raise InputError("No head to choose from: name at least one of 'linear', 'mlp', 'gaussian'.")
    losses = across_halves(half, lambda mine: _best(kinds, weight * mine).losses)
    tried = {f"{one.name} {one.setting:g}": float(weight @ one.losses) for kind in kinds for one in kind}
    return Choice(_best(kinds, weight), tried, rows, losses, float(weight @ losses))


def _best(kinds: list[list[Candidate]], weight: Array) -> Candidate:
    """The best setting of the first kind that none after it beats beyond noise."""
    first, *others = [min(kind, key=lambda one: float(weight @ one.losses)) for kind in kinds]
    best = first
    for other in others:
        best = other if better_under_weights(other.losses, best.losses, weight) else best
    return best


def _shares(weight: Array) -> Array:
    return weight / weight.sum()


def _alike(y: Labels) -> Array:
    """Weights of rows under which every class counts alike."""
    return np.asarray((1 / np.maximum(np.bincount(y), 1))[y])


def _walk(fitter: HeadFitter, fold: Fold, weight: Array, half: Mask) -> list[tuple[float, Array, nn.Module]]:
    """Settings along a fitter's path with the losses of held-out rows, until these have risen twice.

    Of a head that they have a part in, each half of the rows has the losses of what the other half likes best.
    """
    steps: list[tuple[float, Array, nn.Module]] = []
    watched = Watched(fold.losses_on, weight, half)
    lowest, rises = np.inf, 0
    for setting, head in fitter.path(fold.sample(), watched):
        losses = watched.kept if fitter.chooses_on_path else fold.losses_on(head)
        steps.append((setting, losses, head))
        loss = float(weight @ losses)
        rises = rises + 1 if loss >= lowest else 0
        lowest = min(lowest, loss)
        if rises == 2 or stop_requested():
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
