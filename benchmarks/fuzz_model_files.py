"""Crafted folders of runs and mutated model files: results or our own error, bounded memory, bounded time.

    python benchmarks/fuzz_model_files.py [mutated files, 100000] [first seed, 0]

Every crafted folder goes through ecrt predict, evaluate and inspect; every mutated file is loaded, and used if it
loads. Ends with status 1 if anything else came of one, if it took more than 2 s of the processor, or more than 512 MiB
beyond what the process had. Writes results/fuzz_model_files.json.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from hostile_folders import fitted_runs, try_crafted
from model_mutations import Findings, memory_limit, originals, try_many

RESULTS = Path(__file__).parent.parent / "results" / "fuzz_model_files.json"
LONGEST = 2.0
MEMORY = 512 * 2**20


def mebibytes() -> int:
    """The most that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def told(found: Findings, seconds: float, before: int) -> dict[str, Any]:
    return {
        "tried": sum(found.outcomes.values()),
        "faults": len(found.faults),
        "slowest_processor_seconds": round(found.slowest, 3),
        "peak_memory_growth_mebibytes": mebibytes() - before,
        "processor_seconds": round(seconds),
        "outcomes": dict(sorted(found.outcomes.items())),
    }


def main(number: int = 100_000, first: int = 0) -> int:
    torch.set_num_threads(1)

    def progress(done: int) -> None:
        if done % 1000 == 0 or done == number:
            print(f"\r{done:,} of {number:,} files, {time.process_time():.0f} s", end="", flush=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "runs").mkdir()
        runs, models = fitted_runs(folder / "runs"), originals(folder)
        start, before = time.process_time(), mebibytes()
        with memory_limit(MEMORY):
            crafted = try_crafted(runs, folder / "work", every=2)
        document = {"crafted folders": told(crafted, time.process_time() - start, before)}
        print(json.dumps(document, indent=1))
        start, before = time.process_time(), mebibytes()
        with memory_limit(MEMORY):
            mutated = try_many(models, folder / "mutated", range(first, first + number), progress)
        document["mutated files"] = told(mutated, time.process_time() - start, before)
    document = {
        "command": f"python benchmarks/fuzz_model_files.py {number} {first}",
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "bounds": {"processor_seconds": LONGEST, "memory_mebibytes": MEMORY // 2**20},
        **document,
    }
    print(f"\n{json.dumps(document, indent=1)}")
    faults = [*crafted.faults, *mutated.faults]
    print("\n".join(faults[:20]))
    if number >= 100_000:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    return int(bool(faults) or max(crafted.slowest, mutated.slowest) > LONGEST)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
