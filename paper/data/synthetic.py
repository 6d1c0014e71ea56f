"""Synthetic data of the paper that the library itself does not need."""

from __future__ import annotations

import numpy as np

from ecrt.data.imbalance import GaussianSources


def extreme_sources(n_classes: int, rng: np.random.Generator) -> GaussianSources:
    """Many classes with means uniform on (-4, 4)^2 and variance 0.1 (the paper says sd; its figures say variance)."""
    return GaussianSources(rng.uniform(-4, 4, (n_classes, 2)), np.full((n_classes, 2), 0.1))
