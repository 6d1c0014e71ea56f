"""Rows as heads see them: what is to be predicted, what is learned from, and losses of rows that are checked on.

``ClassTarget`` is for rows with one class each; ``labels`` has the same for rows with any number of labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.data import ClassRoles, stratified_holdout
from ecrt.losses import class_mass, sample_weights
from ecrt.nn import BalancedHead, ClassGaussians
from ecrt.stages.augmenting import Augmentation, Synthetic, augment_classes
from ecrt.stages.demixing import Demixing, DemixResult, demix
from ecrt.stages.heads import (
    MANY_ROWS,
    Head,
    HeadLoss,
    HeadSample,
    NetworkHead,
    Networks,
    Target,
    device_outputs,
    temperature_of,
    without_prior,
)
from ecrt.stages.holdout import across_halves, halves
from ecrt.training import Progress

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowTarget(Target):
    """Rows with classes or labels.

    Parameters
    ----------
    y : class indices, or ``Labelled``.
    roles : what every class or label is used for.
    augmentation : how synthetic sources are drawn, and their share of the mass of a class.
    rng : of the draws.
    device : of samples and losses.
    """

    y: Any
    roles: ClassRoles
    augmentation: Augmentation
    rng: np.random.Generator
    device: torch.device

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
        """Groups of rows, to split them by."""
        raise NotImplementedError

    def weights(self, rows: Labels) -> Array:
        """Weights of rows that are checked on together: every class or label counts the same."""
        raise NotImplementedError

    def split(self, fraction: float, fresh: Mask | None) -> tuple[Labels, Labels]:
        """Rows to learn from, and rows that are held out of the ``fresh`` ones."""
        raise NotImplementedError

    def demix(
        self, z: Array, train_rows: Labels, held_out_rows: Labels, config: Demixing, progress: Progress | None = None
    ) -> DemixResult:
        """Stage 2 on these rows."""
        raise NotImplementedError

    def augment(self, demixed: DemixResult, rows: Labels) -> Synthetic:
        """Synthetic sources, made of some rows."""
        raise NotImplementedError

    def learned(self, rows: Labels, synthetic: Synthetic, head: Head) -> tuple[Tensor, Tensor]:
        """What a head is to learn from real and synthetic rows, and their weights, which sum to one."""
        raise NotImplementedError

    def losses(self, logits: Tensor, rows: Labels) -> Array:
        """Loss of each row under balanced logits."""
        raise NotImplementedError

    def needs_temperature(self, module: nn.Module, head: Head) -> bool:
        """Whether logits have a scale of their own, which has to be found on held-out rows."""
        return False

    def temperature(self, module: nn.Module, head: Head, s_nd: Tensor, rows: Labels) -> float:
        """That scale, from scaled sources of rows that the module has not seen."""
        return 1.0

    def balanced(self, module: nn.Module, head: Head, temperature: float = 1.0) -> nn.Module:
        """A module of balanced logits: without what the loss of the head leaves of frequencies in them."""
        raise NotImplementedError


@dataclass(frozen=True)
class ClassTarget(RowTarget):
    """Rows with one class each."""

    one_class: ClassVar[bool] = True

    @property
    def strata(self) -> Labels:
        """The classes."""
        labels: Labels = self.y
        return labels

    def weights(self, rows: Labels) -> Array:
        """Every class has the same weight."""
        y = self.strata[rows]
        return np.asarray((1 / np.maximum(np.bincount(y), 1))[y])

    def split(self, fraction: float, fresh: Mask | None) -> tuple[Labels, Labels]:
        """A share of each class is held out."""
        return stratified_holdout(self.y, fraction, self.rng, eligible=fresh)

    def demix(
        self, z: Array, train_rows: Labels, held_out_rows: Labels, config: Demixing, progress: Progress | None = None
    ) -> DemixResult:
        """De-mix on the rows of the de-mixing classes."""
        return demix(
            z, self.y, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=self.roles.demixed_on,
            config=config, rng=self.rng, device=self.device, progress=progress,
        )  # fmt: skip

    def augment(self, demixed: DemixResult, rows: Labels) -> Synthetic:
        """Synthetic sources of the augmented classes."""
        return augment_classes(
            demixed.learned, self.y, self.roles.augmented, demixed.within_variance, self.augmentation, self.rng, rows
        )

    def mass_of(self, head: Head) -> Tensor:
        """w_m, the weight of classes in the loss of a head."""
        return class_mass(torch.from_numpy(self.roles.counts), head.class_mass)

    def counts_of(self, head: Head) -> Tensor:
        """How often classes count in the loss: in proportion to their mass."""
        counts_m = torch.from_numpy(self.roles.counts)
        if head.class_mass != "training":
            counts_m = self.mass_of(head) * counts_m.sum()
        return counts_m.to(self.device)

    def learned(self, rows: Labels, synthetic: Synthetic, head: Head) -> tuple[Tensor, Tensor]:
        """Classes, and the weights that they give their rows."""
        y, augmented = self.y[rows], self.roles.augmented
        share = augmented * self.augmentation.weight
        if synthetic.same_weight:
            real, drawn = (np.bincount(labels, minlength=len(augmented)) for labels in (y, synthetic.y))
            share = drawn / np.maximum(real + drawn, 1)
        y_n = torch.from_numpy(np.concatenate([y, synthetic.y]))
        weight_n = sample_weights(y_n, torch.arange(len(y_n)) >= len(y), self.mass_of(head), torch.from_numpy(share))
        # Classes that none of these rows belong to (one sample, held out) leave some mass over.
        return y_n, weight_n / weight_n.sum()

    def losses(self, logits: Tensor, rows: Labels) -> Array:
        """Balanced NLL."""
        true = torch.from_numpy(self.y[rows]).to(logits.device)
        return nn.functional.cross_entropy(logits, true, reduction="none").cpu().numpy()

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """The loss with the class counts in it."""
        return head.class_loss.bind(self.counts_of(head))

    def prior_left_by(self, head: Head) -> Tensor:
        """The class prior that logits trained under the loss of a head assume."""
        return head.class_loss.prior(self.counts_of(head))

    def needs_temperature(self, module: nn.Module, head: Head) -> bool:
        """Under an improper loss."""
        return not isinstance(module, ClassGaussians | BalancedHead) and not head.class_loss.proper

    def temperature(self, module: nn.Module, head: Head, s_nd: Tensor, rows: Labels) -> float:
        """Under the prior that the loss leaves."""
        return temperature_of(module, self.prior_left_by(head), s_nd, self.y[rows])

    def balanced(self, module: nn.Module, head: Head, temperature: float = 1.0) -> nn.Module:
        """Logits minus the log prior that the loss leaves in them."""
        if isinstance(module, ClassGaussians | BalancedHead):
            return module
        return without_prior(module, self.prior_left_by(head), temperature)


@dataclass
class View:
    """Rows as one de-mixing shows them to heads.

    ``drawn`` makes synthetic sources of rows; ``None`` for those of the augmentation.
    """

    target: RowTarget
    demixed: DemixResult
    drawn: Callable[[Labels], Synthetic] | None = None

    def __post_init__(self) -> None:
        # On the device once; on the CPU this is the same memory.
        self.s_nd = torch.from_numpy(self.demixed.learned).to(self.target.device)
        self.scale_d = torch.from_numpy(self.demixed.head_scale).to(self.target.device)

    def scaled(self, rows: Labels) -> Tensor:
        """Sources in the units of the head."""
        return self.s_nd[torch.from_numpy(rows).to(self.target.device)].mul_(self.scale_d)

    def sample(self, rows: Labels, head: Head) -> HeadSample:
        """Real and synthetic rows to learn from."""
        demixed, device = self.demixed, self.target.device
        synthetic = self.target.augment(demixed, rows) if self.drawn is None else self.drawn(rows)
        y, weight = self.target.learned(rows, synthetic, head)
        drawn = torch.from_numpy(synthetic.s).to(device) * self.scale_d
        variance = demixed.within_variance * demixed.head_scale**2
        return HeadSample(
            torch.cat([self.scaled(rows).float(), drawn.float()]),
            y.to(device),
            weight.float().to(device),
            (torch.arange(len(y)) >= len(rows)).to(device),
            variance=torch.from_numpy(variance),
            between=torch.from_numpy(demixed.signal_to_noise * variance),
        )

    def temperature(self, rows: Labels, head: Head, module: nn.Module) -> float:
        """What logits are to be divided by, from rows that the module has not seen."""
        if not self.target.needs_temperature(module, head):
            return 1.0
        return self.target.temperature(module, head, self.scaled(rows), rows)

    def logits(self, rows: Labels, head: Head, module: nn.Module, temperature: float = 1.0) -> Tensor:
        """Balanced logits of rows."""
        return device_outputs(self.target.balanced(module.eval(), head, temperature), self.scaled(rows))

    def losses(self, rows: Labels, head: Head, module: nn.Module) -> Array:
        """Losses of rows; where logits need a temperature, each half of the rows has that of the other."""

        def at_temperature_of(mine: Mask) -> Array:
            temperature = self.temperature(rows[mine], head, module.eval())
            return self.target.losses(self.logits(rows, head, module, temperature), rows)

        if not self.target.needs_temperature(module, head):
            return at_temperature_of(np.ones(len(rows), dtype=bool))
        return across_halves(halves(self.target.strata[rows]), at_temperature_of)
