"""Stages 2 to 4 where a row may have several labels: pairs of row and label to de-mix on, one column of logits a label.

A row without labels takes no part in de-mixing; the head learns from it that no label holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ecrt.data import stratified_holdout, with_lost_groups
from ecrt.losses import ClassMass, check_loss
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
from ecrt.stages.augmenting import Synthetic, augment_labels
from ecrt.stages.demixing import Demixing, DemixResult, Incidences, demix
from ecrt.stages.heads import Head, HeadLoss, NetworkHead, Networks
from ecrt.stages.targets import RowTarget
from ecrt.training import Progress

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

    def present(self) -> NDArray[np.bool_]:
        """The indicator as booleans."""
        return np.asarray(self.indicator.toarray() > 0)


@dataclass(frozen=True)
class LabelTarget(RowTarget):
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

    def demix(
        self, z: Array, train_rows: Labels, held_out_rows: Labels, config: Demixing, progress: Progress | None = None
    ) -> DemixResult:
        """De-mix on pairs of a row and one of its de-mixing labels; pairs of rows not trained on are held out."""
        trained = np.isin(self.y.incidences.row, train_rows)
        return demix(
            z, self.y.label, train_rows=np.flatnonzero(trained), held_out_rows=np.flatnonzero(~trained),
            demixed_on=self.roles.demixed_on & (self.roles.counts > 0), config=config, rng=self.rng,
            device=self.device, progress=progress, incidences=self.y.incidences,
        )  # fmt: skip

    def augment(self, demixed: DemixResult, rows: Labels) -> Synthetic:
        """Synthetic sources of the augmented labels."""
        return augment_labels(
            demixed.learned[rows], self.y[rows].indicator, self.roles.augmented, demixed.within_variance,
            self.augmentation, self.rng,
        )  # fmt: skip

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
        artificial = self.augmentation.weight * positives / each
        return target, torch.from_numpy(np.concatenate([weight, artificial[synthetic.y]]))

    def losses(self, logits: Tensor, rows: Labels) -> Array:
        """Binary cross-entropy under balanced frequencies of labels."""
        return bce_per_row(logits.cpu().numpy() + self.balanced_odds, self.y[rows].present())

    @cached_property
    def balanced_odds(self) -> Array:
        """The log-odds that losses are measured under."""
        return self.odds("balanced")

    def odds(self, mass: ClassMass) -> Array:
        """Log-odds of each label's frequency, where rows have such a mass."""
        return label_odds(self.y.indicator, row_mass(self.y.indicator, mass))

    def loss_name(self, head: Head) -> str:
        """The loss of a head; one that means nothing for labels is refused."""
        return head.loss_name("logit-adjusted", LOSSES, "Several labels for each row")

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """The loss of all labels of a row, synthetic rows with one label each."""
        name = self.loss_name(head)
        options = check_loss(name, head.loss_options)
        share = 1 - self.augmentation.weight * (self.roles.augmented & (self.roles.counts > 0))
        real_share_m = torch.from_numpy(share).float().to(self.device)
        if name == "focal":
            loss = partial(masked_focal, real_share_m=real_share_m, gamma=options["gamma"])
        elif name == "ldam":
            largest = options["scale"] * options["largest_margin"]
            margins = label_margins(torch.from_numpy(self.roles.counts), len(self.strata), largest)
            present_m, absent_m = (margin_m.float().to(self.device) for margin_m in margins)
            loss = partial(
                masked_ldam, real_share_m=real_share_m, present_margin_m=present_m, absent_margin_m=absent_m
            )  # fmt: skip
        else:
            odds = self.odds(head.class_mass) if name == "logit-adjusted" else np.zeros(self.n_outputs)
            shift_m = torch.from_numpy(odds).float().to(self.device)
            loss = partial(masked_bce, log_odds_m=shift_m, real_share_m=real_share_m)
        return lambda outputs, y, done=1.0: loss(outputs, y)

    def balanced(self, module: nn.Module, head: Head, temperature: float = 1.0) -> nn.Module:
        """Logits free of the labels' frequencies: without adjustment their log-odds are taken off afterwards."""
        if self.loss_name(head) == "logit-adjusted":
            return module
        return BalancedHead(module, torch.from_numpy(self.odds(head.class_mass)).to(next(module.parameters())))
