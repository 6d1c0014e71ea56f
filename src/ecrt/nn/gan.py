"""Generator and discriminator of a small conditional GAN on features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ecrt.nn.networks import MLP

__all__ = ["ConditionalGAN"]


class ConditionalGAN(nn.Module):
    """Two perceptrons that are told the class by an embedding of its own, appended to their input.

    References
    ----------
    Mirza, Osindero: Conditional generative adversarial nets, 2014.

    Parameters
    ----------
    n_features : d, size of real and of generated rows.
    n_classes : M.
    n_noise : size of the noise that the generator starts from.
    width : units of the two hidden layers of either network.
    """

    def __init__(self, n_features: int, n_classes: int, n_noise: int = 32, width: int = 128) -> None:
        super().__init__()
        self.n_noise = n_noise
        embedding = min(32, n_classes)
        self.generator_label = nn.Embedding(n_classes, embedding)
        self.discriminator_label = nn.Embedding(n_classes, embedding)
        self.generator = MLP(n_noise + embedding, (width, width), n_features)
        self.discriminator = MLP(n_features + embedding, (width, width), 1)

    def generate(self, noise_nk: Tensor, y_n: Tensor) -> Tensor:
        """Fake rows of the classes given."""
        fake_nd: Tensor = self.generator(torch.cat([noise_nk, self.generator_label(y_n)], dim=1))
        return fake_nd

    def judge(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """Scores of rows, high for those that seem real members of their class."""
        scores_n: Tensor = self.discriminator(torch.cat([z_nd, self.discriminator_label(y_n)], dim=1)).squeeze(1)
        return scores_n

    def judge_fixed(self, z_nd: Tensor, y_n: Tensor) -> Tensor:
        """The same scores, without a gradient for the discriminator: what its opponent learns from."""
        hidden = torch.cat([z_nd, self.discriminator_label(y_n).detach()], dim=1)
        for layer in self.discriminator:
            if isinstance(layer, nn.Linear):
                hidden = nn.functional.linear(hidden, layer.weight.detach(), layer.bias.detach())
            else:
                hidden = layer(hidden)
        return hidden.squeeze(1)
