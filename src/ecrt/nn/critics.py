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
from ecrt.nn.networks import CoordinateNetworks

__all__ = [
    "AdditiveCritic",
    "CosineCritic",
    "Critic",
    "CriticName",
    "LabelNetworkCritic",
    "make_critic",
]

CriticName = Literal["additive", "cosine", "label-network"]


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
        "label-network": LabelNetworkCritic,
    }
    if name not in kinds:
        raise InputError(f"critic={name!r}: choose one of {sorted(kinds)}.")
    return kinds[name](n_coordinates, n_labels, width)
