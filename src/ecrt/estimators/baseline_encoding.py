"""Rivals with an encoder: trained end to end, or on the features of rows that it has not seen."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from ecrt.augmentation.resampling import smote
from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.estimators.baseline_methods import BASELINE_METHODS
from ecrt.estimators.inputs import array_items
from ecrt.flows import Demixer, LinearDemixing, SharedPrior
from ecrt.losses import LossName
from ecrt.metrics import nll_per_sample
from ecrt.nn import BalancedHead
from ecrt.stages import EncodeResult, LinearHead, head_outputs
from ecrt.stages.heads import ClassTarget
from ecrt.stages.rivals import NORM_POWERS, normalise_last_layer

__all__ = ["end_to_end", "features_to_learn_from", "is_end_to_end"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_CELLS = 500_000_000
"""Numbers that SMOTE in input space may have to hold: 4 GB."""


def is_end_to_end(clf: Any) -> bool:
    """Whether there is an encoder to train and the method is one that trains it with a head of its own."""
    can = BASELINE_METHODS[clf.method].kind == "loss" or clf.method in ("mixup", "smote", "post-hoc", "tau-norm")
    return can and bool(clf._encoder.supervised)


def end_to_end(
    clf: Any,
    items: Dataset[Any],
    labels: Labels,
    roles: ClassRoles,
    session: Any,
    loss: LossName,
    loss_options: Mapping[str, float],
    options: Mapping[str, Any],
) -> bool:
    """Train encoder and linear head together, if there is an encoder to train and the method is one that can.

    Losses, mixup (on inputs), SMOTE (on inputs, of the rows that are learned from), post-hoc adjustment and
    tau-normalisation can. The power of the latter is chosen on rows that the encoder has not looked at; without any it
    is 1.
    """
    if not is_end_to_end(clf):
        return False
    mixup = {"mixup": options["alpha"], "mixup_off": options["off"]} if clf.method == "mixup" else {}
    config = clone(clf._encoder).set_params(loss=loss, loss_options=dict(loss_options), **mixup)
    oversample = partial(_smote_inputs, items, labels, options, session.rng) if clf.method == "smote" else None
    encoded = clf._encode_by(config, items, labels, roles, session, oversample=oversample)
    head = encoded.head.double().cpu().eval()
    if encoded.fresh.any():
        head = _tempered(head, encoded, labels, LinearHead(loss=loss, loss_options=config.settings_of_loss))
    if clf.method == "post-hoc":
        head = BalancedHead(head.head, options["tau"] * head.log_mass_m)
    elif clf.method == "tau-norm":
        head = _tau_norm(head.head, encoded, labels)
    n_features = encoded.features.shape[1]
    clf.demixer_ = Demixer(LinearDemixing.identity(n_features), SharedPrior()).eval()
    clf.head_, clf._powered = head, np.zeros(n_features, dtype=bool)
    clf.history_ |= {"encoder": encoded.history}
    return True


def _tempered(head: Any, encoded: EncodeResult, labels: Labels, config: LinearHead) -> Any:
    """The head of an improper loss at the temperature of rows that the encoder has not looked at."""
    target = ClassTarget(torch.from_numpy(encoded.head_counts), len(labels), torch.device("cpu"))
    z, y = torch.from_numpy(encoded.features[encoded.fresh]), labels[encoded.fresh]
    temperature = target.temperature(head.head, config, z, y)
    return head if temperature == 1 else target.balanced(head.head, config, temperature)


def features_to_learn_from(
    clf: Any, items: Dataset[Any], labels: Labels, roles: ClassRoles, session: Any
) -> tuple[Array, Labels, NDArray[np.bool_]]:
    """Features and classes of rows that the encoder, trained by cross-entropy, has not seen, and which are fresh.

    cRT fits its last layer on the rows of the encoder, as its authors do.
    """
    encoded = clf._encode_by(clf._encoder, items, labels, roles, session)
    clf.history_ |= {"encoder": encoded.history}
    if len(encoded.unseen) == 0 and clf.method != "crt":
        raise InputError(f"holdout=0 leaves no row for method={clf.method!r} to learn from: hold some out.")
    rows = np.arange(len(labels)) if clf.method == "crt" else encoded.learn_rows
    return encoded.features[rows], labels[rows], encoded.fresh[rows]


def _smote_inputs(
    items: Dataset[Any], labels: Labels, options: Mapping[str, Any], rng: np.random.Generator, learned_from: Labels
) -> tuple[Dataset[Any], Labels]:
    """Rows, or images pixel by pixel, with what SMOTE makes of those that are learned from after them."""
    shape = tuple(items[0][0].shape)
    cells = int(np.prod(shape)) * len(np.unique(labels)) * int(np.bincount(labels).max())
    if cells > MOST_CELLS:
        raise InputError("SMOTE in input space would make too many rows of this size: use method='feature-smote'.")
    if isinstance(items, TensorDataset):
        x = items.tensors[0].double().numpy()
    else:
        x = np.stack([items[i][0].double().numpy() for i in range(len(labels))])
    drawn, drawn_y = smote(x[learned_from].reshape(len(learned_from), -1), labels[learned_from], rng, **options)
    rows = np.concatenate([x, drawn.reshape(-1, *shape)]).astype(np.float64 if len(shape) == 1 else np.float32)
    labels = np.concatenate([labels, drawn_y])
    return array_items(rows, labels), labels


@torch.no_grad()
def _tau_norm(head: nn.Module, encoded: EncodeResult, labels: Labels) -> nn.Module:
    rows = np.flatnonzero(encoded.fresh)
    y = labels[rows]

    def normed(power: float) -> nn.Module:
        return BalancedHead(normalise_last_layer(copy.deepcopy(head), power), torch.zeros(labels.max() + 1).double())

    if len(rows) == 0:
        return normed(1.0)
    weight = (1 / np.maximum(np.bincount(y), 1))[y]

    def loss(power: float) -> float:
        logits = head_outputs(normed(power), encoded.features[rows])
        return float(weight @ nll_per_sample(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), y))

    return normed(min(NORM_POWERS, key=loss))
