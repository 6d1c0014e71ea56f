"""Two processes of one thread each beside one: how long does an epoch take, and is the loss the same?

    python -m benchmarks.bench_distributed [--repeats 3]

Encoder, flow and head have their default networks, and batches of 1,024 rows. An epoch is its steps and the look at
held-out rows; connecting the processes, about two seconds, is not part of it. One process and two run in turn. Given
are the median of epochs by the clock on the wall and, for a machine that does other things as well, by that of the
processor, which leaves out the waiting; both of the first process. Writes results/bench_distributed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from ecrt import ECRTClassifier, Encoder, Flow, MLPHead, distributed
from ecrt.estimators import base
from ecrt.training import Progress

RESULT = Path(__file__).parent.parent / "results" / "bench_distributed.json"
ROWS, FEATURES, CLASSES, BATCH = 20_000, 64, 20, 1024
CLOCKS = ("wall", "cpu")
STAGES = {"encoder": "encoder", "flow": "de-mixing", "head": "MLP head"}


class Epochs(Progress):
    """Seconds of every epoch of one stage, by both clocks; the first epoch, in which memory is taken, is left out."""

    def __init__(self, stage: str) -> None:
        self.stage, self.now, self.wall, self.cpu = stage, "", [], []

    def __enter__(self) -> Epochs:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, stage: str, total: int) -> None:
        self.now, self.seen = stage, 0

    def advance(self, note: str = "") -> None:
        if self.now == self.stage:
            now = time.perf_counter(), time.process_time()
            if self.seen > 0:
                self.wall.append(now[0] - self.before[0])
                self.cpu.append(now[1] - self.before[1])
            self.before, self.seen = now, self.seen + 1


def measured(name: str) -> dict[str, Any]:
    """One fit: its epochs and its losses."""
    X, y = make_classification(
        ROWS, FEATURES, n_informative=24, n_redundant=0, n_classes=CLASSES, n_clusters_per_class=1, random_state=0
    )
    models = {
        "encoder": ECRTClassifier(
            encoder=Encoder("mlp", epochs=6, batch_size=BATCH, learn_from="all"), demixing="linear", head="gaussian"
        ),
        "flow": ECRTClassifier(demixing=Flow(epochs=4, batch_size=BATCH, n_restarts=1), head="gaussian"),
        "head": ECRTClassifier(demixing="linear", head=MLPHead(epochs=6, batch_size=BATCH)),
    }
    epochs = Epochs(STAGES[name])
    base.BarProgress = lambda: epochs  # type: ignore[misc,assignment]
    model = models[name].set_params(random_state=0, verbose=True).fit(X, y)
    if distributed.rank():
        return {}
    found = {clock: statistics.median(getattr(epochs, clock)) for clock in CLOCKS}
    return found | {"answers": model.predict_proba(X[:200]).tolist()}


def in_processes(name: str, processes: int) -> dict[str, Any]:
    """The same in so many processes, started by torchrun if there are several."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [*launcher, "-m", "benchmarks.bench_distributed", "--one", name, "--out", f"{folder}/found.json"],
            check=True, env=os.environ | one_thread, cwd=RESULT.parent.parent, capture_output=True,
        )  # fmt: skip
        return json.loads(Path(folder, "found.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", choices=list(STAGES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.one:
        found = measured(options.one)
        if not distributed.rank():
            options.out.write_text(json.dumps(found))
        return
    results: dict[str, Any] = {
        "rows": ROWS, "features": FEATURES, "classes": CLASSES, "batch_size": BATCH, "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }  # fmt: skip
    for name in STAGES:
        runs = [(in_processes(name, 1), in_processes(name, 2)) for _ in range(options.repeats)]
        one, two = ({clock: [run[k][clock] for run in runs] for clock in CLOCKS} for k in (0, 1))
        first, second = (np.array(one_run["answers"]) for one_run in runs[0])
        results[name] = {
            "seconds_of_one": {clock: statistics.median(one[clock]) for clock in CLOCKS},
            "seconds_of_two": {clock: statistics.median(two[clock]) for clock in CLOCKS},
            "ratio": {clock: statistics.median(np.divide(two[clock], one[clock])) for clock in CLOCKS},
            "largest_difference": float(np.abs(first - second).max()),
        }
        print(name, json.dumps(results[name]), flush=True)
    results["load_after"] = os.getloadavg()[0]
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
