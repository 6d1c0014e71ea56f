"""One thread for work that runs in several processes already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import joblib
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["one_thread"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs are parallel already, and sums in another order would change the figures."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # A forest on a Dask worker would add up its trees in the order in which they come back.
        with threadpool_limits(1), joblib.parallel_config(backend="sequential", n_jobs=1):
            yield
    finally:
        torch.set_num_threads(threads)
