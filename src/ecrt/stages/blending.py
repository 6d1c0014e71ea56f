"""Stages 2 to 4 together: every de-mixing with every head, and the weights under which they predict together.

Members are heads on de-mixed or plain features. Their balanced logits are added up, with weights that held-out rows
choose: no member has seen the rows that it is weighed by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.data import ClassRoles
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
from ecrt.flows import Demixer
from ecrt.randomness import own_draws_only
from ecrt.stages.augmenting import Augmentation
from ecrt.stages.choosing import Candidate, Draw, HeadChoice, fit_head, member_name, try_heads
from ecrt.stages.demixing import Demixing, DemixResult, sources_of
from ecrt.stages.heads import Head, LinearHead, MLPHead, NetworkHead, head_outputs
from ecrt.stages.holdout import better_under_weights
from ecrt.stages.parts import Part
from ecrt.stages.streaming import FeatureStream, learn_from_stream
from ecrt.stages.targets import ClassTarget, Labelled, RowTarget, row_target
from ecrt.stages.unlabelled import SoftRows, Unlabelled
from ecrt.training import Progress, stop_requested, stopped_at

SHRINKAGE = 10.0
"""How many rows the weights that members earn alone count for, against the rows that choose the weights."""

UNKNOWN = 1.0
"""How many rows without a known class they count in addition: the fewer rows there are, the less sure is the blend."""

DRAWS = 200
TRUST = 0.3
"""Of the rows, drawn anew so many times, and how much of the evidence of all of them is trusted, when members are
judged alone: with all of it a member that leads by chance would have everything."""

DOUBT = 0.01
"""Share of a uniform guess that is mixed into a prediction before it is judged, so that a few rows do not decide."""

FOLDS = 5
"""Into which held-out rows are divided to judge weights."""

LEAST_WEIGHT = 0.1
"""Members with a smaller share of the weights are left out."""

QUICK_ROWS = 1000
QUICK_FLOW = {"epochs": 40, "batch_size": 128, "learning_rate": 5e-3, "hidden": (64, 64)}
"""The trial that shows whether a flow is worth training. It has the restarts of a long one: their order decides."""

MOST_ROWS = 50_000
"""Of more rows some choose members, settings and weights; all classes keep as many rows as can be."""

MOST_NUMBERS = 2**25
"""Logits, of all members together, that weights are chosen by; of more rows some are taken."""


class Attempt(NamedTuple):
    """A de-mixing, the heads to try on it, and how their rare classes are augmented.

    ``if_promising``: try it only where a head that is not linear has done better than one that is, beyond noise, and
    where a quick trial on some rows adds to what was found before.
    """

    demixing: Demixing
    heads: Sequence[Head]
    augmentation: Augmentation
    if_promising: bool = False


@dataclass(frozen=True, kw_only=True)
class Member:
    """One of the ways to predict whose outputs are added up: a head on plain or de-mixed features.

    Attributes
    ----------
    demixing, augmentation, head : the parts that it was made by.
    setting, temperature : of the head: weight decay, epochs, pseudo-samples or trees, and what logits were divided by.
    held_out : its held-out loss when it predicts alone.
    weight : what its outputs are multiplied by.
    taught : whether it has learned from unlabelled rows as well.
    demixer, signal_weight, within_variance : the fitted de-mixing, and what the de-mixing classes say of its sources.
    scale, network : what sources are multiplied by, and the head on these, float64 on the CPU.
    """

    demixing: Demixing
    augmentation: Part
    head: Head
    setting: float
    temperature: float = 1.0
    held_out: float
    weight: float = 1.0
    taught: bool = False
    demixer: Demixer = field(repr=False)
    signal_weight: Array = field(repr=False)
    within_variance: Array = field(repr=False)
    scale: Array = field(repr=False)
    network: nn.Module = field(repr=False)

    @property
    def name(self) -> str:
        """Its de-mixing and its head, such as ``"linear, gaussian"``."""
        return member_name(self.demixing, self.head, self.taught)

    @property
    def transfers(self) -> bool:
        """Whether it predicts from sources, not from plain features."""
        return self.demixing.kind != "none"


class Worth(NamedTuple):
    """What transfer, or unlabelled rows, are worth on held-out rows.

    Attributes
    ----------
    blend, plain : loss of members with it, and of those without.
    gain, error : what the former save on the latter, and its standard error.
    skill, skill_error : what the former save on equal logits for every row, and its standard error.
    """

    blend: float
    plain: float
    gain: float
    error: float
    skill: float
    skill_error: float

    @property
    def pays(self) -> bool:
        """Whether rows are predicted better than by chance, beyond noise, and better with it by a standard error."""
        return self.gain > self.error and self.skill > 1.96 * self.skill_error


@dataclass(frozen=True, kw_only=True)
class Blend:
    """Members that predict together.

    Attributes
    ----------
    members : the one with the best transfer first, whatever its weight; then all others with a weight.
    demixed, choice : of the first member.
    tried : held-out loss of everything that was tried, by name.
    trial : held-out logits of the members together, and their rows.
    worth : what transfer saves; ``None`` where all members transfer, or none.
    unlabelled : what unlabelled rows saved; some members have learned from them where that pays. ``None`` where there
        were none, or no time to try them, or where they are not ``alike``.
    alike : whether unlabelled rows may be a mixture of the classes.
    """

    members: tuple[Member, ...]
    demixed: DemixResult
    choice: HeadChoice
    tried: dict[str, float]
    trial: Callable[[], tuple[Array, Labels]]
    worth: Worth | None = None
    unlabelled: Worth | None = None
    alike: bool = True


def transfer(
    z: Array,
    y: Labels | Labelled,
    *,
    roles: ClassRoles,
    attempts: Sequence[Attempt],
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    draw_from: Callable[[Array, Labels, Labels, Labels], Draw] | None = None,
    fresh: Mask | None = None,
    seconds: float | None = None,
    unlabelled: Array | None = None,
    fit: bool = True,
    weight: Array | None = None,
    stream: FeatureStream | None = None,
) -> Blend:
    """De-mix, try every head, and weigh what came of it.

    Parameters
    ----------
    z, y : features of rows that the encoder was not trained on, and their class indices or labels.
    roles : what every class or label is used for; labels without a positive row are used for nothing.
    attempts : what to try, the simplest first.
    validation : share of each class, or of rows by their rarest label, held out to stop, choose and compare.
    draw_from : features, classes, training rows and held-out rows, to another way to synthetic sources than
        the augmentation, whose weight they have; for classes.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    seconds : after which nothing more is tried; the members are then fitted on all rows. ``None`` for no limit.
    unlabelled : features of rows without a class, to learn from as well if held-out rows are then predicted better.
    fit : whether members are fitted on all rows; otherwise they have no heads, for ``transfer_again`` to fit.
    weight : how often each row occurs, ``None`` for once.
    stream : all rows, of which ``z`` are some, with one class each; ``roles`` count all of them. It says which rows are
        held out. ``None`` where ``z`` are all.
    """
    until = math.inf if seconds is None else time.monotonic() + seconds
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    target = row_target(y, roles, attempts[0].augmentation, rng, device, weight)
    if isinstance(target, ClassTarget) and len(z) > MOST_ROWS and draw_from is None and stream is None:
        part = _some(target.strata, np.arange(len(z)), MOST_ROWS, rng)
        options: dict[str, Any] = {
            "roles": roles, "validation": validation, "rng": rng, "device": device, "progress": progress,
        }  # fmt: skip
        chosen = transfer(
            z[part], target.y[part], attempts=attempts, fresh=None if fresh is None else fresh[part], seconds=seconds,
            unlabelled=unlabelled, weight=None if weight is None else weight[part], fit=False, **options,
        )  # fmt: skip
        used = chosen.unlabelled is not None and chosen.unlabelled.pays
        demixed, members = transfer_again(
            z, y, members=chosen.members, unlabelled=unlabelled if used else None, weight=weight, **options
        )  # fmt: skip
        return replace(chosen, demixed=demixed, members=members)
    if stream is None:
        train_rows, held_out_rows = target.split(validation, fresh)
    else:
        train_rows, held_out_rows = np.flatnonzero(~stream.held_out), np.flatnonzero(stream.held_out)
    if len(held_out_rows) == 0:
        raise InputError(
            f"No row can be held out of {len(z)} rows: at least two rows must have the same class, or the same rarest "
            "label."
        )
    options = {
        "split": (train_rows, held_out_rows), "fresh": fresh, "draw_from": draw_from,
        "progress": progress or Progress(),
    }  # fmt: skip
    try:
        with stopped_at(until):
            found = _tried(z, target, attempts, **options)
    except StoppedError:
        if seconds is None:
            raise
        # There was not even time for the simplest, without which there is no model.
        simplest = attempts[0]._replace(heads=attempts[0].heads[:1])
        found = _tried(z, target, [simplest], **options)
    if time.monotonic() >= until:
        names = "; ".join(one.name for one in found)
        warn_user(f"The time budget of {seconds:g} s ended the search for members. Tried were: {names}.")
    if stream is not None and isinstance(target, ClassTarget):
        learned = learn_from_stream(found, z, target, stream, options["progress"])
        found = [one._replace(demixed=how, choice=choice) for one, (how, choice) in zip(found, learned, strict=True)]
    if unlabelled is None:
        return _blended(found, target, fit=fit)
    more = Unlabelled(unlabelled, device)
    if not more.alike(z, target.strata):
        return replace(_blended(found, target, fit=fit), alike=False)
    worth: Worth | None = None
    before = rng.bit_generator.state
    try:
        with stopped_at(until):
            again, worth = _with_unlabelled(z, found, target, more, **options)
    except StoppedError:
        if seconds is None:
            raise
    if worth is not None and worth.pays:
        found = [*found, *again]
    else:
        rng.bit_generator.state = before  # rows that are not used change nothing
    return replace(_blended(found, target, fit=fit), unlabelled=worth)


def _tried(
    z: Array,
    target: RowTarget,
    attempts: Sequence[Attempt],
    split: tuple[Labels, Labels],
    fresh: Mask | None,
    draw_from: Callable[[Array, Labels, Labels, Labels], Draw] | None,
    progress: Progress,
) -> list[Candidate]:
    """Every head on every de-mixing, as far as there is time."""

    def try_one(attempt: Attempt, train_rows: Labels, held_out_rows: Labels) -> list[Candidate]:
        demixing, heads, augmentation, _ = attempt
        rows = replace(target, augmentation=augmentation)
        demixed = rows.demix(z, train_rows, held_out_rows, demixing, progress)
        draw = None if draw_from is None else draw_from(z, target.strata, train_rows, held_out_rows)
        choices = try_heads(
            rows, demixed, heads, train_rows=train_rows, held_out_rows=held_out_rows, progress=progress, draw=draw,
            fresh=fresh, folds=found[0].choice.folds if found and train_rows is split[0] else (),
        )  # fmt: skip
        return [Candidate(demixing, augmentation, demixed, choice) for choice in choices]

    def promises(attempt: Attempt) -> bool:
        if not _curved(found, target):
            return False
        quick = try_one(_quick(attempt), _some(target.strata, split[0], QUICK_ROWS, target.rng), split[1])
        return _adds(quick, found, target)

    found: list[Candidate] = []
    progress.start("trying members", len(attempts))
    try:
        for attempt in attempts:
            if found and stop_requested():
                break
            try:
                if attempt.if_promising and not promises(attempt):
                    progress.advance(f"de-mixing by {attempt.demixing.title!r} promises nothing")
                    continue
                found += try_one(attempt, *split)
                progress.advance(f"{found[-1].name}: held-out loss {found[-1].choice.held_out:.3f}")
            except StoppedError:
                if not found:
                    raise
                break
            except DivergenceError as error:
                if not found:
                    raise
                warn_user(f"De-mixing by {attempt.demixing.kind!r} failed. {error}")
    finally:
        progress.finish()
    return found


class _Way(NamedTuple):
    """A head under a setting on one de-mixing, and its weight among others."""

    augmentation: Augmentation
    demixed: DemixResult
    head: Head
    setting: float
    temperature: float
    weight: float

    def knows(self, rows: Labels) -> bool:
        """Whether its de-mixing was learned once, and some of these rows had a part in that."""
        return self.demixed.refit is None and self.demixed.fresh is not None and not self.demixed.fresh[rows].all()


def _taught(
    ways: Sequence[_Way],
    target: RowTarget,
    unlabelled: Unlabelled,
    rows: Labels | None = None,
    progress: Progress | None = None,
) -> SoftRows:
    """What the unlabelled rows may be, by heads that learn from some rows alone, ``None`` for all."""
    if rows is not None:
        others = np.setdiff1d(np.arange(len(target.strata)), rows)
        ways = [one for one in ways if not one.knows(others)] or ways
    logits = np.zeros((len(unlabelled.z), target.n_outputs))
    for one in ways:
        demixed = one.demixed if rows is None or one.demixed.refit is None else one.demixed.refit(rows)
        mine = replace(target, augmentation=one.augmentation)
        module = fit_head(mine, demixed, one.head, one.setting, one.temperature, progress, rows)
        scaled = sources_of(demixed.demixer, unlabelled.z) * demixed.head_scale
        logits += one.weight * head_outputs(module, scaled)
    return unlabelled.soft_rows(logits, np.bincount(target.strata, minlength=target.n_outputs))


def _with_unlabelled(
    z: Array,
    found: Sequence[Candidate],
    target: RowTarget,
    unlabelled: Unlabelled,
    split: tuple[Labels, Labels],
    fresh: Mask | None,
    draw_from: Callable[[Array, Labels, Labels, Labels], Draw] | None,
    progress: Progress | None,
) -> tuple[list[Candidate], Worth]:
    """Heads that have a weight, fitted on the same folds with unlabelled rows as well, and what these are worth.

    They join those that have learned from labelled rows alone. Gaussians and trees are not taught: they gain from being
    of another mind than the heads that teach. What the rows of a fold are thought to be comes from heads that have
    learned from the labelled rows of that fold alone, under the settings and weights that were found before.
    """
    weights = _Trial(found, target).weights() if len(found) > 1 else np.ones(1)
    teachers = [
        (one, float(weight))
        for one, weight in zip(found, weights, strict=True)
        if weight >= LEAST_WEIGHT * weights.sum()
    ]
    ways = [
        _Way(one.augmentation, one.demixed, one.choice.head, one.choice.setting, one.choice.temperature, weight)
        for one, weight in teachers
    ]
    known: dict[bytes, SoftRows] = {}

    def soft(learn: Labels) -> SoftRows:
        key = np.sort(learn).tobytes()
        if key not in known:
            known[key] = _taught(ways, target, unlabelled, np.sort(learn), progress)
        return known[key]

    again: list[Candidate] = []
    pupils = [one for one, _ in teachers if isinstance(one.choice.head, NetworkHead)]
    for _, group in groupby(pupils, key=lambda one: id(one.demixed)):
        same = list(group)
        draw = None if draw_from is None else draw_from(z, target.strata, *split)
        choices = try_heads(
            replace(target, augmentation=same[0].augmentation), same[0].demixed, [one.choice.head for one in same],
            train_rows=split[0], held_out_rows=split[1], progress=progress, draw=draw, fresh=fresh,
            before=[one.choice for one in same], soft=soft,
        )  # fmt: skip
        if len(choices) < len(same):
            raise StoppedError("unlabelled rows")
        again += [one._replace(choice=choice, taught=True) for one, choice in zip(same, choices, strict=True)]
    both = [*found, *again]
    return again, _Trial(both, target).worth(np.arange(len(both)) < len(found), np.ones(len(both), dtype=bool))


def _quick(attempt: Attempt) -> Attempt:
    """The same with a small flow of few epochs, and heads that take none."""
    demixing = clone(attempt.demixing).set_params(**QUICK_FLOW)
    heads = [head for head in attempt.heads if not isinstance(head, MLPHead)] or attempt.heads
    return attempt._replace(demixing=demixing, heads=heads)


def _some(strata: Labels, rows: Labels, most: int, rng: np.random.Generator) -> Labels:
    """Some of many rows: as many of each class, or of each rarest label, as can be."""
    if len(rows) <= most:
        return rows
    order = np.lexsort((rng.random(len(rows)), strata[rows]))
    ordered = strata[rows][order]
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.arange(len(rows)) - np.searchsorted(ordered, ordered)
    return np.sort(rows[np.argsort(place, kind="stable")[:most]])


def _adds(new: Sequence[Candidate], found: Sequence[Candidate], target: RowTarget) -> bool:
    """Whether held-out rows are predicted better with the new candidates than without, beyond noise."""
    worth = _Trial([*found, *new], target).worth(np.arange(len(found) + len(new)) < len(found))
    return worth.gain > worth.error


def transfer_again(
    z: Array,
    y: Labels | Labelled,
    *,
    roles: ClassRoles,
    members: Sequence[Member],
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    unlabelled: Array | None = None,
    weight: Array | None = None,
) -> tuple[DemixResult, tuple[Member, ...]]:
    """The same members, with the same settings and weights, on other rows; and the de-mixing of the first.

    Parameters
    ----------
    z, y, roles, validation, weight : as for ``transfer``; rows are held out to stop the training of a flow.
    unlabelled : features of rows without a class, if the members learned from such rows.
    """
    target = row_target(y, roles, members[0].augmentation, rng, device, weight)
    train_rows, held_out_rows = target.split(validation, None)
    demixed: dict[int, DemixResult] = {}
    for one in members:
        if id(one.demixer) not in demixed:
            demixed[id(one.demixer)] = target.demix(z, train_rows, held_out_rows, one.demixing, progress)
    soft: SoftRows | None = None
    if unlabelled is not None:
        ways = [
            _Way(one.augmentation, demixed[id(one.demixer)], one.head, one.setting, one.temperature, one.weight)
            for one in members
        ]
        soft = _taught(ways, target, Unlabelled(unlabelled, device), progress=progress)
    again = []
    for one in members:
        rows, result = replace(target, augmentation=one.augmentation), demixed[id(one.demixer)]
        taught = soft if one.taught else None
        network = fit_head(rows, result, one.head, one.setting, one.temperature, progress, soft=taught)
        again.append(replace(one, network=network, **_kept_of(result)))
    return demixed[id(members[0].demixer)], tuple(again)


def _kept_of(demixed: DemixResult) -> dict[str, Any]:
    """What a member keeps of its de-mixing."""
    return {
        "demixer": demixed.demixer, "signal_weight": demixed.signal_weight,
        "within_variance": demixed.within_variance, "scale": demixed.head_scale,
    }  # fmt: skip


def _member(made: Candidate, weight: float, *, fit: bool) -> Member:
    """The member, its head fitted on all rows; or without a head, if it is to be fitted on other rows."""
    choice = made.choice
    return Member(
        demixing=made.demixing, augmentation=made.augmentation, head=choice.head, setting=choice.setting,
        temperature=choice.temperature, held_out=choice.held_out, weight=weight, taught=made.taught,
        network=choice.fit() if fit else nn.Identity(), **_kept_of(made.demixed),
    )  # fmt: skip


def _curved(tried: Sequence[Candidate], target: RowTarget) -> bool:
    """Whether some head that is not linear does better than all that are, beyond noise."""
    linear = [one.choice for one in tried if isinstance(one.choice.head, LinearHead)]
    others = [one.choice for one in tried if not isinstance(one.choice.head, LinearHead)]
    if not linear or not others:
        return True
    best, other = (min(kind, key=lambda one: one.held_out) for kind in (linear, others))
    rows, mine, theirs = np.intersect1d(best.rows, other.rows, assume_unique=True, return_indices=True)
    return len(rows) > 0 and better_under_weights(
        other.held_out_losses[theirs], best.held_out_losses[mine], target.weights(rows)
    )


def _blended(found: Sequence[Candidate], target: RowTarget, *, fit: bool = True) -> Blend:
    """Weigh the candidates, fit those that have a weight on all rows, and measure what transfer was worth."""
    tried: dict[str, float] = {}
    for one in found:
        same = sum(name.partition(" (")[0] == one.name for name in tried)
        tried[f"{one.name} ({same + 1})" if same else one.name] = one.choice.held_out
    moving = [one for one in found if one.transfers] or found
    main = min(moving, key=lambda one: one.choice.held_out)
    if len(found) == 1:
        return Blend(
            members=(_member(main, 1.0, fit=fit),), demixed=main.demixed, choice=main.choice, tried=tried,
            trial=main.choice.trial,
        )  # fmt: skip
    trial = _Trial(found, target)
    weights = trial.weights()
    weights = trial.weights(members=weights >= LEAST_WEIGHT * weights.sum())
    order = sorted(range(len(found)), key=lambda place: (found[place] is not main, -weights[place]))
    members = tuple(
        _member(found[place], float(weights[place]), fit=fit)
        for place in order
        if weights[place] or found[place] is main
    )
    plain = np.array([not one.transfers for one in found])
    worth = None if plain.all() or not plain.any() else trial.worth(plain)
    return Blend(
        members=members, demixed=main.demixed, choice=main.choice, tried=tried, worth=worth,
        trial=lambda: (trial.logits(weights).numpy(), trial.rows),
    )  # fmt: skip


class _Trial:
    """Held-out logits of candidates on the rows that judge all of them."""

    def __init__(self, tried: Sequence[Candidate], target: RowTarget) -> None:
        choices = [one.choice for one in tried]
        rows = choices[0].rows
        for choice in choices[1:]:
            rows = np.intersect1d(rows, choice.rows, assume_unique=True)
        most = max(MOST_NUMBERS // (len(choices) * target.n_outputs), 1)
        if len(rows) > most:
            rows = np.sort(target.rng.choice(rows, most, replace=False))
        self.rows, self.target = rows, target
        self.logits_knm = torch.stack([one.logits()[np.searchsorted(one.rows, rows)].double() for one in choices])
        weight = target.weights(rows)
        self.weight: Array = weight / weight.sum()
        # As many of each class in every fold as can be.
        self.fold = np.empty(len(rows), dtype=np.int64)
        self.fold[np.argsort(target.strata[rows], kind="stable")] = np.arange(len(rows)) % min(FOLDS, len(rows))
        alone_kn = np.stack([target.losses(logits_nm, rows) for logits_nm in self.logits_knm])
        self.alone_kn: Array = -np.log((1 - DOUBT) * np.exp(-alone_kn) + DOUBT / target.n_outputs)

    def earned(self, rows: Mask, members: Mask) -> Array:
        r"""Weights of members by how well each predicts some rows alone, of sum one: level where rows cannot tell.

        With rows drawn anew, by weights that are exponential, members have weights in proportion to
        :math:`\exp(-t n \ell_k)`: loss :math:`\ell_k`, n rows of equal weight, and a trust t in them. Their mean over
        the draws is taken.

        References
        ----------
        Yao, Vehtari, Simpson, Gelman: Using stacking to average Bayesian predictive distributions, Bayesian
        Analysis 13 (2018), "pseudo-BMA+".
        """
        share, alone_kn = self.weight[rows] / self.weight[rows].sum(), self.alone_kn[members][:, rows]
        trusted, rng, total_k = TRUST / float(share @ share), np.random.default_rng(0), np.zeros(len(alone_kn))
        for _ in range(DRAWS):
            drawn = share * rng.exponential(size=len(share))
            total_k += softmax(-trusted * (alone_kn @ drawn) / drawn.sum())
        return total_k / DRAWS

    def weights(self, rows: Mask | None = None, members: Mask | None = None, strength: float = 1.0) -> Array:
        r"""Weights of members, not below zero, that serve some rows best; others are 0.

        A row without a known class has the loss of all that it may be: :math:`\ell(o) - \langle\ell'(0), o\rangle` for
        outputs o, whatever class the loss is of. ``strength`` multiplies the pull towards the weights earned alone.
        """
        use = np.ones(len(self.logits_knm), dtype=bool) if members is None else members
        judges = np.ones(len(self.rows), dtype=bool) if rows is None else rows
        share = self.weight[judges] / self.weight[judges].sum()
        logits_knm = self.logits_knm[torch.from_numpy(use)][:, torch.from_numpy(judges)]
        n_members, judged = int(use.sum()), self.rows[judges]
        one_row, uniform = float(share @ share), DOUBT / self.target.n_outputs
        earned, pull, unknown = self.earned(judges, use), strength * SHRINKAGE * one_row, UNKNOWN * one_row
        level_nm = self.target.slopes(torch.zeros_like(logits_knm[0]), judged) * torch.from_numpy(share)[:, None]
        level_k = (logits_knm.flatten(1) @ level_nm.flatten()).numpy()

        def objective(weight_k: Array) -> tuple[float, Array]:
            # One row cannot drive the loss far: it is of a prediction that is mixed with a uniform one.
            logits_nm = _together(weight_k, logits_knm)
            losses, slopes_nm = self.target.losses(logits_nm, judged), self.target.slopes(logits_nm, judged)
            likelihood = (1 - DOUBT) * np.exp(-losses)
            mixed = likelihood + uniform
            slopes_nm *= torch.from_numpy(share * (likelihood / mixed + unknown))[:, None]
            away = weight_k - earned
            value = share @ (unknown * losses - np.log(mixed)) - unknown * weight_k @ level_k + pull * away @ away
            slopes_k = (logits_knm.flatten(1) @ slopes_nm.flatten()).numpy()
            return float(value), slopes_k - unknown * level_k + 2 * pull * away

        with own_draws_only():
            found = minimize(objective, earned, jac=True, bounds=[(0, None)] * n_members, method="L-BFGS-B")
        weights = np.zeros(len(use))
        weights[use] = found.x
        return weights

    def logits(self, weights: Array, rows: Mask | None = None) -> Tensor:
        """Of some rows, under weights of the members."""
        chosen = self.logits_knm if rows is None else self.logits_knm[:, torch.from_numpy(rows)]
        return _together(weights, chosen)

    def losses(self, members: Mask | None = None) -> Array:
        """Losses of the rows, each under weights that the others chose: fold by fold."""
        every, losses = np.ones(len(self.logits_knm), dtype=bool), np.empty(len(self.rows))
        for number in np.unique(self.fold):
            mine = self.fold == number
            others = mine if mine.all() else ~mine
            strength = 1.0
            if members is not None:
                # To give all members no weight must cost few as much as many, or the many would look better on noise.
                all_k, some_k = (self.earned(others, use) for use in (every, members))
                strength = float(all_k @ all_k) / float(some_k @ some_k)
            weights = self.weights(others, members, strength)
            losses[mine] = self.target.losses(self.logits(weights, mine), self.rows[mine])
        return losses

    def worth(self, plain: Mask, others: Mask | None = None) -> Worth:
        """What all members save on those of a mask; or, in losses that a few rows cannot rule, those of another."""
        alone, together = self.losses(plain), self.losses(others)
        if others is not None:
            uniform = DOUBT / self.target.n_outputs
            alone, together = (-np.log((1 - DOUBT) * np.exp(-one) + uniform) for one in (alone, together))
        guessed = self.target.losses(torch.zeros_like(self.logits_knm[0]), self.rows)
        saved, skill = self._mean(alone - together), self._mean(guessed - together)
        return Worth(float(self.weight @ together), float(self.weight @ alone), *saved, *skill)

    def _mean(self, values: Array) -> tuple[float, float]:
        """Weighted mean over rows, and its standard error."""
        mean = float(self.weight @ values)
        return mean, float(np.sqrt(self.weight**2 @ (values - mean) ** 2))


def _together(weight_k: Array, logits_knm: Tensor) -> Tensor:
    """Logits of members, added up under their weights."""
    return (torch.from_numpy(weight_k) @ logits_knm.flatten(1)).reshape(logits_knm.shape[1:])
