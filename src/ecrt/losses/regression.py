"""Regression losses, one value for each sample: the mean over its outputs."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ecrt.errors import InputError

__all__ = ["RegressionLoss", "absolute", "huber", "regression_loss", "squared"]

RegressionLoss = Literal["squared", "absolute", "huber"]


def squared(predicted_nk: Tensor, y_nk: Tensor) -> Tensor:
    """(f - y)^2."""
    return ((predicted_nk - y_nk) ** 2).mean(1)


def absolute(predicted_nk: Tensor, y_nk: Tensor) -> Tensor:
    """|f - y|."""
    return (predicted_nk - y_nk).abs().mean(1)


def huber(predicted_nk: Tensor, y_nk: Tensor, delta: float = 1.0) -> Tensor:
    """Half the square up to delta, and a straight line of slope delta beyond (Huber, 1964)."""
    return nn.functional.huber_loss(predicted_nk, y_nk, reduction="none", delta=delta).mean(1)


def regression_loss(name: RegressionLoss, predicted_nk: Tensor, y_nk: Tensor, delta: float = 1.0) -> Tensor:
    """The loss of that name; delta serves Huber's."""
    if name == "squared":
        return squared(predicted_nk, y_nk)
    if name == "absolute":
        return absolute(predicted_nk, y_nk)
    if name == "huber":
        return huber(predicted_nk, y_nk, delta)
    raise InputError(f"loss={name!r}: use 'squared', 'absolute' or 'huber'.")
