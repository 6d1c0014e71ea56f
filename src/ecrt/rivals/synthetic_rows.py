"""Rivals that add synthetic rows: SMOTE, distribution calibration, a conditional GAN, and ECRT's own augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from ecrt.arrays import Array, Labels
from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.estimators.base import Session
from ecrt.estimators.inputs import array_items
from ecrt.machine import ask
from ecrt.nn import MLP
from ecrt.randomness import generator_on, seeded
from ecrt.rivals.base import Choice, Number, Rival, Space
from ecrt.stages import (
    AUGMENTATION,
    Augmentation,
    Demixing,
    DemixResult,
    Flow,
    Linear,
    Role,
    Synthetic,
    augment_classes,
    demix,
)
from ecrt.stages.choosing import Draw
from ecrt.stages.parts import Count, NonNegative, ShareBelowOne
from ecrt.training import TrainingConfig, torch_generator, train

STEPS_PER_EPOCH = 50

# --- SMOTE ------------------------------------------------------------------------------------------


class FeatureSMOTE(Rival):
    """Points between neighbours of a class, among the features of an encoder; every class as large as the largest.

    Parameters
    ----------
    k_neighbors : int, default=5
        Neighbours; a class of fewer rows uses those that it has, and a single row is repeated.

    References
    ----------
    Chawla, Bowyer, Hall, Kegelmeyer: SMOTE: synthetic minority over-sampling technique, JAIR 2002.
    """

    kind = "feature-smote"
    label = "SMOTE of features"
    tuned: ClassVar[Space | None] = None

    k_neighbors: Count = 5

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows that make every class as large as the largest."""
        return smote(z, y, session.rng, self.k_neighbors)


class SMOTE(FeatureSMOTE):
    """Points between neighbours of a class, in input space. With the identity encoder the same as ``FeatureSMOTE``.

    Parameters
    ----------
    k_neighbors
        As in ``FeatureSMOTE``.
    """

    kind = "smote"
    label = "SMOTE"
    tuned: ClassVar[Space | None] = {"k_neighbors": Number(1, 10)}
    trains_encoder = True

    def oversample(
        self, items: Dataset[Any], labels: Labels, rng: np.random.Generator
    ) -> Callable[[Labels], tuple[Dataset[Any], Labels]]:
        """Rows, or images pixel by pixel, with what SMOTE makes of those that are learned from after them."""

        def with_synthetic(learned_from: Labels) -> tuple[Dataset[Any], Labels]:
            shape = tuple(items[0][0].shape)
            ask(
                "SMOTE in input space, a table", "Use method='feature-smote'.", copies=3,
                rows=len(np.unique(labels)) * int(np.bincount(labels).max()), columns=int(np.prod(shape)),
            )  # fmt: skip
            if isinstance(items, TensorDataset):
                x = items.tensors[0].double().numpy()
            else:
                x = np.stack([items[i][0].double().numpy() for i in range(len(labels))])
            flat = x[learned_from].reshape(len(learned_from), -1)
            drawn, drawn_y = smote(flat, labels[learned_from], rng, self.k_neighbors)
            rows = np.concatenate([x, drawn.reshape(-1, *shape)])
            all_labels = np.concatenate([labels, drawn_y])
            return array_items(rows.astype(np.float64 if len(shape) == 1 else np.float32), all_labels), all_labels

        return with_synthetic


