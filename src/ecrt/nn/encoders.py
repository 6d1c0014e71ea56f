"""Encoders z = e(x). Any ``nn.Module`` that maps a batch to a matrix serves; these are the ready-made ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.nn.networks import MLP, Standardise

EncoderName = Literal["identity", "mlp", "resnet18", "autoencoder"]


class RowEncoder(nn.Module):
    """An encoder of rows, whose columns are standardised in float64 first: they may have any size and any mean.

    ``learn_columns`` must be called before it is trained. What it standardises is normalised again over each batch.
    """

    encoder: nn.Module

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.columns = Standardise.nothing(in_features)
        self.normalise = nn.BatchNorm1d(in_features, affine=False)

    def learn_columns(self, rows: NDArray[np.float64]) -> None:
        """Learn centre, spread and bounds of the columns, unless that is done: an encoder may come trained."""
        if self.columns.does_nothing:
            self.columns = Standardise.of(rows).to(self.columns.center_d.device)

    def standardise(self, x: Tensor) -> Tensor:
        """Standardised rows, in the precision of the network."""
        return self.normalise(self.columns(x).to(next(self.parameters()).dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Features of x."""
        return self.encoder(self.standardise(x))


class MLPEncoder(RowEncoder):
    """An MLP on standardised rows."""

    def __init__(self, in_features: int, hidden: Sequence[int], n_features: int) -> None:
        super().__init__(in_features)
        self.encoder = MLP(in_features, hidden, n_features, dropout=0.1)


class AutoEncoder(RowEncoder):
    """An encoder learned without labels, by reconstructing its standardised input through a narrow code."""

    def __init__(self, in_features: int, hidden: Sequence[int], n_features: int) -> None:
        super().__init__(in_features)
        self.encoder = MLP(in_features, hidden, n_features)
        self.decoder = MLP(n_features, tuple(reversed(hidden)), in_features)

    def reconstruction_errors(self, x: Tensor) -> Tensor:
        """Mean squared error of every sample, in standardised units."""
        target = self.standardise(x)
        return ((self.decoder(self.encoder(target)) - target) ** 2).mean(1)


class StandardiseChannels(nn.Module):
    """Images, with each channel less its mean and over its deviation: fixed numbers, so bytes may come in as they are.

    >>> StandardiseChannels.of(torch.tensor([[[[0, 2]]], [[[4, 6]]]], dtype=torch.uint8))(torch.full((1, 1, 1, 1), 3.0))
    tensor([[[[0.]]]])
    """

    def __init__(self, mean_c: Tensor, deviation_c: Tensor) -> None:
        super().__init__()
        self.mean_c11, self.deviation_c11 = (nn.Buffer(one.float()[:, None, None]) for one in (mean_c, deviation_c))

    @classmethod
    def of(cls, x_nchw: Tensor) -> StandardiseChannels:
        """By the channels of these images; bytes are counted, not turned into numbers all at once."""
        means, deviations = [], []
        for channel in x_nchw.unbind(1):
            counts = torch.bincount(channel.reshape(-1).int(), minlength=256).double()
            value, share = torch.arange(len(counts), dtype=torch.float64), counts / counts.sum()
            means.append(share @ value)
            deviations.append(torch.sqrt(share @ (value - means[-1]) ** 2))
        return cls(torch.stack(means), torch.stack(deviations).clamp(min=1.0))

    def forward(self, x_nchw: Tensor) -> Tensor:
        """Standardised images."""
        return (x_nchw - self.mean_c11) / self.deviation_c11


class _ResidualBlock(nn.Module):
    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """ResNet-18 for small images: a 3x3 stem without pooling, four groups of two blocks, global average pooling.

    Parameters
    ----------
    in_channels : channels of the images.
    n_features : size of a last linear layer; ``None`` gives the 512 pooled features themselves.
    width : channels of the first group; 64 is the standard network.
    """

    def __init__(self, in_channels: int = 3, n_features: int | None = None, width: int = 64) -> None:
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        channels = width
        for group in range(4):
            for block in range(2):
                stride = 2 if group > 0 and block == 0 else 1
                layers.append(_ResidualBlock(channels, width * 2**group, stride))
                channels = width * 2**group
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        if n_features is not None:
            layers.append(nn.Linear(channels, n_features))
        super().__init__(*layers)


def make_encoder(
    name: EncoderName, in_shape: Sequence[int], *, n_features: int = 32, hidden: Sequence[int] = (512, 256)
) -> nn.Module:
    """Build an encoder by name for inputs of shape ``in_shape`` (without the batch axis)."""
    if name not in get_args(EncoderName):
        raise InputError(f"encoder={name!r}: use 'identity', 'mlp', 'resnet18', 'autoencoder' or an nn.Module.")
    if name == "identity":
        return nn.Identity()
    if name == "resnet18":
        if len(in_shape) != 3:
            raise InputError(f"encoder='resnet18' needs images (channels, height, width), got shape {tuple(in_shape)}.")
        return ResNet18(in_shape[0], n_features)
    if len(in_shape) != 1:
        raise InputError(f"encoder={name!r} needs rows of features, got samples of shape {tuple(in_shape)}.")
    return (MLPEncoder if name == "mlp" else AutoEncoder)(in_shape[0], hidden, n_features)
