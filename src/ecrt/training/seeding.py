"""The same seed gives the same result, and the caller's global random state stays as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["seeded", "torch_generator"]


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from a numpy one."""
    return torch.Generator().manual_seed(int(rng.integers(2**62)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block (building modules, dropout) under a torch seed and restore the global state afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
