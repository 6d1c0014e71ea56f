"""De-mix once, then fit several heads on the same sources: what experiments that vary the head alone share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax

from ecrt.data import ClassRoles, stratified_holdout
from ecrt.metrics import PriorName, class_prior_of, clip_log_proba, nll_per_sample, shift_prior, top_k_hits
from ecrt.randomness import seeded
from ecrt.stages import (
    Augmentation,
    ClassTarget,
    Demixing,
    DemixResult,
    Head,
    HeadChoice,
    NoAugmentation,
    demix,
    head_outputs,
)
from ecrt.stages.choosing import Draw, try_heads

__all__ = [
    "Predictor",
    "Sample",
    "balanced_log_proba",
    "choose",
    "find_sources",
    "predicted",
    "score",
    "split",
    "the_device",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def the_device() -> torch.device:
    """A GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class Sample:
    """Features with their classes, and which rows are held out to stop and to choose."""

    z: Array
    y: Labels
    train_rows: Labels
    held_out_rows: Labels


def split(z: Array, y: Labels, seed: int, fraction: float = 0.2) -> Sample:
    """The paper's random 8/2 split, within each class."""
    return Sample(z, y, *stratified_holdout(y, fraction, np.random.default_rng([seed, 1])))


@dataclass(frozen=True)
class Predictor:
    """A head, and the synthetic samples that it learns from."""

    head: Head
    augmentation: Augmentation = field(default_factory=NoAugmentation)


def find_sources(sample: Sample, roles: ClassRoles, config: Demixing, seed: int) -> DemixResult:
    """Stage 2 on its own."""
    with seeded(seed):
        return demix(
            sample.z, sample.y, train_rows=sample.train_rows, held_out_rows=sample.held_out_rows,
            demixed_on=roles.demixed_on, config=config, rng=np.random.default_rng([seed, 2]), device=the_device(),
        )  # fmt: skip


def choose(
    demixed: DemixResult, sample: Sample, roles: ClassRoles, config: Predictor, seed: int, draw: Draw | None = None
) -> HeadChoice:
    """Stages 3 and 4 on those sources, as far as the choice on held-out rows; ``draw`` for other synthetic sources."""
    with seeded(seed):
        target = ClassTarget(
            sample.y, roles, config.augmentation, np.random.default_rng([seed, 3]), the_device()
        )  # fmt: skip
        (choice,) = try_heads(
            target, replace(demixed, learned=demixed.sources(sample.z)), [config.head],
            train_rows=sample.train_rows, held_out_rows=sample.held_out_rows, draw=draw,
        )  # fmt: skip
        return choice


def predicted(demixed: DemixResult, choice: HeadChoice, z_test: Array, seed: int) -> Array:
    """The chosen head fitted on all rows: log-probabilities of test rows under equal class priors."""
    with seeded(seed):
        head = choice.fit()
    return np.asarray(log_softmax(head_outputs(head, demixed.sources(z_test) * demixed.head_scale), axis=1))


def balanced_log_proba(
    demixed: DemixResult, sample: Sample, roles: ClassRoles, config: Predictor, z_test: Array, seed: int
) -> Array:
    """Choose a head and fit it: log-probabilities of test rows under equal class priors."""
    return predicted(demixed, choose(demixed, sample, roles, config, seed), z_test, seed)


def score(log_proba: Array, y: Labels, counts: Labels, prior: PriorName = "balanced") -> dict[str, float]:
    """Top-1, top-5 (of more than five classes) and NLL of balanced log-probabilities, under a prior."""
    if prior != "balanced":
        log_proba = shift_prior(log_proba, class_prior_of("balanced", counts), class_prior_of(prior, counts))
    found = {"top1": float((log_proba.argmax(axis=1) == y).mean())}
    if log_proba.shape[1] > 5:
        found["top5"] = float(top_k_hits(log_proba, y, 5).mean())
    return found | {"nll": float(nll_per_sample(clip_log_proba(log_proba), y).mean())}
