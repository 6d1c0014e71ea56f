"""Rows as heads see them: what is to be predicted, what is learned from, and losses of rows that are checked on.

A row has one class, or any number of labels. A row without labels takes no part in de-mixing; the head learns from it
that no label holds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.augmentation import ClassSources
from ecrt.data import ClassRoles, stratified_holdout, with_lost_groups
from ecrt.errors import InputError
from ecrt.losses import (
    ABSENT,
    PRESENT,
    SYNTHETIC,
    UNKNOWN,
    ClassMass,
    check_loss,
    class_mass,
    cross_entropy_slopes,
    label_margins,
    label_odds,
    log_softmax,
    masked_bce,
    masked_focal,
    masked_ldam,
    row_mass,
    sample_weights,
)
from ecrt.metrics import LEAST_LOG_PROBABILITY, bce_per_row, lowest_temperature
from ecrt.nn import BalancedHead, ClassGaussians, CosineHead
from ecrt.randomness import own_draws_only, own_generator_on
from ecrt.stages.augmenting import Augmentation, Synthetic, class_sources, draw_classes, label_sources
from ecrt.stages.demixing import Demixing, DemixResult, Incidences, demix, sources_of
from ecrt.stages.encoding import Encoder, EncoderTarget
from ecrt.stages.heads import (
    MANY_ROWS,
    Head,
    HeadLoss,
    HeadSample,
    NetworkHead,
    Networks,
    Target,
    device_outputs,
    last_layer,
    loss_for,
)
from ecrt.stages.holdout import halves
from ecrt.stages.unlabelled import SoftRows
from ecrt.training import Progress

LABEL_LOSSES = ("logit-adjusted", "cross-entropy", "focal", "ldam")

MOST_ROWS = 50_000
"""With more rows than this an MLP for labels is wide and strongly regularised."""


@dataclass(frozen=True)
class Labelled:
    """An indicator of labels, rows by labels, and its pairs (row, label) in the order of rows."""

    indicator: sparse.csr_array

    @property
    def counts(self) -> Labels:
        """Rows that have each label."""
        return np.asarray(self.indicator.sum(axis=0), dtype=np.int64).ravel()

    @property
    def per_row(self) -> Labels:
        """Labels of each row."""
        return np.diff(self.indicator.indptr).astype(np.int64)

    @cached_property
    def incidences(self) -> Incidences:
        """Row and weight of each pair."""
        row = np.repeat(np.arange(self.indicator.shape[0]), self.per_row)
        return Incidences(row, 1 / self.per_row[row])

    @property
    def label(self) -> Labels:
        """Label of each pair."""
        return self.indicator.indices.astype(np.int64)

    @cached_property
    def rarest(self) -> Labels:
        """The rarest label of each row, to stratify by; rows without labels are a separate group."""
        counts, group = self.counts, np.full(self.indicator.shape[0], self.indicator.shape[1], dtype=np.int64)
        row, label = self.incidences.row, self.label
        order = np.argsort(-counts[label], kind="stable")
        group[row[order]] = label[order]  # of several labels the last one written, the rarest, stays
        return group

    def sides(self) -> sparse.csr_array:
        """Rows by what has to be learned of each label: rows that have it; where these are most, also those without."""
        absent = 1 - self.indicator[:, np.flatnonzero(2 * self.counts > self.indicator.shape[0])].toarray()
        return sparse.csr_array(sparse.hstack([self.indicator, sparse.csr_array(absent)]))

    def __getitem__(self, rows: Labels) -> Labelled:
        return Labelled(self.indicator[rows])

    def present(self) -> NDArray[np.bool_]:
        """The indicator as booleans."""
        return np.asarray(self.indicator.toarray() > 0)


@dataclass(frozen=True)
class _Rows(Target):
    """Rows with classes or labels.

    Parameters
    ----------
    y : class indices, or ``Labelled``.
    roles : what every class or label is used for.
    augmentation : how synthetic sources are drawn, and their share of the mass of a class.
    rng : of the draws.
    device : of samples and losses.
    row_weight : how often each row occurs, ``None`` for once; for classes.
    """

    y: Any
    roles: ClassRoles
    augmentation: Augmentation
    rng: np.random.Generator
    device: torch.device
    row_weight: Array | None = None

    @property
    def n_outputs(self) -> int:
        """One logit for each class or label."""
        return len(self.roles.counts)

    @property
    def networks(self) -> Networks:
        """How heads that are trained by steps are made."""
        return Networks(batch_size=256 if len(self.strata) <= MANY_ROWS else 512)  # many rows make small steps costly

    @property
    def strata(self) -> Labels:
        """Groups of rows, to split them by: their classes."""
        labels: Labels = self.y
        return labels

    def split(self, fraction: float, fresh: Mask | None) -> tuple[Labels, Labels]:
        """Rows to learn from, and a share of each stratum that is held out of its ``fresh`` rows."""
        return stratified_holdout(self.strata, fraction, self.rng, eligible=fresh)

    @property
    def pairs(self) -> tuple[Labels, Incidences | None]:
        """Labels to de-mix on, and of which rows they are; ``None`` where every row has one."""
        if self.row_weight is None:
            return self.y, None
        return self.y, Incidences(np.arange(len(self.y)), self.row_weight, counted=True)

    @property
    def demixed_on(self) -> Mask:
        """Classes that de-mixing learns from."""
        return self.roles.demixed_on & (self.roles.counts > 0)

    def demix(
        self, z: Array, train_rows: Labels, held_out_rows: Labels, config: Demixing, progress: Progress | None = None
    ) -> DemixResult:
        """Stage 2 on these rows, or on pairs of a row and one of its labels."""
        labels, incidences = self.pairs
        if incidences is not None and not incidences.counted:
            trained = np.isin(incidences.row, train_rows)
            train_rows, held_out_rows = np.flatnonzero(trained), np.flatnonzero(~trained)
        return demix(
            z, labels, train_rows=train_rows, held_out_rows=held_out_rows, incidences=incidences, config=config,
            demixed_on=self.demixed_on, rng=self.rng, device=self.device,
            progress=progress,
        )  # fmt: skip


@dataclass(frozen=True)
class ClassTarget(_Rows):
    """Rows with one class each."""

    one_class: ClassVar[bool] = True

    def weights(self, rows: Labels) -> Array:
        """Weights of rows that are checked on together: every class has the same weight."""
        y = self.strata[rows]
        if self.row_weight is not None:
            return np.asarray(self.row_weight[rows] / np.bincount(y, self.row_weight[rows])[y])
        return np.asarray((1 / np.maximum(np.bincount(y), 1))[y])

    def sources(self, demixed: DemixResult, rows: Labels) -> ClassSources:
        """What synthetic sources are drawn from: rows of the augmented classes."""
        s, y = demixed.learned, self.y
        other = self.augmentation.others(demixed.sources)
        weight = self.row_weight
        if other is not None:
            (s, y), rows, weight = other, np.arange(len(other[1])), None
        return class_sources(
            s, y, self.roles.augmented, demixed.within_variance, self.augmentation, rows=rows,
            prior=demixed.trained_prior, trained=self.demixed_on, weight=weight,
        )  # fmt: skip

    def largest(self, rows: Labels) -> int:
        """Rows of the largest class."""
        return int(np.bincount(self.y[rows]).max(initial=0))

    def mass_of(self, head: Head) -> tuple[Tensor, Array]:
        """w_m, the weight of classes in the loss of a head, with that of their synthetic samples; and their share."""
        mass_m = class_mass(torch.from_numpy(self.roles.counts), head.class_mass).numpy()
        real_m, synthetic_m = self.augmentation.multiples(mass_m, self.roles.augmented)
        whole_m = mass_m * (real_m + synthetic_m)
        if self.augmentation.weighting != "added":  # it is what it was, but for rounding
            whole_m = mass_m
        return torch.from_numpy(whole_m / whole_m.sum()), synthetic_m / (real_m + synthetic_m)

    def counts_of(self, head: Head) -> Tensor:
        """How often classes count in the loss: in proportion to their mass."""
        counts_m = torch.from_numpy(self.roles.counts)
        if head.class_mass != "training" or self.augmentation.weighting == "added":
            counts_m = self.mass_of(head)[0] * counts_m.sum()
        return counts_m.to(self.device)

    def learned(self, rows: Labels, synthetic: Synthetic, head: Head) -> tuple[Tensor, Tensor]:
        """Classes, and the weights that they give their rows."""
        y, augmented = self.y[rows], self.roles.augmented
        mass_m, share = self.mass_of(head)
        if synthetic.same_weight:
            real, drawn = (np.bincount(labels, minlength=len(augmented)) for labels in (y, synthetic.y))
            share = drawn / np.maximum(real + drawn, 1)
        y_n = torch.from_numpy(np.concatenate([y, synthetic.y]))
        weight_n = sample_weights(y_n, torch.arange(len(y_n)) >= len(y), mass_m, torch.from_numpy(share))
        if self.row_weight is not None:  # rows of a class share its mass as their weights say
            weight_n[: len(y)] *= torch.from_numpy(self.weights(rows) * np.bincount(y)[y])
        # Classes that none of these rows belong to (one sample, held out) leave some mass over.
        return y_n, weight_n / weight_n.sum()

    def losses(self, logits: Tensor, rows: Labels) -> Array:
        """Balanced NLL."""
        true = torch.from_numpy(self.y[rows]).to(logits.device)
        return -log_softmax(logits).gather(1, true[:, None])[:, 0].cpu().numpy()

    def slopes(self, logits_nm: Tensor, rows: Labels) -> Tensor:
        """Derivatives of the losses by the logits."""
        return cross_entropy_slopes(logits_nm, torch.from_numpy(self.y[rows]))[1]

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """The loss with the class counts in it."""
        return head.class_loss.tried(self.counts_of(head))

    def shift_of(self, head: NetworkHead) -> Tensor | None:
        """Under logit adjustment the log prior, under cross-entropy zeros."""
        shift = head.class_loss.shift
        return None if shift is None else shift(self.counts_of(head))

    def prior_left_by(self, head: Head) -> Tensor:
        """The class prior that logits trained under the loss of a head assume."""
        return head.class_loss.prior(self.counts_of(head))

    def needs_temperature(self, module: nn.Module, head: Head) -> bool:
        """Whether logits have their own scale, which has to be found on held-out rows: under an improper loss."""
        return not isinstance(module, ClassGaussians | BalancedHead) and not head.class_loss.proper

    def balanced(self, module: nn.Module, head: Head, temperature: float = 1.0) -> nn.Module:
        """Logits minus the log prior that the loss leaves in them."""
        if isinstance(module, ClassGaussians | BalancedHead):
            return module
        return without_prior(module, self.prior_left_by(head), temperature)


@dataclass(frozen=True)
class LabelTarget(_Rows):
    """Rows with any number of labels: pairs of a row and a label to de-mix on, one logit for each label."""

    y: Labelled

    @property
    def networks(self) -> Networks:
        """How heads that are trained by steps are made."""
        if len(self.strata) > MOST_ROWS:
            return Networks(hidden=(1024,), dropout=0.5, batch_size=1024)
        return super().networks

    @property
    def strata(self) -> Labels:
        """The rarest label of each row."""
        return self.y.rarest

    def weights(self, rows: Labels) -> Array:
        """Every label counts the same; a row without labels counts as much as the average row."""
        labelled = self.y[rows]
        weight = row_mass(labelled.indicator, "balanced")
        weight[labelled.per_row == 0] = 1 / len(weight)
        return np.asarray(weight / weight.sum())

    def split(self, fraction: float, fresh: NDArray[np.bool_] | None) -> tuple[Labels, Labels]:
        """Rows split by their rarest label, so that no label has all its rows held out."""
        kept, _ = stratified_holdout(self.strata, fraction, self.rng, eligible=fresh)
        train_rows = with_lost_groups(kept, self.y.sides())
        return train_rows, np.setdiff1d(np.arange(len(self.strata)), train_rows)

    @property
    def pairs(self) -> tuple[Labels, Incidences | None]:
        """The label of each pair, with its row and weight."""
        return self.y.label, self.y.incidences

    def sources(self, demixed: DemixResult, rows: Labels) -> ClassSources:
        """What synthetic sources are drawn from: rows that have the augmented labels."""
        return label_sources(
            demixed.learned[rows], self.y[rows].indicator, self.roles.augmented, demixed.within_variance,
            prior=demixed.trained_prior, trained=self.demixed_on,
        )  # fmt: skip

    def largest(self, rows: Labels) -> int:
        """Rows that have the most frequent label."""
        return int(self.y[rows].counts.max(initial=0))

    def multiples(self, mass: ClassMass) -> tuple[Array, Array]:
        """What real and synthetic rows that have a label weigh, as multiples of the weight of its real rows."""
        indicator = self.y.indicator
        positives = np.asarray(indicator.T @ row_mass(indicator, mass), dtype=np.float64)
        return self.augmentation.multiples(positives, self.roles.augmented & (self.roles.counts > 0))

    def learned(self, rows: Labels, synthetic: Synthetic, head: Head) -> tuple[Tensor, Tensor]:
        """Codes of labels, for real rows all, for synthetic rows one; the mass of a label's positives stays."""
        labelled, n, n_synthetic = self.y[rows], len(rows), len(synthetic.y)
        weight = row_mass(labelled.indicator, head.class_mass)
        positives = np.asarray(labelled.indicator.T @ weight, dtype=np.float64)
        target = torch.full((n + n_synthetic, self.n_outputs), UNKNOWN, dtype=torch.int8)
        target[:n] = ABSENT
        target[torch.from_numpy(labelled.incidences.row), torch.from_numpy(labelled.label)] = PRESENT
        target[torch.arange(n, n + n_synthetic), torch.from_numpy(synthetic.y)] = SYNTHETIC
        each = np.maximum(np.bincount(synthetic.y, minlength=len(positives)), 1)
        artificial = self.multiples(head.class_mass)[1] * positives / each
        return target, torch.from_numpy(np.concatenate([weight, artificial[synthetic.y]]))

    def losses(self, logits: Tensor, rows: Labels) -> Array:
        """Binary cross-entropy under balanced frequencies of labels, its mean over labels."""
        return bce_per_row(logits.cpu().numpy() + self.balanced_odds, self.y[rows].present())

    def slopes(self, logits_nm: Tensor, rows: Labels) -> Tensor:
        """Derivatives of the losses by the logits."""
        present_nm = torch.from_numpy(self.y[rows].present()).to(logits_nm)
        return (torch.sigmoid(logits_nm + torch.from_numpy(self.balanced_odds)) - present_nm) / self.n_outputs

    @cached_property
    def balanced_odds(self) -> Array:
        """The log-odds that losses are measured under."""
        return self.odds("balanced")

    def odds(self, mass: ClassMass) -> Array:
        """Log-odds of each label's frequency, where rows have such a mass."""
        return label_odds(self.y.indicator, row_mass(self.y.indicator, mass))

    def learned_odds(self, mass: ClassMass) -> Array:
        """The same where synthetic rows are added, as the loss sees them."""
        return label_odds(self.y.indicator, row_mass(self.y.indicator, mass), np.add(*self.multiples(mass)))

    def loss_name(self, head: NetworkHead) -> str:
        """The loss of a head; one that means nothing for labels is refused."""
        return head.loss_name("logit-adjusted", LABEL_LOSSES, "Several labels for each row")

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """The loss of all labels of a row, synthetic rows with one label each."""
        return _label_loss(
            self.loss_name(head), head, counts=self.roles.counts, n_rows=len(self.strata),
            odds=self.learned_odds(head.class_mass), real_share=self.multiples(head.class_mass)[0], device=self.device,
        )  # fmt: skip

    def encoder_target(self, encoder: Encoder) -> EncoderTarget:
        """The labels that an encoder learns from, each with a binary loss, on all rows that have one of them.

        An encoder that learns without labels learns from rows that have none, too.
        """
        learned = self.y.indicator[:, np.flatnonzero(self.roles.encoded_on & (self.roles.counts > 0))]
        rows = np.diff(learned.indptr) > 0
        if not encoder.supervised:
            return EncoderTarget(
                torch.zeros(len(rows), 1), rows | (self.y.per_row == 0), lambda outputs, _: outputs[:, 0]
            )
        who = "Several labels for each row are learned by an encoder"
        name = loss_for(encoder.loss, "cross-entropy", LABEL_LOSSES, who)
        if encoder.head == "cosine":
            raise InputError("Encoder: head='cosine' is for rows with one class each; use 'linear' here.")
        mine = learned[np.flatnonzero(rows)]
        loss = _label_loss(
            name, encoder, counts=np.asarray(mine.sum(axis=0), dtype=np.int64).ravel(), n_rows=int(rows.sum()),
            odds=label_odds(mine), real_share=np.ones(learned.shape[1]), device=self.device,
        )  # fmt: skip
        return EncoderTarget(torch.from_numpy(learned.toarray()), rows, loss)

    def balanced(self, module: nn.Module, head: Head, temperature: float = 1.0) -> nn.Module:
        """Logits free of the labels' frequencies: without adjustment their log-odds are taken off afterwards."""
        if isinstance(head, NetworkHead) and self.loss_name(head) == "logit-adjusted":
            return module
        return BalancedHead(module, torch.from_numpy(self.learned_odds(head.class_mass)).to(next(module.parameters())))


