"""Stage 2: s = f(z), learned from the classes that have data.

A linear map whitens within classes; a flow on top of it and a critic are trained together on the contrast between
labels (Eq. 1, 4 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.arrays import Array, Labels, Mask
from ecrt.distributed import (
    Span,
    by_rows,
    gathered,
    keep_own_rows,
    log_sum_exp,
    many_classes,
    mine,
    part_of_table,
    put_together,
)
from ecrt.errors import DivergenceError, InputError, StoppedError, warn_user
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
    class_moments,
    fit_linear_demixing,
    linear_demixing_of,
    within_label_moments,
)
from ecrt.losses import dv_exact, fdv_in_batch, fdv_own_label, flow_nll, gcl_exact, gcl_in_batch, infonce_in_batch
from ecrt.machine import ask, in_parts
from ecrt.moments import Moments, within_class_residuals
from ecrt.nn import AdditiveCritic, CriticName, column_extent, column_spread, make_critic
from ecrt.randomness import generator_on, seeded
from ecrt.stages.holdout import better_under_weights
from ecrt.stages.parts import BatchSize, Count, NonNegative, Part, Positive, Role, Rule, Sizes, whole_numbers
from ecrt.training import (
    History,
    IndexBatches,
    Progress,
    TrainingConfig,
    divide_rows,
    stop_requested,
    torch_generator,
    train,
)

VARIANCE_SHARE = 0.1
"""Least within-class variance of a source, as a share of the mean over sources."""

MODERATE_CLASSES = 1024
"""Up to this many classes ``label_marginal="auto"`` takes the exact marginal."""

SCORES_AT_ONCE = 2**25
"""Held-out rows are scored against all labels, so many scores at a time: 128 MiB whatever the number of labels."""

USUAL_EPOCHS, FEWER_EPOCHS, FEWEST_EPOCHS, USUAL_STEPS = 100, 60, 10, 6000
"""How long a flow is trained where nobody says."""

PRIOR_TABLES = ("mean_md", "log_variance_md")
"""Parameters of a ``ClassPrior``, a row for each class."""

FEW_SOURCES = 8
"""Up to this many sources a second restart and a wider critic cost little and pay."""


class Demixing(Part):
    """What all ways of finding sources have in common; ``Linear`` describes the options."""

    learn_from: Literal["auto", "majority", "all"] = "auto"
    source_prior: SourcePrior = "per-class"
    pseudo_samples: Positive = 10.0

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        yield "pseudo_samples", self.source_prior == "per-class", "source_prior='per-class'"

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return self.kind

    def wanted_sources(self, n_features: int) -> int:
        """Sources that are asked for, of so many features."""
        return min(getattr(self, "n_sources", None) or n_features, n_features)

    @property
    def weighted(self) -> bool:
        """Whether sources are weighted by their signal before the head."""
        return bool(getattr(self, "signal_weights", False))


class NoDemixing(Demixing):
    """Standardised features instead of sources: no transfer, for comparison.

    Parameters
    ----------
    scaling : {"columns", "one"}, default="columns"
        Features are divided each by its own spread, or all by one: principal components and other embeddings, whose
        small columns are mostly noise, are better left in proportion.
    learn_from, source_prior, pseudo_samples
        As in ``Linear``.
    """

    kind = "none"

    scaling: Literal["columns", "one"] = "columns"

    @property
    def title(self) -> str:
        """What it is called in tables."""
        return "none, one scale" if self.scaling == "one" else self.kind


class Linear(Demixing):
    """Sources by a linear map that whitens features within classes.

    Parameters
    ----------
    n_sources : int or None, default=None
        Signal sources; ``None`` for as many as features. Fewer than features are discriminant axes.
    rotation : {"symmetric", "discriminant"}, default="symmetric"
        What settles the axes that whitening leaves open: closeness to the features, or differences of class means.
    signal_weights : bool, default=True
        Whether the head sees each source in units of its spread within classes, times the share of signal in it. If
        not, it sees the sources as they are.
    learn_from : {"auto", "majority", "all"}, default="auto"
        Classes that it is learned from: ``"auto"`` is the majority classes, and all bins of a continuous target.
    source_prior : {"per-class", "shared"}, default="per-class"
        Gaussian prior of the sources, for each class (MP) or for all (1P).
    pseudo_samples : float, default=10
        How many samples the common variance counts for in the variance of a class's prior.
    """

    kind = "linear"

    n_sources: Count | None = None
    rotation: Literal["symmetric", "discriminant"] = "symmetric"
    signal_weights: bool = True


class Flow(Demixing):
    """Sources by a masked autoregressive flow, trained on top of the linear map with a critic.

    Parameters
    ----------
    n_sources : int or None, default=None
        Signal sources; ``None`` for as many as features.
    linear_first : bool, default=True
        Whether the flow is trained on features that the linear map has whitened, or on the features as they are, as in
        the paper.
    objective : {"fdv", "gcl", "infonce"}, default="fdv"
        Contrastive loss.
    label_marginal : {"auto", "exact", "batch"}, default="auto"
        Negative labels from the batch, or the expectation under the frequencies of all labels; ``"auto"`` is exact up
        to 1,024 classes and beyond, with FDV, exact for a sample's own label. ``"batch"`` is the paper's, which
        diverges where a batch holds few of the labels.
    critic : {"additive", "cosine", "label-network"} or callable, default="additive"
        How labels and sources are compared. A class or function of yours takes the numbers of sources and labels and
        the width, and gives a module: of sources and labels (``None`` for all) it makes scores, rows by labels.
    critic_width : int or None, default=None
        Units of the critic's hidden layers; ``None`` for 64 on up to 8 sources and 32 on more.
    likelihood_weight : float, default=1.0
        Weight rho of the log-likelihood (Eq. 5).
    likelihood_of : {"source", "row"}, default="source"
        Whether that is the log-likelihood of a row over the number of its sources, so that one weight serves all sizes,
        or that of the row itself, as in the paper.
    n_restarts : int or None, default=None
        Flows trained, with other starts, other orders of the features and other numbers of blocks. Kept is the one with
        the lowest held-out contrastive loss, or one of fewer blocks that is as good within noise: with more blocks
        there are more ways to fit the classes, and only one of them is the mechanism. ``None`` for two on up to 8
        sources, where the order decides what one block can undo, and one on more.
    blocks : int or sequence of int, default=1
        Autoregressive blocks (the paper has 4). Restarts take several numbers in turn.
    hidden : sequence of int, default=(128, 128)
        Hidden layers of every block.
    epochs : int or None, default=None
        Passes over the data at most; ``None`` for 100 on up to 8 sources and 60 on more, or for about 6,000 steps where
        that is less.
    batch_size, learning_rate : default=256 and 2e-3
        Of the training.
    patience : int, default=15
        Epochs without a better held-out loss after which training stops.
    signal_weights, learn_from, source_prior, pseudo_samples
        As in ``Linear``; the prior is also part of the likelihood. That of the classes the flow learns from is trained
        with it, from the moments of whitened features on, or from the standard Gaussian where there is no linear map.
    """

    kind = "flow"

    n_sources: Count | None = None
    linear_first: bool = True
    objective: Literal["fdv", "gcl", "infonce"] = "fdv"
    label_marginal: Literal["auto", "exact", "batch"] = "auto"
    critic: CriticName | Annotated[Callable[[int, int, int], nn.Module], callable] = "additive"
    critic_width: Count | None = None
    likelihood_weight: NonNegative = 1.0
    likelihood_of: Literal["source", "row"] = "source"
    n_restarts: Count | None = None
    blocks: Count | Sizes = 1
    hidden: Sizes = (128, 128)
    epochs: Count | None = None
    batch_size: BatchSize = 256
    learning_rate: Positive = 2e-3
    patience: Count = 15
    signal_weights: bool = True

    def check(self) -> None:
        """Raise an error if an option cannot be what it is, or was set and would have no effect."""
        super().check()
        whole_numbers("Flow: blocks", self.blocks, least=1)
        whole_numbers("Flow: hidden", self.hidden)

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        yield from super().rules()
        exact = self.objective == "infonce" and self.label_marginal != "batch"
        yield "objective", not exact, "label_marginal='batch' for 'infonce': with exact marginals it is 'fdv'"
        yield "n_sources", self.linear_first, "linear_first=True: a flow alone has as many sources as features"
        yield "likelihood_of", self.likelihood_weight > 0, "likelihood_weight above 0"


DEMIXING = Role((NoDemixing, Linear, Flow), others=("auto",), several=True)
"""What the parameter ``demixing`` takes."""


@dataclass(frozen=True)
class Incidences:
    """Pairs of a row and one of its labels, where rows may have several.

    Attributes
    ----------
    row : row of each pair; its features are looked up when they are needed, never repeated.
    weight : of each pair, one over the number of the row's labels; or what a row with one label counts for.
    counted : whether weights are of the latter kind: how often rows occur.
    """

    row: Labels
    weight: Array
    counted: bool = False


@dataclass(frozen=True)
class Restart:
    """One trained flow: its blocks and held-out contrastive loss, or why it has none.

    The loss is of rows that had no part in stopping or choosing it; where there are none, of those that stopped it.
    """

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
    learned : sources of the rows that it was given.
    within_variance : mean within-class variance of each source.
    signal_to_noise : b, the between-class variance of each source over its within-class variance.
    weighted : whether the head's input is weighted by signal.
    restarts : what every restart gave, the kept one first.
    refit : the same de-mixing learned from some rows alone, to judge it on the others; ``None`` where it was learned
        once, and only ``fresh`` rows can judge it.
    fresh : which rows had no part in it: they were neither learned from nor looked at to stop or to choose.
    """

    demixer: Demixer
    learned: Array
    within_variance: Array
    signal_to_noise: Array
    weighted: bool
    restarts: tuple[Restart, ...] = ()
    refit: Callable[[Labels], DemixResult] | None = None
    fresh: Mask | None = None

    @property
    def signal_weight(self) -> Array:
        """sqrt(b / (1 + b)): how much of a source is signal."""
        return np.asarray(np.sqrt(self.signal_to_noise / (1 + self.signal_to_noise)))

    @property
    def head_scale(self) -> Array:
        """What sources are multiplied by before the head: to within-class units, times their signal weight."""
        if not self.weighted:
            return np.ones_like(self.within_variance)
        return self.signal_weight / np.sqrt(self.within_variance)

    def sources(self, z: Array) -> Array:
        """s = f(z)."""
        return sources_of(self.demixer, z)

    @property
    def trained_prior(self) -> ClassPrior | None:
        """The Gaussians of classes, where those that de-mixing learned from were trained with a flow."""
        prior = self.demixer.prior
        return prior if self.demixer.flow is not None and isinstance(prior, ClassPrior) else None


