"""Two processes on a core each beside one process on one core: how long is an epoch, and is the result the same?

    python -m benchmarks.bench_distributed [--repeats 3]    # less than 4 minutes on a machine that does nothing else
    python -m benchmarks.bench_distributed --page           # writes the table of the results into docs/scale.md

Encoder, flow (of 64 sources) and head have their default networks, but no dropout, so that results can be compared, on
40,000 rows of 256 features with 100 classes. Batches of 8,192 rows are what work is shared out for: a step is then long
beside the message that ends it. Batches of 1,024 are there for comparison. An epoch is its steps and the look at
held-out rows; connecting the processes, and the first epoch, in which memory is taken, are not part of it. One process
and two run in turn.

Each process has one thread and a core of its own, where the system can say so: otherwise two that talk to each other
are at times put on the same core, though another is free. Given are medians of epochs, and of the repeats, by the clock
on the wall and, for a machine that does other things as well, by that of the processor (user and system time, of the
process that took more), which leaves out the waiting. Writes results/bench_distributed.json.
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

ROOT = Path(__file__).parent.parent
RESULT, PAGE = ROOT / "results" / "bench_distributed.json", ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- figures of benchmarks/bench_distributed.py -->\n", "<!-- end of its figures -->"
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


def measured() -> dict[str, Any]:
    """Every fit once: its epochs by both clocks, and what it says of some rows."""
    on_own_core()
    X, y = make_classification(
        ROWS, FEATURES, n_informative=24, n_redundant=0, n_classes=CLASSES, n_clusters_per_class=1, random_state=0
    )
    found = {}
    for name, size in product(STAGES, BATCHES):
        encoder = Encoder("mlp", epochs=4, batch_size=size, learn_from="all", dropout=0.0)
        flow = Flow(n_sources=64, epochs=3, batch_size=size, n_restarts=1)
        models = {
            "encoder": ECRTClassifier(encoder=encoder, demixing="linear", head="gaussian"),
            "flow": ECRTClassifier(demixing=flow, head="gaussian"),
            "head": ECRTClassifier(demixing="linear", head=MLPHead(epochs=4, batch_size=size, dropout=0.0)),
        }
        epochs = Epochs(STAGES[name])
        base.BarProgress = lambda epochs=epochs: epochs  # type: ignore[misc,assignment]
        base.rank = lambda: 0  # so that every process counts
        model = models[name].set_params(random_state=0, verbose=True).fit(X, y)
        medians = {clock: statistics.median(getattr(epochs, clock)) for clock in CLOCKS}
        found[f"{name}, batches of {size}"] = medians | {"answers": model.predict_proba(X[:200]).tolist()}
    return found


def in_processes(processes: int) -> list[dict[str, Any]]:
    """The same in so many processes, started by torchrun if there are several; what each has found."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        words = "-m", "benchmarks.bench_distributed", "--one", folder
        subprocess.run([*launcher, *words], check=True, env=os.environ | one_thread, cwd=ROOT, capture_output=True)
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(processes)]


def page(result: dict[str, Any]) -> str:
    """The table, and what the machine did beside."""
    ratios = {name: of["ratio"] for name, of in result["stages"].items()}
    rows = [f"| {name} | {of['wall']:.2f} | {of['cpu']:.2f} |" for name, of in ratios.items()]
    return "\n".join([
        f"The time of an epoch by two processes of one thread, over that by one process of one thread, on "
        f"{result['rows']:,} rows of",
        f"{result['features']} features with {result['classes']} classes "
        "(`python -m benchmarks.bench_distributed`, `results/bench_distributed.json`):",
        "", "| What | By the clock on the wall | By the clock of the processor |", "| --- | --- | --- |", *rows, "",
        f"The machine has {result['cores']} cores, and had a load of {result['load_before']:.1f} before and "
        f"{result['load_after']:.1f} after the runs.", "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.one:
        rank = distributed.rank()
        (options.one / f"{rank}.json").write_text(json.dumps(measured()))
        return
    if options.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        text = f"{before}{BEGIN}\n{page(json.loads(RESULT.read_text()))}\n{END}{after}"
        PAGE.write_text(text, encoding="utf-8")
        return
    load, began = os.getloadavg()[0], time.perf_counter()
    runs = [(in_processes(1), in_processes(2)) for _ in range(options.repeats)]
    stages = {}
    for name in runs[0][0][0]:
        one, two = (
            {clock: [max(rank[name][clock] for rank in run[k]) for run in runs] for clock in CLOCKS} for k in (0, 1)
        )
        first, second = (np.array(runs[0][k][0][name]["answers"]) for k in (0, 1))
        stages[name] = {
            "seconds_of_one": {clock: statistics.median(one[clock]) for clock in CLOCKS},
            "seconds_of_two": {clock: statistics.median(two[clock]) for clock in CLOCKS},
            "ratio": {clock: statistics.median(np.divide(two[clock], one[clock])) for clock in CLOCKS},
            "largest_difference": float(np.abs(first - second).max()),
        }
        print(name, json.dumps(stages[name]))
    result = {
        "command": "python -m benchmarks.bench_distributed", "rows": ROWS, "features": FEATURES, "classes": CLASSES,
        "cores": os.cpu_count(), "repeats": options.repeats, "seconds": round(time.perf_counter() - began),
        "load_before": load, "load_after": os.getloadavg()[0], "stages": stages,
    }  # fmt: skip
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
