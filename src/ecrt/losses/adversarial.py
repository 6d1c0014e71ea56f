"""Losses of a generative adversarial network, one value for each sample."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["discriminator_loss", "generator_loss"]


def discriminator_loss(real_n: Tensor, fake_n: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)), D the logistic of the scores given.

    References
    ----------
    Goodfellow et al.: Generative adversarial nets, NeurIPS 2014; Mirza, Osindero: Conditional GANs, 2014.
    """
    return nn.functional.softplus(-real_n) + nn.functional.softplus(fake_n)


def generator_loss(fake_n: Tensor) -> Tensor:
    """Non-saturating: -log D(fake) instead of log(1 - D(fake)), whose slope fades while the fake is poor."""
    return nn.functional.softplus(-fake_n)