def smote(x: Array, y: Labels, rng: np.random.Generator, k_neighbors: int) -> tuple[Array, Labels]:
    """Points between neighbours of a class, until every class is as large as the largest (imbalanced-learn's SMOTE).

    A class of fewer than ``k_neighbors`` + 1 rows uses the neighbours that it has; a single row is repeated.
    """
    from imblearn.over_sampling import SMOTE  # slow to import

    labels, counts = np.unique(y, return_counts=True)
    largest = counts.max()
    neighbours = np.minimum(k_neighbors, counts - 1)
    rows, classes = [np.empty((0, x.shape[1]))], [np.empty(0, dtype=np.int64)]
    for k in np.unique(neighbours[counts < largest]):
        short = (neighbours == k) & (counts < largest)
        if k == 0:
            single = np.repeat(np.flatnonzero(np.isin(y, labels[short])), largest - 1)
            drawn_x, drawn_y = x[single], y[single]
        else:
            wanted = dict.fromkeys(labels[short].tolist(), int(largest))
            seed = int(rng.integers(2**31))
            sampler = SMOTE(sampling_strategy=wanted, k_neighbors=int(k), random_state=seed)
            resampled_x, resampled_y = sampler.fit_resample(x, y)[:2]
            drawn_x, drawn_y = resampled_x[len(y) :], resampled_y[len(y) :]  # real rows come first
        rows.append(np.asarray(drawn_x, dtype=np.float64))
        classes.append(np.asarray(drawn_y, dtype=np.int64))
    return np.concatenate(rows), np.concatenate(classes)


# --- distribution calibration -----------------------------------------------------------------------


