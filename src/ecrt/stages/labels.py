"""Stages 2 to 4 where a row may have several labels: pairs of row and label to de-mix on, one column of logits a label.

A row without labels takes no part in de-mixing; the head learns from it that no label holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from ecrt.data import ClassRoles, stratified_holdout, with_lost_groups
from ecrt.errors import InputError
from ecrt.losses import check_loss
from ecrt.losses.multilabel import (
    ABSENT,
    PRESENT,
    SYNTHETIC,
    UNKNOWN,
    label_margins,
    label_odds,
    masked_bce,
    masked_focal,
    masked_ldam,
    row_mass,
)
from ecrt.metrics import bce_per_row
from ecrt.nn import BalancedHead
from ecrt.stages.augmenting import Augmentation, Synthetic, augment_labels
from ecrt.stages.choosing import Draw, Fold, HeadChoice, TransferResult, best_transfer, choose_among
from ecrt.stages.demixing import Demixing, DemixResult, Incidences, demix
from ecrt.stages.heads import (
    MANY_ROWS,
    WEIGHT_DECAYS,
    Head,
    HeadLoss,
    HeadSample,
    LinearFitter,
    LinearHead,
    NetworkHead,
    Networks,
    head_outputs,
)
from ecrt.stages.holdout import all_fresh, head_folds
from ecrt.training import Progress, seeded

__all__ = ["LabelTarget", "Labelled", "choose_label_head", "demix_labels", "transfer_labels"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LOSSES = ("logit-adjusted", "cross-entropy", "focal", "ldam")

MOST_ROWS = 50_000
"""With more rows than this an MLP is wide and strongly regularised."""


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
        """The rarest label of each row, to stratify by; rows without labels are a group of their own."""
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

    def holdout(
        self, fraction: float, rng: np.random.Generator, eligible: NDArray[np.bool_] | None = None
    ) -> tuple[Labels, Labels]:  # fmt: skip
        """Rows split by their rarest label, so that no label has all its rows held out; ``eligible`` rows may be."""
        split = stratified_holdout(self.rarest, fraction, rng, eligible=eligible)
        train_rows = with_lost_groups(split[0], self.sides())
        return train_rows, np.setdiff1d(np.arange(self.indicator.shape[0]), train_rows)

    def present(self) -> NDArray[np.bool_]:
        """The indicator as booleans."""
        return np.asarray(self.indicator.toarray() > 0)


def transfer_labels(
    z: Array,
    labelled: Labelled,
    *,
    roles: ClassRoles,
    candidates: Sequence[Demixing],
    augmentation: Augmentation,
    heads: Sequence[Head],
    validation: float,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    fresh: NDArray[np.bool_] | None = None,
) -> tuple[TransferResult, tuple[Array, NDArray[np.bool_]]]:
    """De-mix on the pairs and fit a head, as ``transfer`` does; also logits and labels of the held-out rows.

    Parameters
    ----------
    z, labelled : features of rows that the encoder was not trained on, and their labels.
    roles : what every label is used for; those without a positive row are used for nothing.
    validation : share of rows held out, by their rarest label.
    fresh : rows that the encoder has not looked at to stop either, ``None`` for all: no others are held out.
    """
    fresh = None if fresh is None or not fresh.any() else fresh  # looked at or not, rows have to choose
    train_rows, held_out_rows = labelled.holdout(validation, rng, fresh)
    if len(held_out_rows) == 0:
        raise InputError(f"No row can be held out of {len(z)} rows: two rows at least must have the same rarest label.")
    trial: dict[int, tuple[Array, Labels]] = {}

    def demix_by(config: Demixing) -> DemixResult:
        return demix_labels(z, labelled, train_rows, roles, config, rng, device, progress)

    def choose_for(demixed: DemixResult) -> HeadChoice:
        choice, logits, rows = choose_label_head(
            demixed.learned, demixed, labelled, train_rows, held_out_rows, roles, augmentation, heads, rng, device,
            progress, fresh=fresh,
        )  # fmt: skip
        trial[id(choice)] = logits, rows
        return choice

    result = best_transfer(candidates, demix_by, choose_for, lambda rows: held_out_weights(labelled[rows]))
    logits, rows = trial[id(result.choice)]
    return result, (logits, labelled[rows].present())


def demix_labels(
    z: Array,
    labelled: Labelled,
    train_rows: Labels,
    roles: ClassRoles,
    config: Demixing,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> DemixResult:
    """De-mix on pairs of a row and one of its de-mixing labels; pairs of rows that are not trained on are held out."""
    trained = np.zeros(len(z), dtype=bool)
    trained[train_rows] = True
    of_pair = trained[labelled.incidences.row]
    return demix(
        z, labelled.label, train_rows=np.flatnonzero(of_pair), held_out_rows=np.flatnonzero(~of_pair),
        demixed_on=roles.demixed_on & (roles.counts > 0), config=config, rng=rng, device=device, progress=progress,
        incidences=labelled.incidences,
    )  # fmt: skip


def held_out_weights(labelled: Labelled) -> Array:
    """Weights of rows that are checked on: every label counts alike; rows without labels as much as the average row."""
    weight = row_mass(labelled.indicator, "balanced")
    none = labelled.per_row == 0
    weight[none] = 1 / len(weight)
    return np.asarray(weight / weight.sum())


def choose_label_head(
    s: Array,
    demixed: DemixResult,
    labelled: Labelled,
    train_rows: Labels,
    held_out_rows: Labels,
    roles: ClassRoles,
    augmentation: Augmentation,
    heads: Sequence[Head],
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    draw: Draw | None = None,
    fresh: NDArray[np.bool_] | None = None,
) -> tuple[HeadChoice, Array, Labels]:
    """The head that held-out rows choose, and its logits of rows that it has not seen, with these rows.

    ``draw`` makes synthetic sources; ``None`` for those of ``augmentation``.
    ``fresh`` are the rows that earlier stages have not looked at, ``None`` for all.
    """
    target = LabelTarget(labelled, roles, augmentation, device)
    balanced = label_odds(labelled.indicator, row_mass(labelled.indicator, "balanced"))

    def sample(part: DemixResult, rows: Labels, head: Head) -> HeadSample:
        synthetic = (
            draw.made_from(part, rows)(rows)
            if draw is not None
            else augment_labels(
                part.learned[rows], labelled[rows].indicator, roles.augmented, part.within_variance, augmentation, rng
            )
        )
        mass = row_mass(labelled[rows].indicator, network_of(head).class_mass)
        return _sample(part.learned[rows], labelled[rows], synthetic, part.head_scale, mass, augmentation, device)

    def logits_on(part: DemixResult, rows: Labels, head: Head, module: nn.Module) -> Array:
        return head_outputs(target.balanced(module.eval(), head), part.learned[rows] * part.head_scale)

    def losses_on(part: DemixResult, rows: Labels, head: Head, module: nn.Module) -> Array:
        return bce_per_row(logits_on(part, rows, head, module) + balanced, labelled[rows].present())

    final = replace(demixed, learned=s)
    splits = head_folds(labelled.rarest, train_rows, held_out_rows, rng, all_fresh(fresh, demixed.fresh))
    parts = [final if demixed.refit is None else demixed.refit(learn) for learn, _ in splits]
    folds = [
        Fold(check, partial(sample, part, learn), partial(losses_on, part, check))
        for part, (learn, check) in zip(parts, splits, strict=True)
    ]
    with seeded(int(rng.integers(2**62))):
        fitters = [(head, head.fitter(target, rng, device, progress)) for head in heads]
        chosen = choose_among(fitters, folds, labelled.rarest, lambda rows: held_out_weights(labelled[rows]))
    best = chosen.best

    def fit() -> nn.Module:
        with seeded(int(rng.integers(2**62))):
            everything = sample(final, np.concatenate([train_rows, held_out_rows]), best.head)
            module = best.fitter.fit(everything, best.setting)
        return target.balanced(module, best.head).double().cpu().eval()

    choice = HeadChoice(
        head=best.head, setting=best.setting, rows=chosen.rows, held_out_losses=chosen.losses, held_out=chosen.loss,
        candidates=chosen.tried, fit=fit,
    )  # fmt: skip
    judged = splits[0][1]
    return choice, logits_on(parts[0], judged, best.head, best.module), judged


def network_of(head: Head) -> NetworkHead:
    """The head as one that can predict several labels."""
    if not isinstance(head, NetworkHead) or head.mixup > 0:
        raise InputError("Rows with several labels need a LinearHead or an MLPHead, without mixup.")
    return head


@dataclass(frozen=True)
class LabelTarget:
    """Any number of labels for each row: one logit for each label."""

    labelled: Labelled
    roles: ClassRoles
    augmentation: Augmentation
    device: torch.device

    @property
    def n_outputs(self) -> int:
        """One logit for each label."""
        return int(self.labelled.indicator.shape[1])

    @property
    def n_rows(self) -> int:
        """Rows in all."""
        return int(self.labelled.indicator.shape[0])

    @property
    def networks(self) -> Networks:
        """How heads that are trained by steps are made."""
        if self.n_rows > MOST_ROWS:
            return Networks(hidden=(1024,), dropout=0.5, batch_size=1024)
        return Networks(batch_size=256 if self.n_rows <= MANY_ROWS else 512)

    def counts_of(self, head: Head) -> torch.Tensor:
        """Nothing: labels are no classes."""
        return torch.empty(0)

    def odds_of(self, head: Head) -> Array:
        """Log-odds of each label's frequency under the mass that the head gives rows."""
        return label_odds(self.labelled.indicator, row_mass(self.labelled.indicator, network_of(head).class_mass))

    def loss_name(self, head: Head) -> str:
        """The loss of a head; one that means nothing for labels is refused."""
        return network_of(head).loss_name("logit-adjusted", LOSSES, "Several labels for each row")

    def adjusts(self, head: Head) -> bool:
        """Whether log-odds are added in training."""
        return self.loss_name(head) == "logit-adjusted"

    def loss_of(self, head: Head) -> HeadLoss:
        """The loss of all labels of a row, synthetic rows with one label each."""
        network, adjusts = network_of(head), self.adjusts(head)
        options = check_loss(self.loss_name(head), network.loss_options)
        share = 1 - self.augmentation.weight * (self.roles.augmented & (self.roles.counts > 0))
        real_share_m = torch.from_numpy(share).float().to(self.device)
        if network.loss == "focal":
            return _whenever(partial(masked_focal, real_share_m=real_share_m, gamma=options["gamma"]))
        if network.loss == "ldam":
            largest = options["scale"] * options["largest_margin"]
            margins = label_margins(torch.from_numpy(self.roles.counts), self.n_rows, largest)
            present_m, absent_m = (margin_m.float().to(self.device) for margin_m in margins)
            return _whenever(
                partial(masked_ldam, real_share_m=real_share_m, present_margin_m=present_m, absent_margin_m=absent_m)
            )
        odds = self.odds_of(head)
        shift_m = torch.from_numpy(odds if adjusts else np.zeros_like(odds)).float().to(self.device)
        return _whenever(partial(masked_bce, log_odds_m=shift_m, real_share_m=real_share_m))

    def linear_fitter(self, head: LinearHead) -> LinearFitter:
        """Logistic regression of every label, by L-BFGS."""
        decays = WEIGHT_DECAYS if head.weight_decay is None else (head.weight_decay,)
        return LinearFitter(self.n_outputs, self.loss_of(head), decays)

    def balanced(self, module: nn.Module, head: Head) -> nn.Module:
        """Logits free of the labels' frequencies: without adjustment their log-odds are taken off afterwards."""
        if self.adjusts(head):
            return module
        return BalancedHead(module, torch.from_numpy(self.odds_of(head)).to(next(module.parameters())))


