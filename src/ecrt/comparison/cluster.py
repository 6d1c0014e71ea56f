"""A cluster for joblib to run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import joblib

from ecrt.errors import InputError

__all__ = ["dask_cluster"]


@contextmanager
def dask_cluster(address: str | None) -> Iterator[None]:
    """Within this block joblib sends its tasks to the Dask scheduler at an address; ``None`` changes nothing.

    The workers need the same packages. One thread each serves best: ``dask worker ADDRESS --nthreads 1``.
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("A cluster needs Dask: pip install 'ecrt[cluster]'.") from error
    try:
        client = Client(address, timeout="5s")  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(f"No Dask scheduler answers at {address}: {error}") from error
    with client, joblib.parallel_config(backend="dask"):
        yield
