"""Synthetic sources for rare classes."""

from ecrt.augmentation.augmenters import borrowed, parametric, permutation

__all__ = ["borrowed", "parametric", "permutation"]
