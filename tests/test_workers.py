"""Tasks on processes and on a Dask cluster; workers that are lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.datasets import make_classification

import ecrt
from ecrt import ECRTClassifier, PseudoMinority
from ecrt.errors import InputError
from ecrt.workers import Workers, dask_cluster

X, Y = make_classification(
    600, n_classes=3, n_informative=5, n_features=8, weights=[0.65, 0.25, 0.1], random_state=0
)  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_every_task_is_answered_by_its_number(backend: str) -> None:
    with joblib.parallel_config(backend=backend, n_jobs=2):
        workers = Workers()
    found = dict(workers.run(pow, [(base,) for base in range(5)], 3))
    assert found == {base: base**3 for base in range(5)}
    assert workers.number == (1 if backend == "sequential" else 2)
    assert Workers().number == 1


@contextmanager
def cluster(n_workers: int = 2, allowed_failures: int = 3) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    import dask

    local = {"n_workers": n_workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    allowed = dask.config.set({"distributed.scheduler.allowed-failures": allowed_failures})
    with allowed, distributed.LocalCluster(**local, silence_logs=50) as found:
        yield found


@pytest.fixture(scope="module")
def patient() -> Iterator[Any]:
    """A cluster that may lose a task's worker many times."""
    with cluster(allowed_failures=10) as found:
        yield found


def trials_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Trials on disk, with what changes when they are written again."""
    return {file: (file.stat().st_ino, file.stat().st_mtime_ns) for file in folder.rglob("trial-*.json")}


def kill_workers(found: Any, folder: Path, times: int, kept: dict[Path, tuple[int, int]]) -> None:
    """Kill one worker after the other, each when some more trials are done."""
    for number in range(times):
        end = time.monotonic() + 120
        while len(kept) < 2 + 4 * number and time.monotonic() < end:
            time.sleep(0.01)
            kept |= {file: stamp for file, stamp in trials_of(folder).items() if file not in kept}
        os.kill(found.workers[number % 2].pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_selection_on_a_cluster_is_the_same(patient: Any) -> None:
    y = np.repeat(np.arange(11), [40] * 8 + [6] * 3)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(y), 5)) + rng.normal(size=(11, 5))[y]
    clf = ECRTClassifier(selection=PseudoMinority(trials=12), head="linear", random_state=0)
    alone = clf.fit(rows, y).predict_proba(rows)
    fits = clf.selection_["fits"]
    with dask_cluster(patient.scheduler_address):
        together = clf.fit(rows, y).predict_proba(rows)
    with patient.get_client() as client:
        executed = client.run(lambda dask_worker: dask_worker.state.executed_count)
    np.testing.assert_array_equal(together, alone)
    assert clf.selection_["fits"] == fits
    assert min(executed.values()) >= 2


@pytest.mark.slow
def test_a_lost_worker_costs_one_trial_and_changes_nothing(tmp_path: Path, patient: Any) -> None:
    options: dict[str, Any] = {"methods": ["weighted-logistic", "balanced-forest"], "seeds": 3, "trials": 4}
    ecrt.compare(X, Y, **options, output=tmp_path / "here")
    kept: dict[Path, tuple[int, int]] = {}
    killer = threading.Thread(target=kill_workers, args=(patient, tmp_path / "there", 2, kept))
    killer.start()
    with dask_cluster(patient.scheduler_address):
        ecrt.compare(X, Y, **options, output=tmp_path / "there")
    killer.join()
    here, there = ((tmp_path / name / "results.json").read_bytes() for name in ("here", "there"))
    assert here == there
    after = trials_of(tmp_path / "there")
    assert len(after) == 2 * 3 * 4
    assert {file: after[file] for file in kept} == kept  # what was finished before a kill was not done again


@pytest.mark.slow
def test_a_run_that_loses_every_worker_is_an_error_not_a_wait(tmp_path: Path) -> None:
    kept: dict[Path, tuple[int, int]] = {}
    with cluster(n_workers=1, allowed_failures=0) as found, dask_cluster(found.scheduler_address):
        killer = threading.Thread(target=kill_workers, args=(found, tmp_path, 1, kept))
        killer.start()
        with pytest.raises(InputError, match=r"lost with its worker several times.*ALLOWED_FAILURES"):
            ecrt.compare(X, Y, methods=["balanced-forest"], seeds=2, trials=4, output=tmp_path / "there")
        killer.join()
