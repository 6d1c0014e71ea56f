"""Virtual adversarial training: predictions should not change where a small step changes them most."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["adversarial_direction", "bernoulli_divergence", "kl_divergence", "virtual_adversarial_loss"]

Divergence = Callable[[Tensor, Tensor], Tensor]


def kl_divergence(reference_nm: Tensor, logits_nm: Tensor) -> Tensor:
    """KL(softmax(reference) || softmax(logits)) of each sample."""
    log_p_nm = torch.log_softmax(reference_nm, dim=1)
    return (log_p_nm.exp() * (log_p_nm - torch.log_softmax(logits_nm, dim=1))).sum(1)


def bernoulli_divergence(reference_nm: Tensor, logits_nm: Tensor) -> Tensor:
    """The same where each column is a label that holds or does not: KL of every label, summed."""
    total_n = torch.zeros_like(reference_nm[:, 0])
    for sign in (1, -1):
        log_p_nm = nn.functional.logsigmoid(sign * reference_nm)
        total_n = total_n + (log_p_nm.exp() * (log_p_nm - nn.functional.logsigmoid(sign * logits_nm))).sum(1)
    return total_n


def adversarial_direction(
    logits_of: Callable[[Tensor], Tensor],
    x: Tensor,
    start: Tensor,
    *,
    xi: float = 1e-2,
    power_iterations: int = 1,
    divergence: Divergence = kl_divergence,
) -> Tensor:
    """Unit steps, one for each sample, along which its predictions change most.

    Power iteration on the Hessian of the divergence, by the gradient at ``xi`` times the direction (Eq. 12). A sample
    without any gradient keeps the direction it had.
    """
    reference = logits_of(x).detach()
    direction = nn.functional.normalize(start.flatten(1), dim=1)
    for _ in range(power_iterations):
        step = (xi * direction).view_as(x).requires_grad_()
        (slope,) = torch.autograd.grad(divergence(reference, logits_of(x + step)).sum(), step)
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
    divergence: Divergence = kl_divergence,
) -> Tensor:
    """Divergence of predictions at x, held fixed, from those a step ``epsilon`` away in the worst direction.

    Parameters
    ----------
    logits_of : the network being trained; x is its input, so that is where the perturbation acts.
    start : random directions to start from, of the shape of x.
    epsilon : length of the step.
    divergence : of logits from others that are held fixed, one value for each sample.

    References
    ----------
    Miyato, Maeda, Koyama, Ishii: Virtual adversarial training, IEEE TPAMI 2018, Eqs. 5 to 12.
    """
    direction = adversarial_direction(
        logits_of, x, start, xi=xi, power_iterations=power_iterations, divergence=divergence
    )
    return divergence(logits_of(x).detach(), logits_of(x + epsilon * direction))
