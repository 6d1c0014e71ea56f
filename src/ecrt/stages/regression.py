"""Stages 2 to 4 for a continuous target: simplest first, one change at a time; held-out rows decide what is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.arrays import Array, Labels
from ecrt.augmentation import DonorDraws, draw_from_donors, draw_targets, rows_between
from ecrt.data import ClassRoles, stratified_holdout
from ecrt.data.minority import TargetRegions
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
from ecrt.losses import REGRESSION_LOSS_OPTIONS, check_loss, regression_loss, sample_weights
from ecrt.metrics import mean_over_classes
from ecrt.randomness import own_generator_on, seeded
from ecrt.stages.augmenting import Donors, Interpolated, NoAugmentation
from ecrt.stages.blending import Member
from ecrt.stages.demixing import Demixing, DemixResult, NoDemixing, demix
from ecrt.stages.encoding import Encoder, EncoderTarget
from ecrt.stages.heads import (
    MANY_ROWS,
    HeadFitter,
    HeadLoss,
    HeadSample,
    LinearFitter,
    LinearHead,
    MLPHead,
    NetworkHead,
    Networks,
    Target,
    device_outputs,
    loss_for,
)
from ecrt.stages.holdout import Watched, across_halves, better_under_weights, halves
from ecrt.stages.parts import Part
from ecrt.training import Progress, stop_requested

FEW_ROWS = 2000
"""Up to this many rows four folds are held out in turn: one would hold too few rare rows to decide by."""

TOLERANCE = 0.02
"""What is gained in rare regions may cost this share of the loss over all rows, and no more."""

WEIGHT_DECAYS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
SMOOTH_CORNER = 0.02
"""The absolute loss of a linear head is rounded off within this distance of zero: L-BFGS needs a gradient there."""


@dataclass(frozen=True)
class NumberTarget(Target):
    """Standardised numbers, of which ``y`` holds some for each row."""

    y: Array

    @property
    def n_outputs(self) -> int:
        """One column for each column of the target."""
        return int(self.y.shape[1])

    @property
    def networks(self) -> Networks:
        """How heads that are trained by steps are made."""
        few = len(self.y) <= MANY_ROWS
        # Held-out loss over few rows is noisy while steps are long: no epoch is the last before they are short.
        return Networks(
            hidden=(128, 128), dropout=0.0, learning_rate=4e-3, batch_size=128 if few else 256,
            patience=None if few else 15,
        )  # fmt: skip

    def named_loss(self, head: NetworkHead) -> tuple[Any, float]:
        """Name of the loss, and where Huber's turns linear."""
        if head.class_mass != "training":
            raise InputError(f"{type(head).__name__}: a continuous target has no classes; leave class_mass out.")
        name = head.loss_name("squared", REGRESSION_LOSS_OPTIONS, "Numbers")
        delta = check_loss(name, head.loss_options, REGRESSION_LOSS_OPTIONS).get("delta", 1.0)
        if not delta > 0:
            raise InputError(f"loss='huber': delta must be a number above 0, got {delta!r}.")
        return name, float(delta)

    def encoder_target(self, encoder: Encoder, regions: TargetRegions, rows: NDArray[np.bool_]) -> EncoderTarget:
        """The numbers for an encoder, in units of their spread; ``rows`` are those that it may learn from."""
        name: Any = loss_for(encoder.loss, "squared", REGRESSION_LOSS_OPTIONS, "Numbers are learned by an encoder")
        if encoder.head == "cosine":
            raise InputError("Encoder: head='cosine' is for rows with one class each; use 'linear' here.")
        delta = check_loss(name, encoder.loss_options, REGRESSION_LOSS_OPTIONS).get("delta", 1.0)
        values = torch.from_numpy(regions.standardise(self.y)).float()
        return EncoderTarget(values, rows, lambda outputs, y: regression_loss(name, outputs, y, delta))

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """Squared, absolute or Huber's loss."""
        name, delta = self.named_loss(head)
        return lambda outputs, y, done=1.0: regression_loss(name, outputs, y, delta)

    def linear_fitter(self, head: LinearHead) -> LinearFitter:
        """Ridge regression, solved at once; the other losses take L-BFGS."""
        name, _ = self.named_loss(head)
        decays = WEIGHT_DECAYS if head.weight_decay is None else (head.weight_decay,)
        solve = _solve_ridge if name == "squared" else None

        def rounded(outputs: Tensor, y: Tensor, done: float) -> Tensor:
            return regression_loss("huber", outputs, y, SMOOTH_CORNER) / SMOOTH_CORNER

        loss = rounded if name == "absolute" else self.loss_of(head)
        return LinearFitter(self.n_outputs, loss, decays, precise=True, solve=solve)


