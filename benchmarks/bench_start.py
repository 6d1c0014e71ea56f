"""How long the command takes to say something, and ``import ecrt``, in seconds of the processor (user and system).

    python benchmarks/bench_start.py

Each command is a process of its own; they take turns, and the median counts. Writes results/bench_start.json.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from typing import Any

import measuring

REPEATS = 5
COMMAND = "from ecrt.cli import main; main()"
RUNS = {
    "ecrt --help": [COMMAND, "--help"],
    "ecrt fit --help": [COMMAND, "fit", "--help"],
    "ecrt fit --nonsense": [COMMAND, "fit", "--nonsense"],
    "ecrt nosuch": [COMMAND, "nosuch"],
    "ecrt --version": [COMMAND, "--version"],
    "import torch, sklearn": ["import torch, sklearn"],
    "import ecrt": ["import ecrt"],
    "from ecrt import ECRTClassifier": ["from ecrt import ECRTClassifier"],
    "from ecrt import *": ["from ecrt import *"],
}
MOST_SECONDS, MOST_RATIO = 0.6, 1.2


def seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", *arguments], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    chosen = measuring.arguments(__doc__)
    times: dict[str, list[float]] = {name: [] for name in RUNS}
    for _ in range(REPEATS):
        for name, arguments in RUNS.items():
            times[name].append(seconds(arguments))
    found = {name: statistics.median(values) for name, values in times.items()}
    rival = found["import torch, sklearn"]
    document: dict[str, Any] = {
        "bound_seconds_of_commands": MOST_SECONDS,
        "bound_over_torch_and_sklearn": MOST_RATIO,
        "processor_seconds": {name: round(value, 3) for name, value in found.items()},
        "over_torch_and_sklearn": {
            name: round(found[name] / rival, 3) for name in RUNS if "import" in name and "torch" not in name
        },
    }
    measuring.write("start", document, chosen)
    slow = [name for name in RUNS if name.startswith("ecrt") and found[name] > MOST_SECONDS]
    return int(bool(slow) or found["import ecrt"] > MOST_RATIO * rival)


if __name__ == "__main__":
    sys.exit(main())
