"""Network parts that know nothing of the rest: perceptrons, encoders, critics, heads."""

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
    Critic,
    CriticName,
    Standardise,
    column_extent,
    column_spread,
    make_critic,
    make_head,
    steady_linear,
)

__all__ = [
    "MLP",
    "AutoEncoder",
    "BalancedHead",
    "ClassGaussians",
    "CoordinateNetworks",
    "CosineHead",
    "Critic",
    "CriticName",
    "EncoderName",
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
