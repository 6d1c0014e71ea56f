"""Network parts that know nothing of the rest: perceptrons, encoders, critics, heads."""

from ecrt.nn.critics import (
    AdditiveCritic,
    CosineCritic,
    Critic,
    CriticName,
    LabelNetworkCritic,
    make_critic,
)
from ecrt.nn.encoders import (
    AutoEncoder,
    EncoderName,
    MLPEncoder,
    ResNet18,
    RowEncoder,
    StandardiseChannels,
    make_encoder,
)
from ecrt.nn.networks import (
    MLP,
    BalancedHead,
    ClassGaussians,
    CoordinateNetworks,
    CosineHead,
    make_head,
    steady_linear,
)
from ecrt.nn.standardise import Standardise, column_extent, column_spread

__all__ = [
    "MLP",
    "AdditiveCritic",
    "AutoEncoder",
    "BalancedHead",
    "ClassGaussians",
    "CoordinateNetworks",
    "CosineCritic",
    "CosineHead",
    "Critic",
    "CriticName",
    "EncoderName",
    "LabelNetworkCritic",
    "MLPEncoder",
    "ResNet18",
    "RowEncoder",
    "Standardise",
    "StandardiseChannels",
    "column_extent",
    "column_spread",
    "make_critic",
    "make_encoder",
    "make_head",
    "steady_linear",
]
