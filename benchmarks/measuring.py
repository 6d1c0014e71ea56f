"""What the benchmarks share: rivals timed in turn in one process, medians of repeated runs, one JSON file each."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent.parent / "results"
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = time.perf_counter


def arguments(description: str | None) -> argparse.Namespace:
    """Options of every benchmark: where to write, and whether to use the GPU."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the JSON file")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="of torch, on the CPU")
    parser.add_argument(
        "--clock", default="wall", choices=list(CLOCKS), help="cpu: time of the processor alone, for a busy machine"
    )
    chosen = parser.parse_args()
    global clock
    clock = CLOCKS[chosen.clock]
    if chosen.device == "cpu":
        torch.set_num_threads(chosen.threads)
    return chosen


def synchronise(device: str = "cpu") -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def interleaved(
    rivals: dict[str, Callable[[], Any]], repeats: int, device: str = "cpu", warmups: int = 1
) -> dict[str, float]:
    """Median seconds of each, run in turn so that whatever else the machine does falls on all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for run in rivals.values():
        for _ in range(warmups):
            run()
    for _ in range(repeats):
        for name, run in rivals.items():
            synchronise(device)
            started = clock()
            run()
            synchronise(device)
            times[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def in_own_process(script: str, *values: object) -> dict[str, Any]:
    """What ``script`` prints last as JSON, run by itself: the only way to the peak memory of one thing alone."""
    output = subprocess.run(
        [sys.executable, script, *map(str, values)],
        cwd=Path(__file__).parent,
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


def growth(seconds: dict[int, float]) -> dict[str, float]:
    """Time over the time at half the size."""
    sizes = sorted(seconds)
    return {f"{small}->{large}": seconds[large] / seconds[small] for small, large in pairwise(sizes)}


def write(name: str, document: dict[str, Any], chosen: argparse.Namespace) -> None:
    """Print the document and keep it as results/bench_NAME.json; what a busy machine gave has a file of its own."""
    suffix = "_cuda" if chosen.device == "cuda" else "_busy" if chosen.clock == "cpu" else ""
    machine: dict[str, Any] = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "clock": chosen.clock,
        "torch": torch.__version__,
    }
    if chosen.device == "cuda":
        machine["gpu"] = torch.cuda.get_device_name()
    document = {
        "command": f"python benchmarks/bench_{name}.py --device {chosen.device}"
        + (f" --clock cpu --threads {chosen.threads}" if chosen.clock == "cpu" else ""),
        "machine": machine,
        **document,
    }
    text = json.dumps(document, indent=1)
    (chosen.out / f"bench_{name}{suffix}.json").write_text(text + "\n")
    print(text)
