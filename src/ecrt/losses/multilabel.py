r"""Losses of rows with any number of labels: a binary cross-entropy for each label, and the mass of rows and positives.

Targets are codes, one for each row and label, so that real and synthetic rows go through one function: a synthetic row
of label m says that m holds, and nothing of the other labels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn

from ecrt.losses.classification import ClassMass, ldam_margins

__all__ = [
    "ABSENT",
    "PRESENT",
    "SYNTHETIC",
    "UNKNOWN",
    "label_margins",
    "label_odds",
    "masked_bce",
    "masked_focal",
    "masked_ldam",
    "row_mass",
]

Array = NDArray[np.float64]

UNKNOWN, ABSENT, PRESENT, SYNTHETIC = -1, 0, 1, 2


def masked_bce(logits_nm: Tensor, target_nm: Tensor, log_odds_m: Tensor, real_share_m: Tensor) -> Tensor:
    r"""Adjusted binary cross-entropy of each row, summed over its known labels.

    With :math:`l = logit + \log(\pi / (1 - \pi))` a label that is absent costs :math:`h(l)`, one that is present
    :math:`(1 - \lambda_m) h(-l)`, and that of a synthetic row :math:`h(-l)` on its own column alone; h is the softplus.

    Parameters
    ----------
    target_nm : ``ABSENT``, ``PRESENT``, ``SYNTHETIC`` (present, in a synthetic row) or ``UNKNOWN`` (no loss).
    log_odds_m : log-odds of each label's frequency, so that the logits themselves are free of it; 0 for none.
    real_share_m : 1 - lambda_m, the share of a label's positive mass that real rows hold.
    """
    shifted_nm = logits_nm + log_odds_m
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    # softplus(-l) = softplus(l) - l: one softplus serves both signs
    losses_nm = nn.functional.softplus(shifted_nm) * (positive_nm + absent_nm) - shifted_nm * positive_nm
    return losses_nm.sum(1)


def masked_focal(logits_nm: Tensor, target_nm: Tensor, real_share_m: Tensor, gamma: float = 2.0) -> Tensor:
    r"""Focal loss of each label on its own, which is how it was proposed: :math:`(1 - p)^\gamma (-\log p)`.

    p is the probability of what holds, that the label is present or that it is absent.

    References
    ----------
    Lin, Goyal, Girshick, He, Dollar: Focal loss for dense object detection, ICCV 2017, Eq. 4.
    """
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    log_present_nm, log_absent_nm = nn.functional.logsigmoid(logits_nm), nn.functional.logsigmoid(-logits_nm)
    faded_nm = (gamma * log_absent_nm).exp() * log_present_nm * positive_nm
    faded_nm = faded_nm + (gamma * log_present_nm).exp() * log_absent_nm * absent_nm
    return -faded_nm.sum(1)


def label_margins(counts_m: Tensor, n_rows: int, largest: float = 0.5) -> tuple[Tensor, Tensor]:
    """LDAM's margins where every label is a problem of two classes: of presence, and of absence."""
    present_m, absent_m = ldam_margins(torch.cat([counts_m, n_rows - counts_m]), largest).chunk(2)
    return present_m, absent_m


def masked_ldam(
    logits_nm: Tensor, target_nm: Tensor, real_share_m: Tensor, present_margin_m: Tensor, absent_margin_m: Tensor
) -> Tensor:
    """Binary cross-entropy after each logit was moved to the wrong side by the margin of what holds.

    References
    ----------
    Cao, Wei, Gaidon, Arechiga, Ma: Learning imbalanced datasets with label-distribution-aware margin loss,
    NeurIPS 2019.
    """
    positive_nm, absent_nm = _shares(target_nm, real_share_m)
    present_nm = nn.functional.softplus(present_margin_m - logits_nm) * positive_nm
    return (present_nm + nn.functional.softplus(logits_nm + absent_margin_m) * absent_nm).sum(1)


def _shares(target_nm: Tensor, real_share_m: Tensor) -> tuple[Tensor, Tensor]:
    """How much each entry counts as present, and as absent."""
    return (target_nm == PRESENT) * real_share_m + (target_nm == SYNTHETIC), target_nm == ABSENT


def row_mass(indicator: sparse.csr_array, mass: ClassMass) -> Array:
    r"""Weights of rows that sum to one: all alike, or as if a label were drawn first and then a row that has it.

    The latter, ``"balanced"``, is :math:`w_i = \frac1M \sum_{m \in i} 1 / n_m` over the M labels that occur; rows
    without labels get nothing. With one label a row it gives every class the mass 1 / M. ``"tempered"`` is the
    geometric mean of both.

    >>> row_mass(sparse.csr_array(np.array([[1, 0], [1, 0], [1, 1]])), "balanced").round(3).tolist()
    [0.167, 0.167, 0.667]
    """
    n = indicator.shape[0]
    counts = np.asarray(indicator.sum(axis=0), dtype=np.float64).ravel()
    if mass == "training" or not counts.any():
        return np.full(n, 1 / n)
    inverse = np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0)
    weight = np.asarray(indicator @ inverse, dtype=np.float64) / (counts > 0).sum()
    if mass == "tempered":
        weight = np.sqrt(weight) / np.sqrt(weight).sum()
    return weight


def label_odds(indicator: sparse.csr_array, weight: Array | None = None) -> Array:
    """Log-odds of each label's frequency among rows of such weights; half a row more on either side keeps it finite.

    >>> label_odds(sparse.csr_array(np.array([[1, 0], [0, 0]]))).round(3).tolist()
    [0.0, -1.609]
    """
    n = indicator.shape[0]
    weight = np.full(n, 1 / n) if weight is None else weight
    present = n * np.asarray(indicator.T @ weight, dtype=np.float64)
    return np.asarray(np.log((present + 0.5) / (np.maximum(n - present, 0.0) + 0.5)))
