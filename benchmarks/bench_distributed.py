"""Two processes on a core each beside one process on one core: how long is an epoch, and is the result the same?

    python -m benchmarks.bench_distributed [--repeats 2]

Encoder, flow (of 64 sources) and head have their default networks, but no dropout, so that results can be compared, on
40,000 rows of 256 features with 100 classes. Batches of 8,192 rows are what work is shared out for: a step is then long
beside the message that ends it. Batches of 1,024 are there for comparison. An epoch is its steps and the look at
held-out rows; connecting the processes is not part of it. One process and two run in turn, about 5 minutes in all.

Each process has one thread and a core of its own, where the system can say so: otherwise two that talk to each other
are at times put on the same core, though another is free. Given are medians of epochs by the clock on the wall and, for
a machine that does other things as well, by that of the processor (user and system time), which leaves out the waiting;
both of the first process. Writes results/bench_distributed.json.
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
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from ecrt import ECRTClassifier, Encoder, Flow, MLPHead, distributed
from ecrt.estimators import base
from ecrt.training import Progress

RESULT = Path(__file__).parent.parent / "results" / "bench_distributed.json"
ROWS, FEATURES, CLASSES = 40_000, 256, 100
BATCHES = (1024, 8192)
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


def on_own_core() -> None:
    """Bind this process to one core, another one than that of the process beside it."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ.get("LOCAL_RANK", 0)) % len(cores)]})


def measured(name: str, size: int) -> dict[str, Any]:
    """One fit: its epochs, and what it says of some rows."""
    on_own_core()
    X, y = make_classification(
        ROWS, FEATURES, n_informative=24, n_redundant=0, n_classes=CLASSES, n_clusters_per_class=1, random_state=0
    )
    encoder = Encoder("mlp", epochs=4, batch_size=size, learn_from="all", dropout=0.0)
    flow = Flow(n_sources=64, epochs=3, batch_size=size, n_restarts=1)
    models = {
        "encoder": ECRTClassifier(encoder=encoder, demixing="linear", head="gaussian"),
        "flow": ECRTClassifier(demixing=flow, head="gaussian"),
        "head": ECRTClassifier(demixing="linear", head=MLPHead(epochs=3, batch_size=size, dropout=0.0)),
    }
    epochs = Epochs(STAGES[name])
    base.BarProgress = lambda: epochs  # type: ignore[misc,assignment]
    model = models[name].set_params(random_state=0, verbose=True).fit(X, y)
    if distributed.rank():
        return {}
    found = {clock: statistics.median(getattr(epochs, clock)) for clock in CLOCKS}
    return found | {"answers": model.predict_proba(X[:200]).tolist()}


def in_processes(name: str, size: int, processes: int) -> dict[str, Any]:
    """The same in so many processes, started by torchrun if there are several."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        words = "-m", "benchmarks.bench_distributed", "--one", name, str(size), "--out", f"{folder}/found.json"
        subprocess.run(
            [*launcher, *words],
            check=True, env=os.environ | one_thread, cwd=RESULT.parent.parent, capture_output=True,
        )  # fmt: skip
        return json.loads(Path(folder, "found.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if options.one:
        found = measured(options.one[0], int(options.one[1]))
        if not distributed.rank():
            options.out.write_text(json.dumps(found))
        return
    results: dict[str, Any] = {
        "command": "python -m benchmarks.bench_distributed", "rows": ROWS, "features": FEATURES, "classes": CLASSES,
        "cores": os.cpu_count(), "load_before": os.getloadavg()[0], "stages": {},
    }  # fmt: skip
    for name, size in product(STAGES, BATCHES):
        runs = [(in_processes(name, size, 1), in_processes(name, size, 2)) for _ in range(options.repeats)]
        one, two = ({clock: [run[k][clock] for run in runs] for clock in CLOCKS} for k in (0, 1))
        first, second = (np.array(one_run["answers"]) for one_run in runs[0])
        results["stages"][f"{name}, batches of {size}"] = found = {
            "seconds_of_one": {clock: statistics.median(one[clock]) for clock in CLOCKS},
            "seconds_of_two": {clock: statistics.median(two[clock]) for clock in CLOCKS},
            "ratio": {clock: statistics.median(np.divide(two[clock], one[clock])) for clock in CLOCKS},
            "largest_difference": float(np.abs(first - second).max()),
        }
        print(name, size, json.dumps(found), flush=True)
    results["load_after"] = os.getloadavg()[0]
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
