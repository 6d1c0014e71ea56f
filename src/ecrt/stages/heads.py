"""How each kind of head is fitted, with the settings worth trying."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.nn import GaussianHead, make_head
from ecrt.stages.holdout import FirstHeads, Watched
from ecrt.stages.risks import BatchRisk, HeadSample, plain_risk
from ecrt.training import IndexBatches, Progress, TrainingConfig, minimise_convex, train

__all__ = [
    "GaussianFitter",
    "HeadFitter",
    "HeadLoss",
    "HeadName",
    "HeadSample",
    "LinearFitter",
    "MLPFitter",
    "TwoStepFitter",
    "device_outputs",
    "head_outputs",
]

HeadName = Literal["linear", "mlp", "gaussian"]

Watch = Callable[[nn.Module], float]
"""Gives the held-out loss of a head that is offered to it."""

HeadLoss = Callable[[Tensor, Tensor], Tensor]
"""What a head gives and targets, to one loss for each row."""

WEIGHT_DECAYS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
PSEUDO_SAMPLES = (1e6, 100.0, 20.0, 5.0, 1.0)
ROWS_AT_ONCE = 8192
SCORES_AT_ONCE = 2**26
"""On a GPU rows go together up to this many outputs, 256 MiB: every block there costs launches, and a wait."""
PATH_ITERATIONS, FINAL_ITERATIONS = 40, 120


class HeadFitter(Protocol):
    """Fits one kind of head."""

    @property
    def chooses_on_path(self) -> bool:
        """Whether held-out rows have a part in the heads that the path gives; the watch then keeps their losses."""

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """Heads under the settings to try, the most regular first."""

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """The head under one setting."""


@torch.no_grad()
def device_outputs(head: nn.Module, scaled_sources: Tensor) -> Tensor:
    """What a head gives for rows, in batches and in its own precision, as float64 where the head is."""
    reference = next(iter(head.state_dict().values()))
    return torch.cat([head(part.to(reference)).double() for part in scaled_sources.split(ROWS_AT_ONCE)])


def head_outputs(head: nn.Module, scaled_sources: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a head gives for rows, in batches and in its own precision, as an array."""
    return device_outputs(head, torch.from_numpy(scaled_sources)).cpu().numpy()


@dataclass(frozen=True)
class LinearFitter:
    """Multinomial logistic regression by L-BFGS; the setting is its weight decay, on the mean loss.

    Parameters
    ----------
    n_outputs : columns of what the head gives.
    loss : of each row.
    weight_decay : fixed instead of tried.
    """

    n_outputs: int
    loss: HeadLoss
    weight_decay: float | None = None
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """From strong to weak weight decay, each started from the solution before it."""
        settings = WEIGHT_DECAYS if self.weight_decay is None else (self.weight_decay,)
        head = make_head(sample.s.shape[1], self.n_outputs).to(sample.s)
        for setting in settings:
            self._minimise(head, sample, setting, PATH_ITERATIONS)
            yield setting, copy.deepcopy(head)

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Minimise the weighted, adjusted cross-entropy plus half the decay times the squared weights."""
        head = make_head(sample.s.shape[1], self.n_outputs).to(sample.s)
        self._minimise(head, sample, setting, FINAL_ITERATIONS)
        return head

    def _minimise(self, head: nn.Module, sample: HeadSample, decay: float, iterations: int) -> None:
        weight = head.get_parameter("weight")
        # In blocks, so that memory holds the logits of a block only.
        at_once = max(SCORES_AT_ONCE // self.n_outputs, 1) if sample.s.is_cuda else ROWS_AT_ONCE
        blocks = list(zip(*(t.split(at_once) for t in (sample.s, sample.y, sample.weight)), strict=True))

        def loss_and_backward() -> float:
            total = torch.zeros((), dtype=torch.float64, device=sample.s.device)
            for s, y, w in blocks:
                loss = (self.loss(head(s), y) * w).sum()
                loss.backward()
                total += loss.detach()
            penalty = 0.5 * decay * (weight**2).sum()
            penalty.backward()
            return (total + penalty.detach()).item()  # the one wait for the device

        minimise_convex(head, loss_and_backward, stage="linear head", max_iterations=iterations)


@dataclass(frozen=True)
class MLPFitter:
    """An MLP, or a linear head without hidden layers, trained by steps and stopped early; the setting is its epochs.

    Parameters
    ----------
    n_outputs : columns of what the head gives.
    loss : of each row.
    hidden, dropout, training : of the network.
    generator : of the batches.
    risk_of : what a step minimises, made from the loss, anew for each run.
    all_epochs : never stop early; for losses that change in the course of training.
    steps_alike : whether a step asks nothing of the host, neither how far training is nor a random number.
    """

    n_outputs: int
    loss: HeadLoss
    hidden: tuple[int, ...]
    dropout: float
    training: TrainingConfig
    generator: torch.Generator
    progress: Progress | None = None
    risk_of: Callable[[Any], BatchRisk] = plain_risk
    all_epochs: bool = False
    steps_alike: bool = False

    @property
    def chooses_on_path(self) -> bool:
        """Unless all epochs are run."""
        return not self.all_epochs

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """One run, stopped where held-out loss is lowest."""
        if self.all_epochs:
            yield self.training.epochs, self.fit(sample, self.training.epochs)
            return
        head = self._new(sample)
        history = train(
            head, self._loss(head, sample), self._batches(sample), lambda: watched(head), self.training,
            stage=self._stage(), graphs=self.steps_alike, progress=self.progress,
        )  # fmt: skip
        yield history.best_epoch + 1, head

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Train for that many epochs of the same schedule."""
        head = self._new(sample)
        train(
            head, self._loss(head, sample), self._batches(sample), None, self.training,
            stage=f"{self._stage()}, all rows", stop_after=int(setting), graphs=self.steps_alike, to_the_end=True,
            progress=self.progress,
        )  # fmt: skip
        return head

    def _stage(self) -> str:
        return "MLP head" if self.hidden else "linear head"

    def _new(self, sample: HeadSample) -> nn.Module:
        return make_head(sample.s.shape[1], self.n_outputs, self.hidden, self.dropout).to(sample.s)

    def _loss(self, head: nn.Module, sample: HeadSample) -> Callable[[Tensor], Tensor]:
        risk, step = self.risk_of(self.loss), count()
        n_steps = len(self._batches(sample)) * self.training.epochs

        def loss(batch: Tensor) -> Tensor:
            losses = risk(head, sample, batch, next(step) / n_steps)
            return losses.mean() * len(sample.y)

        return loss

    def _batches(self, sample: HeadSample) -> IndexBatches:
        return IndexBatches(len(sample.y), self.training.batch_size, self.generator, sample.s.device)


