"""Stages 2 to 4 for a continuous target: simplest first, one change at a time; held-out rows decide what is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ecrt.augmentation.donors import draw_from_donors
from ecrt.augmentation.rare_targets import draw_targets, rows_between
from ecrt.data import ClassRoles, stratified_holdout
from ecrt.data.density import TargetRegions
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
from ecrt.losses import sample_weights
from ecrt.losses.regression import RegressionLoss, regression_loss
from ecrt.metrics import better_under_weights, mean_over_classes
from ecrt.stages.demix import DemixConfig, DemixResult, demix
from ecrt.stages.heads import HeadFitter, HeadSample, MLPFitter, head_outputs
from ecrt.stages.holdout import Watched, across_halves, halves
from ecrt.stages.regression_heads import LinearRegressionFitter, RegressionHeadName
from ecrt.training import Progress, TrainingConfig, seeded, stop_requested, torch_generator

__all__ = ["AugmentationName", "RegressConfig", "RegressResult", "regress"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
AugmentationName = Literal["none", "interpolated", "donors"]

FEW_ROWS = 2000
"""Up to this many rows four folds are held out in turn: one would hold too few rare rows to decide by."""

TOLERANCE = 0.02
"""What is gained in rare regions may cost this share of the loss over all rows, and no more."""


@dataclass(frozen=True, kw_only=True)
class RegressConfig:
    """Which head, under which risk.

    Attributes
    ----------
    loss, delta : squared, absolute or Huber's, which turns linear at delta (targets have unit variance).
    heads : candidates, the simplest first.
    weight_decay : of the linear head; ``None`` chooses on held-out rows.
    hidden, training : of the MLP head.
    region_mass : powers a to try: a region of n rows has mass n^(1 - a); 0 is as in training, 1 makes regions alike.
    weighings : whether sources are weighed by their signal, to try.
    augmentations : to try. ``"interpolated"``: rows between and beside those there are, which weigh as much as these.
        ``"donors"``: every source from a donor of its own (supplement B), without more mass for a region.
    augmentation_weight : share of the mass of rare regions that goes to samples from donors.
    n_synthetic : samples from donors; ``None`` for half as many as rows.
    n_donors : how many nearest targets set the bandwidth of donors.
    """

    loss: RegressionLoss = "squared"
    delta: float = 1.0
    heads: tuple[RegressionHeadName, ...] = ("linear", "mlp")
    weight_decay: float | None = None
    hidden: tuple[int, ...] = (128, 128)
    training: TrainingConfig = TrainingConfig(epochs=100, batch_size=256, learning_rate=4e-3, weight_decay=1e-2)
    region_mass: tuple[float, ...] = (0.0, 0.25)
    weighings: tuple[bool, ...] = (False, True)
    augmentations: tuple[AugmentationName, ...] = ("none", "interpolated")
    augmentation_weight: float = 0.5
    n_synthetic: int | None = None
    n_donors: int = 20


@dataclass(frozen=True)
class Plan:
    """One way to predict: how sources are found and weighed, which head, mass of regions and augmentation it has."""

    demixing: Literal["none", "linear", "flow"]
    head: RegressionHeadName
    region_mass: float
    augmentation: AugmentationName
    weighted: bool = False

    def __str__(self) -> str:
        sources = f"{self.demixing}, weighted" if self.weighted else self.demixing
        return f"{sources}, {self.head}, mass {self.region_mass:g}, augmentation {self.augmentation}"

    def scale(self, demixed: DemixResult) -> Array:
        """What sources are multiplied by: to units of their spread within bins, and perhaps by their signal.

        Signal is what bin means tell. A source that acts through others alone has none: weighing must earn its place.
        """
        if self.weighted or not demixed.weighted:
            return demixed.head_scale
        return np.asarray(1 / np.sqrt(demixed.within_variance))


@dataclass(frozen=True, kw_only=True)
class RegressResult:
    """The chosen plan, fitted on all rows.

    Attributes
    ----------
    demixed : the de-mixing.
    head, head_scale : scaled sources to standardised targets, float64 on the CPU; the scale.
    plan, setting : what was chosen, with which weight decay or epochs.
    held_out : loss over all held-out rows and over the rare ones, of all that was tried.
    """

    demixed: DemixResult
    head: nn.Module
    head_scale: Array
    plan: Plan
    setting: float
    held_out: dict[str, dict[str, float]]


@dataclass(frozen=True)
class _Demixed:
    """A de-mixing, and for every fold the one that may be judged there, with rows to learn from and to check on."""

    whole: DemixResult
    folds: list[tuple[DemixResult, Labels, Labels]]

    @classmethod
    def of(cls, whole: DemixResult, folds: list[tuple[Labels, Labels]]) -> _Demixed:
        if whole.refit is not None:
            return cls(whole, [(whole.refit(learn), learn, check) for learn, check in folds])
        learn, check = folds[0]
        fresh = check if whole.fresh is None or not whole.fresh[check].any() else check[whole.fresh[check]]
        return cls(whole, [(whole, np.union1d(learn, np.setdiff1d(check, fresh)), fresh)])


@dataclass(frozen=True)
class _Tried:
    """A plan with its best setting; ``losses`` of checked rows, each under what the other half would have chosen."""

    plan: Plan
    setting: float
    rows: Labels
    losses: Array

    def on(self, rows: Labels) -> Array:
        """Losses of some of its rows, in their order."""
        return self.losses[np.searchsorted(self.rows, rows)]


def regress(
    z: Array,
    y: Array,
    *,
    bins: Labels,
    regions: TargetRegions,
    roles: ClassRoles,
    candidates: list[DemixConfig],
    config: RegressConfig,
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    fresh: NDArray[np.bool_] | None = None,
) -> RegressResult:
    """Choose de-mixing, head, mass of regions and augmentation, and fit the choice on all rows.

    A change is kept if it lowers the held-out loss, rare rows and others counted alike, and does not raise the loss
    over all rows by more than 2 % of that of the best plain regression. A flow, learned once, is judged on fewer rows
    than the rest: it must be better beyond noise.

    Parameters
    ----------
    z, y : features (n, d) and targets (n, outputs).
    bins : quantile bins of the targets, the labels of the contrast.
    regions, roles : where targets are rare; the part each bin plays.
    candidates : ways of de-mixing, the simplest first.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    """
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    folds = _folds(bins, validation, rng, fresh)
    rare = regions.is_rare(y)
    work = _Work(y, bins, regions, config, rng, device, progress)
    shared: dict[str, Any] = {"rng": rng, "device": device, "progress": progress}
    found: dict[str, _Demixed] = {}
    tried: list[_Tried] = []
    best: _Tried | None = None

    def consider(plan: Plan) -> None:
        nonlocal best
        if best is not None and (stop_requested() or any(one.plan == plan for one in tried)):
            return
        try:
            challenger = work.measure(plan, found[plan.demixing])
        except StoppedError:
            if best is None:
                raise
            return
        tried.append(challenger)
        plain = [
            one.on(_common(one, challenger)).mean()
            for one in tried
            if one.plan.region_mass == 0 and one.plan.augmentation == "none"
        ]
        affordable = challenger.losses.mean() <= (1 + TOLERANCE) * min(plain, default=np.inf)
        if best is None or (affordable and better(challenger, best)):
            best = challenger

    def balanced(one: _Tried) -> float:
        return mean_over_classes(one.losses, rare[one.rows].astype(np.int64))

    def better(challenger: _Tried, champion: _Tried) -> bool:
        rows = _common(challenger, champion)
        if len(rows) == len(challenger.rows) == len(champion.rows):
            return balanced(challenger) < balanced(champion)
        kind = rare[rows].astype(np.int64)
        weight = (1 / np.maximum(np.bincount(kind), 1))[kind]
        return len(rows) > 0 and better_under_weights(challenger.on(rows), champion.on(rows), weight)

    with seeded(int(rng.integers(2**62))):
        for number, how in enumerate(candidates):
            try:
                whole = demix(
                    z, bins, train_rows=folds[0][0], held_out_rows=folds[0][1], demixed_on=roles.demixed_on, config=how,
                    **shared,
                )  # fmt: skip
            except StoppedError:
                if best is None:
                    raise
                break
            except DivergenceError as error:
                if best is None:
                    raise
                warn_user(f"De-mixing by {how.method!r} was given up. {error}")
                continue
            found[how.method] = _Demixed.of(whole, folds)
            if number == 0:
                weighted = config.weighings[0] and how.method != "none"
                for head in config.heads:
                    consider(Plan(how.method, head, config.region_mass[0], config.augmentations[0], weighted))
            seen = [one.plan for one in tried if one.plan.demixing == "linear"]
            weighings = (False,) if how.method == "none" else (_plan(best).weighted,) if seen else config.weighings
            for weighted in weighings:
                consider(replace(_plan(best), demixing=how.method, weighted=weighted))
            for augmentation in config.augmentations[1:]:
                mine = min((one for one in tried if one.plan.demixing == how.method), key=balanced, default=best)
                consider(replace(_plan(mine), augmentation=augmentation))
        for mass in config.region_mass[1:]:
            consider(replace(_plan(best), region_mass=mass))
    chosen = best
    if chosen is None:
        raise InputError("No way of de-mixing, or no head, was given.")
    demixed = found[chosen.plan.demixing].whole
    return RegressResult(
        demixed=demixed,
        head=work.fit(chosen, demixed),
        head_scale=chosen.plan.scale(demixed),
        plan=chosen.plan,
        setting=chosen.setting,
        held_out={str(one.plan): _summary(one.losses, rare[one.rows]) for one in tried},
    )


def _plan(best: _Tried | None) -> Plan:
    if best is None:
        raise InputError("No head to choose from: name at least one of 'linear', 'mlp'.")
    return best.plan


def _common(first: _Tried, second: _Tried) -> Labels:
    return np.intersect1d(first.rows, second.rows, assume_unique=True)


def _summary(losses: Array, rare: NDArray[np.bool_]) -> dict[str, float]:
    return {"all": float(losses.mean()), "rare": float(losses[rare].mean()) if rare.any() else float("nan")}


def _folds(
    bins: Labels, validation: float, rng: np.random.Generator, fresh: NDArray[np.bool_] | None
) -> list[tuple[Labels, Labels]]:
    """One split, or with few rows four that hold out different rows; without a row to spare all rows are both sides."""
    everything, left = np.arange(len(bins)), np.arange(len(bins))
    folds: list[tuple[Labels, Labels]] = []
    for _ in range(4 if len(bins) <= FEW_ROWS else 1):
        share = min(validation * len(bins) / max(len(left), 1), 0.5)
        kept, taken = stratified_holdout(bins[left], share, rng, eligible=None if fresh is None else fresh[left])
        if len(taken):
            folds.append((np.setdiff1d(everything, left[taken]), left[taken]))
        left = left[kept]
    return folds or [(everything, everything)]


@dataclass(frozen=True)
class _Work:
    """Fits and measures plans on the same rows."""

    y: Array
    bins: Labels
    regions: TargetRegions
    config: RegressConfig
    rng: np.random.Generator
    device: torch.device
    progress: Progress | None

    def measure(self, plan: Plan, demixed: _Demixed) -> _Tried:
        """Held-out losses of every row that is held out, under the best setting."""
        paths = []
        for part, learn, check in demixed.folds:
            losses_of = self._losses_of(part.learned[check] * plan.scale(part), self.y[check])
            fitter, alike = self._fitter(plan.head), np.full(len(check), 1 / len(check))
            watched = Watched(losses_of, alike, halves(self.bins[check]))
            paths.append([
                (setting, watched.kept if fitter.chooses_on_path else losses_of(head))
                for setting, head in fitter.path(self._sample(plan, part, learn), watched)
            ])  # fmt: skip
        rows = np.concatenate([check for _, _, check in demixed.folds])
        order = np.argsort(rows)
        steps = [
            (float(np.median([one[0] for one in step])), np.concatenate([one[1] for one in step])[order])
            for step in zip(*paths, strict=True)
        ]
        losses = across_halves(
            halves(self.bins[rows[order]]),
            lambda mine: min((one for _, one in steps), key=lambda one: one[mine].mean()),
        )
        return _Tried(plan, min(steps, key=lambda step: step[1].mean())[0], rows[order], losses)

    def fit(self, chosen: _Tried, demixed: DemixResult) -> nn.Module:
        """The chosen plan on all rows."""
        rows = np.arange(len(self.y))
        with seeded(int(self.rng.integers(2**62))):
            sample = self._sample(chosen.plan, demixed, rows)
            return self._fitter(chosen.plan.head).fit(sample, chosen.setting).double().cpu().eval()

    def _losses_of(self, scaled: Array, y: Array) -> Callable[[nn.Module], Array]:
        truth = torch.from_numpy(self.regions.standardise(y))

        def losses(head: nn.Module) -> Array:
            predicted = torch.from_numpy(head_outputs(head.eval(), scaled))
            return regression_loss(self.config.loss, predicted, truth, self.config.delta).numpy()

        return losses

    def _sample(self, plan: Plan, demixed: DemixResult, rows: Labels) -> HeadSample:
        """Real and synthetic rows. Samples from donors take over mass of their region, interpolated rows add to it."""
        config, regions, n = self.config, self.regions, len(rows)
        scaled, y = demixed.learned[rows] * plan.scale(demixed), self.y[rows]
        s_drawn, y_drawn = np.empty((0, scaled.shape[1])), np.empty((0, y.shape[1]))
        if plan.augmentation == "interpolated":
            s_drawn, y_drawn = rows_between(scaled, y, regions, config.n_donors, self.rng)
        elif plan.augmentation == "donors":
            y_drawn = draw_targets(y, regions, config.n_synthetic or max(n // 2, 20), self.rng)
            standard = regions.standardise
            s_drawn = draw_from_donors(scaled, standard(y), standard(y_drawn), config.n_donors, self.rng)
        y_all = np.concatenate([y, y_drawn])
        region = regions.region_of(y_all)
        counts = np.bincount(region[:n], minlength=len(regions.counts))
        synthetic = torch.arange(len(y_all)) >= n
        if plan.augmentation == "donors":
            mass = torch.from_numpy(np.where(counts > 0, np.maximum(counts, 1.0) ** (1 - plan.region_mass), 0.0))
            share = torch.from_numpy(regions.rare * config.augmentation_weight)
            weight = sample_weights(torch.from_numpy(region), synthetic, mass / mass.sum(), share)
        else:
            weight = torch.from_numpy(np.maximum(counts, 1.0)[region] ** -plan.region_mass)
        return HeadSample(
            torch.from_numpy(np.concatenate([scaled, s_drawn])).float().to(self.device),
            torch.from_numpy(regions.standardise(y_all)).float().to(self.device),
            (weight / weight.sum()).float().to(self.device),
            synthetic.to(self.device),
        )

    def _fitter(self, name: RegressionHeadName) -> HeadFitter:
        config = self.config
        if name == "linear":
            return LinearRegressionFitter(config.loss, config.delta, config.weight_decay)
        if name == "mlp":
            loss = partial(regression_loss, config.loss, delta=config.delta)
            generator = torch_generator(self.rng)
            return MLPFitter(self.y.shape[1], loss, config.hidden, 0.0, config.training, generator, self.progress)
        raise InputError(f"head={name!r}: use 'auto', 'linear' or 'mlp'.")
