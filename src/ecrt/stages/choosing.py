"""Stages 2 to 4 together: held-out rows choose the de-mixing, the head and its setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ecrt.data import ClassRoles
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
from ecrt.randomness import seeded
from ecrt.stages.augmenting import Augmentation, Synthetic
from ecrt.stages.demixing import Demixing, DemixResult
from ecrt.stages.heads import Head, HeadFitter
from ecrt.stages.holdout import Watched, across_halves, all_fresh, better_under_weights, halves, head_folds
from ecrt.stages.targets import Labelled, RowTarget, View, row_target
from ecrt.training import Progress, stop_requested

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """The head that held-out rows chose.

    Attributes
    ----------
    head, setting : which head, with which weight decay, epochs or pseudo-samples.
    rows : those that were held out from the fits that they judge.
    held_out_losses : balanced NLL of each of these rows under what the other half of them would have chosen.
    held_out : mean of these, every class with the same weight.
    candidates : held-out balanced NLL, every class with the same weight, of all that was tried.
    fit : fits the choice on all rows: scaled sources to balanced logits, float64 on the CPU.
    trial : balanced logits of rows that the head on trial had not seen, and these rows.
    temperature : what logits are divided by; 1 unless the loss gives them their own scale.
    """

    head: Head
    setting: float
    rows: Labels
    held_out_losses: Array
    held_out: float
    candidates: dict[str, float]
    fit: Callable[[], nn.Module]
    trial: Callable[[], tuple[Array, Labels]]
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


@dataclass(frozen=True, kw_only=True)
class TransferResult:
    """The chosen de-mixing with its head.

    Attributes
    ----------
    demixing, demixed : the chosen way of de-mixing, and its result.
    head : scaled sources to balanced logits.
    choice : how that head was chosen.
    held_out : for each way of de-mixing tried, the held-out balanced NLL of its head: of every row under the head that
        the other half of the rows would have chosen.
    """

    demixing: Demixing
    demixed: DemixResult
    head: nn.Module
    choice: HeadChoice
    held_out: dict[str, float]


def transfer(
    z: Array,
    y: Labels | Labelled,
    *,
    roles: ClassRoles,
    candidates: Sequence[Demixing],
    augmentation: Augmentation,
    heads: Sequence[Head],
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    draw_from: Callable[[Array, Labels, Labels, Labels], Draw] | None = None,
    fresh: Mask | None = None,
) -> TransferResult:
    """De-mix and fit a head for every candidate, simplest first; a later one must be better beyond noise.

    Parameters
    ----------
    z, y : features of rows that the encoder was not trained on, and their class indices or labels.
    roles : what every class or label is used for; labels without a positive row are used for nothing.
    validation : share of each class, or of rows by their rarest label, held out to stop, choose and compare.
    draw_from : features, classes, training rows and held-out rows, to another way to synthetic sources than
        ``augmentation``, whose weight they have; for classes.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    """
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    target = row_target(y, roles, augmentation, rng, device)
    train_rows, held_out_rows = target.split(validation, fresh)
    if len(held_out_rows) == 0:
        raise InputError(
            f"No row can be held out of {len(z)} rows: at least two rows must have the same class, or the same rarest "
            "label."
        )

    best: tuple[Demixing, DemixResult, HeadChoice] | None = None
    held_out: dict[str, float] = {}
    for config in candidates:
        if best is not None and stop_requested():
            break
        try:
            demixed = target.demix(z, train_rows, held_out_rows, config, progress)
            draw = None if draw_from is None else draw_from(z, target.strata, train_rows, held_out_rows)
            choice = choose_head(
                target, demixed, heads, train_rows=train_rows, held_out_rows=held_out_rows, progress=progress,
                draw=draw, fresh=fresh,
            )  # fmt: skip
        except StoppedError:
            if best is None:
                raise
            break
        except DivergenceError as error:
            if best is None:
                raise
            warn_user(f"De-mixing by {config.kind!r} failed. {error}")
            continue
        again = sum(name.split(" ")[0] == config.kind for name in held_out)
        held_out[f"{config.kind} {again + 1}" if again else config.kind] = choice.held_out
        if best is None or _better(choice, best[2], target):
            best = config, demixed, choice
    if best is None:
        raise InputError("No way of de-mixing was given.")
    config, demixed, choice = best
    return TransferResult(demixing=config, demixed=demixed, head=choice.fit(), choice=choice, held_out=held_out)


def _better(challenger: HeadChoice, champion: HeadChoice, target: RowTarget) -> bool:
    """Whether the challenger's losses are lower beyond noise, on the rows that judge both."""
    rows, mine, theirs = np.intersect1d(challenger.rows, champion.rows, assume_unique=True, return_indices=True)
    return len(rows) > 0 and better_under_weights(
        challenger.held_out_losses[mine], champion.held_out_losses[theirs], target.weights(rows)
    )