@dataclass(frozen=True)
class TwoStepFitter:
    """A head made from another one that was fitted first; the setting is that of the second step.

    Parameters
    ----------
    first : fits the first head, under the setting that held-out rows like best.
    adapt : first head, sample and setting to the second head.
    settings : of the second step.
    first_settings : those found, of which the final fit takes the median.
    """

    first: HeadFitter
    adapt: Callable[[nn.Module, HeadSample, float], nn.Module]
    settings: tuple[float, ...]
    first_settings: list[float] = field(default_factory=list)
    chooses_on_path: ClassVar[bool] = True

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """All settings of the second step, from the best head of the first."""
        if not isinstance(watched, Watched):
            raise TypeError("A second step needs held-out rows.")
        first = FirstHeads(watched)
        tried = [(first(head), setting) for setting, head in self.first.path(sample, first)]
        self.first_settings.append(min(tried)[1])
        for setting in self.settings:
            yield setting, first.second(partial(self.second, sample, setting))

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Both steps on all rows."""
        return self.second(sample, setting, self.first.fit(sample, float(np.median(self.first_settings))))

    def second(self, sample: HeadSample, setting: float, first: nn.Module) -> nn.Module:
        """The second head, made from a first one."""
        return self.adapt(first, sample, setting)


@dataclass(frozen=True)
class GaussianFitter:
    r"""Gaussians of classes in closed form; the setting is nu, the weight of the common variance.

    With few samples a class mean is uncertain. It is drawn towards the grand mean as far as the spread b of class
    means warrants, and what uncertainty is left widens the predictive variance: for n samples of variance v,
    :math:`\hat\mu = \bar s_0 + k (\bar s - \bar s_0)` with :math:`k = b / (b + v / n)`, and :math:`v + k v / n`.

    The sample says what v and b are; ``n_classes`` is the number of classes.
    """

    n_classes: int
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """From one common variance to each class its own."""
        for setting in PSEUDO_SAMPLES:
            yield setting, self.fit(sample, setting)

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Moments of the real samples; synthetic ones, made from those moments, add nothing."""
        s_nd, y_n = sample.s[~sample.synthetic].double(), sample.y[~sample.synthetic]
        if sample.variance is None or sample.between is None:
            raise InputError("A Gaussian head needs the variance of sources within and between classes.")
        variance_d, between_d = sample.variance.to(s_nd), sample.between.to(s_nd)
        n_m1 = torch.bincount(y_n, minlength=self.n_classes).to(s_nd)[:, None]

        def class_sums(values_nd: Tensor) -> Tensor:
            return values_nd.new_zeros(self.n_classes, values_nd.shape[1]).index_add_(0, y_n, values_nd)

        mean_md = class_sums(s_nd) / n_m1.clamp(min=1)
        squares_md = class_sums((s_nd - mean_md[y_n]) ** 2)
        variance_md = (squares_md + setting * variance_d) / ((n_m1 - 1).clamp(min=0) + setting)
        error_md = variance_d / n_m1.clamp(min=1e-9)
        trust_md = between_d / (between_d + error_md)
        grand_d = mean_md[n_m1[:, 0] > 0].mean(0)
        return GaussianHead(grand_d + trust_md * (mean_md - grand_d), variance_md + trust_md * error_md)
