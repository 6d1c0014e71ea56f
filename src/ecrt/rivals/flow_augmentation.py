"""ECRT's augmentation for a head on features: synthetic sources are brought back through the inverted flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.data import ClassRoles
from ecrt.estimators.base import Session
from ecrt.losses import LossName
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Choice, Number, Space
from ecrt.stages import (
    AUGMENTATION,
    Augmentation,
    Demixing,
    DemixResult,
    Flow,
    Linear,
    Role,
    Synthetic,
    augment_classes,
    demix,
)
from ecrt.stages.choosing import Draw

__all__ = ["FlowAugmentation"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DEMIXING = Role((Linear, Flow))


@dataclass(kw_only=True, eq=False, repr=False)
class FlowAugmentation(Rival):
    """ECRT's augmentation, brought back through the inverted flow: Algorithm 1 with a head on z instead of s.

    A flow is learned once, from the training rows. Trained by logit adjustment.

    Parameters
    ----------
    demixing : {"flow", "linear"}, Flow or Linear, default="flow"
        As in ``ECRTClassifier``.
    augmentation : {"parametric", "permutation", "borrowed", "none"} or a part, default="parametric"
        As in ``ECRTClassifier``.

    References
    ----------
    The ECRT paper's ablation: a head on features, NeurIPS 2021.
    """

    kind: ClassVar[str] = "flow-augmentation"
    label: ClassVar[str] = "Augmentation through the flow"
    usual_loss: ClassVar[LossName] = "logit-adjusted"
    tuned: ClassVar[Space | None] = {
        "demixing": Choice(("linear", "flow"), "linear"),
        "augmentation__weight": Number(0.1, 0.9, first=0.5),
    }
    _roles: ClassVar[dict[str, Role]] = {"demixing": DEMIXING, "augmentation": AUGMENTATION}
    _parameter_constraints: ClassVar[dict[str, list[object]]] = {
        "demixing": DEMIXING.constraint(),
        "augmentation": AUGMENTATION.constraint(),
    }

    demixing: str | Demixing = "flow"
    augmentation: str | Augmentation = "parametric"

    @property
    def synthetic_mass(self) -> Augmentation:
        """The augmentation itself."""
        part: Augmentation = self._parts("augmentation")[0]
        return part

    def draw_from(
        self, z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels, roles: ClassRoles, session: Session
    ) -> Draw:
        """Synthetic sources, as features."""
        whole = demix(
            z, y, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=roles.demixed_on,
            config=self._parts("demixing")[0], **vars(session),
        )  # fmt: skip

        def made_from(part: DemixResult, learn: Labels) -> Callable[[Labels], Synthetic]:
            mechanism = whole if whole.refit is None else whole.refit(learn)

            def draw(rows: Labels) -> Synthetic:
                s, variance = mechanism.learned[rows], mechanism.within_variance
                drawn = augment_classes(s, y[rows], roles.augmented, variance, self.synthetic_mass, session.rng)
                with torch.no_grad():
                    features = mechanism.demixer.inverse(torch.from_numpy(drawn.s)).numpy()
                return Synthetic(part.sources(features), drawn.y)

            return draw

        return Draw(made_from, whole.fresh)
