"""Stage 2: s = f(z), learned from the classes that have data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import DivergenceError, InputError
from ecrt.flows import (
    ROUNDING,
    ClassPrior,
    Demixer,
    LinearDemixing,
    MaskedFlow,
    Rotation,
    SharedPrior,
    SourcePrior,
    between_class_variance,
    column_spread,
    fit_linear_demixing,
    make_prior,
    shrunk_moments,
    within_class_residuals,
    within_label_moments,
)
from ecrt.losses import dv_exact, fdv_in_batch, flow_nll, gcl_exact, gcl_in_batch, infonce_in_batch
from ecrt.nn import Critic, CriticName, make_critic
from ecrt.training import (
    History,
    IndexBatches,
    Progress,
    TrainingConfig,
    seeded,
    stop_requested,
    torch_generator,
    train,
)

__all__ = ["DemixConfig", "DemixResult", "Incidences", "Restart", "demix", "sources_of"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Method = Literal["none", "linear", "flow"]
Objective = Literal["fdv", "gcl", "infonce"]

MODERATE_CLASSES = 1024
"""Up to this many classes ``label_marginal="auto"`` takes the exact marginal."""


VARIANCE_SHARE = 0.1
"""Least within-class variance of a source, as a share of the mean over sources."""


@dataclass(frozen=True, kw_only=True)
class DemixConfig:
    """How sources are found.

    Attributes
    ----------
    method : ``"none"`` standardises the features and leaves them as they are (no transfer, for comparison);
        ``"linear"`` whitens within classes; ``"flow"`` trains a flow on top of that.
    n_sources : signal sources, ``None`` for all features.
    objective : contrastive loss of the flow.
    label_marginal : negatives from the batch, or the expectation under the label marginal; ``"auto"`` is exact up to
        1,024 classes.
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
    n_sources: int | None = None
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
    """One trained flow: its blocks and held-out contrastive loss, or why it has none."""

    n_blocks: int
    held_out_contrast: float
    history: History | None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class DemixResult:
    """The de-mixing function and what the de-mixing classes say of its sources.

    Attributes
    ----------
    demixer : f, float64 on the CPU.
    within_variance : mean within-class variance of each source.
    signal_to_noise : b, the between-class variance of each source over its within-class variance.
    weighted : whether the head's input is weighted by signal.
    restarts : what every restart gave, the kept one first.
    """

    demixer: Demixer
    within_variance: Array
    signal_to_noise: Array
    weighted: bool
    restarts: tuple[Restart, ...]

    @property
    def signal_weight(self) -> Array:
        """sqrt(b / (1 + b)): how much of a source is signal."""
        return np.asarray(np.sqrt(self.signal_to_noise / (1 + self.signal_to_noise)))

    @property
    def head_scale(self) -> Array:
        """What sources are multiplied by before the head: to within-class units, times their signal weight."""
        return (
            self.signal_weight / np.sqrt(self.within_variance) if self.weighted else np.ones_like(self.within_variance)
        )

    def sources(self, z: Array) -> Array:
        """s = f(z)."""
        return sources_of(self.demixer, z)


@torch.no_grad()
def sources_of(demixer: Demixer, z: Array) -> Array:
    """s = f(z) in float64, in batches."""
    return np.concatenate([demixer(part).numpy() for part in torch.from_numpy(z).split(8192)])


