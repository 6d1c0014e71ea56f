"""CIFAR-100 with step imbalance, 500 images of 50 classes and 50 of the others: ResNet-18 trained from scratch.

Settings are fixed beforehand and the same for all methods: SGD with Nesterov momentum, rate 0.1 with a cosine, batches
of 128, weight decay 5e-4, 60 epochs, random crops and mirror images. Nothing is chosen on the test images. The subset
of minority images belongs to the protocol and is the same for every seed. A GPU is needed for the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn
from torch.utils.data import TensorDataset

from ecrt.data import assign_roles
from ecrt.data.cifar import CifarProtocol, ImageSplit, load_cifar100
from ecrt.estimators import ECRTClassifier
from ecrt.experiments.summary import t_interval
from ecrt.metrics import PriorName, prediction_metrics, single_numbers
from ecrt.nn import ResNet18, StandardiseChannels
from ecrt.stages import EncodeConfig, encode, features_of, head_outputs
from ecrt.training import TrainingConfig, seeded

__all__ = ["METHODS", "cells", "run_cell", "summarise"]

Row = dict[str, Any]

MIXUP = {"mixup": 1.0, "mixup_off": 0.25}

METHODS: dict[str, Row] = {
    "ERM": {"loss": "cross-entropy"},
    "LA": {"loss": "logit-adjusted"},
    "LA, mixup off for the last quarter": {"loss": "logit-adjusted", **MIXUP},
    "LDAM-DRW": {"loss": "ldam-drw", "head": "cosine", "loss_options": {"scale": 30.0}},
    "ECRT": {"loss": "cross-entropy", "holdout": 0.2, **MIXUP},
}
"""Options of ``EncodeConfig``. All but ECRT predict with the head learned together with the encoder."""

TRAINING_PRIOR = ("ERM",)
"""Methods whose predictions assume the training frequencies; those of the others assume equal classes."""


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with three seeds; a trial run has two methods, six classes and a narrow network."""
    small = {"n_classes": 6, "width": 4, "epochs": 1} if smoke else {"n_classes": 100, "width": 64, "epochs": 60}
    for method in ("LDAM-DRW", "ECRT") if smoke else METHODS:
        for seed in range(1 if smoke else 3):
            yield {"method": method, "protocol": "500/50", "seed": seed, **small}


def run_cell(*, method: str, protocol: CifarProtocol, seed: int, n_classes: int, width: int, epochs: int) -> Row:
    """Train on the imbalanced images and measure on the official test images, under either prior."""
    data = _load(protocol, n_classes)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    counts = np.bincount(data.y_train)
    with seeded(seed):
        logits = _balanced_logits(method, data, counts, seed, width, epochs, device)
    log_proba = log_softmax(logits, axis=1)
    own: PriorName = "training" if method in TRAINING_PRIOR else "balanced"
    priors: tuple[PriorName, ...] = ("balanced", "training")
    figures = {
        prior: single_numbers(prediction_metrics(log_proba, data.y_test, counts, prior=prior, assumed="balanced"))
        for prior in priors
    }
    return figures[own] | {f"top1_{prior}_prior": figures[prior]["top1"] for prior in priors} | {"prior": own}


def _balanced_logits(
    method: str, data: ImageSplit, counts: NDArray[np.int64], seed: int, width: int, epochs: int, device: torch.device
) -> NDArray[np.float64]:
    """Balanced logits of the test images."""
    images = torch.from_numpy(data.X_train)
    encoder = nn.Sequential(StandardiseChannels.of(images), ResNet18(width=width))
    options: Row = {"holdout": 0.0, "crop_padding": 4, "flip": True} | METHODS[method]
    config = EncodeConfig(
        **options,
        training=TrainingConfig(
            optimizer="sgd", learning_rate=0.1, weight_decay=5e-4, batch_size=128, epochs=epochs, patience=epochs,
            gradient_norm=float("inf"),
        ),
    )  # fmt: skip
    transfer, labels = method == "ECRT", np.arange(len(counts))
    minority = labels[len(labels) // 2 :]
    roles = assign_roles(counts, labels, minority=minority, encode_on="majority" if transfer else "all")
    items = TensorDataset(images, torch.from_numpy(data.y_train))
    result = encode(encoder, items, data.y_train, roles, config, rng=np.random.default_rng(seed), device=device)
    tests = TensorDataset(torch.from_numpy(data.X_test), torch.from_numpy(data.y_test))
    z_test = features_of(encoder, tests, device=device)
    if result.head is not None and not transfer:
        return head_outputs(result.head, z_test)
    unseen = result.unseen
    clf = ECRTClassifier(minority=minority, random_state=seed).fit(result.features[unseen], data.y_train[unseen])
    return clf.decision_function(z_test)


@cache
def _load(protocol: CifarProtocol, n_classes: int) -> ImageSplit:
    return load_cifar100(protocol, n_classes=n_classes)


def summarise(rows: list[Row]) -> list[Row]:
    """Each method's mean over seeds, with the half-width of a 95 % interval for top-1."""
    table = []
    for method in METHODS:
        mine = [row for row in rows if row["cell"]["method"] == method]
        if not mine:
            continue
        names = ("top1", "top5", "nll", "macro_f1", "top1_balanced_prior", "top1_training_prior", "seconds")
        means = {name: float(np.mean([row[name] for row in mine])) for name in names if name in mine[0]}
        spread = t_interval([row["top1"] for row in mine]).half_width
        table.append({"what": method, "seeds": len(mine), **means, "top1_half_width": spread})
    return table
