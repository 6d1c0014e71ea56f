"""Virtual adversarial training: predictions should not change where a small step changes them most."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["adversarial_direction", "kl_divergence", "virtual_adversarial_loss"]


def kl_divergence(reference_nm: Tensor, logits_nm: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)) of each sample."""
    log_p_nm = torch.log_softmax(reference_nm, dim=1)
    return (log_p_nm.exp() * (log_p_nm - torch.log_softmax(logits_nm, dim=1))).sum(1)


def adversarial_direction(
    logits_of: Callable[[Tensor], Tensor], x: Tensor, start: Tensor, *, xi: float = 1e-2, power_iterations: int = 1
) -> Tensor:
    """Unit steps, one for each sample, along which its predictions change most.

    Power iteration on the Hessian of the divergence, by the gradient at ``xi`` times the direction (Eq. 12). A sample
    without any gradient keeps the direction it had.
    """
    reference = logits_of(x).detach()
    direction = nn.functional.normalize(start.flatten(1), dim=1)
    for _ in range(power_iterations):
        step = (xi * direction).view_as(x).requires_grad_()
        divergence = kl_divergence(reference, logits_of(x + step)).sum()
        (slope,) = torch.autograd.grad(divergence, step)
        length = slope.flatten(1).norm(dim=1, keepdim=True)
        direction = torch.where(length > 0, slope.flatten(1) / length.clamp(min=1e-30), direction)
    return direction.view_as(x).detach()


def virtual_adversarial_loss(
    logits_of: Callable[[Tensor], Tensor],
    x: Tensor,
    start: Tensor,
    *,
    epsilon: float,
    xi: float = 1e-2,
    power_iterations: int = 1,
) -> Tensor:
    """Divergence of predictions at x, held fixed, from those a step ``epsilon`` away in the worst direction.

    Parameters
    ----------
    logits_of : the network being trained; x is its input, so that is where the perturbation acts.
    start : random directions to start from, of the shape of x.
    epsilon : length of the step.

    References
    ----------
    Miyato, Maeda, Koyama, Ishii: Virtual adversarial training, IEEE TPAMI 2018, Eqs. 5 to 12.
    """
    direction = adversarial_direction(logits_of, x, start, xi=xi, power_iterations=power_iterations)
    return kl_divergence(logits_of(x).detach(), logits_of(x + epsilon * direction))
