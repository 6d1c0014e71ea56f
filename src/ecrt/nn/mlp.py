"""Multi-layer perceptrons: one network, or one for every source coordinate at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["MLP", "CoordinateNetworks"]


class MLP(nn.Sequential):
    """Linear layers with ReLU and optional dropout between them, none after the last.

    >>> MLP(4, (8,), 2)
    MLP(
      (0): Linear(in_features=4, out_features=8, bias=True)
      (1): ReLU()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    def __init__(self, in_features: int, hidden: Sequence[int], out_features: int, dropout: float = 0.0) -> None:
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(in_features, width), nn.ReLU()]
            layers += [nn.Dropout(dropout)] if dropout else []
            in_features = width
        super().__init__(*layers, nn.Linear(in_features, out_features))


class CoordinateNetworks(nn.Module):
    r"""A network :math:`\gamma^a` for each coordinate a, and the sum :math:`\sum_a \gamma^a([s]_a)` of their outputs.

    All d networks run in one batched call. The last layers and the sum over coordinates are one matrix product.

    Parameters
    ----------
    n_coordinates : d, the number of networks.
    width : units of both hidden layers of every network.
    out_features : size of the common output.
    """

    def __init__(self, n_coordinates: int, width: int, out_features: int) -> None:
        super().__init__()
        # Knots spread over the sources' usual range, so that every network starts with features all along it.
        self.slope_dw = nn.Parameter(torch.randn(n_coordinates, width))
        self.offset_dw = nn.Parameter(torch.randn(n_coordinates, width))
        self.hidden_dww = nn.Parameter(torch.randn(n_coordinates, width, width) * math.sqrt(2 / width))
        self.bias_d1w = nn.Parameter(torch.zeros(n_coordinates, 1, width))
        self.out = nn.Linear(n_coordinates * width, out_features)

    def forward(self, s_nd: Tensor) -> Tensor:
        """The sum over coordinates, for every row."""
        first_dnw = nn.functional.silu(s_nd.T.unsqueeze(-1) * self.slope_dw.unsqueeze(1) + self.offset_dw.unsqueeze(1))
        second_dnw = nn.functional.silu(torch.baddbmm(self.bias_d1w, first_dnw, self.hidden_dww))
        sum_no: Tensor = self.out(second_dnw.transpose(0, 1).flatten(1))
        return sum_no
