r"""Critics r(y, z): how well a label and a source vector go together.

Each takes sources ``s_nd`` and labels ``labels_k`` and returns all scores ``scores_nk``. The identification theorem
asks for a sum over coordinates, :math:`r(y, z) = \sum_a r^a(y, [s]_a)`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.nn.mlp import CoordinateNetworks

__all__ = [
    "AdditiveCritic",
    "CosineCritic",
    "Critic",
    "CriticName",
    "GaussianCritic",
    "LabelNetworkCritic",
    "make_critic",
]

CriticName = Literal["additive", "cosine", "gaussian", "label-network"]


class Critic(nn.Module):
    """Scores of source vectors against labels; ``labels_k=None`` stands for all labels in order."""

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        raise TypeError(f"{type(self).__name__} must define forward.")


class AdditiveCritic(Critic):
    r"""Bilinear and additive: :math:`\langle \mathrm{emb}(y), \sum_a \gamma^a([s]_a) \rangle`.

    The default. Being linear in the sum over coordinates it satisfies the theorem; the scale of the embedding plays
    the part of the temperature.
    """

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64, embedding: int = 64) -> None:
        super().__init__()
        self.networks = CoordinateNetworks(n_coordinates, width, embedding)
        self.embedding = nn.Parameter(torch.randn(n_labels, embedding) / math.sqrt(embedding))

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        embedding = self.embedding if labels_k is None else self.embedding[labels_k]
        scores_nk: Tensor = self.networks(s_nd) @ embedding.T
        return scores_nk


class CosineCritic(AdditiveCritic):
    r"""The paper's :math:`\cos(\mathrm{emb}(y), \sum_a \gamma^a([s]_a)) / \tau` with a learned temperature.

    Dividing by the norm of the sum couples all coordinates, so the theorem does not apply to it.
    """

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64, embedding: int = 64) -> None:
        super().__init__(n_coordinates, n_labels, width, embedding)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(0.1)))

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        embedding = self.embedding if labels_k is None else self.embedding[labels_k]
        directions_ne = nn.functional.normalize(self.networks(s_nd), dim=1)
        cosine_nk: Tensor = directions_ne @ nn.functional.normalize(embedding, dim=1).T
        return cosine_nk * torch.exp(-self.log_temperature)


class GaussianCritic(AdditiveCritic):
    r"""The additive critic on top of a quadratic of each coordinate for every label.

    .. math:: \langle \mathrm{emb}(y), \sum_a \gamma^a([s]_a) \rangle + \sum_a (u_{ya} [s]_a + v_{ya} [s]_a^2) + c_y

    Of sources that are Gaussian given the label the log-density is such a quadratic, and no critic is better. Started
    there by :meth:`start_at`, training begins with what class means and variances tell, and the networks, which begin
    at zero, learn what they leave out.
    """

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64, embedding: int = 64) -> None:
        super().__init__(n_coordinates, n_labels, width, embedding)
        nn.init.zeros_(self.networks.out.weight)
        nn.init.zeros_(self.networks.out.bias)
        self.linear_dm = nn.Parameter(torch.zeros(n_coordinates, n_labels))
        self.square_dm = nn.Parameter(torch.zeros(n_coordinates, n_labels))
        self.constant_m = nn.Parameter(torch.zeros(n_labels))

    @torch.no_grad()
    def start_at(self, mean_md: Tensor, variance_md: Tensor) -> None:
        """Set the quadratics to the log-densities of Gaussians, one for each label."""
        self.linear_dm.copy_((mean_md / variance_md).T)
        self.square_dm.copy_((-0.5 / variance_md).T)
        self.constant_m.copy_(-0.5 * (mean_md**2 / variance_md + torch.log(variance_md)).sum(1))

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        scores_nk = super().forward(s_nd, labels_k)
        if labels_k is None:
            return scores_nk + (s_nd @ self.linear_dm + s_nd**2 @ self.square_dm + self.constant_m)
        linear_dk, square_dk = self.linear_dm[:, labels_k], self.square_dm[:, labels_k]
        return scores_nk + (s_nd @ linear_dk + s_nd**2 @ square_dk + self.constant_m[labels_k])


class LabelNetworkCritic(Critic):
    """The per-label network of Eq. 1: for each coordinate one network with an output for every label."""

    def __init__(self, n_coordinates: int, n_labels: int, width: int = 64) -> None:
        super().__init__()
        self.networks = CoordinateNetworks(n_coordinates, width, n_labels)

    def forward(self, s_nd: Tensor, labels_k: Tensor | None = None) -> Tensor:
        """Scores, a row for each source vector and a column for each label."""
        scores_nm: Tensor = self.networks(s_nd)
        return scores_nm if labels_k is None else scores_nm[:, labels_k]


def make_critic(name: CriticName, n_coordinates: int, n_labels: int, width: int = 64) -> Critic:
    """Build a critic by name."""
    kinds: dict[str, type[Critic]] = {
        "additive": AdditiveCritic,
        "cosine": CosineCritic,
        "gaussian": GaussianCritic,
        "label-network": LabelNetworkCritic,
    }
    if name not in kinds:
        raise InputError(f"critic={name!r}: choose one of {sorted(kinds)}.")
    return kinds[name](n_coordinates, n_labels, width)
