"""A conditional GAN on features: trained, and asked for rows of rare classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from ecrt.data import ClassRoles
from ecrt.estimators.base import Session
from ecrt.nn import MLP
from ecrt.nn.randomness import generator_on
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Choice, Space
from ecrt.training import Progress, TrainingConfig, seeded, torch_generator, train

__all__ = ["GAN", "ConditionalGAN", "discriminator_loss", "generate_rows", "generator_loss"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
STEPS_PER_EPOCH = 50
COUNT = [Interval(Integral, 1, None, closed="left")]


@dataclass(kw_only=True, eq=False, repr=False)
class ConditionalGAN(Rival):
    """Synthetic rows by a conditional GAN on scaled features; every class as large as the largest.

    Parameters
    ----------
    n_steps : int, default=500
        Steps of AdamW, both networks in one step; the last state is kept.
    width : int, default=64
        Units of the two hidden layers of either network.
    n_noise : int, default=32
        Size of the noise that the generator starts from.

    References
    ----------
    Mirza, Osindero: Conditional generative adversarial nets, 2014.
    """

    kind: ClassVar[str] = "cgan"
    label: ClassVar[str] = "Conditional GAN"
    tuned: ClassVar[Space | None] = {"width": Choice((32, 64, 128))}
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"n_steps": COUNT, "width": COUNT, "n_noise": COUNT}

    n_steps: int = 500
    width: int = 64
    n_noise: int = 32

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows of a GAN that has learned from these alone."""
        with seeded(int(session.rng.integers(2**62))):
            return generate_rows(z, y, **self.get_params(deep=False), **vars(session))


class GAN(nn.Module):
    """Two perceptrons that are told the class by an embedding of its own, appended to their input.

    References
    ----------
    Mirza, Osindero: Conditional generative adversarial nets, 2014.

    Parameters
    ----------
    n_features : d, size of real and of generated rows.
    n_classes : M.
    n_noise : size of the noise that the generator starts from.
    width : units of the two hidden layers of either network.
    """

    def __init__(self, n_features: int, n_classes: int, n_noise: int = 32, width: int = 128) -> None:
        super().__init__()
        self.n_noise = n_noise
        embedding = min(32, n_classes)
        self.generator_label = nn.Embedding(n_classes, embedding)
        self.discriminator_label = nn.Embedding(n_classes, embedding)
        self.generator = MLP(n_noise + embedding, (width, width), n_features)
        self.discriminator = MLP(n_features + embedding, (width, width), 1)

    def generate(self, noise_nk: Tensor, y_n: Tensor) -> Tensor:
        """Fake rows of the classes given."""
        fake_nd: Tensor = self.generator(torch.cat([noise_nk, self.generator_label(y_n)], dim=1))
        return fake_nd

    def judge(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """Scores of rows, high for those that seem real members of their class."""
        scores_n: Tensor = self.discriminator(torch.cat([z_nd, self.discriminator_label(y_n)], dim=1)).squeeze(1)
        return scores_n

    def judge_fixed(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """The same scores, without a gradient for the discriminator: what its opponent learns from."""
        hidden = torch.cat([z_nd, self.discriminator_label(y_n).detach()], dim=1)
        for layer in self.discriminator:
            if isinstance(layer, nn.Linear):
                hidden = nn.functional.linear(hidden, layer.weight.detach(), layer.bias.detach())
            else:
                hidden = layer(hidden)
        return hidden.squeeze(1)


def discriminator_loss(real_n: Tensor, fake_n: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)), D the logistic of the scores given.

    References
    ----------
    Goodfellow et al.: Generative adversarial nets, NeurIPS 2014; Mirza, Osindero: Conditional GANs, 2014.
    """
    return nn.functional.softplus(-real_n) + nn.functional.softplus(fake_n)


def generator_loss(fake_n: Tensor) -> Tensor:
    """Non-saturating: -log D(fake) instead of log(1 - D(fake)), whose slope fades while the fake is poor."""
    return nn.functional.softplus(-fake_n)


@dataclass(frozen=True)
class BalancedBatches:
    """Row numbers: a class is drawn first, each as often, and then one of its rows."""

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
    non-saturating loss, which passes no gradient to the discriminator. Every class is drawn as often, so that rare
    ones are learned at all. The last state is kept: nothing tells which would be best.

    Parameters
    ----------
    z : standardised features.
    wanted : classes of the rows to draw.
    """
    counts = np.bincount(y)
    labels = torch.from_numpy(y)
    rows = torch.from_numpy(z).float().to(device)
    gan = GAN(z.shape[1], len(counts), n_noise=n_noise, width=width).to(device)

    def noise(n: int) -> Tensor:
        return torch.randn(n, gan.n_noise, generator=generator_on(device), device=device)

    def loss(batch: Tensor) -> Tensor:
        real, classes = rows[batch.to(device)], labels[batch].to(device)
        fake = gan.generate(noise(len(real)), classes)
        told_apart = discriminator_loss(gan.judge(real, classes), gan.judge(fake.detach(), classes))
        return (told_apart + generator_loss(gan.judge_fixed(fake, classes))).mean()

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
