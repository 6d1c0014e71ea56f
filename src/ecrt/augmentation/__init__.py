"""Synthetic sources for rare classes."""

from ecrt.augmentation.augmenters import Augmentation, augment, parametric, permutation

__all__ = ["Augmentation", "augment", "parametric", "permutation"]
