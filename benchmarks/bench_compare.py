"""Time ``ecrt compare`` on a table of 5,000 rows: 6 methods, 5 seeds, 8 s of tuning for each method and split, 2 jobs.

    python benchmarks/bench_compare.py [--rows 5000] [--output results/bench_compare.json]

The time is that of the whole command, from its start to the page. Beside it stand the load of the machine before the
start, since tuning is bounded in seconds and the last fits are not, and the trials that each method could run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import make_classification

from ecrt.comparison import DEFAULT_METHODS

SEEDS, BUDGET, JOBS = 5, 8, 2
LIMIT = 360
"""Seconds within which the command should end on two cores that have nothing else to do."""


def make_table(file: Path, rows: int) -> None:
    """Twenty columns of numbers, one of words with gaps, and four classes of which two are rare."""
    X, y = make_classification(
        rows, n_classes=4, n_informative=8, n_features=20, weights=[0.6, 0.3, 0.07, 0.03], flip_y=0.02, random_state=0
    )
    table = pd.DataFrame(X, columns=[f"x{place}" for place in range(X.shape[1])])
    table["site"] = np.where(X[:, 0] > 1, "north", np.where(X[:, 1] > 0, "south", None))
    table.assign(kind=np.array(["a", "b", "c", "d"])[y]).to_csv(file, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-compare-"))
    make_table(work / "table.csv", options.rows)
    words = ["compare", str(work / "table.csv"), "--target", "kind", "--methods", ",".join(DEFAULT_METHODS), "--seeds",
             str(SEEDS), "--budget", str(BUDGET), "--jobs", str(JOBS), "-o", str(work / "out")]  # fmt: skip
    load, began = os.getloadavg()[0], time.perf_counter()
    subprocess.run([sys.executable, "-c", "from ecrt.cli import main; main()", *words], check=True)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    results, times = (json.loads((work / "out" / name).read_text()) for name in ("results.json", "times.json"))
    result = {
        "rows": options.rows, "methods": list(DEFAULT_METHODS), "seeds": SEEDS, "budget": BUDGET, "jobs": JOBS,
        "seconds": round(seconds, 1), "limit": LIMIT, "load_before": round(load, 1), "load_after":
        round(os.getloadavg()[0], 1), "cores": os.cpu_count(),
        "command_cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "trials": {name: [one["finished"] for one in method["trials"]] for name, method in results["methods"].items()},
        "refit_seconds": {name: [run["refit"] for run in runs] for name, runs in times.items()},
        "python": platform.python_version(),
    }  # fmt: skip
    print(json.dumps(result, indent=1))
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
