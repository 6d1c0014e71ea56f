"""VAT and a GAN where a row may have several labels: rivals of ECRT that are no options of an estimator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from ecrt.data import ClassRoles, assign_roles, stratified_holdout
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.inputs import resolve_device
from ecrt.estimators.options import label_head_config
from ecrt.losses import label_odds, row_mass
from ecrt.metrics import best_thresholds
from ecrt.stages import (
    DemixConfig,
    DemixResult,
    HeadChoice,
    Labelled,
    Synthetic,
    choose_label_head,
    demix_labels,
    head_outputs,
)
from ecrt.stages.generate import generate_rows
from ecrt.training import seeded

__all__ = ["GAN", "RIVALS", "VAT", "LabelRival", "choose_rival"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]

VAT, GAN = "MLP VAT", "MLP GAN"
RIVALS = (VAT, GAN)
GAN_OPTIONS: Row = {"width": 256, "n_noise": 64, "n_steps": 5000}
"""Units and noise of the supplement."""


def choose_rival(
    method: str,
    options: Row,
    s: Array,
    demixed: DemixResult,
    labelled: Labelled,
    train_rows: Labels,
    held_out_rows: Labels,
    roles: ClassRoles,
    rng: np.random.Generator,
    device: torch.device,
) -> tuple[HeadChoice, Array, Labels]:
    """The network that held-out rows choose, and its logits of rows; ``options`` are those of an estimator."""
    known = {name: value for name, value in options.items() if name != "epsilon"}
    config = label_head_config(ECRTClassifier(**known), *s.shape)
    drawing = None
    if method == VAT:
        config = replace(config, risk="vat", risk_options={"epsilon": options["epsilon"]})
    else:
        wanted = np.repeat(np.flatnonzero(roles.augmented & (roles.counts > 0)), options["n_synthetic"])

        def drawing(part: DemixResult) -> Callable[[Labels], Synthetic]:
            """Pairs of a row and one of its labels are what the GAN learns from."""

            def draw(rows: Labels) -> Synthetic:
                pairs = labelled[rows]
                z = (part.learned[rows] * part.head_scale)[pairs.incidences.row]
                with seeded(int(rng.integers(2**62))):
                    drawn, y = generate_rows(z, pairs.label, rng=rng, device=device, wanted=wanted, **GAN_OPTIONS)
                return Synthetic(drawn / part.head_scale, y)

            return draw

    return choose_label_head(
        s, demixed, labelled, train_rows, held_out_rows, roles, config, rng, device, drawing=drawing
    )  # fmt: skip


class LabelRival:
    """One of these methods with as much of an estimator as the experiment asks for."""

    def __init__(self, method: str, options: Row, seed: int) -> None:
        self.method, self.options, self.seed = method, options, seed
        self.class_prior = "balanced"

    def fit(self, X: Array, y: NDArray[np.int8]) -> LabelRival:
        """Choose on held-out rows, then fit on all."""
        rng, device = np.random.default_rng(self.seed), resolve_device("auto")
        labelled = Labelled(sparse.csr_array(y))
        names = np.arange(y.shape[1])
        roles = assign_roles(labelled.counts, names, minority=self.options["minority"])
        train_rows, held_out_rows = stratified_holdout(labelled.rarest, 0.2, rng)
        z = X.astype(np.float64)
        with seeded(self.seed):
            self.demixed = demix_labels(
                z, labelled, train_rows, roles, DemixConfig(method="none"), rng, torch.device("cpu")
            )  # fmt: skip
            choice, logits, judged = choose_rival(
                self.method, self.options, self.demixed.learned, self.demixed, labelled, train_rows, held_out_rows,
                roles, rng, device,
            )  # fmt: skip
            self.head: nn.Module = choice.fit()
        self.odds = {
            "training": label_odds(labelled.indicator),
            "balanced": label_odds(labelled.indicator, row_mass(labelled.indicator, "balanced")),
        }
        self.thresholds = best_thresholds(logits, labelled[judged].present(), -self.odds["balanced"])
        self.history_ = {"head_candidates": choice.candidates, "head_setting": choice.setting}
        return self

    def set_params(self, class_prior: str) -> LabelRival:
        """The prior that log-odds assume from now on."""
        self.class_prior = class_prior
        return self

    def decision_function(self, X: Array) -> Array:
        """Log-odds of every label."""
        s = self.demixed.sources(X.astype(np.float64)) * self.demixed.head_scale
        return np.asarray(head_outputs(self.head, s) + self.odds[self.class_prior])

    def predict(self, X: Array) -> NDArray[np.bool_]:
        """Labels above their thresholds, which do not depend on the prior."""
        return np.asarray(self.decision_function(X) >= self.thresholds + self.odds[self.class_prior])
