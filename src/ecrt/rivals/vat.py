"""Virtual adversarial training: predictions should not change where a small step changes them most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn

from ecrt.nn.randomness import generator_on
from ecrt.rivals.base import Rival
from ecrt.rivals.ranges import Number, Space
from ecrt.stages.heads import BatchRisk, HeadLoss, HeadSample

__all__ = [
    "VAT",
    "AdversarialRisk",
    "adversarial_direction",
    "bernoulli_divergence",
    "kl_divergence",
    "virtual_adversarial_loss",
]

POSITIVE = [Interval(Real, 0, None, closed="neither")]


@dataclass(kw_only=True, eq=False, repr=False)
class VAT(Rival):
    """Virtual adversarial training: predictions must not change along the worst small step at the input of the head.

    No gradient goes through the clean prediction, and there is no dropout in either.

    Parameters
    ----------
    epsilon : float, default=0.2
        Length of the step, times the root of the number of inputs, which are standardised.
    xi : float, default=0.01
        Length of the step that the worst direction is found by.
    power_iterations : int, default=1
        Steps of the search for that direction.
    weight : float, default=1
        Of the change of predictions, beside the loss.

    References
    ----------
    Miyato, Maeda, Koyama, Ishii: Virtual adversarial training, IEEE TPAMI 2018.
    """

    kind: ClassVar[str] = "vat"
    label: ClassVar[str] = "Virtual adversarial training"
    tuned: ClassVar[Space | None] = {"epsilon": Number(0.02, 1.0, log=True)}
    recordable: ClassVar[bool] = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "epsilon": POSITIVE,
        "xi": POSITIVE,
        "power_iterations": [Interval(Integral, 1, None, closed="left")],
        "weight": [Interval(Real, 0, None, closed="left")],
    }

    epsilon: float = 0.2
    xi: float = 1e-2
    power_iterations: int = 1
    weight: float = 1.0

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """The loss, plus the virtual adversarial one; without classes to count, every column is a label."""
        return AdversarialRisk(loss, self, kl_divergence if len(counts_m) else bernoulli_divergence)


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


@dataclass(frozen=True)
class AdversarialRisk:
    """The loss, plus the virtual adversarial one of every row, at the input of the head and without dropout."""

    loss: HeadLoss
    options: VAT
    divergence: Divergence

    def __call__(self, head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        """Weighted losses of the rows, with what predictions change."""
        s = sample.s[rows]
        plain = self.loss(head(s), sample.y[rows], done) * sample.weight[rows]
        training = head.training
        head.eval()  # dropout would make two predictions differ by itself
        roughness = virtual_adversarial_loss(
            head, s, torch.randn(s.shape, generator=generator_on(s.device), dtype=s.dtype, device=s.device),
            epsilon=self.options.epsilon * s[0].numel() ** 0.5, xi=self.options.xi,
            power_iterations=self.options.power_iterations, divergence=self.divergence,
        )  # fmt: skip
        head.train(training)
        return plain + self.options.weight * roughness / len(sample.y)