def _label_loss(
    name: str, part: NetworkHead | Encoder, *, counts: Labels, n_rows: int, odds: Array, real_share: Array,
    device: torch.device,
) -> HeadLoss:  # fmt: skip
    """The loss of that name over all labels of a row.

    Parameters
    ----------
    part : whose options of the loss are taken.
    counts, n_rows : rows that have each label, and all.
    odds : log-odds of the labels' frequencies, for logit adjustment.
    real_share : share of a label's positive mass that real rows hold.
    """
    options = check_loss(name, part.loss_options)
    if options.get("tau", 1.0) != 1:
        raise InputError(f"{type(part).__name__}: tau is for rows with one class each; leave it out here.")

    def here(values: Array) -> Tensor:
        return torch.from_numpy(values).float().to(device)

    real_share_m = here(real_share)
    if name == "focal":
        loss = partial(masked_focal, real_share_m=real_share_m, gamma=options["gamma"])
    elif name == "ldam":
        largest = options["scale"] * options["largest_margin"]
        present_m, absent_m = (
            margin_m.float().to(device) for margin_m in label_margins(torch.from_numpy(counts), n_rows, largest)
        )
        loss = partial(masked_ldam, real_share_m=real_share_m, present_margin_m=present_m, absent_margin_m=absent_m)
    else:
        shift = odds if name == "logit-adjusted" else np.zeros_like(odds)
        loss = partial(masked_bce, log_odds_m=here(shift), real_share_m=real_share_m)
    return lambda outputs, y, done=1.0: loss(outputs, y)


