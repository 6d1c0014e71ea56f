r"""The augmented risk, Eq. 3, under one rule for class mass.

.. math:: L = \sum_m w_m [(1 - \lambda_m) \mathrm{mean}_{real} + \lambda_m \mathrm{mean}_{synthetic}]

Read literally, Eq. 3 gives real minority samples the coefficient n_m/n - lambda, which can be negative, and
Algorithm 1 adds mass instead of moving it. Here synthetic samples replace a share lambda_m of a class's mass and never
change the mass itself.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = ["ClassMass", "class_mass", "paper_augmentation_weight", "sample_weights"]

ClassMass = Literal["training", "tempered", "balanced"]


def class_mass(counts_m: Tensor, mass: ClassMass) -> Tensor:
    """w_m: ``"training"`` gives n_m / n (empirical risk), ``"balanced"`` 1 / M (importance weighting); sums to one.

    ``"tempered"`` is their geometric mean, as the square root of n_m.
    """
    if mass == "tempered":
        root_m = counts_m.double().sqrt()
        return root_m / root_m.sum()
    if mass == "balanced":
        return torch.full_like(counts_m, 1 / len(counts_m), dtype=torch.float64)
    return counts_m.double() / counts_m.sum()


def paper_augmentation_weight(strength: float, counts_m: Tensor) -> Tensor:
    """lambda_m for the paper's strength lambda: that mass is a share lambda n / n_m of class m, at most 1."""
    return torch.clamp(strength * counts_m.sum() / counts_m.double(), max=1.0)


def sample_weights(y_n: Tensor, synthetic_n: Tensor, mass_m: Tensor, augmentation_weight_m: Tensor) -> Tensor:
    """Weights under which the sum of losses is the augmented risk; those of a class sum to its mass exactly.

    Parameters
    ----------
    y_n : labels of real and synthetic samples together.
    synthetic_n : which of them are synthetic.
    mass_m : w_m.
    augmentation_weight_m : lambda_m; it counts as 0 for classes without synthetic samples and as 1 for classes
        without real ones.
    """
    n_classes = len(mass_m)
    n_real_m = torch.bincount(y_n[~synthetic_n], minlength=n_classes).double()
    n_synthetic_m = torch.bincount(y_n[synthetic_n], minlength=n_classes).double()
    share_m = torch.where(n_synthetic_m > 0, augmentation_weight_m.double(), torch.zeros_like(n_real_m))
    share_m = torch.where(n_real_m > 0, share_m, torch.ones_like(share_m))
    real_m = mass_m * (1 - share_m) / n_real_m.clamp(min=1)
    artificial_m = mass_m * share_m / n_synthetic_m.clamp(min=1)
    return torch.where(synthetic_n, artificial_m[y_n], real_m[y_n])
