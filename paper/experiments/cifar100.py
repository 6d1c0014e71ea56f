"""CIFAR-100 as the rivals see it: encoder and head learned together, under each of their losses.

Table 1's protocol, 500 images of 50 classes and 50 of the others, with all methods; and an experiment of its own for
two others, 500 and 5 images, and an exponential tail from 500 to 5, with a shorter list. ``ERM, Adam`` differs from
``ERM`` by its optimiser alone. GAN, VAT and SMOTE act on features: of an encoder that has seen all classes but not
these rows, a fifth. ECRT, with an encoder that has seen the majority only, linear de-mixing and a linear head, stands
here under the first protocol; its variants are an experiment of their own too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ecrt.estimators import ECRTClassifier
from ecrt.metrics import PriorName
from ecrt.randomness import seeded
from ecrt.stages import encode, head_outputs
from paper.data.images import CIFAR_PROTOCOLS, CifarProtocol
from paper.experiments.cifar_training import (
    ADAM,
    MIXUP,
    encoder_of,
    figures,
    image_features,
    items_of,
    load,
    network,
    roles_of,
)
from paper.experiments.one_flow import the_device
from paper.experiments.table_one import ECRT_PARTS, fit_rival
from paper.statistics import observations, table

__all__ = ["METHODS", "cells", "protocol_cells", "run_cell", "summarise"]

Row = dict[str, Any]

FOR_FEATURES: Row = {"loss": "cross-entropy", "holdout": 0.2, **MIXUP}
COSINE: Row = {"head": "cosine", "loss_options": {"scale": 30.0}}
METHODS: dict[str, Row] = {
    "ERM": {"loss": "cross-entropy"},
    "LA": {"loss": "logit-adjusted"},
    "LA, mixup off for the last quarter": {"loss": "logit-adjusted", **MIXUP},
    "LDAM-DRW": {"loss": "ldam-drw", **COSINE},
    "ECRT": FOR_FEATURES,
    "ERM, Adam": {"loss": "cross-entropy", "optimizer": ADAM},
    "IW": {"loss": "weighted"},
    "FOCAL": {"loss": "focal"},
    "LDAM": {"loss": "ldam", **COSINE},
    "mixup": {"loss": "cross-entropy", "mixup": 1.0},
    "GAN": FOR_FEATURES,
    "VAT": FOR_FEATURES,
    "SMOTE": FOR_FEATURES,
}
"""Options of ``Encoder``. Those with a hold-out predict with a head of their own, learned on unseen rows."""

PAPER_NOISE = 64

ELSEWHERE = ("ERM", "LA", "LDAM-DRW")
"""Methods of the other protocols."""

TRAINING_PRIOR = ("ERM", "ERM, Adam", "FOCAL", "LDAM", "mixup")
"""Methods whose predictions assume the training frequencies; those of the others assume equal classes."""


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with three seeds under Table 1's protocol; a trial run has three methods."""
    return _cells([(method, "500/50") for method in (("LDAM-DRW", "ECRT", "SMOTE") if smoke else METHODS)], smoke)


def protocol_cells(smoke: bool) -> Iterable[Row]:
    """Three methods with three seeds under the other protocols; a trial run has one of each."""
    if smoke:
        return _cells([("LA", "exponential-100")], smoke)
    return _cells([(method, protocol) for protocol in ("500/5", "exponential-100") for method in ELSEWHERE], smoke)


def _cells(runs: list[tuple[str, str]], smoke: bool) -> Iterable[Row]:
    """Three seeds of each; a trial run has one, with six classes and a narrow network."""
    size = {"n_classes": 6, "width": 4, "epochs": 1} if smoke else {"n_classes": 100, "width": 64, "epochs": 60}
    for method, protocol in runs:
        for seed in range(1 if smoke else 3):
            yield {"method": method, "protocol": protocol, "seed": seed, **size}


def run_cell(*, method: str, protocol: CifarProtocol, seed: int, n_classes: int, width: int, epochs: int) -> Row:
    """Train on the imbalanced images and measure on the official test images, under either prior."""
    data, transfer = load(protocol, n_classes), method == "ECRT"
    roles = roles_of(data, "majority" if transfer else "all")
    with seeded(seed):
        config = encoder_of(network(data, width), epochs, **METHODS[method])
        result = encode(
            items_of(data), data.y_train, roles, config, rng=np.random.default_rng(seed), device=the_device()
        )
        z_test = image_features(result.encoder, data.X_test)
        z, y = result.features[result.unseen], data.y_train[result.unseen]
        if transfer:
            minority = np.flatnonzero(roles.minority)
            clf = ECRTClassifier(minority=minority, random_state=seed, **ECRT_PARTS).fit(z, y)
            logits = clf.decision_function(z_test)
        elif "holdout" in METHODS[method]:
            logits = fit_rival(method, z, y, seed, n_noise=PAPER_NOISE).decision_function(z_test)
        elif result.head is not None:
            logits = head_outputs(result.head, z_test)
    own: PriorName = "training" if method in TRAINING_PRIOR else "balanced"
    return figures(logits, data, own)


def summarise(rows: list[Row]) -> list[Row]:
    """Each method's mean over seeds, by protocol, with the half-width of a 95 % interval."""
    return table(
        observations(rows),
        ("what", "protocol"),
        ("top1", "top5", "nll", "macro_f1"),
        means=("top1_balanced_prior", "top1_training_prior", "seconds"),
        order=lambda key: (CIFAR_PROTOCOLS.index(key[1]), list(METHODS).index(key[0])),
    )
