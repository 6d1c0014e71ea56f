"""Heads that tell labels, any number of them a row: under which loss and risk."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.losses.multilabel import label_margins, masked_bce, masked_focal, masked_ldam
from ecrt.losses.rivals import check_loss
from ecrt.losses.smoothness import bernoulli_divergence
from ecrt.stages.class_heads import HeadConfig
from ecrt.stages.heads import HeadFitter, HeadLoss, HeadName, LinearFitter, MLPFitter
from ecrt.stages.risks import BatchRisk, make_risk, plain_risk
from ecrt.training import Progress, torch_generator

__all__ = ["adjusts", "label_fitter"]

LOSSES = ("logit-adjusted", "cross-entropy", "focal", "ldam")
RISKS = ("plain", "vat")


def adjusts(config: HeadConfig) -> bool:
    """Whether log-odds are added in training; losses and risks that mean nothing for several labels are refused."""
    for what, known in ((config.loss, LOSSES), (config.risk, RISKS)):
        if what not in known:
            raise InputError(f"With several labels a row the head is trained by one of {list(known)}, not {what!r}.")
    return config.loss == "logit-adjusted"


def label_fitter(
    name: HeadName,
    odds: NDArray[np.float64],
    n_rows: int,
    roles: ClassRoles,
    config: HeadConfig,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None,
) -> HeadFitter:
    """What fits a head of that name.

    Parameters
    ----------
    odds : log-odds of each label's frequency, which logit adjustment adds in training.
    n_rows : rows in all, of which ``roles.counts`` have a label.
    """
    loss = _loss(odds, n_rows, roles, config, device)
    if name == "linear" and config.risk == "plain":
        return LinearFitter(len(odds), loss, config.weight_decay)
    if name == "mlp":
        risk_of = plain_risk if config.risk == "plain" else partial(_adversarial, config=config)
        return MLPFitter(
            len(odds), loss, config.hidden, config.dropout, config.training, torch_generator(rng), progress, risk_of
        )
    if name == "linear":
        raise InputError(f"head='linear' cannot be trained under {config.risk!r} with several labels a row: use 'mlp'.")
    raise InputError(f"head={name!r} cannot tell several labels a row: use 'auto', 'linear' or 'mlp'.")


def _loss(
    odds: NDArray[np.float64], n_rows: int, roles: ClassRoles, config: HeadConfig, device: torch.device
) -> HeadLoss:
    options = check_loss(config.loss, config.loss_options)
    share = 1 - config.augmentation.weight * (roles.augmented & (roles.counts > 0))
    real_share_m = torch.from_numpy(share).float().to(device)
    if config.loss == "focal":
        return partial(masked_focal, real_share_m=real_share_m, gamma=options["gamma"])
    if config.loss == "ldam":
        margins = label_margins(torch.from_numpy(roles.counts), n_rows, options["scale"] * options["largest_margin"])
        present_m, absent_m = (margin_m.float().to(device) for margin_m in margins)
        return partial(
            masked_ldam, real_share_m=real_share_m, present_margin_m=present_m, absent_margin_m=absent_m
        )  # fmt: skip
    shift_m = torch.from_numpy(odds if adjusts(config) else np.zeros_like(odds)).float().to(device)
    return partial(masked_bce, log_odds_m=shift_m, real_share_m=real_share_m)


def _adversarial(loss: HeadLoss, config: HeadConfig) -> BatchRisk:
    """The loss, plus what a small step changes most in the probabilities of all labels."""

    def of_batch(logits_nm: Tensor, y_n: Tensor, done: float = 1.0) -> Tensor:
        return loss(logits_nm, y_n)

    return make_risk(config.risk, of_batch, torch.empty(0), config.risk_options, bernoulli_divergence)
