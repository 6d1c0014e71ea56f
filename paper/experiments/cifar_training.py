"""What all experiments on CIFAR-100 share: the images, ResNet-18 trained from scratch, and what is measured.

Settings are fixed beforehand and the same for all methods: SGD with Nesterov momentum, rate 0.1 with a cosine, batches
of 128, weight decay 5e-4, 60 epochs, random crops and mirror images. Nothing is chosen on the test images. The subset
of minority images belongs to the protocol and is the same for every seed. A GPU is needed for the whole of it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn
from torch.utils.data import TensorDataset

from ecrt.data import ClassRoles, assign_roles
from ecrt.metrics import PriorName, prediction_metrics, single_numbers
from ecrt.nn import ResNet18, StandardiseChannels
from ecrt.stages import Encoder, features_of
from paper.data.images import N_CLASSES, CifarProtocol, ImageSplit, load_cifar100
from paper.experiments.one_flow import the_device

__all__ = [
    "ADAM",
    "MIXUP",
    "SGD",
    "encoder_of",
    "figures",
    "image_features",
    "items_of",
    "load",
    "network",
    "roles_of",
]

Row = dict[str, Any]
Array = NDArray[np.float64]

MIXUP: Row = {"mixup": 1.0, "mixup_off": 0.25}
SGD: Row = {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 5e-4}
ADAM: Row = {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 0.0}
"""AdamW without decay is Adam."""


@cache
def load(protocol: CifarProtocol, n_classes: int) -> ImageSplit:
    """The images, read once by each process; a trial run, which has fewer classes, takes a few of each."""
    data = load_cifar100(protocol, n_classes=n_classes)
    if n_classes == N_CLASSES:
        return data
    train, test = (
        np.concatenate([np.flatnonzero(y == label)[:most] for label in np.unique(y)])
        for y, most in ((data.y_train, 80), (data.y_test, 20))
    )
    return ImageSplit(data.X_train[train], data.y_train[train], data.X_test[test], data.y_test[test])


def network(data: ImageSplit, width: int, n_features: int | None = None) -> nn.Module:
    """ResNet-18 on images as bytes."""
    images = torch.from_numpy(data.X_train)
    return nn.Sequential(StandardiseChannels.of(images), ResNet18(width=width, n_features=n_features))


def encoder_of(module: nn.Module, epochs: int, optimizer: Row = SGD, **options: Any) -> Encoder:
    """The settings above, with the options of a method."""
    usual: Row = {"holdout": 0.0, "crop_padding": 4, "flip": True, "weight_decay": 0.0}
    steps: Row = {"batch_size": 128, "epochs": epochs, "patience": epochs, "gradient_norm": float("inf")}
    return Encoder(module, **usual | optimizer | options | steps)


def roles_of(data: ImageSplit, encode_on: Any) -> ClassRoles:
    """The second half of the classes is the minority, under every protocol."""
    counts = np.bincount(data.y_train)
    labels = np.arange(len(counts))
    return assign_roles(counts, labels, minority=labels[len(labels) // 2 :], encode_on=encode_on)


def items_of(data: ImageSplit) -> TensorDataset:
    """Training images with their classes."""
    return TensorDataset(torch.from_numpy(data.X_train), torch.from_numpy(data.y_train))


def image_features(encoder: nn.Module, images: NDArray[np.uint8]) -> Array:
    """Features of images, in order."""
    items = TensorDataset(torch.from_numpy(images), torch.zeros(len(images), dtype=torch.int64))
    return features_of(encoder, items, device=the_device())


def figures(balanced_logits: Array, data: ImageSplit, own: PriorName = "balanced") -> Row:
    """What is measured on the test images, under the prior that a method assumes, with top-1 under either."""
    log_proba, counts = log_softmax(balanced_logits, axis=1), np.bincount(data.y_train)
    priors: tuple[PriorName, ...] = ("balanced", "training")
    found = {
        prior: single_numbers(prediction_metrics(log_proba, data.y_test, counts, prior=prior, assumed="balanced"))
        for prior in priors
    }
    return found[own] | {f"top1_{prior}_prior": found[prior]["top1"] for prior in priors} | {"prior": own}