class DistributionCalibration(Rival):
    """Synthetic rows of minority classes from Gaussians with statistics of the nearest majority classes.

    Parameters
    ----------
    power : float, default=0.5
        Of the Tukey transform, on columns that are never negative.
    n_nearest : int, default=2
        Majority classes that each row borrows from.
    spread : float, default=0.21
        Added to the diagonal of the covariance, not to every entry.

    References
    ----------
    Yang, Liu, Xu: Free lunch for few-shot learning: distribution calibration, ICLR 2021.
    """

    kind = "distribution-calibration"
    label = "Distribution calibration"
    tuned: ClassVar[Space | None] = {"spread": Number(0.01, 1.0, log=True), "n_nearest": Number(1, 3)}

    power: NonNegative = 0.5
    n_nearest: Count = 2
    spread: NonNegative = 0.21

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows of the minority classes."""
        return self.rows(z, y, ~roles.minority, session.rng)

    def transform(self, z: Tensor, nonnegative: Tensor) -> Tensor:
        """Columns that are never negative, to a power that makes them less skewed; 0 is log(1 + z) (Eq. 2)."""
        least = z.clamp(min=0.0)
        return torch.where(nonnegative, torch.log1p(least) if self.power == 0 else least**self.power, z)

    def rows(self, z: Array, y: Labels, base: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Array, Labels]:
        r"""Rows of few-shot classes from Gaussians whose statistics are borrowed from the nearest base classes.

        For each row z of a class that is not a base class, with S the ``n_nearest`` base classes of nearest mean:
        :math:`\mu' = (z + \sum_{i \in S} \mu_i) / (|S| + 1)` and
        :math:`\Sigma' = \frac{1}{|S|} \sum_{i \in S} \Sigma_i + \alpha I` (Eqs. 3 to 6), where ``spread`` is alpha. As
        many are drawn as make the class as large as the largest. The authors add alpha to every entry of the
        covariance; here it is added to the diagonal, which is a variance whatever the features. A normal vector times
        the residuals of a class has its covariance, so none is built.

        Parameters
        ----------
        z : standardised features.
        base : mask over classes: those with enough samples for a mean and a covariance.
        """
        counts = np.bincount(y, minlength=len(base))
        donors = np.flatnonzero(base & (counts >= 2))
        short = np.flatnonzero(~base & (counts > 0))
        if len(donors) == 0:
            raise InputError("Distribution calibration needs a majority class with at least two samples.")
        rows_of = {m: z[y == m] for m in donors}
        means = np.stack([rows_of[m].mean(axis=0) for m in donors])
        residuals = [(rows_of[m] - mean) / np.sqrt(len(rows_of[m]) - 1) for m, mean in zip(donors, means, strict=True)]
        n_nearest = min(self.n_nearest, len(donors))
        rows, classes = [np.empty((0, z.shape[1]))], [np.empty(0, dtype=np.int64)]
        for label in short:
            own = z[y == label]
            squares = ((own[:, None] - means[None]) ** 2).sum(axis=2)
            nearest = np.argsort(squares, axis=1, kind="stable")[:, :n_nearest]
            # As many from each row as possible, the remainder from the first rows.
            size = np.full(len(own), (counts.max() - len(own)) // len(own))
            size[: (counts.max() - len(own)) % len(own)] += 1
            for row, chosen, n in zip(own, nearest, size, strict=True):
                mean = (row + means[chosen].sum(axis=0)) / (n_nearest + 1)
                noise = np.sqrt(self.spread) * rng.standard_normal((n, z.shape[1]))
                for place in chosen:
                    normal = rng.standard_normal((n, len(residuals[place])))
                    noise += normal @ residuals[place] / np.sqrt(n_nearest)
                rows.append(mean + noise)
            classes.append(np.full(int(size.sum()), label))
        return np.concatenate(rows), np.concatenate(classes)


# --- a conditional GAN ------------------------------------------------------------------------------


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
    slope : float, default=0
        Slope of LeakyReLU below zero, in both networks; with 0 it is ReLU.
    dropout : float, default=0
        After the hidden layers of the discriminator.

    References
    ----------
    Mirza, Osindero: Conditional generative adversarial nets, 2014.
    """

    kind = "cgan"
    label = "Conditional GAN"
    tuned: ClassVar[Space | None] = {"width": Choice((32, 64, 128))}

    n_steps: Count = 500
    width: Count = 64
    n_noise: Count = 32
    slope: NonNegative = 0.0
    dropout: ShareBelowOne = 0.0

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Rows of a GAN that has learned from these alone, until all classes are equally large."""
        counts = np.bincount(y)
        wanted = np.repeat(np.arange(len(counts)), np.where(counts > 0, counts.max() - counts, 0))
        with seeded(int(session.rng.integers(2**62))):
            return self.rows(z, y, wanted, session), wanted

    def rows(self, z: Array, y: Labels, wanted: Labels, session: Session) -> Array:
        """Train on all classes, and draw rows of the classes ``wanted``; z are standardised features.

        Both networks learn in the same step, the discriminator under the binary cross-entropy, the generator under the
        non-saturating loss, which passes no gradient to the discriminator. Every class is drawn as often, so that rare
        ones are learned at all. The last state is kept: no loss shows which would be best.
        """
        labels, device = torch.from_numpy(y), session.device
        rows = torch.from_numpy(z).float().to(device)
        gan = GAN(z.shape[1], int(y.max()) + 1, self.n_noise, self.width, slope=self.slope, dropout=self.dropout).to(
            device
        )

        def noise(n: int) -> Tensor:
            return torch.randn(n, self.n_noise, generator=generator_on(device), device=device)

        def loss(batch: Tensor) -> Tensor:
            real, classes = rows[batch.to(device)], labels[batch].to(device)
            fake = gan.generate(noise(len(real)), classes)
            judged = discriminator_loss(gan.judge(real, classes), gan.judge(fake.detach(), classes))
            return (judged + generator_loss(gan.judge_fixed(fake, classes))).mean()

        config = TrainingConfig(epochs=max(1, self.n_steps // STEPS_PER_EPOCH), learning_rate=1e-3)
        batches = BalancedBatches(labels, min(128, 2 * len(y)), torch_generator(session.rng))
        train(gan, loss, batches, None, config, stage="conditional GAN", progress=session.progress)
        with torch.no_grad():
            classes = torch.from_numpy(wanted).to(device)
            drawn = [gan.generate(noise(len(some)), some) for some in classes.split(8192)]
        return torch.cat(drawn).double().cpu().numpy()


class GAN(nn.Module):
    """Two perceptrons that know the class by an embedding, appended to their input.

    Parameters
    ----------
    n_features : d, size of real and of generated rows.
    n_classes : M.
    n_noise, width, slope, dropout
        As in ``ConditionalGAN``.
    """

    def __init__(
        self, n_features: int, n_classes: int, n_noise: int, width: int, *, slope: float = 0.0, dropout: float = 0.0
    ) -> None:
        super().__init__()
        embedding = min(32, n_classes)
        self.generator_label = nn.Embedding(n_classes, embedding)
        self.discriminator_label = nn.Embedding(n_classes, embedding)
        self.generator = MLP(n_noise + embedding, (width, width), n_features, slope=slope)
        self.discriminator = MLP(n_features + embedding, (width, width), 1, dropout, slope)

    def generate(self, noise_nk: Tensor, y_n: Tensor) -> Tensor:
        """Fake rows of the classes given."""
        return self.generator(torch.cat([noise_nk, self.generator_label(y_n)], dim=1))

    def judge(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """Scores of rows, high for those that seem real members of their class."""
        return self.discriminator(torch.cat([z_nd, self.discriminator_label(y_n)], dim=1)).squeeze(1)

    def judge_fixed(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """The same scores, without a gradient for the discriminator: what its opponent learns from."""
        fixed = {name: parameter.detach() for name, parameter in self.discriminator.named_parameters()}
        inputs = torch.cat([z_nd, self.discriminator_label(y_n).detach()], dim=1)
        return torch.func.functional_call(self.discriminator, fixed, (inputs,)).squeeze(1)


def discriminator_loss(real_n: Tensor, fake_n: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)), D the logistic of the scores given (Goodfellow et al., NeurIPS 2014)."""
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