def choose_head(
    target: RowTarget,
    demixed: DemixResult,
    heads: Sequence[Head],
    *,
    train_rows: Labels,
    held_out_rows: Labels,
    progress: Progress | None = None,
    draw: Draw | None = None,
    fresh: Mask | None = None,
) -> HeadChoice:
    """Choose head and setting on held-out rows; the choice can then be fitted on all rows.

    Whatever a fit needs, it learns from the rows that it may see: linear de-mixing is learned anew for every fold, and
    synthetic sources are drawn each time from the very rows of the fit.

    Parameters
    ----------
    target, demixed : classes or labels of the rows, and their sources.
    heads : the simplest first; a later one must lower the held-out loss, every class with the same weight, beyond
        noise.
    draw : makes synthetic sources; ``None`` for those of ``augmentation``.
    fresh : rows that earlier stages have not looked at, ``None`` for all.
    """
    rng = target.rng

    def view(part: DemixResult, learn: Labels) -> View:
        return View(target, part, None if draw is None else draw.made_from(part, learn))

    everything = np.concatenate([train_rows, held_out_rows])
    known = all_fresh(fresh, demixed.fresh, None if draw is None else draw.fresh)
    folds = [
        Fold(view(demixed if demixed.refit is None else demixed.refit(learn), learn), learn, check)
        for learn, check in head_folds(target.strata, train_rows, held_out_rows, rng, known)
    ]
    rows, place = np.unique(np.concatenate([fold.check for fold in folds]), return_inverse=True)
    weight = _shares(target.weights(rows))
    with seeded(int(rng.integers(2**62))):
        fitters = [(head, head.fitter(target, rng, progress)) for head in heads]
        kinds = _candidates(fitters, folds, place)
    best, first = _best(kinds, weight), folds[0]
    losses = across_halves(halves(target.strata[rows]), lambda mine: _best(kinds, weight * mine).losses)
    temperature = first.view.temperature(first.check, best.head, best.module)

    def fit() -> nn.Module:
        with seeded(int(rng.integers(2**62))):
            module = best.fitter.fit(view(demixed, everything).sample(everything, best.head), best.setting)
        return target.balanced(module, best.head, temperature).double().cpu().eval()

    def trial() -> tuple[Array, Labels]:
        return first.view.logits(first.check, best.head, best.module, temperature).cpu().numpy(), first.check

    return HeadChoice(
        head=best.head,
        setting=best.setting,
        rows=rows,
        held_out_losses=losses,
        held_out=float(weight @ losses),
        candidates={
            f"{one.head.kind} {one.setting:g}": float(weight @ one.losses) for kind in kinds for one in kind
        },
        fit=fit,
        trial=trial,
        temperature=temperature,
    )  # fmt: skip


def fit_head(
    target: RowTarget,
    demixed: DemixResult,
    head: Head,
    setting: float,
    temperature: float,
    progress: Progress | None = None,
) -> nn.Module:
    """A head under a setting that was chosen before, on all rows; see ``HeadChoice.fit``."""
    everything = np.arange(len(target.strata))
    with seeded(int(target.rng.integers(2**62))):
        fitter = head.fitter(target, target.rng, progress)
        module = fitter.fit(View(target, demixed).sample(everything, head), setting)
    return target.balanced(module, head, temperature).double().cpu().eval()


class Fold(NamedTuple):
    """Rows to learn from and rows to check on, as a de-mixing of the former shows them."""

    view: View
    learn: Labels
    check: Labels


class Candidate(NamedTuple):
    """A head under one setting, with the losses of all rows that were checked on.

    ``module`` is the one that has not seen the given held-out rows.
    """

    head: Head
    fitter: HeadFitter
    setting: float
    losses: Array
    module: nn.Module


def _candidates(
    fitters: Sequence[tuple[Head, HeadFitter]], folds: list[Fold], place: Labels
) -> list[list[Candidate]]:  # fmt: skip
    """The settings of each head; ``place`` says where the checked rows of the folds, which may overlap, belong."""
    times = np.bincount(place)
    kinds: list[list[Candidate]] = []
    for head, fitter in fitters:
        if kinds and stop_requested():
            break
        try:
            paths = [_walk(head, fitter, fold) for fold in folds]
        except StoppedError:
            if not kinds:
                raise
            break
        kinds.append([
            # The same step of the path in every fold; where the setting was found in training, its median.
            Candidate(
                head,
                fitter,
                float(np.median([setting for setting, _, _ in steps])),
                np.bincount(place, weights=np.concatenate([losses for _, losses, _ in steps])) / times,
                steps[0][2],
            )
            for steps in zip(*paths, strict=False)
        ])  # fmt: skip
    kinds = [kind for kind in kinds if kind]
    if not kinds:
        raise InputError("No head to choose from: give at least one.")
    return kinds


def _best(kinds: list[list[Candidate]], weight: Array) -> Candidate:
    """The best setting of the first kind that none after it beats beyond noise."""
    best, *others = [min(kind, key=lambda one: float(weight @ one.losses)) for kind in kinds]
    for other in others:
        best = other if better_under_weights(other.losses, best.losses, weight) else best
    return best


def _shares(weight: Array) -> Array:
    return weight / weight.sum()


def _walk(head: Head, fitter: HeadFitter, fold: Fold) -> list[tuple[float, Array, nn.Module]]:
    """Settings along a fitter's path with the losses of held-out rows, until these have risen twice.

    Of a head that they have a part in, each half of the rows has the losses of what the other half likes best.
    """
    target = fold.view.target
    weight, losses_on = _shares(target.weights(fold.check)), partial(fold.view.losses, fold.check, head)
    watched = Watched(losses_on, weight, halves(target.strata[fold.check]))
    steps: list[tuple[float, Array, nn.Module]] = []
    lowest, rises = np.inf, 0
    for setting, module in fitter.path(fold.view.sample(fold.learn, head), watched):
        losses = watched.kept if fitter.chooses_on_path else losses_on(module)
        steps.append((setting, losses, module))
        loss = float(weight @ losses)
        rises = rises + 1 if loss >= lowest else 0
        lowest = min(lowest, loss)
        if rises == 2 or stop_requested():
            break
    return steps
