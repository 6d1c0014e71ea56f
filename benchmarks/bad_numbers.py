"""Thousands of fits of bad numbers: finite probabilities or an InputError, and no warning of an overflow.

    python benchmarks/bad_numbers.py [seeds for each estimator and kind of numbers] [part of an estimator's name]

Writes results/bad_numbers.json (when all estimators were tried), and ends with status 1 if anything else came.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from bad_numbers import KINDS, makers, try_many

RESULT = Path(__file__).parent.parent / "results" / "bad_numbers.json"


def main(seeds: str = "1", wanted: str = "") -> int:
    torch.set_num_threads(1)
    outcomes: dict[str, dict[str, int]] = {}
    faults: list[str] = []
    for place, name in enumerate(makers()):
        if wanted not in name:
            continue
        start = time.process_time()
        found = try_many([name], KINDS, range(1000 * place, 1000 * place + int(seeds)))
        outcomes[name] = dict(sorted(found.outcomes.items()))
        faults += found.faults
        print(f"{name}: {outcomes[name]}, {time.process_time() - start:.0f} s", flush=True)
        print("".join(f"    {fault}\n" for fault in found.faults), end="", flush=True)
    kinds = [f"{attempt}: {end}" for attempt in ("fit", "predict") for end in ("finite", "InputError", "fault")]
    total = {kind: sum(counts.get(kind, 0) for counts in outcomes.values()) for kind in kinds}
    print(total)
    if not wanted:
        document = {
            "command": f"python benchmarks/bad_numbers.py {seeds}",
            "kinds": list(KINDS),
            "fits": sum(number for kind, number in total.items() if kind.startswith("fit")),
            "total": total,
            "estimators": outcomes,
            "faults": faults,
        }
        RESULT.write_text(json.dumps(document, indent=1) + "\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