def without_prior(module: nn.Module, prior_m: Tensor, temperature: float = 1.0) -> nn.Module:
    """A module of balanced logits, made from one whose logits, divided by the temperature, assume a class prior."""
    if temperature != 1:
        module = copy.deepcopy(module)
        if isinstance(module, CosineHead):
            module.scale.div_(temperature)
        else:
            _, last = last_layer(module)
            with torch.no_grad():
                last.weight.div_(temperature)
                last.bias.div_(temperature)
    if torch.allclose(prior_m, prior_m.mean(), rtol=1e-12, atol=0.0):
        return module
    reference = next(iter(module.state_dict().values()))
    return BalancedHead(module, torch.log(prior_m).to(reference))


@torch.no_grad()
def temperature_of(module: nn.Module, prior_m: Tensor, s_nd: Tensor, y: Labels, times: Array | None = None) -> float:
    """What logits are to be divided by, from rows that the module has not seen, before any prior is taken off them.

    Proper losses leave log-probabilities, whose temperature is 1. Those of improper ones have their own scale,
    and a log prior means nothing to them; one number, fitted under the prior that the loss leaves, mends that.
    ``times`` says how often each row occurs, ``None`` for once.
    """
    prior = prior_m.cpu().numpy()
    weight = prior[y] / np.bincount(y, times, minlength=len(prior))[y] * (1.0 if times is None else times)
    log_proba_nm = torch.log_softmax(device_outputs(module, s_nd), dim=1).clamp_(min=LEAST_LOG_PROBABILITY)
    labels_n, weight_n = (torch.from_numpy(values).to(log_proba_nm.device) for values in (y, weight / weight.sum()))

    def loss(temperature: float) -> float:
        return float(weight_n @ nn.functional.cross_entropy(log_proba_nm / temperature, labels_n, reduction="none"))

    return lowest_temperature(loss)


