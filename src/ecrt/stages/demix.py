"""Stage 2: s = f(z), learned from the classes that have data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ecrt.errors import DivergenceError, InputError, StoppedError
from ecrt.flows import (
    ROUNDING,
    ClassPrior,
    Demixer,
    LinearDemixing,
    Rotation,
    SharedPrior,
    between_class_variance,
    class_moments,
    fit_linear_demixing,
    within_class_residuals,
    within_label_moments,
)
from ecrt.nn import column_extent, column_spread
from ecrt.stages.contrast import DemixConfig, Incidences, Restart, TrainedFlow, train_flow, worse_beyond_noise
from ecrt.training import Progress, seeded, stop_requested

__all__ = ["DemixConfig", "DemixResult", "Incidences", "Restart", "demix", "sources_of"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

VARIANCE_SHARE = 0.1
"""Least within-class variance of a source, as a share of the mean over sources."""


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
    restarts: tuple[Restart, ...]
    refit: Callable[[Labels], DemixResult] | None = None
    fresh: NDArray[np.bool_] | None = None

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
    # torch cannot mark memory as read-only, nor walk it backwards; nothing here writes to z.
    rows = torch.from_numpy(np.require(z, requirements=["C", "W"]))
    return np.concatenate([demixer(part).numpy() for part in rows.split(8192)])


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
    train_rows, held_out_rows : the split. The linear map has nothing to stop early or choose and uses both; of the
        flow's held-out rows one half stops it and chooses among restarts, the other half stays fresh.
    demixed_on : mask over classes.
    incidences : for rows with several labels: ``y``, ``train_rows`` and ``held_out_rows`` are then of incidences.
        ``None`` for one label a row.
    """
    row = np.arange(len(y)) if incidences is None else incidences.row
    if config.method != "flow":
        return _linear_result(z, y, np.arange(len(z)), demixed_on, config, incidences)
    used = train_rows[demixed_on[y[train_rows]]]
    held_out = held_out_rows[demixed_on[y[held_out_rows]]]
    stopping, judging = _halves_by_row(row[held_out], y[held_out], rng)
    demixer, restarts = _best_restart(
        z, y, used, held_out[stopping], held_out[judging], config, incidences, rng, device, progress
    )  # fmt: skip
    fresh = np.ones(len(z), dtype=bool)
    fresh[row[np.concatenate([used, held_out[stopping]])]] = False
    return _result(z, y, used, demixer, config, incidences, len(demixed_on), restarts=restarts, fresh=fresh)


def _linear_result(
    z: Array, y: Labels, rows: Labels, demixed_on: NDArray[np.bool_], config: DemixConfig,
    incidences: Incidences | None,
) -> DemixResult:  # fmt: skip
    """The linear map of some rows, with a way to the one of others."""
    learned_from = np.zeros(len(z), dtype=bool)
    learned_from[rows] = True
    row = np.arange(len(y)) if incidences is None else incidences.row
    used = np.flatnonzero(demixed_on[y] & learned_from[row])
    linear = _linear_map(z, y, used, config, incidences, spread_rows=rows)
    return _result(
        z, y, used, Demixer(linear, SharedPrior()), config, incidences, len(demixed_on),
        refit=lambda others: _linear_result(z, y, others, demixed_on, config, incidences),
    )  # fmt: skip


def _result(
    z: Array, y: Labels, used: Labels, demixer: Demixer, config: DemixConfig, incidences: Incidences | None,
    n_classes: int, *, restarts: tuple[Restart, ...] = (), **how: Any,
) -> DemixResult:  # fmt: skip
    """Sources of all rows, and what those that were used say of them."""
    demixer.double().cpu().eval()
    row = np.arange(len(y)) if incidences is None else incidences.row
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
        learned=s,
        within_variance=within,
        signal_to_noise=between_class_variance(means, mass, within),
        weighted=config.method != "none",
        restarts=restarts,
        **how,
    )


