"""Held-out figures of pure noise, by every estimator, option and rival that reports any: none may beat chance.

    python benchmarks/noise.py [--draws 40] [--first 100] [--jobs 2] [--output results/noise.json]

Each configuration of ``tests/noise.py`` is run on so many draws of noise. Written are, for each figure, its mean
advantage over the best constant answer, its spread over draws, and the one-sided p-value that the mean is above zero,
Holm-corrected over all figures. Ends with status 1 if one falls below 0.05. ``tests/test_noise.py`` takes the spreads
from this file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import joblib
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from noise import CONFIGURATIONS, advantages, judge

RESULTS = Path(__file__).parent.parent / "results"
LEVEL = 0.05


def measure(name: str, seeds: range) -> dict[str, list[float]]:
    torch.set_num_threads(1)
    return advantages(name, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=100, help="first seed; the tests have seeds from 0 on")
    parser.add_argument("--output", type=Path, default=RESULTS / "noise.json")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds, started, found = range(options.first, options.first + options.draws), time.perf_counter(), {}
    parallel = joblib.Parallel(n_jobs=options.jobs, return_as="generator", batch_size=1)
    results = parallel(joblib.delayed(measure)(name, seeds) for name in CONFIGURATIONS)
    for number, (name, values) in enumerate(zip(CONFIGURATIONS, results, strict=True), 1):
        found[name] = values
        print(f"{number:3} of {len(CONFIGURATIONS)}  {time.perf_counter() - started:6.0f} s  {name}", flush=True)
    told = judge(found)
    beyond = [
        f"{name}: {figure}" for name, lines in told.items() for figure, line in lines.items() if line["p"] < LEVEL
    ]
    result = {
        "command": f"python benchmarks/noise.py --draws {options.draws} --first {options.first}",
        "configurations": len(told),
        "figures": sum(map(len, told.values())),
        "draws": options.draws,
        "beyond chance": beyond,
        "found": told,
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"{result['figures']} figures of {len(told)} configurations; beyond chance: {beyond or 'none'}")
    return int(bool(beyond))


if __name__ == "__main__":
    sys.exit(main())
