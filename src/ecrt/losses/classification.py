"""Classification losses, one value for each sample."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["cross_entropy", "hinge", "logit_adjusted"]


def cross_entropy(logits_nm: Tensor, y_n: Tensor) -> Tensor:
    """Softmax cross-entropy."""
    return nn.functional.cross_entropy(logits_nm, y_n, reduction="none")


def hinge(logits_nm: Tensor, y_n: Tensor) -> Tensor:
    """Multi-class hinge (Crammer and Singer, 2001): the best wrong logit must stay one below the true one."""
    true_n = logits_nm.gather(1, y_n[:, None]).squeeze(1)
    wrong_nm = logits_nm.scatter(1, y_n[:, None], -torch.inf)
    return torch.relu(1 + wrong_nm.amax(1) - true_n)


def logit_adjusted(logits_nm: Tensor, y_n: Tensor, log_prior_m: Tensor) -> Tensor:
    """Cross-entropy of logits + log prior (Menon et al., 2021), so that the logits themselves are balanced ones."""
    return cross_entropy(logits_nm + log_prior_m, y_n)