def demix(
    z: Array,
    y: Labels,
    *,
    train_rows: Labels,
    held_out_rows: Labels,
    demixed_on: NDArray[np.bool_],
    config: DemixConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    incidences: Incidences | None = None,
) -> DemixResult:
    """Fit the linear map, and the flow if asked for, on the de-mixing classes; then the priors of all classes.

    Parameters
    ----------
    z, y : features and class indices of all rows that may be learned from.
    train_rows, held_out_rows : the split; the linear map has nothing to stop early or choose and uses both.
    demixed_on : mask over classes.
    incidences : for rows with several labels: ``y``, ``train_rows`` and ``held_out_rows`` are then of incidences.
        ``None`` for one label a row.
    """
    n_classes = len(demixed_on)
    row = np.arange(len(y)) if incidences is None else incidences.row
    if config.method != "flow":
        used = np.flatnonzero(demixed_on[y])
        demixer = Demixer(_linear_map(z, y, used, config, incidences), SharedPrior())
        restarts: tuple[Restart, ...] = ()
    else:
        used = train_rows[demixed_on[y[train_rows]]]
        held_out = held_out_rows[demixed_on[y[held_out_rows]]]
        demixer, restarts = _best_restart(z, y, used, held_out, config, incidences, rng, device, progress)
    demixer.double().cpu().eval()

    s = sources_of(demixer, z)
    mass: NDArray[Any]
    if incidences is None:
        residuals, means, mass = within_class_residuals(s[used], y[used])
        within = (residuals**2).sum(axis=0) / max(len(used) - len(mass), 1)
    else:
        moments = within_label_moments(s, row[used], y[used], incidences.weight[used])
        means, mass, within = moments.means, moments.mass, np.diag(moments.covariance)
    # A source that hardly varies in the de-mixing classes would otherwise be blown up wherever another class varies.
    within = np.maximum(within, VARIANCE_SHARE * within.mean()) if within.mean() > ROUNDING else np.ones_like(within)
    if config.source_prior == "per-class":
        demixer.prior = _fit_priors(s, row, y, n_classes, within, config.pseudo_samples)
    return DemixResult(
        demixer=demixer,
        within_variance=within,
        signal_to_noise=between_class_variance(means, mass, within),
        weighted=config.method != "none",
        restarts=restarts,
    )


def _fit_priors(s: Array, row: Labels, y: Labels, n_classes: int, within: Array, pseudo_samples: float) -> ClassPrior:
    """Gaussians of all classes, those that took no part in de-mixing included."""
    prior = ClassPrior(n_classes, s.shape[1]).double()
    for label in np.unique(y):
        prior.set_class(
            int(label), *shrunk_moments(torch.from_numpy(s[row[y == label]]), torch.from_numpy(within), pseudo_samples)
        )
    return prior


