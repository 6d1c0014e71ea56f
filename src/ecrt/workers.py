"""Tasks on several processes, by joblib, or on a cluster, by a Dask scheduler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import joblib

from ecrt.errors import InputError


@contextmanager
def dask_cluster(address: str | None) -> Iterator[None]:
    """Within this block joblib, and all that is ours, sends tasks to the Dask scheduler at an address.

    ``None`` changes nothing. The workers need the same packages. One thread for each is best:
    ``dask worker ADDRESS --nthreads 1``.
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


class Workers:
    """Those that joblib is configured for where this is made: of ``parallel_config``, or this process alone.

    Tasks for Dask go to its scheduler at once and not through joblib, which never hears of a task that was lost with
    its worker. There they wait until a worker is free, and workers take them from each other.

    Parameters
    ----------
    jobs : processes; ``None`` for as many as joblib is configured for.

    Attributes
    ----------
    number : of tasks that can run at the same time.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self.client: Any = getattr(joblib.parallel.get_active_backend()[0], "client", None)
        if self.client is not None:  # which may have no worker yet: tasks wait for one
            self.number = max(sum(self.client.ncores().values()), 1)
            return
        self.number = joblib.effective_n_jobs(jobs)
        self.parallel = joblib.Parallel(
            n_jobs=jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )

    def run(self, work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *shared: Any) -> Iterator[Any]:
        """Pairs of a task's number and of what the work gives for it, in the order in which they end.

        Parameters
        ----------
        tasks : arguments of each, which come after its number; they are taken when a process is free.
        shared : arguments that come last, the same for all, and may be large.
        """
        if self.client is None:
            calls = (joblib.delayed(_numbered)(place, work, *task, *shared) for place, task in enumerate(tasks))
            yield from self.parallel(calls)
            return
        from distributed import KilledWorker, as_completed

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            # By a task, which the scheduler does again if its result is lost; data without one would be gone.
            sent = [self.client.submit(_itself, one, pure=False) for one in shared]
            left = [
                self.client.submit(_numbered, place, work, *task, *sent, pure=False) for place, task in enumerate(tasks)
            ]
        try:
            for future in as_completed(left):  # type: ignore[no-untyped-call]
                yield future.result()
        except KilledWorker as error:
            raise InputError(
                f"A task was given up after it was lost with its worker several times. {' '.join(str(error).split())} "
                "Give workers more memory or, if they are often taken away, set "
                "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES to a larger number for the scheduler. What is finished "
                "is kept: the same call goes on."
            ) from error
        finally:
            self.client.cancel([*left, *sent])


def _numbered(place: int, work: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    return place, work(*arguments)


def _itself(data: Any) -> Any:
    return data
