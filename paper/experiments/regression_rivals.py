"""Rivals of ``ECRTRegressor``, on the same MLP, the same loop and the same held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from sklearn.preprocessing import StandardScaler
from torch import nn

from ecrt.augmentation import ClassSources, interpolate, permutation
from ecrt.data import stratified_holdout
from ecrt.data.minority import TargetRegions, quantile_bins
from ecrt.errors import InputError
from ecrt.losses import RegressionLoss, regression_loss
from ecrt.metrics import mean_over_classes
from ecrt.randomness import seeded
from ecrt.stages import Flow, demix
from ecrt.stages.heads import HeadSample, MLPFitter, head_outputs, plain_risk
from ecrt.training import TrainingConfig, torch_generator

__all__ = ["RIVALS", "fit_rival"]

Array = NDArray[np.float64]
Rows = tuple[Array, Array, Array]

RIVALS = ("erm", "inverse density", "label smoothing", "smoter", "mechanism transfer")
LDS_WIDTH = 2.0
STRENGTHS = {
    "erm": (0.0,),
    "inverse density": (0.5, 1.0),
    "label smoothing": (0.5, 1.0),
    "smoter": (1.0, 3.0),
    "mechanism transfer": (0.25, 0.5),
}
"""What held-out rows choose from, with equal weight for rare rows and others: powers of the density, synthetic rows for
each rare one, shares of the mass of rare rows."""


@dataclass(frozen=True)
class _Task:
    """Standardised rows, targets in their own units, and where these are rare."""

    regions: TargetRegions
    loss: RegressionLoss
    hidden: tuple[int, ...]
    training: TrainingConfig
    rng: np.random.Generator

    def fitter(self, n_outputs: int) -> MLPFitter:
        risk = plain_risk(lambda outputs, y, done: regression_loss(self.loss, outputs, y))
        return MLPFitter(n_outputs, lambda: risk, self.hidden, 0.0, self.training, torch_generator(self.rng))

    def sample(self, rows: Rows) -> HeadSample:
        x, y, weight = rows
        standard = torch.from_numpy(self.regions.standardise(y)).float()
        weight_n = torch.from_numpy(weight / weight.sum()).float()
        return HeadSample(torch.from_numpy(x).float(), standard, weight_n, torch.zeros(len(x), dtype=torch.bool))


def fit_rival(
    method: str,
    X: Array,
    y: Array,
    *,
    loss: RegressionLoss = "squared",
    hidden: tuple[int, ...] = (128, 128),
    training: TrainingConfig,
    seed: int = 0,
) -> Callable[[Array], Array]:
    """Fit a rival and give its prediction, in the units of y.

    Parameters
    ----------
    method : one of ``RIVALS``. ``"erm"``: every row has the same weight. ``"inverse density"``: the weight of a row is
        a power of one over the rows of its region. ``"label smoothing"``: the same with counts smoothed over
        regions (Yang et al., 2021). ``"smoter"``: rare rows interpolated with rare neighbours (Torgo et al., 2013).
        ``"mechanism transfer"``: a flow over (x, y) together, sources of rare rows permuted and inverted (Teshima et
        al., 2020).
    X, y : numbers (n, d) and targets (n, outputs).
    """
    if method not in RIVALS:
        raise InputError(f"No rival is called {method!r}; there are {list(RIVALS)}.")
    rng = np.random.default_rng(seed)
    scaler, regions = StandardScaler().fit(X), TargetRegions.learn(y)
    x = scaler.transform(X)
    task = _Task(regions, loss, hidden, training, rng)
    bins = quantile_bins(regions.position(y), 10)
    learn, check = stratified_holdout(bins, 0.2, rng)
    rare = regions.is_rare(y[check]).astype(np.int64)
    truth = torch.from_numpy(regions.standardise(y[check]))

    def losses(head: nn.Module) -> Array:
        return regression_loss(loss, torch.from_numpy(head_outputs(head, x[check])), truth).numpy()

    best = (np.inf, 0.0, 1.0)
    with seeded(int(rng.integers(2**62))):
        for strength, rows in _variants(method, x[learn], y[learn], task):
            for epochs, head in task.fitter(y.shape[1]).path(
                task.sample(rows), lambda head: float(losses(head).mean())
            ):
                best = min(best, (mean_over_classes(losses(head), rare), strength, epochs))
        _, chosen, epochs = best
        rows = next(rows for strength, rows in _variants(method, x, y, task) if strength == chosen)
        head = task.fitter(y.shape[1]).fit(task.sample(rows), epochs).double().eval()
    return lambda new: regions.restore(head_outputs(head, scaler.transform(new)))


def _density(regions: TargetRegions, y: Array, smoothing: float) -> Array:
    """Training rows in the region of each target, at least one; smoothed over regions by a Gaussian kernel."""
    counts = regions.counts.astype(np.float64)
    if smoothing > 0:
        counts = gaussian_filter1d(counts, smoothing, mode="constant")
    return np.asarray(np.maximum(counts, 1.0)[regions.region_of(y)])


def _variants(method: str, x: Array, y: Array, task: _Task) -> Iterator[tuple[float, Rows]]:
    """Rows to learn from, with their weights, for each strength."""
    regions = TargetRegions.learn(y)
    rare = regions.is_rare(y)
    ones = np.ones(len(y))
    transferred = _transferred(x, y, rare, task) if method == "mechanism transfer" and rare.sum() > 1 else None
    for strength in STRENGTHS[method]:
        if method in ("inverse density", "label smoothing"):
            smoothing = LDS_WIDTH if method == "label smoothing" else 0.0
            yield strength, (x, y, _density(regions, y, smoothing) ** -strength)
        elif method == "smoter" and rare.sum() > 1:
            x_new, y_new = interpolate(x[rare], y[rare], int(strength * rare.sum()), task.rng)
            yield strength, (np.concatenate([x, x_new]), np.concatenate([y, y_new]), np.ones(len(x) + len(x_new)))
        elif transferred is not None:
            x_new, y_new = transferred
            weight = np.where(rare, 1 - strength, 1.0)
            weight = np.concatenate([weight, np.full(len(x_new), strength * rare.sum() / len(x_new))])
            yield strength, (np.concatenate([x, x_new]), np.concatenate([y, y_new]), weight)
        else:
            yield strength, (x, y, ones)


def _transferred(x: Array, y: Array, rare: NDArray[np.bool_], task: _Task) -> tuple[Array, Array]:
    """Causal mechanism transfer: the flow is learned by likelihood on all rows, those of rare rows are permuted."""
    bundle = np.hstack([x, task.regions.standardise(y)])
    one_class = np.zeros(len(y), dtype=np.int64)
    learn, check = stratified_holdout(one_class, 0.2, task.rng)
    result = demix(
        bundle, one_class, train_rows=learn, held_out_rows=check, demixed_on=np.ones(1, dtype=bool),
        config=Flow(
            source_prior="shared", n_restarts=1, hidden=(64, 64), critic_width=8, epochs=task.training.epochs,
            learning_rate=task.training.learning_rate, patience=task.training.patience,
        ),
        rng=task.rng, device=torch.device("cpu"),
    )  # fmt: skip
    s = torch.from_numpy(result.sources(bundle[rare]))
    drawn = permutation(
        ClassSources.of_one(s), torch.zeros(max(len(y) // 2, 20), dtype=torch.int64), torch_generator(task.rng)
    )
    new = result.demixer.inverse(drawn).numpy()
    low, high = bundle.min(axis=0), bundle.max(axis=0)
    new = np.clip(new, low - (high - low), high + (high - low))  # a flow far from its data may run away
    return new[:, : x.shape[1]], task.regions.restore(new[:, x.shape[1] :])