class _ContrastiveModel(nn.Module):
    """Flow, critic and prior trained together: Eq. 5 on batches."""

    def __init__(self, flow: MaskedFlow, critic: Critic, prior: nn.Module, config: DemixConfig) -> None:
        super().__init__()
        self.flow, self.critic, self.prior = flow, critic, prior
        self.config = config

    def contrast(self, s_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> Tensor:
        if exact:
            scores_bm = self.critic(s_bq)
            loss = gcl_exact if self.config.objective == "gcl" else dv_exact
            return loss(scores_bm, y_b, label_prior_m)
        scores_bb = self.critic(s_bq, y_b)
        if self.config.objective == "gcl":
            permuted = torch.randperm(len(y_b), device=y_b.device)
            return gcl_in_batch(scores_bb.diagonal(), scores_bb.gather(1, permuted[:, None]).squeeze(1))
        return (fdv_in_batch if self.config.objective == "fdv" else infonce_in_batch)(scores_bb)

    def losses(self, z_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> tuple[Tensor, Tensor]:
        """Contrast and likelihood terms of every sample, from one pass through the flow."""
        s_bq, log_det_b = self.flow(z_bq)
        contrast_b = self.contrast(s_bq, y_b, label_prior_m, exact=exact)
        return contrast_b, flow_nll(self.prior(s_bq, y_b), log_det_b, z_bq.shape[1])


def _best_restart(
    z: Array,
    y: Labels,
    used: Labels,
    held_out: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> tuple[Demixer, tuple[Restart, ...]]:
    trained: list[_TrainedFlow] = []
    failed: list[Restart] = []
    failure: DivergenceError | None = None
    for number in range(config.n_restarts):
        if trained and stop_requested():
            break
        turn, depth = divmod(number, len(config.n_blocks))
        # Features in order, in reverse, then at random: which comes first decides what one block can undo.
        order = np.arange(z.shape[1])
        order = order if turn == 0 else order[::-1] if turn == 1 else rng.permutation(order)
        linear = _linear_map(z, y, used, config, incidences, order)
        stage = "de-mixing" if config.n_restarts == 1 else f"de-mixing {number + 1}/{config.n_restarts}"
        with seeded(int(rng.integers(2**62))):
            try:
                flow = _train_flow(
                    linear,
                    config.n_blocks[depth],
                    z,
                    y,
                    used,
                    held_out,
                    config,
                    incidences,
                    stage,
                    rng,
                    device,
                    progress,
                )
                trained.append(flow)
            except DivergenceError as error:
                failure = error
                failed.append(Restart(config.n_blocks[depth], math.inf, None, str(error)))
    if not trained:
        raise failure or InputError(f"n_restarts={config.n_restarts}: at least one flow must be trained.")
    lowest = min(trained, key=lambda flow: flow.restart.held_out_contrast)
    as_good = [flow for flow in trained if flow is lowest or not _worse_beyond_noise(flow, lowest)]
    kept = min(as_good, key=lambda flow: (flow.restart.n_blocks, flow.restart.held_out_contrast))
    others = [flow.restart for flow in trained if flow is not kept]
    return kept.demixer, (kept.restart, *others, *failed)


@dataclass(frozen=True)
class _TrainedFlow:
    """A flow with the contrastive loss of each held-out row."""

    restart: Restart
    demixer: Demixer
    contrast: Array


def _worse_beyond_noise(flow: _TrainedFlow, lowest: _TrainedFlow) -> bool:
    """Whether the contrastive loss is higher, row by row, by more than one standard error."""
    excess = flow.contrast - lowest.contrast
    return bool(excess.mean() > excess.std() / math.sqrt(max(len(excess), 1)))


def _linear_map(
    z: Array,
    y: Labels,
    used: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    order: Labels | None = None,
) -> LinearDemixing:
    """The linear map for the wanted sources: fewer than features need discriminant axes, a flow triangular ones."""
    spread = column_spread(z)  # over all rows, of de-mixing classes or not
    rotation: Rotation = "symmetric" if order is None else "triangular"
    if config.method == "none":
        rotation = "none"
    elif config.n_sources is not None and config.n_sources < (spread > 0).sum():
        rotation = "discriminant"
    n_sources = None if rotation == "none" else config.n_sources
    if incidences is None:
        return fit_linear_demixing(z[used], y[used], spread=spread, n_sources=n_sources, rotation=rotation, order=order)
    return fit_linear_demixing(
        z, y[used], spread=spread, n_sources=n_sources, rotation=rotation, order=order,
        row=incidences.row[used], weight=incidences.weight[used],
    )  # fmt: skip


def _train_flow(
    linear: LinearDemixing,
    n_blocks: int,
    z: Array,
    y: Labels,
    used: Labels,
    held_out: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    stage: str,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> _TrainedFlow:
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
    check = prepared(held_out)
    mass = np.bincount(np.searchsorted(classes, y[used]), weights=weight[used])
    label_prior_m = torch.from_numpy(mass / mass.sum()).float().to(device)
    exact = config.label_marginal == "exact" or (config.label_marginal == "auto" and len(classes) <= MODERATE_CLASSES)
    prior = make_prior(config.source_prior, len(classes), n_sources).to(device)
    if isinstance(prior, ClassPrior):
        common = torch.ones(n_sources, device=device)
        for label in range(len(classes)):
            mine = signal[row_train[y_train == label]]
            prior.set_class(label, *shrunk_moments(mine, common, config.pseudo_samples))
    model = _ContrastiveModel(
        MaskedFlow(n_sources, n_blocks, config.hidden),
        make_critic(config.critic, n_sources, len(classes), config.critic_width),
        prior,
        config,
    ).to(device)

    def loss(batch: Tensor) -> Tensor:
        pairs = batch.to(device)
        contrast, nll = model.losses(signal[row_train[pairs]], y_train[pairs], label_prior_m, exact=exact)
        return ((contrast + config.likelihood_weight * nll) * w_train[pairs]).mean()

    @torch.no_grad()
    def terms(rows: Tensor, labels: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        parts = [
            model.losses(signal[row_part], label_part, label_prior_m, exact=True)
            for row_part, label_part in zip(rows.split(4096), labels.split(4096), strict=True)
        ]
        contrast_parts, nll_parts = zip(*parts, strict=True)
        return torch.cat(contrast_parts) * weights, torch.cat(nll_parts) * weights

    def held_out_loss() -> float:
        contrast, nll = terms(*check)
        return (contrast.mean() + config.likelihood_weight * nll.mean()).item()

    batches = IndexBatches(len(used), config.training.batch_size, torch_generator(rng))
    history = train(
        model, loss, batches, held_out_loss if len(held_out) else None, config.training, stage=stage, progress=progress
    )
    # Without a row to hold out the training rows have to do.
    contrast = terms(*(check if len(held_out) else (row_train, y_train, w_train)))[0].double().cpu().numpy()
    restart = Restart(n_blocks, float(contrast.mean()), history)
    return _TrainedFlow(restart, Demixer(linear, SharedPrior(), model.flow), contrast)