@torch.no_grad()
def sources_of(demixer: Demixer, z: Array) -> Array:
    """s = f(z) in float64, in batches."""
    # torch cannot mark memory as read-only, nor walk it backwards; nothing here writes to z.
    rows = torch.from_numpy(np.require(z, requirements=["C", "W"]))
    return np.concatenate([demixer(part).numpy() for part in rows.split(8192)])


class Pairs(NamedTuple):
    """Features of all rows, and pairs of a row and its label; ``incidences`` is ``None`` where a row has one label."""

    z: Array
    y: Labels
    incidences: Incidences | None = None

    @property
    def row(self) -> Labels:
        """Row of each pair."""
        return np.arange(len(self.y)) if self.incidences is None else self.incidences.row

    @property
    def weight(self) -> Array:
        """Weight of each pair."""
        return np.ones(len(self.y)) if self.incidences is None else self.incidences.weight

    @property
    def row_weight(self) -> Array | None:
        """How often each row, which has one label, occurs; ``None`` for once."""
        return self.weight if self.incidences is not None and self.incidences.counted else None


class FlowPairs(NamedTuple):
    """Pairs that a flow learns from, pairs that stop it and choose among restarts, and pairs that only judge it."""

    used: Labels
    stopping: Labels
    judging: Labels


def demix(
    z: Array,
    y: Labels,
    *,
    train_rows: Labels,
    held_out_rows: Labels,
    demixed_on: Mask,
    config: Demixing,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    incidences: Incidences | None = None,
) -> DemixResult:
    """Fit the linear map, and the flow if asked for, on the de-mixing classes; then the priors of all classes.

    Parameters
    ----------
    z, y : features and class indices of all rows that may be learned from.
    train_rows, held_out_rows : the split. The linear map has nothing to stop early or choose and uses both; of the
        flow's held-out rows one half stops it and chooses among restarts, the other half stays fresh.
    demixed_on : mask over classes.
    incidences : for rows with several labels: ``y``, ``train_rows`` and ``held_out_rows`` are then of incidences.
        ``None`` where every row has one label.
    """
    pairs = Pairs(z, y, incidences)
    if not isinstance(config, Flow):
        return _linear_result(pairs, config, np.arange(len(z)), demixed_on)
    row = pairs.row
    held_out = held_out_rows[demixed_on[y[held_out_rows]]]
    stops = _half_of_rows(row[held_out], y[held_out], rng)
    split = FlowPairs(train_rows[demixed_on[y[train_rows]]], held_out[stops], held_out[~stops])
    demixer, restarts = _best_restart(pairs, config, split, rng, device, progress)
    fresh = np.ones(len(z), dtype=bool)
    fresh[row[np.concatenate([split.used, split.stopping])]] = False
    return _result(pairs, config, split.used, demixer, len(demixed_on), restarts=restarts, fresh=fresh)


