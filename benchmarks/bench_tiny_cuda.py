"""Seconds of the default ``ECRTClassifier`` on Tiny-ImageNet features on a GPU, and where they go.

Needs ``ECRT_DATA`` and CUDA. The second fit is the one that counts: the first also loads kernels.
"""

from __future__ import annotations

import cProfile
import json
import os
import pstats
import time
import warnings
from pathlib import Path

import torch

from ecrt import ECRTClassifier
from ecrt.data import load_embeddings
from ecrt.metrics import prediction_metrics

RESULTS = Path(__file__).parent.parent / "results" / "bench_tiny_cuda.json"
SHOWN = 30


def main(out: Path = RESULTS) -> None:
    warnings.simplefilter("ignore")
    data = load_embeddings("tiny_imagenet")
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        started = time.perf_counter()
        clf = ECRTClassifier(device="cuda", random_state=0).fit(data.X_train, data.y_train)
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - started, 2))
    started = time.perf_counter()
    log_proba = clf.predict_log_proba(data.X_test)
    predicting = round(time.perf_counter() - started, 2)
    found = prediction_metrics(log_proba, data.y_test, clf.class_counts_, prior="balanced")
    profile = cProfile.Profile()
    profile.runcall(ECRTClassifier(device="cuda", random_state=0).fit, data.X_train, data.y_train)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    places = sorted(stats.items(), key=lambda item: -item[1][3])[: 4 * SHOWN]
    shown = [
        {"where": f"{Path(file).name}:{line} {name}", "calls": n, "own": round(own, 2), "with_callees": round(whole, 2)}
        for (file, line, name), (_, n, own, whole, _) in places
        if own > 0.02 or "ecrt" in file
    ][:SHOWN]
    result = {
        "command": "python benchmarks/bench_tiny_cuda.py",
        "machine": {
            "gpu": torch.cuda.get_device_name(), "cpu_count": os.cpu_count(), "torch": torch.__version__,
            "threads": torch.get_num_threads(),
        },
        "rows": list(data.X_train.shape), "classes": len(clf.classes_), "fit_seconds": seconds,
        "predict_seconds": predicting, "top1": found["top1"], "nll": found["nll"], "profile": shown,
    }  # fmt: skip
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in result.items() if name != "profile"}))


if __name__ == "__main__":
    main()
