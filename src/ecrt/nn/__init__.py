"""Network parts that know nothing of the rest: perceptrons, encoders, critics, heads."""

from ecrt.nn.critics import (
    AdditiveCritic,
    CosineCritic,
    Critic,
    CriticName,
    GaussianCritic,
    LabelNetworkCritic,
    make_critic,
)
from ecrt.nn.encoders import AutoEncoder, EncoderName, ResNet18, StandardiseChannels, make_encoder
from ecrt.nn.heads import CosineHead, GaussianHead, make_head
from ecrt.nn.mlp import MLP, CoordinateNetworks

__all__ = [
    "MLP",
    "AdditiveCritic",
    "AutoEncoder",
    "CoordinateNetworks",
    "CosineCritic",
    "CosineHead",
    "Critic",
    "CriticName",
    "EncoderName",
    "GaussianCritic",
    "GaussianHead",
    "LabelNetworkCritic",
    "ResNet18",
    "StandardiseChannels",
    "make_critic",
    "make_encoder",
    "make_head",
]
