"""Rival ways to synthetic rows, for heads that learn from standardised features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.augmentation.resampling import calibrated_distribution, smote
from ecrt.data import ClassRoles
from ecrt.stages.augment import AugmentConfig, Synthetic, augment_classes
from ecrt.stages.demix import DemixConfig, DemixResult, demix
from ecrt.stages.generate import generate_rows
from ecrt.stages.predict import Draw
from ecrt.stages.transfer import Drawing
from ecrt.training import Progress, seeded

__all__ = ["DrawName", "make_drawing"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

DrawName = Literal["smote", "distribution-calibration", "cgan", "flow-augmentation"]


def make_drawing(
    name: DrawName,
    roles: ClassRoles,
    options: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> Drawing:
    """How synthetic rows are made: from the rows of a fit alone, in the space of standardised features.

    ``"flow-augmentation"`` learns ECRT's de-mixing, augments rare classes among its sources, and returns through the
    inverse: Algorithm 1 with a head on z instead of s. A flow is learned once, from the training rows.
    """
    if name == "flow-augmentation":
        return _flow_drawing(roles, options, rng=rng, device=device, progress=progress)
    chosen = {key: value for key, value in options.items() if key != "power"}

    def rows_of(s: Array, y: Labels) -> tuple[Array, Labels]:
        if name == "smote":
            return smote(s, y, rng, **chosen)
        if name == "distribution-calibration":
            return calibrated_distribution(s, y, ~roles.minority, rng, **chosen)
        with seeded(int(rng.integers(2**62))):
            return generate_rows(s, y, rng=rng, device=device, progress=progress, **chosen)

    def drawing(z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels) -> Draw:
        return Draw(lambda part, learn: lambda rows: Synthetic(*rows_of(part.learned[rows], y[rows]), alike=True))

    return drawing


def _flow_drawing(
    roles: ClassRoles,
    options: Mapping[str, Any],
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> Drawing:
    config = DemixConfig(method=options["demixing"])
    augmentation = AugmentConfig(weight=options["weight"])

    def drawing(z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels) -> Draw:
        whole = demix(
            z, y, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=roles.demixed_on, config=config,
            rng=rng, device=device, progress=progress,
        )  # fmt: skip

        def made_from(part: DemixResult, learn: Labels) -> Callable[[Labels], Synthetic]:
            mechanism = whole if whole.refit is None else whole.refit(learn)

            def draw(rows: Labels) -> Synthetic:
                s, variance = mechanism.learned[rows], mechanism.within_variance
                drawn = augment_classes(s, y[rows], roles.augmented, variance, augmentation, rng)
                with torch.no_grad():
                    features = mechanism.demixer.inverse(torch.from_numpy(drawn.s)).numpy()
                return Synthetic(part.sources(features), drawn.y)

            return draw

        return Draw(made_from, whole.fresh)

    return drawing
