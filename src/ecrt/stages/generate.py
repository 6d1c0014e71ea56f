"""A conditional GAN on features: trained here, asked for rows of rare classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecrt.losses.adversarial import discriminator_loss, generator_loss
from ecrt.nn.gan import ConditionalGAN
from ecrt.nn.randomness import generator_on
from ecrt.training import Progress, TrainingConfig, torch_generator, train

__all__ = ["generate_rows"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
STEPS_PER_EPOCH = 50


@dataclass(frozen=True)
class BalancedBatches:
    """Row numbers: a class is drawn first, all alike, and then one of its rows."""

    y: Tensor
    batch_size: int
    generator: torch.Generator

    def __len__(self) -> int:
        return STEPS_PER_EPOCH

    def __iter__(self) -> Iterator[Tensor]:
        order, sizes = self.y.argsort(stable=True), torch.bincount(self.y)
        start, present = sizes.cumsum(0) - sizes, sizes.nonzero().squeeze(1)
        for _ in range(len(self)):
            drawn = torch.randint(len(present), (self.batch_size,), generator=self.generator)
            label, at = present[drawn], torch.rand(self.batch_size, generator=self.generator, dtype=torch.float64)
            yield order[start[label] + (at * sizes[label]).long()]


def generate_rows(
    z: Array,
    y: Labels,
    *,
    rng: np.random.Generator,
    device: torch.device,
    n_steps: int = 500,
    width: int = 64,
    n_noise: int = 32,
    wanted: Labels | None = None,
    progress: Progress | None = None,
) -> tuple[Array, Labels]:
    """Train a conditional GAN on all classes, and draw rows of those wanted, by default until all are equally large.

    Both networks learn in the same step, the discriminator under the binary cross-entropy, the generator under the
    non-saturating loss, which passes no gradient to the discriminator. Classes are drawn alike, so that rare ones are
    learned at all. The last state is kept: nothing tells which would be best.

    Parameters
    ----------
    z : standardised features.
    wanted : classes of the rows to draw.
    """
    counts = np.bincount(y)
    labels = torch.from_numpy(y)
    rows = torch.from_numpy(z).float().to(device)
    gan = ConditionalGAN(z.shape[1], len(counts), n_noise=n_noise, width=width).to(device)

    def noise(n: int) -> Tensor:
        return torch.randn(n, gan.n_noise, generator=generator_on(device), device=device)

    def loss(batch: Tensor) -> Tensor:
        real, classes = rows[batch.to(device)], labels[batch].to(device)
        fake = gan.generate(noise(len(real)), classes)
        told = discriminator_loss(gan.judge(real, classes), gan.judge(fake.detach(), classes))
        return (told + generator_loss(gan.judge_fixed(fake, classes))).mean()

    epochs = max(1, n_steps // STEPS_PER_EPOCH)
    batches = BalancedBatches(labels, min(128, 2 * len(y)), torch_generator(rng))
    train(
        gan, loss, batches, None, TrainingConfig(epochs=epochs, learning_rate=1e-3), stage="conditional GAN",
        progress=progress,
    )  # fmt: skip
    if wanted is None:
        wanted = np.repeat(np.arange(len(counts)), np.where(counts > 0, counts.max() - counts, 0))
    with torch.no_grad():
        classes = torch.from_numpy(wanted).to(device)
        parts = [gan.generate(noise(len(part)), part) for part in classes.split(8192)]
    drawn = torch.cat(parts).double().cpu().numpy() if len(wanted) else np.empty((0, z.shape[1]))
    return drawn, wanted