def _linear_result(pairs: Pairs, config: Demixing, rows: Labels, demixed_on: Mask) -> DemixResult:
    """The linear map of some rows, with a way to the one of others."""
    used = np.flatnonzero(demixed_on[pairs.y] & np.isin(pairs.row, rows))
    demixer = Demixer(_linear_map(pairs, config, used, spread_rows=rows), SharedPrior())
    return _result(
        pairs, config, used, demixer, len(demixed_on),
        refit=lambda others: _linear_result(pairs, config, others, demixed_on),
    )  # fmt: skip


def _result(
    pairs: Pairs, config: Demixing, used: Labels, demixer: Demixer, n_classes: int, **how: Any
) -> DemixResult:  # fmt: skip
    """Sources of all rows, and what the pairs that were used say of them."""
    demixer.double().cpu().eval()
    y, row = pairs.y, pairs.row
    s = sources_of(demixer, pairs.z)
    mass: NDArray[Any]
    if pairs.incidences is None:
        residuals, means, mass = within_class_residuals(s[used], y[used])
        within = (residuals**2).sum(axis=0) / max(len(used) - len(mass), 1)
    else:
        moments = within_label_moments(s, row[used], y[used], pairs.weight[used], _size(pairs, used))
        means, mass, within = moments.means, moments.mass, np.diag(moments.covariance)
        if pairs.row_weight is not None:  # a class of hardly any weight must not hide what the others say
            mass = np.maximum(mass, 1.0)
    within = _floored(within)
    if config.source_prior == "per-class":  # of all classes, those that took no part in de-mixing included
        trained = demixer.prior
        demixer.prior = ClassPrior(n_classes, s.shape[1]).double()
        rows, labels, common = torch.from_numpy(s[row]), torch.from_numpy(y), torch.from_numpy(within)
        each = None if pairs.row_weight is None else torch.from_numpy(pairs.row_weight)
        demixer.prior.set_class(*class_moments(rows, labels, common, config.pseudo_samples, each))
        if isinstance(trained, ClassPrior):
            demixer.prior.take(torch.from_numpy(np.unique(y[used])), trained)
    return DemixResult(
        demixer=demixer,
        learned=s,
        within_variance=within,
        signal_to_noise=between_class_variance(means, mass, within),
        weighted=config.weighted,
        **how,
    )


