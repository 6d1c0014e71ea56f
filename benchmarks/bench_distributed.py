"""Two processes on a core each beside one process on one core: how long is an epoch, and is the result the same?

    python -m benchmarks.bench_distributed [--repeats 3]    # less than 6 minutes on a machine that does nothing else
    python -m benchmarks.bench_distributed --curves         # the losses alone, which no load changes; times stay
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

Other fits of the same networks, long enough for 50 steps, are there for the losses: of every step, by one process and
by two. Where these are further apart than 1e-5 in any of the first 50 steps, the script ends with exit status 1.
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
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification

from ecrt import ECRTClassifier, Encoder, Flow, MLPHead, distributed
from ecrt.arrays import Array
from ecrt.estimators import base
from ecrt.training import Progress, WatchedSteps

ROOT = Path(__file__).parent.parent
RESULT, PAGE = ROOT / "results" / "bench_distributed.json", ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- figures of benchmarks/bench_distributed.py -->\n", "<!-- end of its figures -->"
ROWS, FEATURES, CLASSES = 40_000, 256, 100
BATCHES = (1024, 8192)
CLOCKS = ("wall", "cpu")
STAGES = {"encoder": "encoder", "flow": "de-mixing", "head": "MLP head"}
EPOCHS = {"encoder": 5, "flow": 3, "head": 15}
"""More where they are short."""
STEPS, APART = 50, 1e-5
"""So many steps, in which no loss of two processes is further from that of one."""


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


def fits(epochs: Callable[[str, int], int]) -> Iterator[tuple[str, str, Callable[[], ECRTClassifier], Array]]:
    """Name, stage and fit of each measurement, and its rows."""
    X, y = make_classification(
        ROWS, FEATURES, n_informative=24, n_redundant=0, n_classes=CLASSES, n_clusters_per_class=1, random_state=0
    )
    for name, size in product(STAGES, BATCHES):
        often = {"epochs": epochs(name, size), "batch_size": size}
        models = {
            "encoder": {"encoder": Encoder("mlp", learn_from="all", dropout=0.0, **often), "demixing": "linear"},
            "flow": {"demixing": Flow(n_sources=64, n_restarts=1, **often)},
            "head": {"demixing": "linear", "head": MLPHead(dropout=0.0, **often)},
        }
        options = {"head": "gaussian", "random_state": 0, "verbose": True} | models[name]
        yield f"{name}, batches of {size}", STAGES[name], partial(ECRTClassifier(**options).fit, X, y), X


def times() -> dict[str, Any]:
    """Seconds of the epochs of every fit, by both clocks."""
    on_own_core()
    base.rank = lambda: 0  # so that every process counts
    found = {}
    for name, stage, fit, _ in fits(lambda name, size: EPOCHS[name]):
        epochs = Epochs(stage)
        base.BarProgress = lambda epochs=epochs: epochs  # type: ignore[misc,assignment]
        fit()
        found[name] = {clock: statistics.median(getattr(epochs, clock)) for clock in CLOCKS}
    return found


def curves() -> dict[str, Any]:
    """Losses of the steps of every fit, and what it says of some rows."""
    call, losses = WatchedSteps.__call__, {}

    def noted(self: WatchedSteps, batch: Any) -> None:
        before = self.total
        call(self, batch)
        losses.setdefault(self.stage, []).append(self.total - before)

    WatchedSteps.__call__ = noted  # type: ignore[method-assign]
    found = {}
    for name, stage, fit, X in fits(lambda name, size: max(4, -(-STEPS * size // (ROWS * 3 // 4)))):
        losses.clear()
        answers = fit().predict_proba(X[:200]).tolist()
        found[name] = {"losses": losses[stage], "answers": answers}
    return found


def apart(one: dict[str, Any], two: dict[str, Any]) -> dict[str, float]:
    """How far losses are apart in the first steps, and in all, and how far what is said in the end."""
    losses = np.abs(np.subtract(one["losses"], two["losses"]))
    if len(losses) < STEPS:
        raise SystemExit(f"Only {len(losses)} steps.")
    return {
        "steps": len(losses),
        f"difference_over_{STEPS}_steps": losses[:STEPS].max(),
        "difference_over_all_steps": losses.max(),
        "difference_of_probabilities": np.abs(np.subtract(one["answers"], two["answers"])).max(),
    }


def in_processes(what: str, processes: int) -> list[dict[str, Any]]:
    """The same in so many processes, started by torchrun if there are several; what each has found."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        words = "-m", "benchmarks.bench_distributed", "--one", what, folder
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
        "How far the loss of two processes is from that of one, at most, and how far the probabilities that both "
        "models give in",
        f"the end, on the same rows, without dropout; the benchmark fails where it is more than 1e-5 in {STEPS} steps:",
        "", f"| What | Loss, first {STEPS} steps | Loss, all steps | Number of steps | Probabilities |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {name} | {of[f'difference_over_{STEPS}_steps']:.0e} | {of['difference_over_all_steps']:.0e} "
            f"| {of['steps']} | {of['difference_of_probabilities']:.0e} |"
            for name, of in result["curves"].items()
        ), "",
    ])  # fmt: skip


def measured(repeats: int) -> dict[str, Any]:
    """Times of one process and of two, in turn, and what the machine did beside."""
    load, began = os.getloadavg()[0], time.perf_counter()
    runs = [(in_processes("times", 1), in_processes("times", 2)) for _ in range(repeats)]
    stages = {}
    for name in runs[0][0][0]:
        one, two = (
            {clock: [max(rank[name][clock] for rank in run[k]) for run in runs] for clock in CLOCKS} for k in (0, 1)
        )
        stages[name] = {
            "seconds_of_one": {clock: statistics.median(one[clock]) for clock in CLOCKS},
            "seconds_of_two": {clock: statistics.median(two[clock]) for clock in CLOCKS},
            "ratio": {clock: statistics.median(np.divide(two[clock], one[clock])) for clock in CLOCKS},
        }
        print(name, json.dumps(stages[name]))
    return {
        "command": "python -m benchmarks.bench_distributed", "rows": ROWS, "features": FEATURES, "classes": CLASSES,
        "cores": os.cpu_count(), "repeats": repeats, "seconds": round(time.perf_counter() - began),
        "load_before": load, "load_after": os.getloadavg()[0], "stages": stages,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.one:
        what, folder = options.one
        found = {"times": times, "curves": curves}[what]()
        Path(folder, f"{distributed.rank()}.json").write_text(json.dumps(found))
        return
    if options.page:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        text = f"{before}{BEGIN}\n{page(json.loads(RESULT.read_text()))}\n{END}{after}"
        PAGE.write_text(text, encoding="utf-8")
        return
    result = json.loads(options.out.read_text()) if options.curves else measured(options.repeats)
    one, two = (in_processes("curves", processes)[0] for processes in (1, 2))
    result["curves"] = {name: apart(one[name], two[name]) for name in one}
    for name, of in result["curves"].items():
        print(name, json.dumps(of))
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    far = [name for name, of in result["curves"].items() if not of[f"difference_over_{STEPS}_steps"] <= APART]
    if far:
        raise SystemExit(f"Two processes and one are more than {APART} apart: {', '.join(far)}.")


if __name__ == "__main__":
    main()
