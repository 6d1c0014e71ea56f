"""Stage 1: z = e(x), with features that the flow and the head may safely learn from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from ecrt.data import ClassRoles, indicator_of, stratified_holdout, with_lost_groups
from ecrt.errors import InputError
from ecrt.losses import LossName
from ecrt.nn import AutoEncoder, RowEncoder
from ecrt.stages.encoder_training import EncoderTraining, in_order, module_dtype, some_rows
from ecrt.stages.holdout import halves
from ecrt.training import History, Progress, TrainingConfig, all_threads

__all__ = ["EncodeConfig", "EncodeResult", "check_encoder", "encode", "features_of"]

Items = Dataset[Any]


@dataclass(frozen=True, kw_only=True)
class EncodeConfig:
    """How the encoder is trained.

    Attributes
    ----------
    trained : whether it is trained at all; a frozen one only maps.
    loss, loss_options : supervised loss, see :func:`~ecrt.losses.make_class_loss`; an
        :class:`~ecrt.nn.AutoEncoder` reconstructs instead.
    head : of the supervised loss; ``"cosine"`` is the one that LDAM's margins are meant for, with its ``scale``.
    mixup : parameter of the Beta distribution that samples and their losses are mixed by; 0 mixes nothing.
    mixup_off : share of the epochs, the last ones, without mixup.
    crop_padding, flip : images are shifted by up to so many pixels, and mirrored at random, on the device.
    precision : ``"bfloat16"`` for mixed precision; ``"auto"`` does so for images on a GPU.
    holdout : share of the classes it learns from that it never sees. Flow and head learn from those rows (and from
        rows of other classes) alone: features of rows an encoder has memorised sit on their class means. A class of
        two rows or more has one at least on either side. Labels of one half of them stop the training, the other half
        stays fresh to judge what comes later. With 0 the encoder sees all rows, for all epochs: for one that predicts
        with its own head.
    training : epochs, batch size, learning rate.
    """

    trained: bool = True
    loss: LossName = "cross-entropy"
    loss_options: Mapping[str, float] = field(default_factory=dict)
    head: Literal["linear", "cosine"] = "linear"
    mixup: float = 0.0
    mixup_off: float = 0.0
    crop_padding: int = 0
    flip: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    holdout: float = 0.2
    training: TrainingConfig = TrainingConfig(epochs=60, batch_size=256, learning_rate=1e-3, weight_decay=1e-4)


@dataclass(frozen=True, kw_only=True)
class EncodeResult:
    """The encoder, features of every row, and which rows it has not been trained on.

    Attributes
    ----------
    learn_rows : what later stages learn from: the unseen rows, and those of classes that have no other.
    fresh : mask over all rows: those whose labels the encoder has neither learned from nor been stopped by.
    head : from features to balanced logits of ``head_classes``, learned with the encoder from ``head_counts`` rows of
        each: together they predict with no further stage. ``None`` where no supervised loss was trained.
    """

    encoder: nn.Module
    features: NDArray[np.float64]
    unseen: NDArray[np.int64]
    learn_rows: NDArray[np.int64]
    fresh: NDArray[np.bool_]
    history: History | None
    head: nn.Module | None = None
    head_classes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    head_counts: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))


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
    groups: sparse.csr_array | None = None,
    oversample: Callable[[NDArray[np.int64]], tuple[Items, NDArray[np.int64]]] | None = None,
) -> EncodeResult:
    """Train the encoder (or take it as it is) and map every row.

    Parameters
    ----------
    items : pairs (x, label), indexed like ``y``.
    groups : rows by groups that later stages must not lose, an indicator of labels or of rare regions: the encoder
        leaves them the rows of a group that has no other. ``None`` where classes are all there is.
    oversample : rows that the encoder may learn from, to all items with synthetic ones after them, and their classes.
    """
    check_encoder(encoder, items, device)
    if not config.trained or not any(p.requires_grad for p in encoder.parameters()):
        if isinstance(encoder, RowEncoder):
            encoder.learn_columns(some_rows(items, np.arange(len(y))))
        features, rows = features_of(encoder, items, device=device), np.arange(len(y))
        fresh = np.ones(len(y), dtype=bool)
        return EncodeResult(
            encoder=encoder, features=features, unseen=rows, learn_rows=rows, fresh=fresh, history=None
        )  # fmt: skip
    learn_from = np.flatnonzero(roles.encoded_on[y])
    fitted, held_out = learn_from, learn_from[:0]
    if config.holdout > 0:
        split = stratified_holdout(y[learn_from], config.holdout, rng, both_sides=True)
        if np.bincount(np.delete(y, learn_from[split[0]])).max(initial=0) < 2:  # too few for later stages
            split = stratified_holdout(y[learn_from], 0.5, rng, both_sides=True)
        fitted, held_out = (learn_from[part] for part in split)
    if config.holdout > 0 and groups is not None:
        left = np.setdiff1d(fitted, with_lost_groups(np.setdiff1d(np.arange(len(y)), fitted), groups))
        fitted = left if len(left) else fitted
        held_out = held_out[np.isin(y[held_out], y[fitted])]
    unseen = np.setdiff1d(np.arange(len(y)), fitted)
    fresh = np.isin(np.arange(len(y)), unseen)
    if not isinstance(encoder, AutoEncoder):  # whose loss asks for no label
        held_out = rng.permutation(held_out)
        held_out = np.sort(held_out[halves(y[held_out])])
        fresh[held_out] = False
    learned_items, learned_y = (items, y) if oversample is None else oversample(fitted)
    learned_rows = np.concatenate([fitted, np.arange(len(y), len(learned_y))])
    training = EncoderTraining(encoder, learned_items, learned_y, learned_rows, config, rng=rng, device=device)
    history = training.run(held_out, progress)
    return EncodeResult(
        encoder=encoder,
        features=features_of(encoder, items, device=device),
        unseen=unseen,
        learn_rows=with_lost_groups(unseen, indicator_of(y)),
        fresh=fresh,
        history=history,
        head=training.balanced_head(),
        head_classes=training.classes,
        head_counts=training.counts_m.cpu().numpy(),
    )


@torch.no_grad()
def check_encoder(encoder: nn.Module, items: Items, device: torch.device) -> None:
    """Let the encoder map one item, and say what is wrong if it cannot, before anything is trained."""
    x = items[0][0]
    try:
        z = encoder.to(device).eval()(x[None].to(device, module_dtype(encoder)))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"The encoder does not take items of shape {tuple(x.shape)}: {error}") from error
    _refuse_unless_matrix(z)


def _refuse_unless_matrix(z: Any) -> None:
    """Raise an error unless an encoder gave one row of features for each sample."""
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise InputError(
            f"The encoder must return a matrix, one row of features for each sample; it gave {shape}. End it with "
            "nn.Flatten(), for example."
        )


@torch.no_grad()
def features_of(
    encoder: nn.Module, items: Items, *, device: torch.device, batch_size: int = 1024
) -> NDArray[np.float64]:
    """Map all rows in batches."""
    encoder.to(device).eval()
    parts, dtype = [], module_dtype(encoder)
    for x in _batches_of_inputs(items, batch_size):
        with all_threads(enabled=x.ndim == 4):
            z = encoder(x.to(device, dtype))
        _refuse_unless_matrix(z)
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
        yield from (x for x, _ in in_order(items, batch_size))
