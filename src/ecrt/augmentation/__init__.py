"""Synthetic sources for rare classes."""

from ecrt.augmentation.augmenters import Augmentation, augment, borrowed, parametric, permutation

__all__ = ["Augmentation", "augment", "borrowed", "parametric", "permutation"]