@torch.no_grad()
def _solve_ridge(head: nn.Module, sample: HeadSample, decay: float) -> None:
    """Least squares with weights that sum to one; the loss is a mean over outputs, hence their number."""
    s, y, w = sample.s, sample.y, sample.weight
    s_mean, y_mean = w @ s, w @ y
    s_centred, y_centred = s - s_mean, y - y_mean
    weighted = s_centred * w[:, None]
    penalty = (0.5 * decay * y.shape[1] + 1e-12) * torch.eye(s.shape[1], dtype=s.dtype, device=s.device)
    solution = torch.linalg.solve(weighted.T @ s_centred + penalty, weighted.T @ y_centred)
    head.get_parameter("weight").copy_(solution.T)
    head.get_parameter("bias").copy_(y_mean - s_mean @ solution)


@dataclass(frozen=True)
class Plan:
    """One way to predict: how sources are found and weighed, which head, mass of regions and augmentation it has."""

    demixing: Demixing
    head: NetworkHead
    region_mass: float
    augmentation: Part
    weighted: bool = False

    def __str__(self) -> str:
        sources = f"{self.demixing.kind}, weighted" if self.weighted else self.demixing.kind
        return f"{sources}, {self.head.kind}, mass {self.region_mass:g}, augmentation {self.augmentation.kind}"

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
    member : scaled sources to standardised targets.
    plan : what was chosen.
    held_out : loss over all held-out rows and over the rare ones, of all that was tried.
    """

    demixed: DemixResult
    member: Member
    plan: Plan
    held_out: dict[str, dict[str, float]]


def regress(
    z: Array,
    y: Array,
    *,
    bins: Labels,
    regions: TargetRegions,
    roles: ClassRoles,
    candidates: Sequence[Demixing],
    heads: Sequence[NetworkHead],
    augmentations: Sequence[Part],
    region_mass: Sequence[float],
    weighings: Sequence[bool],
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    fresh: NDArray[np.bool_] | None = None,
) -> RegressResult:
    """Choose de-mixing, head, mass of regions and augmentation, and fit the choice on all rows.

    A change is kept if it lowers the held-out loss, in which rare rows have as much weight as the others, and does not
    raise the loss over all rows by more than 2 % of that of the best plain regression. A flow, learned once, is judged
    on fewer rows than the rest: it must be better beyond noise.

    Parameters
    ----------
    z, y : features (n, d) and targets (n, outputs).
    bins : quantile bins of the targets, the labels of the contrast.
    regions, roles : where targets are rare; the part each bin plays.
    candidates, heads, augmentations : ways of de-mixing, heads and ways to synthetic rows to try, the simplest first.
    region_mass : powers a to try: a region of n rows has mass n^(1 - a); 0 is as in training, 1 makes regions equal.
    weighings : whether sources are weighed by their signal, to try.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    """
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    folds = _folds(bins, validation, rng, fresh)
    search = _Search(y, bins, regions, rng, device, progress)
    with seeded(int(rng.integers(2**62))):
        for how in candidates:
            try:
                whole = demix(
                    z, bins, train_rows=folds[0][0], held_out_rows=folds[0][1], demixed_on=roles.demixed_on, config=how,
                    rng=rng, device=device, progress=progress,
                )  # fmt: skip
            except StoppedError:
                if not search.tried:
                    raise
                break
            except DivergenceError as error:
                if not search.tried:
                    raise
                warn_user(f"De-mixing by {how.kind!r} failed. {error}")
                continue
            search.found[id(how)] = whole, _folds_of(whole, folds)
            plain = isinstance(how, NoDemixing)
            if not search.tried:
                for head in heads:
                    search.consider(Plan(how, head, region_mass[0], augmentations[0], weighings[0] and not plain))
            settled = any(one.plan.demixing.kind == "linear" for one in search.tried)
            ways: Sequence[bool] = (search.best.plan.weighted,) if settled else weighings
            for weighted in (False,) if plain else ways:
                search.consider(replace(search.best.plan, demixing=how, weighted=weighted))
            for augmentation in augmentations[1:]:
                mine = [one for one in search.tried if one.plan.demixing is how] or [search.best]
                search.consider(replace(min(mine, key=search.balanced).plan, augmentation=augmentation))
        for mass in region_mass[1:]:
            search.consider(replace(search.best.plan, region_mass=mass))
    plan, (demixed, _) = search.best.plan, search.found[id(search.best.plan.demixing)]
    member = Member(
        demixing=plan.demixing, augmentation=plan.augmentation, head=plan.head, setting=search.best.setting,
        held_out=search.balanced(search.best), demixer=demixed.demixer, signal_weight=demixed.signal_weight,
        within_variance=demixed.within_variance, scale=plan.scale(demixed), network=search.fit(),
    )  # fmt: skip
    held_out = {str(one.plan): search.summary(one) for one in search.tried}
    return RegressResult(demixed=demixed, member=member, plan=plan, held_out=held_out)


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


Fold = tuple[DemixResult, Labels, Labels]
"""A de-mixing that may be judged, the rows to learn from, and the rows to check on."""


def _folds_of(whole: DemixResult, folds: list[tuple[Labels, Labels]]) -> list[Fold]:
    """Every fold with its own de-mixing; of one that was learned once, the first fold with its fresh rows."""
    if whole.refit is not None:
        return [(whole.refit(learn), learn, check) for learn, check in folds]
    learn, check = folds[0]
    fresh = check if whole.fresh is None or not whole.fresh[check].any() else check[whole.fresh[check]]
    return [(whole, np.union1d(learn, np.setdiff1d(check, fresh)), fresh)]


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


class _Search:
    """Fits and measures plans on the same rows, and keeps the best."""

    best: _Tried

    def __init__(
        self, y: Array, bins: Labels, regions: TargetRegions, rng: np.random.Generator, device: torch.device,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        self.y, self.bins, self.regions, self.rng, self.device, self.progress = y, bins, regions, rng, device, progress
        self.rare = regions.is_rare(y)
        self.target = NumberTarget(y)
        self.tried: list[_Tried] = []
        self.found: dict[int, tuple[DemixResult, list[Fold]]] = {}

    def consider(self, plan: Plan) -> None:
        """Measure a plan, and keep it if it is better than the best so far and can be afforded."""
        if self.tried and (stop_requested() or any(one.plan == plan for one in self.tried)):
            return
        try:
            challenger = self.measure(plan)
        except StoppedError:
            if not self.tried:
                raise
            return
        self.tried.append(challenger)
        plain = [
            one.on(_common(one, challenger)).mean()
            for one in self.tried
            if one.plan.region_mass == 0 and isinstance(one.plan.augmentation, NoAugmentation)
        ]
        affordable = challenger.losses.mean() <= (1 + TOLERANCE) * min(plain, default=np.inf)
        if len(self.tried) == 1 or (affordable and self.better(challenger, self.best)):
            self.best = challenger

    def balanced(self, one: _Tried) -> float:
        """Held-out loss in which rare rows have as much weight as the others."""
        return mean_over_classes(one.losses, self.rare[one.rows].astype(np.int64))

    def better(self, challenger: _Tried, champion: _Tried) -> bool:
        """Whether that loss is lower; beyond noise, where not all rows judge both."""
        rows = _common(challenger, champion)
        if len(rows) == len(challenger.rows) == len(champion.rows):
            return self.balanced(challenger) < self.balanced(champion)
        kind = self.rare[rows].astype(np.int64)
        weight = (1 / np.maximum(np.bincount(kind), 1))[kind]
        return len(rows) > 0 and better_under_weights(challenger.on(rows), champion.on(rows), weight)

    def summary(self, one: _Tried) -> dict[str, float]:
        """Mean loss over all rows, and over rare ones."""
        rare = one.losses[self.rare[one.rows]]
        return {"all": float(one.losses.mean()), "rare": float(rare.mean()) if len(rare) else float("nan")}

    def measure(self, plan: Plan) -> _Tried:
        """Held-out losses of every row that is held out, under the best setting."""
        paths = []
        folds = self.found[id(plan.demixing)][1]
        for part, learn, check in folds:
            scaled = torch.from_numpy(part.learned[check] * plan.scale(part))
            losses_of = self._losses_of(plan.head, self.y[check])
            fitter, weight = self._fitter(plan.head), np.full(len(check), 1 / len(check))
            outputs_of = partial(_outputs_of, scaled)
            watched = Watched(outputs_of, losses_of, weight, halves(self.bins[check]))
            paths.append([
                (setting, losses_of(watched.kept if fitter.chooses_on_path else outputs_of(head.eval())))
                for setting, head in fitter.path(self.sample(plan, part, learn), watched)
            ])  # fmt: skip
        rows = np.concatenate([check for _, _, check in folds])
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

    def fit(self) -> nn.Module:
        """The best plan on all rows."""
        plan = self.best.plan
        with seeded(int(self.rng.integers(2**62))):
            sample = self.sample(plan, self.found[id(plan.demixing)][0], np.arange(len(self.y)))
            return self._fitter(plan.head).fit(sample, self.best.setting).double().cpu().eval()

    def _losses_of(self, head: NetworkHead, y: Array) -> Callable[..., Array]:
        truth, loss = torch.from_numpy(self.regions.standardise(y)), self.target.loss_of(head)
        return lambda outputs, part=slice(None): loss(outputs.cpu(), truth[part]).numpy()

    def sample(self, plan: Plan, demixed: DemixResult, rows: Labels) -> HeadSample:
        """Real and synthetic rows. Samples from donors take over mass of their region, interpolated rows add to it."""
        how, regions, n = plan.augmentation, self.regions, len(rows)
        again: Callable[[Tensor], Tensor] | None = None
        scaled, y = demixed.learned[rows] * plan.scale(demixed), self.y[rows]
        s_drawn, y_drawn = np.empty((0, scaled.shape[1])), np.empty((0, y.shape[1]))
        if isinstance(how, Interpolated):
            s_drawn, y_drawn = rows_between(scaled, y, regions, how.n_donors, self.rng)
        elif isinstance(how, Donors):
            y_drawn = draw_targets(y, regions, how.n_synthetic or max(n // 2, 20), self.rng)
            standard = regions.standardise
            s_drawn = draw_from_donors(scaled, standard(y), standard(y_drawn), how.n_donors, self.rng)
            if len(y_drawn) and isinstance(plan.head, MLPHead):
                donors = DonorDraws(scaled, standard(y), standard(y_drawn), how.n_donors, self.device)
                again = partial(_drawn_again, donors, n)
        y_all = np.concatenate([y, y_drawn])
        region = regions.region_of(y_all)
        counts = np.bincount(region[:n], minlength=len(regions.counts))
        synthetic = torch.arange(len(y_all)) >= n
        if isinstance(how, Donors):
            mass = np.where(counts > 0, np.maximum(counts, 1.0) ** (1 - plan.region_mass), 0.0)
            mass = mass / mass.sum()
            real, drawn = how.multiples(mass, regions.rare)
            weight = sample_weights(
                torch.from_numpy(region), synthetic, torch.from_numpy(mass * (real + drawn)),
                torch.from_numpy(drawn / (real + drawn)),
            )  # fmt: skip
        else:
            weight = torch.from_numpy(np.maximum(counts, 1.0)[region] ** -plan.region_mass)
        return HeadSample(
            torch.from_numpy(np.concatenate([scaled, s_drawn])).float().to(self.device),
            torch.from_numpy(regions.standardise(y_all)).float().to(self.device),
            (weight / weight.sum()).float().to(self.device),
            synthetic.to(self.device),
            draw=again,
        )

    def _fitter(self, head: NetworkHead) -> HeadFitter:
        return head.fitter(self.target, self.rng, self.progress)


def _outputs_of(scaled: Tensor, head: nn.Module, part: slice = slice(None)) -> Tensor:
    return device_outputs(head, scaled[part])


def _drawn_again(donors: DonorDraws, n_real: int, rows: Tensor) -> Tensor:
    """Other sources for rows of a sample, of which those after the real ones count."""
    return donors((rows - n_real).clamp(min=0), own_generator_on(rows.device))


def _common(first: _Tried, second: _Tried) -> Labels:
    return np.intersect1d(first.rows, second.rows, assume_unique=True)
