"""How a linear head is fitted to numbers; an MLP is fitted as in classification."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ecrt.losses.regression import RegressionLoss, regression_loss
from ecrt.nn import make_head
from ecrt.stages.heads import HeadSample, Watch
from ecrt.training import minimise_convex

__all__ = ["LinearRegressionFitter", "RegressionHeadName"]

RegressionHeadName = Literal["linear", "mlp"]

WEIGHT_DECAYS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
SMOOTH_CORNER = 0.02
"""The absolute loss of a linear head is rounded off within this distance of zero: L-BFGS needs a gradient there."""


@dataclass(frozen=True)
class LinearRegressionFitter:
    """A linear head in float64; the setting is its weight decay, on the mean loss.

    Under squared loss it is ridge regression, solved at once; the other losses take L-BFGS.
    """

    loss: RegressionLoss
    delta: float
    weight_decay: float | None = None
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """From strong to weak weight decay, each started from the solution before it."""
        head = self._new(sample)
        for setting in WEIGHT_DECAYS if self.weight_decay is None else (self.weight_decay,):
            self._minimise(head, sample, setting)
            yield setting, copy.deepcopy(head)

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Minimise the weighted loss plus half the decay times the squared weights."""
        head = self._new(sample)
        self._minimise(head, sample, setting)
        return head

    def _new(self, sample: HeadSample) -> nn.Module:
        return make_head(sample.s.shape[1], sample.y.shape[1]).to(sample.s.device, torch.float64)

    def _minimise(self, head: nn.Module, sample: HeadSample, decay: float) -> None:
        weight = head.get_parameter("weight")
        s, y, w = sample.s.double(), sample.y.double(), sample.weight.double()
        if self.loss == "squared":
            _solve_ridge(head, s, y, w, decay)
            return

        def loss_and_backward() -> float:
            corner = SMOOTH_CORNER if self.loss == "absolute" else self.delta
            losses = regression_loss("huber", head(s), y, corner)
            losses = losses / corner if self.loss == "absolute" else losses
            total = losses @ w + 0.5 * decay * (weight**2).sum()
            total.backward()
            return total.item()

        minimise_convex(head, loss_and_backward, stage="linear head", max_iterations=150, tolerance=1e-7)


@torch.no_grad()
def _solve_ridge(head: nn.Module, s: Tensor, y: Tensor, w: Tensor, decay: float) -> None:
    """Least squares with weights that sum to one; the loss is a mean over outputs, hence their number."""
    s_mean, y_mean = w @ s, w @ y
    s_centred, y_centred = s - s_mean, y - y_mean
    weighted = s_centred * w[:, None]
    penalty = (0.5 * decay * y.shape[1] + 1e-12) * torch.eye(s.shape[1], dtype=s.dtype, device=s.device)
    solution = torch.linalg.solve(weighted.T @ s_centred + penalty, weighted.T @ y_centred)
    head.get_parameter("weight").copy_(solution.T)
    head.get_parameter("bias").copy_(y_mean - s_mean @ solution)
