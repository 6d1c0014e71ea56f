"""Let two processes write to one place at the same time, and look at what is there afterwards.

    python benchmarks/concurrent_writers.py [--pairs 300] [--seed 0] [--output results/concurrent_writers.json]

``save``, ``fit``, ``compare``, ``predict`` and ``embed``, each pair with two sources, or for ``compare`` twice the same
command, that begin up to .2 s after each other. The result must be that of one of them alone, and one of the two may
be refused with one line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from stopping import make_pairs, make_sources, run_pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    began = time.perf_counter()
    found: dict[str, dict[str, int]] = {}
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="concurrent-writers-") as name:
        root = Path(name)
        make_sources(root / "sources")
        for pair in make_pairs(root / "sources", root):
            outcomes: Counter[str] = Counter()
            for _ in range(options.pairs):
                try:
                    whose, refused = run_pair(pair, root / "sources", root, rng)
                    outcomes[f"of {whose}"] += 1
                    outcomes["refused"] += refused
                except AssertionError as fault:
                    outcomes["fault"] += 1
                    faults.append(f"{pair.name}: {fault}")
            found[pair.name] = dict(sorted(outcomes.items()))
            print(f"{pair.name}: {dict(outcomes)}", flush=True)
    result = {
        "command": "python " + " ".join(["benchmarks/concurrent_writers.py", *sys.argv[1:]]),
        "pairs": options.pairs,
        "found": found,
        "faults": faults,
        "seconds": round(time.perf_counter() - began, 1),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
    print(f"{len(faults)} faults.", *faults, sep="\n")
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
