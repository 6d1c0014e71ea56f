"""Synthetic features of rare classes inside anyone's torch training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.data.minority import MinorityRule
from ecrt.data.tables import LARGEST
from ecrt.errors import InputError, warn_user
from ecrt.estimators.base import Session
from ecrt.estimators.inputs import check_class_counts
from ecrt.estimators.synthesis import (
    AUGMENTATION,
    DEMIXING,
    ROUNDS,
    ClassRows,
    different_rows,
    find_mechanism,
    idle_options,
    roles_of,
    rows_of_classes,
    usual_augmentation,
)
from ecrt.machine import one_thread
from ecrt.randomness import seeded
from ecrt.stages import Augmentation, Demixing, Role
from ecrt.training import Progress

VALIDATION_FRACTION = 0.2

POOL = 256
"""Rows of a class that are drawn at a time."""


class ECRTAugmenter(nn.Module):
    """Adds fresh synthetic features of rare classes to every batch of a training loop.

    De-mixing is learned once, in ``fit``, from features and labels of the training rows. From then on a call in
    training gives the features of the batch with synthetic ones after them, their labels, and a weight for each. In
    evaluation features pass through. It has no parameters to train: gradients reach the features of the batch and go on
    to your encoder, while synthetic features are constants. If the encoder changes, call ``fit`` again now and then.

    What it has learned is no part of ``state_dict``, since only training needs it.

    Parameters
    ----------
    n_synthetic : int, default=8
        Synthetic rows of each rare class in a batch.
    balanced : bool, default=False
        Whether weights give every class the same mass, instead of the one that it has among training rows.
    demixing : {"auto", "linear", "flow", "none"}, Linear, Flow or NoDemixing, default="auto"
        As in ``ECRTSampler``.
    augmentation : {"auto", "kernel", "pairs", "parametric", "permutation", "borrowed"}, part, callable, default="auto"
        How sources are drawn, as in ``ECRTSampler``. Its ``weight``, one half unless you set it, is the share of the
        mass of a rare class that is synthetic.
    minority : "auto", "all", int, labels or callable, default="auto"
        Who is rare, as in ``ECRTClassifier``; labels are whole numbers here.
    random_state : int, default=0
        The same seed gives the same rows.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.tensor([0] * 60 + [1] * 50 + [2] * 40 + [3] * 5)
    >>> features = torch.randn(155, 4, generator=generator) + 3 * labels[:, None]
    >>> augmenter = ECRTAugmenter(n_synthetic=2).fit(features, labels)
    >>> more, more_labels, weights = augmenter(features[:10], labels[:10])
    >>> more.shape, more_labels[10:].tolist()
    (torch.Size([12, 4]), [3, 3])
    >>> augmenter.eval()(features[:10], labels[:10])[0].shape
    torch.Size([10, 4])
    """

    def __init__(
        self,
        *,
        n_synthetic: int = 8,
        balanced: bool = False,
        demixing: str | Demixing = "auto",
        augmentation: str | Augmentation | Callable[..., Any] = "auto",
        minority: MinorityRule = "auto",
        random_state: int = 0,
    ) -> None:
        super().__init__()
        if n_synthetic < 1 or n_synthetic != int(n_synthetic):
            raise InputError(f"n_synthetic must be a whole number from 1 on; got {n_synthetic!r}.")
        self.n_synthetic, self.balanced = n_synthetic, balanced
        self.minority, self.random_state = minority, random_state
        self.demixing: Demixing | None = _part(DEMIXING, demixing, "demixing")
        self.augmentation: Augmentation | None = _part(AUGMENTATION, augmentation, "augmentation")
        for name, acts, needs in idle_options(self.demixing, self.augmentation, weighs=True):
            if not acts:
                given = demixing if name == "demixing" else augmentation
                raise InputError(f"{name}={given!r} would have no effect: it needs {needs}.")
        self._pools: dict[int, Pool] | None = None

    def fit(self, features: Tensor, labels: Tensor) -> ECRTAugmenter:
        """Learn de-mixing, and keep the sources of the rare classes; call it again when features have changed.

        Parameters
        ----------
        features : of all training rows, (n, d), on any device.
        labels : (n,), whole numbers.
        """
        self._pools = None
        z, y = self._checked(features, labels)
        self._n_features = z.shape[1]
        if not (np.abs(z) <= LARGEST).all():
            raise InputError(f"features hold NaN, infinity or a value beyond {LARGEST:g}.")
        self._classes, indices = np.unique(y, return_inverse=True)
        check_class_counts(self._classes, indices)
        self._share = np.bincount(indices) / len(indices)
        roles = roles_of(indices, self._classes, self.demixing, self.minority)
        rng = np.random.default_rng(self.random_state)
        once, times = different_rows(z, indices)
        z, y = z[once], indices[once]
        times = None if times is None else times[once]
        with seeded(self.random_state), one_thread(), torch.enable_grad():
            session = Session(rng, features.device, Progress())
            mechanism, _ = find_mechanism(z, y, self.demixing, roles, VALIDATION_FRACTION, session, times)
            augmentation = self.augmentation or usual_augmentation(roles)
            rows = rows_of_classes(mechanism, z, y, roles.augmented, augmentation, roles.demixed_on, times=times)
        self._synthetic_share = augmentation.weight
        self._pools = {label: Pool(mine, rng) for label, mine in rows.items()}
        return self

    def forward(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features, labels and weights of a batch, in training with synthetic rows after its own.

        Multiply the loss of each row by its weight and sum: the weights of a batch sum to one on average, and synthetic
        rows take no more than their share of the mass that their class has.

        Parameters
        ----------
        features, labels : of the batch, (n, d) and (n,).
        """
        dtype = torch.promote_types(features.dtype, torch.float32)  # 1 / n is next to nothing in float16
        if not self.training:
            return features, labels, features.new_full((len(features),), 1 / max(len(features), 1), dtype=dtype)
        if self._pools is None:
            raise InputError("This augmenter has not learned anything yet: call fit(features, labels) first.")
        z, y = self._checked(features, labels)
        known = np.isin(y, self._classes)
        if not known.all():
            raise InputError(f"Labels {np.unique(y[~known]).tolist()} were not among those of fit.")
        index = np.searchsorted(self._classes, y)
        mass = 1 / (len(self._share) * self._share) if self.balanced else np.ones(len(self._share))
        more, more_y = [np.empty((0, z.shape[1]))], [np.empty(0, dtype=np.int64)]
        weights, more_weights = mass[index] / max(len(y), 1), [np.empty(0)]
        for label, pool in self._pools.items():
            drawn = pool.take(self.n_synthetic)
            if len(drawn):
                weights[index == label] *= 1 - self._synthetic_share
                more.append(drawn)
                more_y.append(np.full(len(drawn), label))
                share = self._synthetic_share * mass[label] * self._share[label]
                more_weights.append(np.full(len(drawn), share / len(drawn)))
            else:
                warn_user(
                    f"Class {self._classes[label]} gets no synthetic rows: all that were drawn were too far from its "
                    "rows, or could not be brought back."
                )
        added = torch.from_numpy(self._classes[np.concatenate(more_y)]).to(labels)
        return (
            torch.cat([features, torch.from_numpy(np.concatenate(more)).to(features)]),
            torch.cat([labels, added]),
            torch.from_numpy(np.concatenate([weights, *more_weights])).to(features.device, dtype),
        )

    def _checked(self, features: Tensor, labels: Tensor) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Features and labels as arrays."""
        for name, given in (("features", features), ("labels", labels)):
            if not isinstance(given, Tensor):
                raise InputError(f"{name} must be a torch tensor, not {type(given).__name__}.")
        if features.ndim != 2 or labels.shape != (len(features),):
            raise InputError(
                "features must be a matrix, and labels one number for each of its rows; they have the shapes "
                f"{tuple(features.shape)} and {tuple(labels.shape)}."
            )
        if not features.is_floating_point():
            raise InputError(f"features must be floating-point numbers, not {features.dtype}: synthetic ones are.")
        if labels.is_floating_point() or labels.is_complex():
            raise InputError(f"labels must be whole numbers, not {labels.dtype}.")
        if self._pools is not None and features.shape[1] != self._n_features:
            raise InputError(f"features have {features.shape[1]} columns; those of fit had {self._n_features}.")
        return features.detach().double().cpu().numpy(), labels.cpu().numpy().astype(np.int64)


def _part(role: Role, value: Any, name: str) -> Any:
    """The part that a value stands for, checked; none for ``"auto"``."""
    if isinstance(value, str) and value in role.others:
        return None
    part = role.part(value, name)
    part.check()
    return part


class Pool:
    """Synthetic rows of a class, drawn many at a time and given out once each."""

    def __init__(self, rows: ClassRows, rng: np.random.Generator) -> None:
        self.rows, self.rng, self.left = rows, rng, np.empty((0, 0))

    def take(self, size: int) -> NDArray[np.float64]:
        """The next rows; fewer if nearly all that are drawn have to be refused."""
        for _ in range(ROUNDS):
            if len(self.left) >= size:
                break
            drawn = self.rows.draw(max(size, POOL), self.rng)
            good = drawn.z[drawn.good]
            self.left = np.concatenate([self.left, good]) if len(self.left) else good
        taken, self.left = self.left[:size], self.left[size:]
        return taken