# --- ECRT's augmentation, on features ---------------------------------------------------------------

DEMIXING = Role((Linear, Flow))


class FlowAugmentation(Rival):
    """ECRT's augmentation, brought back through the inverted flow: Algorithm 1 with a head on z instead of s.

    A flow is learned once, from the training rows. Trained by logit adjustment.

    Parameters
    ----------
    demixing : {"flow", "linear"}, Flow or Linear, default="flow"
        As in ``ECRTClassifier``, but ``learn_from="auto"`` is all classes; with ``"majority"`` it learns from the same
        classes as there.
    augmentation : {"parametric", "permutation", "borrowed", "none"} or a part, default="parametric"
        As in ``ECRTClassifier``.

    References
    ----------
    The ECRT paper's ablation: a head on features, NeurIPS 2021.
    """

    kind = "flow-augmentation"
    label = "Augmentation through the flow"
    usual_loss = "logit-adjusted"
    tuned: ClassVar[Space | None] = {
        "demixing": Choice(("linear", "flow"), "linear"),
        "augmentation__weight": Number(0.1, 0.9, first=0.5),
    }
    _roles: ClassVar[dict[str, Role]] = {"demixing": DEMIXING, "augmentation": AUGMENTATION}

    demixing: str | Demixing = "flow"
    augmentation: str | Augmentation = "parametric"

    @property
    def synthetic_mass(self) -> Augmentation:
        """The augmentation itself."""
        return self._parts("augmentation")[0]

    def draw_from(
        self, z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels, roles: ClassRoles, session: Session
    ) -> Draw:
        """Synthetic sources, as features."""
        config: Demixing = self._parts("demixing")[0]
        if config.learn_from == "majority" and roles.minority.any() and not roles.minority.all():
            roles = replace(roles, demixed_on=~roles.minority)
        whole = demix(
            z, y, train_rows=train_rows, held_out_rows=held_out_rows, demixed_on=roles.demixed_on, config=config,
            **vars(session),
        )  # fmt: skip

        def made_from(part: DemixResult, learn: Labels) -> Callable[[Labels], Synthetic]:
            mechanism = whole if whole.refit is None else whole.refit(learn)

            def draw(rows: Labels) -> Synthetic:
                s, variance = mechanism.learned[rows], mechanism.within_variance
                drawn = augment_classes(
                    s, y[rows], roles.augmented, variance, self.synthetic_mass, session.rng,
                    prior=mechanism.trained_prior, trained=roles.demixed_on,
                )  # fmt: skip
                with torch.no_grad():
                    features = mechanism.demixer.inverse(torch.from_numpy(drawn.s)).numpy()
                return Synthetic(part.sources(features), drawn.y)

            return draw

        return Draw(made_from, whole.fresh)
