"""Stage 1: z = e(x), with features that the flow and the head may safely learn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ecrt.data import ClassRoles, stratified_holdout
from ecrt.errors import InputError
from ecrt.losses import ClassificationLoss, class_mass, classification_loss
from ecrt.nn import AutoEncoder
from ecrt.training import History, Progress, TrainingConfig, train

__all__ = ["EncodeConfig", "EncodeResult", "encode", "features_of"]

Items = Dataset[tuple[Tensor, int]]


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """How the encoder is trained.

    Attributes
    ----------
    trained : whether it is trained at all; a frozen one only maps.
    loss : supervised loss; an :class:`~ecrt.nn.AutoEncoder` reconstructs instead.
    weighting : class masses of that loss, ``"balanced"`` for importance weighting.
    holdout : share of the classes it learns from that it never sees. Flow and head learn from those rows (and from
        rows of other classes) alone: features of rows an encoder has memorised sit on their class means.
    training : epochs, batch size, learning rate.
    """

    trained: bool = True
    loss: ClassificationLoss = "cross-entropy"
    weighting: Literal["training", "balanced"] = "training"
    holdout: float = 0.2
    training: TrainingConfig = TrainingConfig(epochs=60, batch_size=256, learning_rate=1e-3, weight_decay=1e-4)


@dataclass(frozen=True, kw_only=True)
class EncodeResult:
    """The encoder, features of every row, and which rows it has not been trained on."""

    encoder: nn.Module
    features: NDArray[np.float64]
    unseen: NDArray[np.int64]
    history: History | None


def encode(
    encoder: nn.Module,
    items: Items,
    y: NDArray[np.int64],
    roles: ClassRoles,
    config: EncodeConfig,
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
) -> EncodeResult:
    """Train the encoder (or take it as it is) and map every row.

    Parameters
    ----------
    items : pairs (x, label), indexed like ``y``.
    """
    rows, history = np.arange(len(y)), None
    if config.trained and any(p.requires_grad for p in encoder.parameters()):
        learn_from = np.flatnonzero(roles.encoded_on[y])
        fitted, held_out = (learn_from[part] for part in stratified_holdout(y[learn_from], config.holdout, rng))
        history = _train_encoder(encoder, items, y, fitted, held_out, config, rng, device, progress)
        rows = np.setdiff1d(rows, fitted)
    features = features_of(encoder, items, device=device)
    return EncodeResult(encoder=encoder, features=features, unseen=rows, history=history)


@torch.no_grad()
def features_of(
    encoder: nn.Module, items: Items, *, device: torch.device, batch_size: int = 1024
) -> NDArray[np.float64]:
    """Map all rows in batches."""
    encoder.to(device).eval()
    parts, dtype = [], _dtype(encoder)
    for x in _batches_of_inputs(items, batch_size):
        z = encoder(x.to(device, dtype))
        if not isinstance(z, Tensor) or z.ndim != 2:
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InputError(f"The encoder must return a matrix, one row of features for each sample; it gave {shape}.")
        parts.append(z.double().cpu().numpy())
    features = np.concatenate(parts)
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"The encoder gave a value that is not finite for row {row}.")
    return features


def _batches_of_inputs(items: Dataset[Any], batch_size: int) -> Iterator[Tensor]:
    """Inputs in batches; rows that sit in memory are sliced, not collected one by one."""
    if isinstance(items, TensorDataset):
        yield from items.tensors[0].split(batch_size)
    else:
        yield from (x for x, _ in DataLoader(items, batch_size=batch_size))


def _dtype(encoder: nn.Module) -> torch.dtype | None:
    """What the encoder computes in; nothing for one without parameters, which takes its input as it is."""
    return next((parameter.dtype for parameter in encoder.parameters()), None)


def _train_encoder(
    encoder: nn.Module,
    items: Items,
    y: NDArray[np.int64],
    fitted: NDArray[np.int64],
    held_out: NDArray[np.int64],
    config: EncodeConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> History:
    classes = np.unique(y[fitted])
    encoder.to(device).eval()
    dtype = _dtype(encoder)
    with torch.no_grad():
        n_features = encoder(items[int(fitted[0])][0][None].to(device, dtype)).shape[1]
    head = nn.Linear(n_features, len(classes)).to(device)
    index = np.full(y.max() + 1, -1)
    index[classes] = np.arange(len(classes))
    label_of = torch.from_numpy(index).to(device)
    counts = torch.from_numpy(np.bincount(label_of.cpu().numpy()[y[fitted]])).to(device)
    weight_m = (class_mass(counts, config.weighting) / counts * counts.sum()).float()

    def losses(batch: tuple[Tensor, Tensor]) -> Tensor:
        x, labels = batch[0].to(device, dtype), label_of[batch[1].to(device)]
        if isinstance(encoder, AutoEncoder):
            return encoder.reconstruction_errors(x)
        return classification_loss(config.loss, head(encoder(x)), labels) * weight_m[labels]

    # A last batch of one would break batch normalisation.
    size = min(config.training.batch_size, len(fitted))
    batches = DataLoader(
        Subset(items, fitted.tolist()), size, shuffle=True, drop_last=len(fitted) % size == 1,
        generator=torch.Generator().manual_seed(int(rng.integers(2**62))),
    )  # fmt: skip
    check = DataLoader(Subset(items, held_out.tolist()), config.training.batch_size)

    def held_out_loss() -> float:
        return torch.cat([losses(batch) for batch in check]).mean().item()

    return train(
        nn.ModuleList([encoder, head]),
        lambda batch: losses(batch).mean(),
        batches,
        held_out_loss if len(held_out) else None,
        config.training,
        stage="encoder",
        progress=progress,
    )
