"""Stage 4 on trial: held-out rows choose the setting of a head, and judge what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.errors import InputError, StoppedError
from ecrt.machine import ask
from ecrt.randomness import seeded
from ecrt.stages.augmenting import Augmentation, Synthetic
from ecrt.stages.demixing import Demixing, DemixResult
from ecrt.stages.heads import Head, HeadFitter
from ecrt.stages.holdout import Watched, all_fresh, halves, head_folds
from ecrt.stages.targets import RowTarget, View
from ecrt.stages.unlabelled import SoftRows
from ecrt.training import Progress, stop_requested


@dataclass(frozen=True, kw_only=True)
class HeadChoice:
    """A head under the setting that held-out rows chose.

    Attributes
    ----------
    head, setting : which head, with which weight decay, epochs or pseudo-samples.
    rows : those that were held out from the fits that they judge.
    held_out_losses : balanced NLL of each of these rows under the setting that the other half of them would choose.
    held_out : mean of these, every class with the same weight.
    candidates : held-out balanced NLL, every class with the same weight, of all settings.
    fit : fits the choice on all rows: scaled sources to balanced logits, float64 on the CPU.
    logits : balanced logits of ``rows``, each under the setting that the other half would choose, float64 on the CPU.
    trial : balanced logits of rows that the head on trial had not seen, and these rows.
    temperature : what logits are divided by; 1 unless the loss gives them their own scale.
    folds : rows to learn from and rows to check on that it was chosen by.
    """

    head: Head
    setting: float
    rows: Labels
    held_out_losses: Array
    held_out: float
    candidates: dict[str, float]
    fit: Callable[[], nn.Module]
    logits: Callable[[], Tensor]
    trial: Callable[[], tuple[Array, Labels]]
    temperature: float = 1.0
    folds: tuple[tuple[Labels, Labels], ...] = ()


class Candidate(NamedTuple):
    """A head on one de-mixing, as held-out rows know it; ``taught``: by unlabelled rows as well."""

    demixing: Demixing
    augmentation: Augmentation
    demixed: DemixResult
    choice: HeadChoice
    taught: bool = False

    @property
    def name(self) -> str:
        """That of the member that it may become."""
        return member_name(self.demixing, self.choice.head, self.taught)

    @property
    def transfers(self) -> bool:
        """Whether it predicts from sources, not from plain features."""
        return self.demixing.kind != "none"


def member_name(demixing: Demixing, head: Head, taught: bool) -> str:
    """De-mixing and head, such as ``"linear, gaussian"``."""
    return f"{demixing.title}, {head.kind}" + (", unlabelled rows" if taught else "")


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


def try_heads(
    target: RowTarget,
    demixed: DemixResult,
    heads: Sequence[Head],
    *,
    train_rows: Labels,
    held_out_rows: Labels,
    progress: Progress | None = None,
    draw: Draw | None = None,
    fresh: Mask | None = None,
    folds: Sequence[tuple[Labels, Labels]] = (),
    before: Sequence[HeadChoice] = (),
    soft: Callable[[Labels], SoftRows] | None = None,
) -> list[HeadChoice]:
    """Each head under the setting that serves held-out rows best; what is chosen can then be fitted on all rows.

    Whatever a fit needs, it learns from the rows that it may see: linear de-mixing is learned anew for every fold, and
    synthetic sources are drawn each time from the very rows of the fit. Heads that there is no time for are left out.

    Parameters
    ----------
    target, demixed : classes or labels of the rows, and their sources.
    draw : makes synthetic sources; ``None`` for those of ``augmentation``.
    fresh : rows that earlier stages have not looked at, ``None`` for all.
    folds : those of other heads, to be compared on the same rows; kept if no earlier stage has looked at their rows.
    before : earlier choices of the same heads, whose folds and settings are kept.
    soft : rows without labels to learn from as well, from the labelled rows that may say what they are.
    """
    rng = target.rng

    def view(part: DemixResult, learn: Labels) -> View:
        drawn = None if draw is None else draw.made_from(part, learn)
        return View(target, part, drawn, None if soft is None else soft(learn))

    def fit(head: Head, fitter: HeadFitter, setting: float, temperature: float) -> nn.Module:
        everything = np.concatenate([train_rows, held_out_rows])
        with seeded(int(rng.integers(2**62))):
            module = fitter.fit(view(demixed, everything).sample(everything, head), setting)
        return target.balanced(module, head, temperature).double().cpu().eval()

    known = all_fresh(fresh, demixed.fresh, None if draw is None else draw.fresh)
    if before:
        folds = before[0].folds
    elif not folds or (known is not None and not all(known[check].all() for _, check in folds)):
        folds = head_folds(target.strata, train_rows, held_out_rows, rng, known)
    views = [
        Fold(view(demixed if demixed.refit is None else demixed.refit(learn), learn), learn, check)
        for learn, check in folds
    ]
    found: list[HeadChoice] = []
    with seeded(int(rng.integers(2**62))):
        for place, (head, fitter) in enumerate([(head, head.fitter(target, rng, progress)) for head in heads]):
            if found and stop_requested():
                break
            try:
                walks = [_walk(head, fitter, fold, before[place].setting if before else None) for fold in views]
            except StoppedError:
                if not found:
                    raise
                break
            found.append(_choice(target, head, views, walks, partial(fit, head, fitter)))
    if not found:
        raise InputError("No head to choose from: give at least one.")
    return found


def fit_head(
    target: RowTarget,
    demixed: DemixResult,
    head: Head,
    setting: float,
    temperature: float,
    progress: Progress | None = None,
    rows: Labels | None = None,
    soft: SoftRows | None = None,
) -> nn.Module:
    """A head under a setting that was chosen before; see ``HeadChoice.fit``.

    ``rows`` and ``soft``: labelled rows to learn from, ``None`` for all, and rows without labels.
    """
    rows = np.arange(len(target.strata)) if rows is None else rows
    with seeded(int(target.rng.integers(2**62))):
        fitter = head.fitter(target, target.rng, progress)
        module = fitter.fit(View(target, demixed, soft=soft).sample(rows, head), setting)
    return target.balanced(module, head, temperature).double().cpu().eval()


class Fold(NamedTuple):
    """Rows to learn from and rows to check on, as a de-mixing of the former shows them."""

    view: View
    learn: Labels
    check: Labels


class Step(NamedTuple):
    """A setting, the head that was fitted under it, and losses of the rows to check on.

    ``logits`` of these rows are kept where they have a part in the head: each half under what the other half chose.
    """

    setting: float
    module: nn.Module
    losses: Array
    logits: Tensor | None


def _choice(
    target: RowTarget, head: Head, folds: list[Fold], walks: list[list[Step]], fit: Callable[[float, float], nn.Module]
) -> HeadChoice:
    """The best of the settings that a head was walked through in each fold."""
    rows, place = np.unique(np.concatenate([fold.check for fold in folds]), return_inverse=True)
    times, weight = np.bincount(place), _shares(target.weights(rows))
    half = halves(target.strata[rows])
    # The same step of the path in every fold; where the setting was found in training, its median.
    paths = list(zip(*walks, strict=False))
    settings = [float(np.median([step.setting for step in steps])) for steps in paths]
    losses = np.stack([
        np.bincount(place, weights=np.concatenate([step.losses for step in steps])) / times for steps in paths
    ])  # fmt: skip
    best, first = int((losses @ weight).argmin()), folds[0]
    chosen_by = {side: int((losses @ (weight * (half == side))).argmin()) for side in (True, False)}
    choosers = np.where(half, chosen_by[bool(half.all())], chosen_by[True])  # of a row: the other half, or all

    def logits_of(step: int) -> Tensor:
        parts = [
            one.logits if one.logits is not None else fold.view.judged(fold.check, head, one.module)
            for one, fold in zip(paths[step], folds, strict=True)
        ]
        sums = parts[0].new_zeros(len(rows), parts[0].shape[1])
        sums.index_add_(0, torch.from_numpy(place).to(sums.device), torch.cat(parts))
        return sums.cpu() / torch.from_numpy(times)[:, None]

    def logits() -> Tensor:
        one, *others = np.unique(choosers).tolist()
        found = logits_of(one)
        for step in others:
            mine = torch.from_numpy(choosers == step)
            found[mine] = logits_of(step)[mine]
        return found

    module = paths[best][0].module
    temperature = first.view.temperature(first.check, head, module)

    def trial() -> tuple[Array, Labels]:
        return first.view.logits(first.check, head, module, temperature).cpu().numpy(), first.check

    held_out = losses[choosers, np.arange(len(rows))]
    return HeadChoice(
        head=head,
        setting=settings[best],
        rows=rows,
        held_out_losses=held_out,
        held_out=float(weight @ held_out),
        candidates={f"{head.kind} {s:g}": float(weight @ one) for s, one in zip(settings, losses, strict=True)},
        fit=lambda: fit(settings[best], temperature),
        logits=logits,
        trial=trial,
        temperature=temperature,
        folds=tuple((fold.learn, fold.check) for fold in folds),
    )  # fmt: skip


def _shares(weight: Array) -> Array:
    return weight / weight.sum()


def _walk(head: Head, fitter: HeadFitter, fold: Fold, setting: float | None = None) -> list[Step]:
    """Settings along a fitter's path, until the losses of held-out rows have risen twice; or one known setting."""
    view, target = fold.view, fold.view.target
    ask(
        "Logits of held-out rows, an array", "Lower validation_fraction, or fit on fewer rows.", copies=3,
        device=target.device, rows=len(fold.check), outputs=target.n_outputs,
    )  # fmt: skip
    if setting is not None:
        module = fitter.fit(view.sample(fold.learn, head), setting)
        return [Step(setting, module, target.losses(view.judged(fold.check, head, module), fold.check), None)]
    weight = _shares(target.weights(fold.check))
    watched = Watched(
        partial(view.judged, fold.check, head), lambda logits, part: target.losses(logits, fold.check[part]), weight,
        halves(target.strata[fold.check]),
    )  # fmt: skip
    steps: list[Step] = []
    lowest, rises = np.inf, 0
    for at, module in fitter.path(view.sample(fold.learn, head), watched):
        logits = watched.kept if fitter.chooses_on_path else None
        losses = target.losses(view.judged(fold.check, head, module) if logits is None else logits, fold.check)
        steps.append(Step(at, module, losses, logits))
        loss = float(weight @ losses)
        rises = rises + 1 if loss >= lowest else 0
        lowest = min(lowest, loss)
        if rises == 2 or stop_requested():
            break
    return steps
