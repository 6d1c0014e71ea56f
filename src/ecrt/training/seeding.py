"""Seeds: the same one gives the same result, whatever else the process draws."""

from __future__ import annotations

import numpy as np
import torch

from ecrt.nn.randomness import seeded

__all__ = ["seeded", "torch_generator"]


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from a numpy one."""
    return torch.Generator().manual_seed(int(rng.integers(2**62)))