def _halves_by_row(
    row: Labels, y: Labels, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:  # fmt: skip
    """Two halves of pairs (row, label), alike in their classes and without a row in common."""
    rows, first, member = np.unique(row, return_index=True, return_inverse=True)
    order = np.lexsort((rng.random(len(rows)), y[first]))
    stopping = np.zeros(len(rows), dtype=bool)
    stopping[order[::2]] = True
    return stopping[member], ~stopping[member]


def _fit_priors(s: Array, row: Labels, y: Labels, n_classes: int, within: Array, pseudo_samples: float) -> ClassPrior:
    """Gaussians of all classes, those that took no part in de-mixing included."""
    prior = ClassPrior(n_classes, s.shape[1]).double()
    rows, labels = torch.from_numpy(s[row]), torch.from_numpy(y)
    prior.set_class(*class_moments(rows, labels, torch.from_numpy(within), pseudo_samples))
    return prior


def _best_restart(
    z: Array,
    y: Labels,
    used: Labels,
    stopping: Labels,
    judging: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> tuple[Demixer, tuple[Restart, ...]]:
    """The flow that ``stopping`` rows like best; ``judging`` rows say how good each is."""
    trained: list[TrainedFlow] = []
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
                flow = train_flow(
                    linear,
                    config.n_blocks[depth],
                    z,
                    y,
                    used,
                    stopping,
                    judging,
                    config,
                    incidences,
                    stage,
                    rng,
                    device,
                    progress,
                )
                trained.append(flow)
            except StoppedError:
                if not trained:
                    raise
                break
            except DivergenceError as error:
                failure = error
                failed.append(Restart(config.n_blocks[depth], math.inf, None, str(error)))
    if not trained:
        raise failure or InputError(f"n_restarts={config.n_restarts}: at least one flow must be trained.")
    lowest = min(trained, key=lambda flow: float(flow.contrast.mean()))
    as_good = [flow for flow in trained if flow is lowest or not worse_beyond_noise(flow, lowest)]
    kept = min(as_good, key=lambda flow: (flow.restart.n_blocks, float(flow.contrast.mean())))
    others = [flow.restart for flow in trained if flow is not kept]
    return kept.demixer, (kept.restart, *others, *failed)


def _linear_map(
    z: Array,
    y: Labels,
    used: Labels,
    config: DemixConfig,
    incidences: Incidences | None,
    order: Labels | None = None,
    spread_rows: Labels | None = None,
) -> LinearDemixing:
    """The linear map for the wanted sources: fewer than features need discriminant axes, a flow triangular ones.

    ``spread_rows`` are what columns are measured on, of de-mixing classes or not; ``None`` for all rows.
    """
    measured = z if spread_rows is None or len(spread_rows) == len(z) else z[spread_rows]
    if not column_spread(measured).any():
        measured = z  # some rows may be all alike where others are not
    spread, extent = column_spread(measured), column_extent(measured)
    if not spread.any():
        raise InputError(f"Nothing to learn from: each of the {z.shape[1]} features is constant, but for rounding.")
    rotation: Rotation = config.rotation if order is None else "triangular"
    if config.method == "none":
        rotation = "none"
        if config.scaling == "one":
            largest = spread.max(initial=0.0) or 1.0
            spread = np.where(spread > 0, largest * np.sqrt(((spread / largest) ** 2).mean()), 0.0)
    elif config.n_sources is not None and config.n_sources < (spread > 0).sum():
        rotation = "discriminant"
    n_sources = None if rotation == "none" else config.n_sources
    if incidences is None:
        return fit_linear_demixing(
            z[used], y[used], spread=spread, extent=extent, n_sources=n_sources, rotation=rotation, order=order
        )
    return fit_linear_demixing(
        z, y[used], spread=spread, extent=extent, n_sources=n_sources, rotation=rotation, order=order,
        row=incidences.row[used], weight=incidences.weight[used],
    )  # fmt: skip
