"""How an encoder is trained: data that stay on the device, views and mixtures made there, one loss of any name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from ecrt.data.images import crop_and_flip
from ecrt.losses import effective_prior, make_class_loss
from ecrt.losses.mixing import mix, mixed_loss
from ecrt.nn import AutoEncoder, CosineHead, RowEncoder
from ecrt.nn.randomness import generator_on
from ecrt.stages.class_heads import BalancedHead
from ecrt.training import History, IndexBatches, Progress, all_threads, torch_generator, train

if TYPE_CHECKING:
    from ecrt.stages.encode import EncodeConfig

__all__ = [
    "RESIDENT_BYTES",
    "Batch",
    "Course",
    "EncoderTraining",
    "gpu_layout",
    "in_order",
    "module_dtype",
    "some_rows",
]

RESIDENT_BYTES = 8 * 2**30
"""Rows in memory up to this size are kept on the device while an encoder learns from them."""

ROWS_FOR_MOMENTS = 2**17
"""Centre, spread and bounds of columns are learned from no more rows than these."""

DEFERRED_LOSSES = ("ldam-drw",)
"""Losses that change in the course of training; for the others a recorded step serves all epochs."""


class Batch(NamedTuple):
    """Items of a step (row numbers, or samples with their labels), the mixup share, and the share of training done."""

    items: Any
    share: Tensor | None
    done: float


@dataclass
class Course:
    """Batches of an epoch after another, with what changes on the way."""

    batches: Iterable[Any]
    config: EncodeConfig
    rng: np.random.Generator
    device: torch.device
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        config, n_epochs = self.config, self.config.training.epochs
        done = self.epoch / n_epochs if config.loss in DEFERRED_LOSSES else 1.0
        shares: Iterable[Tensor | None] = [None] * len(self)
        if config.mixup > 0 and self.epoch < round(n_epochs * (1 - config.mixup_off)):
            drawn = self.rng.beta(config.mixup, config.mixup, len(self)).astype(np.float32)
            shares = torch.from_numpy(drawn).to(self.device).unbind()
        self.epoch += 1
        for items, share in zip(self.batches, shares, strict=False):
            yield Batch(items, share, done)


class EncoderTraining:
    """An encoder with a head over the classes it learns from.

    Parameters
    ----------
    items : pairs (x, label), indexed like ``y``.
    fitted : rows to learn from; their classes are those of the head, in order.
    """

    def __init__(
        self, encoder: nn.Module, items: Dataset[Any], y: NDArray[np.int64], fitted: NDArray[np.int64],
        config: EncodeConfig, *, rng: np.random.Generator, device: torch.device,
    ) -> None:  # fmt: skip
        self.encoder, self.items, self.fitted, self.config, self.rng, self.device = (
            encoder.to(device).eval(), items, fitted, config, rng, device
        )  # fmt: skip
        if isinstance(encoder, RowEncoder):
            encoder.learn_columns(some_rows(items, fitted))
        self.dtype = module_dtype(encoder)
        self.classes, places = np.unique(y[fitted], return_inverse=True)
        index = np.full(y.max() + 1, -1)
        index[self.classes] = np.arange(len(self.classes))
        self.label_of = torch.from_numpy(index).to(device)
        # On the device, so that the loss has nothing to copy there at every step
        self.counts_m = torch.from_numpy(np.bincount(places)).to(device)
        self.class_loss = make_class_loss(config.loss, self.counts_m, **config.loss_options)
        self.rows: Tensor | None = None
        if isinstance(items, TensorDataset) and items.tensors[0].nbytes <= RESIDENT_BYTES:
            self.rows, self.label_n = items.tensors[0].to(device), self.label_of[torch.from_numpy(y).to(device)]
        sample = items[int(fitted[0])][0]
        self.images = sample.ndim == 3
        with torch.no_grad():
            n_features = encoder(sample[None].to(device, self.dtype)).shape[1]
        self.head = self._make_head(n_features).to(device)

    def _make_head(self, n_features: int) -> nn.Module:
        if self.config.head == "cosine":
            return CosineHead(n_features, len(self.classes), self.config.loss_options.get("scale", 30.0))
        return nn.Linear(n_features, len(self.classes))

    def run(self, held_out: NDArray[np.int64], progress: Progress | None) -> History:
        """Train; ``held_out`` rows decide which epoch is kept, if there are any."""
        on_gpu = self.device.type == "cuda"
        course = Course(self._shuffled(), self.config, self.rng, self.device)
        with gpu_layout(self.encoder, enabled=on_gpu and self.images), all_threads(enabled=self.images):
            return train(
                nn.ModuleList([self.encoder, self.head]),
                lambda batch: self.losses(batch).mean(),
                course,
                (lambda: self._held_out_loss(held_out)) if len(held_out) else None,
                self.config.training,
                stage="encoder",
                graphs=on_gpu and self.rows is not None,
                others_draw=self.rows is None,
                progress=progress,
            )

    def balanced_head(self) -> nn.Module | None:
        """The head as one that gives balanced logits; nothing for an auto-encoder, whose head has learned nothing."""
        if isinstance(self.encoder, AutoEncoder):
            return None
        prior_m = effective_prior(self.config.loss, self.counts_m, **self.config.loss_options)
        return BalancedHead(self.head, torch.log(prior_m / prior_m.sum()).float()).eval()

    def losses(self, batch: Batch) -> Tensor:
        """One loss for each sample, on views and mixtures of them while training."""
        x, labels = self._fetch(batch.items)
        if self.encoder.training and (self.config.crop_padding or self.config.flip):
            x = crop_and_flip(x, self.config.crop_padding, flip=self.config.flip, generator=generator_on(x.device))
        x = x.to(self.dtype)
        if isinstance(self.encoder, AutoEncoder):
            return self.encoder.reconstruction_errors(x)
        share = None if batch.share is None else batch.share.expand(len(x))
        if share is not None:
            # Batches are shuffled: the neighbour is as good a partner as a random one, and needs no random order.
            x = mix(x, x.roll(1, 0), share)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._half()):
            z = self.encoder(x)
        z = z.to(self.head.weight.dtype)
        logits = self.head(z)
        if share is None:
            return self.class_loss(logits, labels, batch.done)
        partners = labels.roll(1, 0)
        first, second = mixed_loss(self.class_loss, logits, labels, partners, share, batch.done)
        return first + second

    def _fetch(self, items: Any) -> tuple[Tensor, Tensor]:
        if self.rows is not None:
            return self.rows[items], self.label_n[items]
        return items[0].to(self.device), self.label_of[items[1].to(self.device)]

    def _half(self) -> bool:
        if self.config.precision == "auto":
            return self.device.type == "cuda" and self.images
        return self.config.precision == "bfloat16"

    def _shuffled(self) -> Iterable[Any]:
        generator, size = torch_generator(self.rng), min(self.config.training.batch_size, len(self.fitted))
        if self.rows is not None:
            rows = torch.from_numpy(self.fitted).to(self.device)
            return _Rows(rows, IndexBatches(len(rows), size, generator, self.device))
        # A last batch of one would break batch normalisation.
        return DataLoader(
            Subset(self.items, self.fitted.tolist()), size, shuffle=True, drop_last=len(self.fitted) % size == 1,
            generator=generator,
        )  # fmt: skip

    def _in_order(self, chosen: NDArray[np.int64], size: int) -> Iterable[Any]:
        if self.rows is not None:
            return torch.from_numpy(chosen).to(self.device).split(size)
        return in_order(Subset(self.items, chosen.tolist()), size)

    def _held_out_loss(self, held_out: NDArray[np.int64]) -> float:
        batches = self._in_order(held_out, self.config.training.batch_size)
        return torch.cat([self.losses(Batch(items, None, 1.0)) for items in batches]).mean().item()


def some_rows(items: Dataset[Any], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows in float64, or some of them evenly where there are more than the moments of columns need."""
    some = rows[:: len(rows) // ROWS_FOR_MOMENTS + 1]
    if isinstance(items, TensorDataset):
        return items.tensors[0][torch.from_numpy(some)].double().cpu().numpy()
    return np.stack([np.asarray(items[int(row)][0], dtype=np.float64) for row in some])


@dataclass(frozen=True)
class _Rows:
    """Batches of some rows."""

    rows: Tensor
    batches: IndexBatches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Tensor]:
        return (self.rows[batch] for batch in self.batches)


def in_order(items: Dataset[Any], size: int) -> DataLoader[Any]:
    """Batches of all items. A loader draws a seed for its workers, even without any: not from the caller's numbers."""
    return DataLoader(items, size, generator=generator_on(torch.device("cpu")) or torch.Generator())


@contextmanager
def gpu_layout(encoder: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Weights as channels last and convolutions chosen by trial, which tensor cores run fastest on; undone after."""
    if not enabled:
        yield
        return
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
        encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def module_dtype(encoder: nn.Module) -> torch.dtype | None:
    """What the encoder takes; nothing for one without parameters, or one that standardises: as the rows are."""
    if isinstance(encoder, RowEncoder):
        return None
    return next((parameter.dtype for parameter in encoder.parameters()), None)