def _size(pairs: Pairs, used: Labels) -> float | None:
    """How many rows those that are used stand for; ``None`` for their number."""
    return None if pairs.row_weight is None else float(pairs.row_weight[used].sum())


def _half_of_rows(row: Labels, y: Labels, rng: np.random.Generator) -> Mask:
    """One half of pairs (row, label), with the same classes as the other half and no row in common with it."""
    rows, first, member = np.unique(row, return_index=True, return_inverse=True)
    half = np.zeros(len(rows), dtype=bool)
    half[np.lexsort((rng.random(len(rows)), y[first]))[::2]] = True
    return half[member]


def _best_restart(
    pairs: Pairs,
    config: Flow,
    split: FlowPairs,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> tuple[Demixer, tuple[Restart, ...]]:
    """The flow that ``stopping`` pairs like best; ``judging`` pairs say how good each is."""
    n_features = pairs.z.shape[1]
    n_restarts = config.n_restarts or (2 if config.wanted_sources(n_features) <= FEW_SOURCES else 1)
    blocks = whole_numbers("blocks", config.blocks)
    trained: list[TrainedFlow] = []
    failed: list[Restart] = []
    for number in range(n_restarts):
        if trained and stop_requested():
            break
        turn, depth = divmod(number, len(blocks))
        # Features in order, in reverse, then at random: which comes first decides what one block can undo.
        order = np.arange(n_features)
        order = order if turn == 0 else order[::-1] if turn == 1 else rng.permutation(order)
        linear = _linear_map(pairs, config, split.used, order)
        stage = "de-mixing" if n_restarts == 1 else f"de-mixing {number + 1}/{n_restarts}"
        with seeded(int(rng.integers(2**62))):
            try:
                trained.append(
                    train_flow(pairs, config, linear, blocks[depth], split, stage, rng, device, progress)
                )  # fmt: skip
            except StoppedError:
                if not trained:
                    raise
                break
            except DivergenceError as error:
                failed.append(Restart(blocks[depth], np.inf, None, str(error)))
                if not trained and number == n_restarts - 1:
                    raise
    lowest = min(trained, key=lambda flow: float(flow.contrast.mean()))
    same_weight = np.ones(len(lowest.contrast))
    as_good = [flow for flow in trained if not better_under_weights(lowest.contrast, flow.contrast, same_weight)]
    kept = min(as_good, key=lambda flow: (flow.restart.n_blocks, float(flow.contrast.mean())))
    others = [flow.restart for flow in trained if flow is not kept]
    return kept.demixer, (kept.restart, *others, *failed)


def _linear_map(
    pairs: Pairs, config: Demixing, used: Labels, order: Labels | None = None, spread_rows: Labels | None = None
) -> LinearDemixing:
    """The linear map for the wanted sources: fewer than features need discriminant axes, a flow triangular ones.

    ``spread_rows`` are what columns are measured on, of de-mixing classes or not; ``None`` for all rows.
    """
    z, y = pairs.z, pairs.y
    rows = slice(None) if spread_rows is None or len(spread_rows) == len(z) else spread_rows
    if not column_spread(z[rows]).any():
        rows = slice(None)  # some rows may be all the same where others are not
    measured, times = z[rows], None if pairs.row_weight is None else pairs.row_weight[rows]
    spread, extent = column_spread(measured, times), column_extent(measured)
    if not spread.any():
        raise InputError(f"Nothing to learn from: each of the {z.shape[1]} features is constant, but for rounding.")
    if isinstance(config, Flow) and not config.linear_first:
        return LinearDemixing.of_columns(z, spread > 0, np.arange(z.shape[1]) if order is None else order)
    common: dict[str, Any] = {**_wanted_map(config, spread), "extent": extent, "order": order}
    if pairs.incidences is None:
        return fit_linear_demixing(z[used], y[used], **common)
    weight, size = pairs.weight[used], _size(pairs, used)
    if size is not None:
        return fit_linear_demixing(z[used], y[used], row=np.arange(len(used)), weight=weight, size=size, **common)
    return fit_linear_demixing(z, y[used], row=pairs.row[used], weight=weight, **common)


def _wanted_map(config: Demixing, spread: Array) -> dict[str, Any]:
    """Units of the columns, number of sources and rotation of the linear map."""
    n_sources = config.wanted_sources(len(spread))
    rotation: Rotation = config.rotation if isinstance(config, Linear) else "triangular"
    if isinstance(config, NoDemixing):
        rotation = "none"
        if config.scaling == "one":
            largest = spread.max(initial=0.0) or 1.0
            spread = np.where(spread > 0, largest * np.sqrt(((spread / largest) ** 2).mean()), 0.0)
    elif n_sources < (spread > 0).sum():
        rotation = "discriminant"
    return {"spread": spread, "n_sources": n_sources, "rotation": rotation}


@torch.no_grad()
def demix_moments(config: Demixing, moments: Moments, z: Array, y: Labels) -> DemixResult:
    """Linear de-mixing of more rows than there is memory for, from their moments; the prior is to be filled in.

    Parameters
    ----------
    config : not a flow.
    moments : of all rows; the de-mixing classes are the pooled ones.
    z, y : some of the rows, as many of each class as can be; their sources are given back.
    """
    wanted = _wanted_map(config, moments.spread_d)
    used, spread = moments.pooled_m & (moments.count_m > 0), wanted["spread"]
    mine, unit = used[y], np.where(spread > 0, spread, 1.0)
    if not (spread > 0).any():
        raise InputError(f"Nothing to learn from: each of the {len(spread)} features is constant, but for rounding.")
    away = ((z[mine] - moments.mean_md[y[mine]]) / unit)[:, spread > 0]
    times = (moments.count_m / np.maximum(np.bincount(y, minlength=len(used)), 1))[y[mine]]
    fourth = float(np.average((away**2).sum(axis=1) ** 2, weights=times))
    linear = linear_demixing_of(moments, fourth, **wanted)
    kept, n = linear.kept_k.numpy(), float(moments.count_m[used].sum())
    covariance = moments.scatter_dd[np.ix_(kept, kept)] / np.outer(unit[kept], unit[kept])
    turned = linear.weight(linear.weight(torch.from_numpy(covariance)).T).diagonal().numpy()[: linear.n_signal]
    within = _floored(turned / max(n - used.sum(), 1))
    means = linear(torch.from_numpy(moments.mean_md[used]))[0].numpy()
    demixer = Demixer(linear, SharedPrior()).double().eval()
    return DemixResult(
        demixer=demixer, learned=sources_of(demixer, z), within_variance=within, weighted=config.weighted,
        signal_to_noise=between_class_variance(means, moments.count_m[used], within),
    )  # fmt: skip


def _floored(within: Array) -> Array:
    """A source that hardly varies in the de-mixing classes would be blown up wherever another class varies."""
    if within.mean() > ROUNDING:
        return np.maximum(within, VARIANCE_SHARE * within.mean())
    return np.ones_like(within)


class TrainedFlow(NamedTuple):
    """A flow with the contrastive loss of each pair that restarts are compared on."""

    restart: Restart
    demixer: Demixer
    contrast: Array


class ContrastiveModel(nn.Module):
    """Flow, critic and prior trained together: Eq. 5 on batches."""

    def __init__(self, flow: MaskedFlow, critic: nn.Module, prior: SharedPrior | ClassPrior, config: Flow) -> None:
        super().__init__()
        self.flow, self.critic, self.prior = flow, critic, prior
        self.config = config

    def start_at(self, z_nq: Tensor, y_n: Tensor) -> None:
        """Start the priors at the moments of each class; every label must have a row."""
        if isinstance(self.prior, ClassPrior):
            common_q = torch.ones(z_nq.shape[1], device=z_nq.device)
            self.prior.set_class(*class_moments(z_nq, y_n, common_q, self.config.pseudo_samples))

    def contrast(self, s_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> Tensor:
        """Contrastive loss of every sample."""
        objective = self.config.objective
        if exact and self.shared_out:
            return self._contrast_of_shares(s_bq, y_b, label_prior_m)
        if exact:
            return (gcl_exact if objective == "gcl" else dv_exact)(self.critic(s_bq), y_b, label_prior_m)
        labels_k, first = gathered(y_b)
        scores_bk = self.critic(s_bq, labels_k)
        if objective == "gcl":
            permuted_k = torch.randperm(len(labels_k), generator=generator_on(y_b.device), device=y_b.device)
            permuted_b1 = permuted_k[first : first + len(y_b), None]
            return gcl_in_batch(scores_bk.diagonal(first), scores_bk.gather(1, permuted_b1).squeeze(1))
        if objective == "fdv" and self.config.label_marginal == "auto":
            return fdv_own_label(scores_bk, labels_k, label_prior_m, first)
        return (fdv_in_batch if objective == "fdv" else infonce_in_batch)(scores_bk, first)

    @property
    def shared_out(self) -> bool:
        """Whether each process holds the embeddings of some labels."""
        return isinstance(self.critic, AdditiveCritic) and part_of_table(self.critic.embedding) is not None

    def _contrast_of_shares(self, s_bq: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
        """``dv_exact`` where each process scores the rows of all against the labels that it holds."""
        critic = cast(AdditiveCritic, self.critic)
        part = cast(Span, part_of_table(critic.embedding))
        (joint_ke, first), (labels_k, _) = gathered(critic.networks(s_bq)), gathered(y_b)
        log_prior_m = torch.log(label_prior_m)
        scores = joint_ke @ critic.embedding.T + log_prior_m[part.start : part.stop]
        log_sum_k, own_k = log_sum_exp(scores, labels_k, part)
        return (log_sum_k - own_k)[first : first + len(y_b)] + log_prior_m[y_b]

    def losses(self, z_bq: Tensor, y_b: Tensor, label_prior_m: Tensor, *, exact: bool) -> tuple[Tensor, Tensor]:
        """Contrast and likelihood terms of every sample, from one pass through the flow."""
        s_bq, log_det_b = self.flow(z_bq)
        contrast_b = self.contrast(s_bq, y_b, label_prior_m, exact=exact)
        per = z_bq.shape[1] if self.config.likelihood_of == "source" else 1
        return contrast_b, flow_nll(self.prior(s_bq, y_b), log_det_b, per)


def train_flow(
    pairs: Pairs,
    config: Flow,
    linear: LinearDemixing,
    n_blocks: int,
    split: FlowPairs,
    stage: str,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> TrainedFlow:
    """Train one flow of ``n_blocks`` on top of the linear map, until the loss of ``stopping`` pairs is lowest."""
    classes, members = np.unique(pairs.y[split.used], return_inverse=True)
    n_sources = linear.n_signal
    width = config.critic_width or (64 if config.wanted_sources(pairs.z.shape[1]) <= FEW_SOURCES else 32)
    row, weight = pairs.row, pairs.weight
    with torch.no_grad():
        signal = torch.cat([linear(part)[0].float() for part in torch.from_numpy(pairs.z).split(8192)]).to(device)

    def prepared(chosen: Labels) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.from_numpy(np.searchsorted(classes, pairs.y[chosen]))
        weights = torch.from_numpy(weight[chosen] / weight[chosen].mean()) if len(chosen) else torch.ones(0)
        return torch.from_numpy(row[chosen]).to(device), labels.to(device), weights.float().to(device)

    learned = row_train, y_train, w_train = prepared(split.used)
    check = prepared(split.stopping) if len(split.stopping) else learned  # without a pair to hold out these have to do
    mass = np.bincount(members, weights=weight[split.used])
    label_prior_m = torch.from_numpy(mass / mass.sum()).float().to(device)
    exact = config.label_marginal == "exact" or (config.label_marginal == "auto" and len(classes) <= MODERATE_CLASSES)
    at_once = min(4096, max(SCORES_AT_ONCE // len(classes), 1))
    if exact:
        ask(
            "Scores of a step", "Set a smaller batch_size, or label_marginal='batch'.", numbers=4, copies=4,
            device=device, rows=min(config.batch_size, len(split.used)), classes=len(classes),
        )  # fmt: skip
    model = ContrastiveModel(
        MaskedFlow(n_sources, n_blocks, whole_numbers("hidden", config.hidden)),
        make_critic(config.critic, n_sources, len(classes), width),
        ClassPrior(len(classes), n_sources) if config.source_prior == "per-class" else SharedPrior(),
        config,
    ).to(device)
    if config.linear_first:  # the moments of features as they are would hold the flow where it begins
        model.start_at(signal[row_train], y_train)
    if many_classes(len(classes)) and config.critic == "additive" and config.objective != "gcl":
        keep_own_rows(model.critic, "embedding")
        if isinstance(model.prior, ClassPrior):
            keep_own_rows(model.prior, *PRIOR_TABLES)

    def loss(batch: Tensor) -> Tensor:
        batch = mine(batch, always=model.shared_out)
        contrast, nll = model.losses(signal[row_train[batch]], y_train[batch], label_prior_m, exact=exact)
        losses = (contrast + config.likelihood_weight * nll) * w_train[batch]
        return losses.mean() if len(batch) else losses.sum()

    @torch.no_grad()
    def terms(rows: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        def some(part: slice) -> Tensor:
            def both(places: Tensor) -> Tensor:
                losses = model.losses(signal[rows[places]], labels[places], label_prior_m, exact=True)
                return torch.stack(losses, dim=1)

            return torch.cat([*in_parts(both, torch.arange(len(rows), device=rows.device)[part], at_once)])

        if model.shared_out:  # each process looks at all rows, and at its labels
            return some(slice(0, len(rows))).T.contiguous() * weights
        return by_rows(len(rows), some).T.contiguous() * weights

    def held_out_loss() -> float:
        contrast, nll = terms(*check)
        return (contrast.mean() + config.likelihood_weight * nll.mean()).item()

    batches = IndexBatches(len(split.used), config.batch_size, torch_generator(rng), device)
    usual = USUAL_EPOCHS if n_sources <= FEW_SOURCES else FEWER_EPOCHS
    epochs = config.epochs or min(usual, max(USUAL_STEPS // len(batches), FEWEST_EPOCHS))
    history = train(
        model,
        loss,
        batches,
        held_out_loss if len(split.stopping) else None,
        replace(TrainingConfig.of(config), epochs=epochs),
        stage=stage,
        progress=progress,
        graphs=exact or config.objective != "gcl",  # which permutes labels by a sort of its own
        divide=divide_rows if exact else None,
    )
    contrast = terms(*check)[0].double().cpu().numpy()
    judged = terms(*prepared(split.judging))[0].double().cpu().numpy() if len(split.judging) else contrast
    restart = Restart(n_blocks, float(judged.mean()), history)
    if not exact and restart.held_out_contrast > 0 and len(classes) > config.batch_size:
        warn_user(
            f"De-mixing on {len(classes)} classes by batches of {config.batch_size} has learned less than "
            f"nothing: its held-out contrastive loss is {restart.held_out_contrast:.3g}, where 0 is no skill. Negative "
            "labels from the batch cannot separate so many classes: use label_marginal='auto' or 'exact', or larger "
            "batches."
        )
    if model.shared_out and isinstance(model.prior, ClassPrior):
        put_together(model.prior, *PRIOR_TABLES)
    return TrainedFlow(restart, Demixer(linear, model.prior, model.flow), contrast)