RowTarget = ClassTarget | LabelTarget


def row_target(
    y: Labels | Labelled, roles: ClassRoles, augmentation: Augmentation, rng: np.random.Generator,
    device: torch.device, weight: Array | None = None,
) -> RowTarget:  # fmt: skip
    """What heads learn from rows with one class each, or with any number of labels."""
    if isinstance(y, Labelled):
        return LabelTarget(y, roles, augmentation, rng, device)
    return ClassTarget(y, roles, augmentation, rng, device, weight)


@dataclass
class View:
    """Rows as one de-mixing shows them to heads.

    ``drawn`` makes synthetic sources of rows; ``None`` for those of the augmentation. ``soft`` are rows without labels
    to learn from as well.
    """

    target: RowTarget
    demixed: DemixResult
    drawn: Callable[[Labels], Synthetic] | None = None
    soft: SoftRows | None = None

    def __post_init__(self) -> None:
        # On the device once; on the CPU this is the same memory.
        self.s_nd = torch.from_numpy(self.demixed.learned).to(self.target.device)
        self.scale_d = torch.from_numpy(self.demixed.head_scale).to(self.target.device)

    def scaled(self, rows: Labels) -> Tensor:
        """Sources in the units of the head."""
        return self.s_nd[torch.from_numpy(rows).to(self.target.device)].mul_(self.scale_d)

    def sample(self, rows: Labels, head: Head) -> HeadSample:
        """Real and synthetic rows to learn from."""
        demixed, device, target = self.demixed, self.target.device, self.target
        if self.drawn is None:
            sources = target.sources(demixed, rows)
            synthetic = draw_classes(sources, target.augmentation, target.rng, len(rows), target.largest(rows))
            again = None if len(synthetic.y) == 0 else self._draws(sources, synthetic.y, len(rows))
        else:
            synthetic, again = self.drawn(rows), None
        y, weight = target.learned(rows, synthetic, head)
        drawn = torch.from_numpy(synthetic.s).to(device) * self.scale_d
        variance = demixed.within_variance * demixed.head_scale**2
        sample = HeadSample(
            torch.cat([self.scaled(rows).float(), drawn.float()]),
            y.to(device),
            weight.float().to(device),
            (torch.arange(len(y)) >= len(rows)).to(device),
            variance=torch.from_numpy(variance),
            between=torch.from_numpy(demixed.signal_to_noise * variance),
            draw=again,
            times=None if target.row_weight is None else torch.from_numpy(target.row_weight[rows]).to(device),
        )
        return sample if self.soft is None else self._with_soft(sample, self.soft)

    def _with_soft(self, sample: HeadSample, soft: SoftRows) -> HeadSample:
        """The sample with pairs of an unlabelled row and a class that it may have."""
        device = self.target.device
        y, weight, synthetic = (one.cpu().numpy() for one in (sample.y, sample.weight.double(), sample.synthetic))
        counts = np.bincount(y[~synthetic], minlength=self.target.n_outputs)
        weights = soft.shared_mass(y, weight, counts)
        rows = torch.from_numpy(sources_of(self.demixed.demixer, soft.z)).to(device).mul_(self.scale_d).float()
        draw, last = (
            sample.draw,
            len(y) - 1,
        )  # rows without labels are not synthetic: what is drawn for them is not used
        return replace(
            sample,
            s=torch.cat([sample.s, rows[torch.from_numpy(soft.row).to(device)]]),
            y=torch.cat([sample.y, torch.from_numpy(soft.y).to(device)]),
            weight=torch.from_numpy(np.concatenate(weights)).float().to(device),
            synthetic=torch.cat([sample.synthetic, torch.zeros(len(soft.y), dtype=torch.bool, device=device)]),
            draw=None if draw is None else lambda chosen: draw(chosen.clamp(max=last)),
        )

    def _draws(self, sources: ClassSources, y: Labels, n_real: int) -> Callable[[Tensor], Tensor]:
        """From rows of the sample, synthetic or not, to other sources of their classes in the units of the head."""
        device, augmentation = self.target.device, self.target.augmentation
        here, scale_d = sources.on(device, torch.float32), self.scale_d.float()
        # Where a row is not synthetic its class does not matter, but there must be one.
        label_n = torch.from_numpy(np.concatenate([np.full(n_real, y[0]), y])).to(device)
        return lambda rows: augmentation.draw(here, label_n[rows], own_generator_on(device)) * scale_d

    def temperature(self, rows: Labels, head: Head, module: nn.Module) -> float:
        """What logits are to be divided by, from rows that the module has not seen; 1 where they have no own scale."""
        target = self.target
        if not isinstance(target, ClassTarget) or not target.needs_temperature(module, head):
            return 1.0
        times = None if target.row_weight is None else target.row_weight[rows]
        return temperature_of(module, target.prior_left_by(head), self.scaled(rows), target.y[rows], times)

    def logits(self, rows: Labels, head: Head, module: nn.Module, temperature: float = 1.0) -> Tensor:
        """Balanced logits of rows."""
        with own_draws_only(module):
            return device_outputs(self.target.balanced(module.eval(), head, temperature), self.scaled(rows))

    def judged(self, rows: Labels, head: Head, module: nn.Module, part: slice = slice(None)) -> Tensor:
        """Balanced logits of rows to judge a head by, or of a part of these rows.

        Those that need a temperature have that of the other half of all rows.
        """

        def at_temperature_of(mine: Mask) -> Tensor:
            return self.logits(rows, head, module, self.temperature(rows[mine], head, module.eval()))

        target = self.target
        if not isinstance(target, ClassTarget) or not target.needs_temperature(module, head):
            return self.logits(rows[part], head, module)
        half = halves(target.strata[rows])
        if half.all():
            return at_temperature_of(half)[part]
        first = at_temperature_of(~half)
        return torch.where(torch.from_numpy(half).to(first.device)[:, None], first, at_temperature_of(half))[part]
