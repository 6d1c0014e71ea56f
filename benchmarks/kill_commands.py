"""Stop commands at random moments by Ctrl-C, SIGTERM and SIGKILL, and look at what they leave on disk.

    python benchmarks/kill_commands.py [--times 30] [--seed 0] [--output results/kill_commands.json]

``fit``, ``predict``, ``diagnose`` and ``embed`` write over an older result: what is there afterwards must be the old
one, byte for byte, or the new one, whole (a fit that was interrupted may lie beside the old one). ``compare`` goes on
with a comparison of which a part was done: that part must be as it was, and the same command must then end with the
results of an unharmed one. Now and then the command is given again, and must clean up what the stopped one left. What
``diagnose`` finds is computed once and taken from memory: the moments are those in which it writes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from stopping import make_jobs, make_sources, prepare, remember_diagnoses, stop_once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    began = time.perf_counter()
    found: dict[str, dict[str, dict[str, int]]] = {}
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kill-commands-") as name:
        root = Path(name)
        make_sources(root / "sources")
        remember_diagnoses(root / "sources")
        for job in make_jobs():
            prepare(job, root / "sources", root)
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
                outcomes: Counter[str] = Counter()
                for _ in range(options.times):
                    try:
                        outcomes[stop_once(job, root, signum, rng)] += 1
                    except AssertionError as fault:
                        outcomes["fault"] += 1
                        faults.append(f"{job.name}, {signum.name}: {fault}")
                found.setdefault(job.name, {})[signum.name] = dict(sorted(outcomes.items()))
                print(f"{job.name}, {signum.name}: {dict(outcomes)}", flush=True)
    result = {
        "command": "python " + " ".join(["benchmarks/kill_commands.py", *sys.argv[1:]]),
        "stopped": found,
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
