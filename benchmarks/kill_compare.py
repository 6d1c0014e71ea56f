"""Kill ``ecrt compare`` at random moments, go on, and compare the results byte for byte with those of an unharmed run.

    python benchmarks/kill_compare.py [--kills 20] [--seed 0] [--output results/kill_compare.json]

A comparison is started, killed after a random time (half of the time the command alone, so that its workers outlive it
for a while, half of the time all of it), started again on the same folder, and so on until it ends; then the next one
begins, until enough kills have been made. Each must end with the ``results.json`` of the unharmed run, and a run that
was finished before a kill must not have been written again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification

METHODS = "weighted-logistic,lda,qda,balanced-forest"
SEEDS, TRIALS, JOBS = 2, 3, 2


def make_table(file: Path) -> None:
    X, y = make_classification(
        400, n_classes=3, n_informative=5, n_features=8, weights=[0.65, 0.25, 0.1], random_state=0
    )
    pd.DataFrame(X, columns=list("abcdefgh")).assign(kind=np.array(["x", "y", "z"])[y]).to_csv(file, index=False)


def start(table: Path, folder: Path) -> subprocess.Popen[bytes]:
    words = ["compare", str(table), "--target", "kind", "--methods", METHODS, "--seeds", str(SEEDS), "--trials",
             str(TRIALS), "--jobs", str(JOBS), "-o", str(folder)]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", "from ecrt.cli import main; main()", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(f"The command failed:\n{errors.decode(errors='replace')}")


def finished_runs(folder: Path) -> dict[str, tuple[int, int]]:
    """Every finished run with the inode and the time of its record, which change when it is written again."""
    found = folder.glob("runs/*/*/run.json")
    return {str(file.relative_to(folder)): (file.stat().st_ino, file.stat().st_mtime_ns) for file in found}


def main() -> None:
    sessions: list[int] = []
    try:
        kill_and_compare(sessions)
    finally:  # workers that outlived their command
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(session, signal.SIGKILL)


def kill_and_compare(sessions: list[int]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    work = Path(tempfile.mkdtemp(prefix="kill-compare-"))
    table = work / "table.csv"
    make_table(table)
    began = time.perf_counter()
    finish(start(table, work / "whole"))
    whole_seconds = time.perf_counter() - began
    expected = (work / "whole" / "results.json").read_bytes()
    print(f"unharmed run: {whole_seconds:.1f} s", flush=True)

    kills: list[dict[str, object]] = []
    n_equal = n_comparisons = 0
    while len(kills) < options.kills:
        folder = work / f"killed-{n_comparisons}"
        repeated: list[str] = []
        before: dict[str, tuple[int, int]] = {}
        while True:
            process = start(table, folder)
            sessions.append(process.pid)
            delay = float(rng.uniform(0.3, 1.0) * whole_seconds)
            if len(kills) < options.kills:
                try:
                    process.wait(timeout=delay)
                except subprocess.TimeoutExpired:
                    whole_group = bool(rng.random() < 0.5)
                    if whole_group:
                        os.killpg(process.pid, signal.SIGKILL)
                    else:
                        process.kill()
                    process.wait()
                    after = finished_runs(folder)
                    repeated += [name for name, stamp in before.items() if after.get(name) != stamp]
                    before = after
                    trials = len(list(folder.glob("runs/*/*/trial-*.json")))
                    kills.append(
                        {"seconds": round(delay, 2), "workers_too": whole_group, "trials": trials, "runs": len(before)}
                    )
                    print(f"kill {len(kills)} after {delay:.1f} s: {trials} trials, {len(before)} runs", flush=True)
                    continue
            finish(process)
            after = finished_runs(folder)
            repeated += [name for name, stamp in before.items() if after.get(name) != stamp]
            break
        n_comparisons += 1
        same = (folder / "results.json").read_bytes() == expected
        n_equal += same
        print(f"comparison {n_comparisons} ended: {'the same bytes' if same else 'OTHER BYTES'}, repeated {repeated}")
        if not same or repeated:
            raise SystemExit(f"Not as it should be: see {work}")
    result = {
        "kills": kills,
        "comparisons": n_comparisons,
        "equal": n_equal,
        "repeated_runs": 0,
        "whole_seconds": round(whole_seconds, 1),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    print(f"{len(kills)} kills, {n_equal} of {n_comparisons} comparisons with the same bytes, no run repeated.")
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
