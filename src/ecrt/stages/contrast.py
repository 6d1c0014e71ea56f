"""A flow and a critic trained together on the contrast between labels (Eq. 1, 4 and 5)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import warn_user
from ecrt.flows import (
    ClassPrior,
    Demixer,
    LinearDemixing,
    MaskedFlow,
    SharedPrior,
    SourcePrior,
    class_moments,
    make_prior,
)
from ecrt.losses import dv_exact, fdv_in_batch, fdv_own_label, flow_nll, gcl_exact, gcl_in_batch, infonce_in_batch
from ecrt.nn import Critic, CriticName, GaussianCritic, make_critic
from ecrt.nn.randomness import generator_on
from ecrt.training import History, IndexBatches, Progress, TrainingConfig, torch_generator, train

__all__ = ["DemixConfig", "Incidences", "Restart", "TrainedFlow", "train_flow", "worse_beyond_noise"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Method = Literal["none", "linear", "flow"]
Objective = Literal["fdv", "gcl", "infonce"]

MODERATE_CLASSES = 1024
"""Up to this many classes ``label_marginal="auto"`` takes the exact marginal."""

SCORES_AT_ONCE = 2**25
"""Held-out rows are scored against all labels, so many scores at a time: 128 MiB whatever the number of labels."""


@dataclass(frozen=True, kw_only=True)
class DemixConfig:
    """How sources are found.

    Attributes
    ----------
    method : ``"none"`` standardises the features and leaves them as they are (no transfer, for comparison);
        ``"linear"`` whitens within classes; ``"flow"`` trains a flow on top of that.
    scaling : of ``"none"``: every column by its own spread, or ``"one"`` scale for all columns.
    n_sources : signal sources, ``None`` for all features.
    rotation : what settles the axes that whitening leaves open; see :func:`~ecrt.flows.fit_linear_demixing`. Fewer
        sources than features need discriminant axes.
    objective : contrastive loss of the flow.
    label_marginal : negatives from the batch, or the expectation under the label marginal; ``"auto"`` is exact up to
        1,024 classes, and beyond, with FDV, exact for a sample's own label alone (``"batch"`` is the paper's, which
        diverges where a batch holds few of the labels).
    critic, critic_width : which critic, and how wide its networks are.
    likelihood_weight : rho of Eq. 5, on the log-likelihood per dimension.
    source_prior : ``"shared"`` (1P) or ``"per-class"`` (MP).
    pseudo_samples : nu, how many samples the common variance counts for where a class has few of its own.
    n_restarts : flows trained, each with another start, another order of the features or another number of blocks. Kept
        is the one with the lowest held-out contrastive loss, or a flow of fewer blocks that is as good but for noise:
        every block more fits the de-mixing classes as well in more ways, of which one alone is the mechanism.
    n_blocks : numbers of blocks that restarts take in turn.
    hidden : hidden layers of every block.
    training : epochs, batch size, learning rate.
    """

    method: Method = "linear"
    scaling: Literal["columns", "one"] = "columns"
    n_sources: int | None = None
    rotation: Literal["symmetric", "discriminant", "joint"] = "symmetric"
    objective: Objective = "fdv"
    label_marginal: Literal["auto", "exact", "batch"] = "auto"
    critic: CriticName = "additive"
    critic_width: int = 64
    likelihood_weight: float = 1.0
    source_prior: SourcePrior = "per-class"
    pseudo_samples: float = 10.0
    n_restarts: int = 2
    n_blocks: tuple[int, ...] = (1,)
    hidden: tuple[int, ...] = (128, 128)
    training: TrainingConfig = TrainingConfig(epochs=100, batch_size=256, learning_rate=2e-3)


@dataclass(frozen=True)
class Incidences:
    """Pairs of a row and one of its labels, where rows may have several.

    Attributes
    ----------
    row : row of each pair; its features are looked up when they are needed, never repeated.
    weight : of each pair, one over the number of the row's labels.
    """

    row: Labels
    weight: Array


@dataclass(frozen=True)
class Restart:
    """One trained flow: its blocks and held-out contrastive loss, or why it has none.

    The loss is of rows that had no part in stopping or choosing it; where there are none, of those that stopped it.
    """

    n_blocks: int
    held_out_contrast: float
    history: History | None
    error: str = ""


@dataclass(frozen=True)
class TrainedFlow:
    """A flow with the contrastive loss of each row that restarts are compared on."""

    restart: Restart
    demixer: Demixer
    contrast: Array


def worse_beyond_noise(flow: TrainedFlow, lowest: TrainedFlow) -> bool:
    """Whether the contrastive loss is higher, row by row, by more than one standard error."""
    excess = flow.contrast - lowest.contrast
    return bool(excess.mean() > excess.std() / math.sqrt(max(len(excess), 1)))


class ContrastiveModel(nn.Module):
    """Flow, critic and prior trained together: Eq. 5 on batches."""

    def __init__(self, flow: MaskedFlow, critic: Critic, prior: nn.Module, config: DemixConfig) -> None:
        super().__init__()
        self.flow, self.critic, self.prior = flow, critic, prior
        self.config = config

    def start_at(self, z_nq: Tensor, y_n: Tensor) -> None:
        """Start what is Gaussian at the moments of each class; every label must have a row."""
        if isinstance(self.prior, ClassPrior) or isinstance(self.critic, GaussianCritic):
            common_q = torch.ones(z_nq.shape[1], device=z_nq.device)
            labels_m, mean_mq, variance_mq = class_moments(z_nq, y_n, common_q, self.config.pseudo_samples)
            if isinstance(self.prior, ClassPrior):
                self.prior.set_class(labels_m, mean_mq, variance_mq)
            if isinstance(self.critic, GaussianCritic):
                self.critic.start_at(mean_mq, variance_mq)

    def contrast(self, s_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> Tensor:
        if exact:
            scores_bm = self.critic(s_bq)
            loss = gcl_exact if self.config.objective == "gcl" else dv_exact
            return loss(scores_bm, y_b, label_prior_m)
        scores_bb = self.critic(s_bq, y_b)
        if self.config.objective == "gcl":
            permuted = torch.randperm(len(y_b), generator=generator_on(y_b.device), device=y_b.device)
            return gcl_in_batch(scores_bb.diagonal(), scores_bb.gather(1, permuted[:, None]).squeeze(1))
        if self.config.objective == "fdv" and self.config.label_marginal == "auto":
            return fdv_own_label(scores_bb, y_b, label_prior_m)
        return (fdv_in_batch if self.config.objective == "fdv" else infonce_in_batch)(scores_bb)

    def losses(self, z_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> tuple[Tensor, Tensor]:
        """Contrast and likelihood terms of every sample, from one pass through the flow."""
        s_bq, log_det_b = self.flow(z_bq)
        contrast_b = self.contrast(s_bq, y_b, label_prior_m, exact=exact)
        return contrast_b, flow_nll(self.prior(s_bq, y_b), log_det_b, z_bq.shape[1])


def train_flow(
    linear: LinearDemixing,
    n_blocks: int,
    z: Array,
    y: Labels,
    used: Labels,
    stopping: Labels,
    judging: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    stage: str,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> TrainedFlow:
    """Train one flow of ``n_blocks`` on top of the linear map, until the loss of ``stopping`` rows is lowest."""
    classes = np.unique(y[used])
    n_sources = linear.n_signal
    row = np.arange(len(y)) if incidences is None else incidences.row
    weight = np.ones(len(y)) if incidences is None else incidences.weight
    with torch.no_grad():
        signal = torch.cat([linear(part)[0].float() for part in torch.from_numpy(z).split(8192)]).to(device)

    def prepared(pairs: Labels) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.from_numpy(np.searchsorted(classes, y[pairs]))
        weights = torch.from_numpy(weight[pairs] / weight[pairs].mean()) if len(pairs) else torch.ones(0)
        return torch.from_numpy(row[pairs]).to(device), labels.to(device), weights.float().to(device)

    row_train, y_train, w_train = prepared(used)
    check = prepared(stopping)
    mass = np.bincount(np.searchsorted(classes, y[used]), weights=weight[used])
    label_prior_m = torch.from_numpy(mass / mass.sum()).float().to(device)
    exact = config.label_marginal == "exact" or (config.label_marginal == "auto" and len(classes) <= MODERATE_CLASSES)
    rows_at_once = min(4096, max(SCORES_AT_ONCE // len(classes), 1))
    prior = make_prior(config.source_prior, len(classes), n_sources)
    model = ContrastiveModel(
        MaskedFlow(n_sources, n_blocks, config.hidden),
        make_critic(config.critic, n_sources, len(classes), config.critic_width),
        prior,
        config,
    ).to(device)
    model.start_at(signal[row_train], y_train)

    def loss(batch: Tensor) -> Tensor:
        contrast, nll = model.losses(signal[row_train[batch]], y_train[batch], label_prior_m, exact=exact)
        return ((contrast + config.likelihood_weight * nll) * w_train[batch]).mean()

    @torch.no_grad()
    def terms(rows: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        parts = [
            model.losses(signal[row_part], label_part, label_prior_m, exact=True)
            for row_part, label_part in zip(rows.split(rows_at_once), labels.split(rows_at_once), strict=True)
        ]
        contrast_parts, nll_parts = zip(*parts, strict=True)
        return torch.cat(contrast_parts) * weights, torch.cat(nll_parts) * weights

    def held_out_loss() -> float:
        contrast, nll = terms(*check)
        return (contrast.mean() + config.likelihood_weight * nll.mean()).item()

    batches = IndexBatches(len(used), config.training.batch_size, torch_generator(rng), device)
    history = train(
        model, loss, batches, held_out_loss if len(stopping) else None, config.training, stage=stage, progress=progress,
        graphs=exact or config.objective != "gcl",  # which permutes labels by a sort of its own
    )  # fmt: skip
    # Without a row to hold out the training rows have to do.
    contrast = terms(*(check if len(stopping) else (row_train, y_train, w_train)))[0].double().cpu().numpy()
    judged = terms(*prepared(judging))[0].double().cpu().numpy() if len(judging) else contrast
    restart = Restart(n_blocks, float(judged.mean()), history)
    if not exact and restart.held_out_contrast > 0 and len(classes) > config.training.batch_size:
        warn_user(
            f"De-mixing on {len(classes)} classes by batches of {config.training.batch_size} has learned less than "
            f"nothing: its held-out contrastive loss is {restart.held_out_contrast:.3g}, where 0 is no skill. Negative "
            "labels from the batch cannot tell so many classes apart: use label_marginal='auto' or 'exact', or larger "
            "batches."
        )
    return TrainedFlow(restart, Demixer(linear, SharedPrior(), model.flow), contrast)