def _whenever(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> HeadLoss:
    """A loss that does not change in the course of training."""
    return lambda outputs, y, done=1.0: loss(outputs, y)


def _sample(
    s: Array,
    labelled: Labelled,
    synthetic: Synthetic,
    scale: Array,
    weight: Array,
    augmentation: Augmentation,
    device: torch.device,
) -> HeadSample:
    """Real rows with all their columns, synthetic rows with one; the mass of a column's positives stays what it was."""
    positives = np.asarray(labelled.indicator.T @ weight, dtype=np.float64)
    n, n_synthetic = len(s), len(synthetic.y)
    target = torch.full((n + n_synthetic, labelled.indicator.shape[1]), UNKNOWN, dtype=torch.int8)
    target[:n] = ABSENT
    target[torch.from_numpy(labelled.incidences.row), torch.from_numpy(labelled.label)] = PRESENT
    target[torch.arange(n, n + n_synthetic), torch.from_numpy(synthetic.y)] = SYNTHETIC
    each = np.maximum(np.bincount(synthetic.y, minlength=len(positives)), 1)
    artificial = augmentation.weight * positives / each
    scaled = np.empty((n + n_synthetic, s.shape[1]), dtype=np.float32)
    np.multiply(s, scale, out=scaled[:n], casting="same_kind")
    np.multiply(synthetic.s, scale, out=scaled[n:], casting="same_kind")
    return HeadSample(
        s=torch.from_numpy(scaled).to(device),
        y=target.to(device),
        weight=torch.from_numpy(np.concatenate([weight, artificial[synthetic.y]])).float().to(device),
        synthetic=(torch.arange(n + n_synthetic) >= n).to(device),
    )
