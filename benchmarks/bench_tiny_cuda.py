"""Seconds of the default ``ECRTClassifier`` on Tiny-ImageNet features on a GPU, where they go, and their floor.

Needs ``ECRT_DATA``, CUDA and PYTHONPATH=. (it loads data by paper/).
The first fit also loads kernels; the median of the others is the one that counts.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from gpu_time import Work, attainable, kernels

from ecrt import ECRTClassifier
from ecrt.metrics import prediction_metrics
from paper.data import load_embeddings

RESULTS = Path(os.environ.get("ECRT_RESULTS", Path(__file__).parent.parent / "results")) / "bench_tiny_cuda.json"
SHOWN = 40
STAGES = {
    "reading the rows": ("base.py", "_read_classes"),
    "features": ("base.py", "_encode"),
    "de-mixing": ("demixing.py", "demix"),
    "choosing the head": ("choosing.py", "try_heads"),
    "the head on all rows": ("choosing.py", "fit"),
    "keeping examples": ("base.py", "_keep_examples"),
}
"""Functions that are a stage each, by file and name."""


def profiled(run: Any) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Seconds of each stage, and the places that take longest, under Python's profiler."""
    profile = cProfile.Profile()
    profile.runcall(run)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    whole = {(Path(file).name, name): spent[3] for (file, _, name), spent in stats.items() if "ecrt" in file}
    fit = next(seconds for (file, name), seconds in whole.items() if (file, name) == ("classifier.py", "fit"))
    stages = {stage: round(whole[place], 3) for stage, place in STAGES.items()}
    stages["everything else"] = round(fit - sum(stages.values()), 3)
    by_own = sorted(stats.items(), key=lambda item: -item[1][2])[:SHOWN]
    shown = [
        {"where": f"{Path(file).name}:{line} {name}", "calls": n, "own": round(own, 3), "with_callees": round(all_, 3)}
        for (file, line, name), (_, n, own, all_, _) in by_own
    ]
    return stages, shown


def main() -> None:
    if not torch.cuda.is_available():
        print("bench_tiny_cuda needs a GPU: nothing was measured")
        return
    warnings.simplefilter("ignore")
    data = load_embeddings("tiny_imagenet")

    def fit() -> ECRTClassifier:
        return ECRTClassifier(device="cuda", random_state=0).fit(data.X_train, data.y_train)

    seconds = []
    for _ in range(4):
        torch.cuda.synchronize()
        started = time.perf_counter()
        clf = fit()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - started, 2))
        print("fit", seconds[-1], flush=True)
    started = time.perf_counter()
    log_proba = clf.predict_log_proba(data.X_test)
    predicting = round(time.perf_counter() - started, 2)
    started = time.perf_counter()
    met = clf.theory_met_
    diagnosing = round(time.perf_counter() - started, 2)
    found = prediction_metrics(log_proba, data.y_test, clf.class_counts_, prior="balanced")
    stages, shown = profiled(fit)
    rates = attainable()
    with Work(rates) as work:
        fit()
    result = {
        "command": "python benchmarks/bench_tiny_cuda.py",
        "machine": {
            "gpu": torch.cuda.get_device_name(), "cpu_count": os.cpu_count(), "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
        "rows": list(data.X_train.shape), "classes": len(clf.classes_), "fit_seconds": seconds,
        "fit_median": statistics.median(seconds[1:]), "predict_seconds": predicting,
        "diagnostics_seconds": diagnosing, "theory_met": met, "top1": found["top1"], "nll": found["nll"],
        "stage_seconds": stages, "gpu": kernels(fit), "work": work.told(), "attainable": rates, "profile": shown,
    }  # fmt: skip
    result["times_the_floor"] = result["fit_median"] / result["work"]["floor_seconds"]
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in result.items() if name != "profile"}))


if __name__ == "__main__":
    main()
