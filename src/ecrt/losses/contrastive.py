"""Losses of de-mixing: which label belongs to which source vector (nonlinear ICA), and the likelihood term of Eq. 5.

Contrastive losses take scores g (critic over temperature). All return one value for each sample.
``scores_bb[i, j]`` scores sample i against the label of sample j; ``scores_bm[i, m]`` against label m.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def gcl_in_batch(positive_b: Tensor, negative_b: Tensor) -> Tensor:
    r"""Generalised contrastive learning, Eq. 1: :math:`h(-r(y_i, z_i)) + h(r(y_j, z_i))`, h the softplus.

    The negative label comes from the label marginal: permute the labels of the batch. A label that happens to equal
    the true one stays, as the density ratio p(z, y) / p(z) p(y) asks.
    """
    return nn.functional.softplus(-positive_b) + nn.functional.softplus(negative_b)


def gcl_exact(scores_bm: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
    r"""Eq. 1 with the expectation over the label marginal p(m) in place of one sampled negative label.

    .. math:: h(-r(y_i, z_i)) + \sum_m p(m) h(r(m, z_i))
    """
    positive_b = scores_bm.gather(1, y_b[:, None]).squeeze(1)
    return nn.functional.softplus(-positive_b) + nn.functional.softplus(scores_bm) @ label_prior_m


def fdv_in_batch(scores_bb: Tensor) -> Tensor:
    r"""Fenchel-Donsker-Varadhan, Eq. 4 (negated, to be minimised), with all other labels of the batch as negatives.

    With :math:`D_i = \sum_{j \ne i} e^{g_{ij} - g_{ii}}` the value is :math:`-I_{DV} = \log(D_i / (B - 1))` and the
    gradient that of :math:`\log D_i`: the log is detached and the ratio of :math:`D_i` to its detached self, minus 1,
    is added. The supplement's "-1" is used; the main text's "+1" is a misprint. Sample i itself is no negative: with
    it this would be InfoNCE.
    """
    if len(scores_bb) < 2:
        return scores_bb.new_zeros(0)
    contrast_bb = scores_bb - scores_bb.diagonal()[:, None]
    contrast_bb = contrast_bb.masked_fill(
        torch.eye(len(scores_bb), dtype=torch.bool, device=scores_bb.device), -torch.inf
    )
    log_sum_b = torch.logsumexp(contrast_bb, dim=1).detach()
    ratio_b = torch.exp(contrast_bb - log_sum_b[:, None]).sum(1)
    return log_sum_b - math.log(len(scores_bb) - 1) + ratio_b - 1


def fdv_own_label(scores_bb: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
    r"""FDV for more labels than a batch holds: negatives from the batch, but for a sample's own label, taken exactly.

    .. math:: \log\bigl(p(y_i) + (1 - p(y_i)) \, \mathrm{mean}_{j: y_j \ne y_i} e^{g_{ij} - g_{ii}}\bigr)

    Among labels drawn from the marginal a sample's own comes up with probability :math:`p(y_i)`. That rare event alone
    bounds the objective, at :math:`\log p(y_i)`; where a batch is too small to see it, :func:`fdv_in_batch` falls
    without end, scores growing, while every label that the batch happened to leave out is scored at random. This is
    the same expectation with that event summed and the others sampled.
    """
    same_bb = y_b[:, None] == y_b
    contrast_bb = (scores_bb - scores_bb.diagonal()[:, None]).masked_fill(same_bb, torch.finfo(scores_bb.dtype).min)
    others_b = (~same_bb).sum(1).clamp(min=1).to(scores_bb.dtype)
    own_b = label_prior_m[y_b]
    return torch.logaddexp(
        torch.log(own_b), torch.logsumexp(contrast_bb, dim=1) - torch.log(others_b) + torch.log1p(-own_b)
    )


def infonce_in_batch(scores_bb: Tensor) -> Tensor:
    r"""InfoNCE: as :func:`fdv_in_batch`, but with sample i among its own negatives.

    .. math:: -g_{ii} + \log \mathrm{mean}_j e^{g_{ij}}
    """
    log_mean_b = torch.logsumexp(scores_bb, dim=1) - math.log(len(scores_bb))
    return log_mean_b - scores_bb.diagonal()


def dv_exact(scores_bm: Tensor, y_b: Tensor, label_prior_m: Tensor) -> Tensor:
    r"""Donsker-Varadhan with the exact label marginal: :math:`-g(y_i, z_i) + \log \sum_m p(m) e^{g(m, z_i)}`.

    The limit of FDV and of InfoNCE for many negatives, without sampling noise. It is the cross-entropy of a
    classifier with logits g + log p, less the constant -log p(y_i).
    """
    positive_b = scores_bm.gather(1, y_b[:, None]).squeeze(1)
    return torch.logsumexp(scores_bm + torch.log(label_prior_m), dim=1) - positive_b


def flow_nll(log_density_n: Tensor, log_det_n: Tensor, n_features: int) -> Tensor:
    r"""Negative log-likelihood in feature space, per dimension: :math:`-(\log p(s|y) + \log|\det J_f(z)|) / d`.

    Eq. 5 has no 1/d; dividing makes one likelihood weight serve all dimensions.
    """
    return -(log_density_n + log_det_n) / n_features
