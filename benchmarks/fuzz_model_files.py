"""Load mutated model files, 100,000 unless told otherwise: only our own error, bounded memory, bounded time.

    python benchmarks/fuzz_model_files.py [number] [first seed]

Ends with status 1 if a file gave any other error, took long, or took more than 512 MiB beyond what the process had.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from model_mutations import memory_limit, originals, try_many

LONGEST = 5.0
MEMORY = 512 * 2**20


def main(number: int = 100_000, first: int = 0) -> int:
    torch.set_num_threads(1)
    start = time.perf_counter()

    def progress(done: int) -> None:
        if done % 1000 == 0 or done == number:
            print(f"\r{done:,} of {number:,} files, {time.perf_counter() - start:.0f} s", end="", flush=True)

    with tempfile.TemporaryDirectory() as name:
        models = originals(Path(name))
        with memory_limit(MEMORY):
            found = try_many(models, Path(name) / "mutated", range(first, first + number), progress)
    print()
    for outcome, times in sorted(found.outcomes.items()):
        print(f"{times:8,}  {outcome}")
    print(f"slowest {found.slowest:.2f} s; {len(found.faults)} faults")
    print("\n".join(found.faults[:20]))
    return int(bool(found.faults) or found.slowest > LONGEST)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
