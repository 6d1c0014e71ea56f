"""Stop fits that keep checkpoints by SIGKILL and SIGTERM at random moments, and let them go on.

    python benchmarks/kill_fits.py [--times 20] [--seed 0] [--output results/kill_fits.json]

Each fit is stopped once, at a random moment, and begun again. It must then end with the same predictions, bit by bit,
as one that nothing stopped. Ends with status 1 if one did not.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import make_classification

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, Encoder, Flow, MLPHead, checkpoints
from ecrt.selection import PseudoMinority

X, Y = make_classification(600, n_classes=4, n_informative=6, weights=[0.4, 0.3, 0.25, 0.05], random_state=0)
MLP = MLPHead(epochs=30, hidden=(32,), dropout=0.1)
FITS = {
    "encoder": lambda: ECRTClassifier(encoder=Encoder("mlp", epochs=30, mixup=0.3), head="linear"),
    "flow": lambda: ECRTClassifier(demixing=Flow(epochs=20, batch_size=128), head="linear"),
    "head": lambda: ECRTClassifier(demixing="linear", head=MLP),
    "selection": lambda: ECRTClassifier(selection=PseudoMinority(trials=6), head=MLP),
    "regressor": lambda: ECRTRegressor(demixing=Flow(epochs=20, batch_size=128), head=MLP),
    "GAN": lambda: BaselineClassifier(method="cgan"),
}


def fit(name: str, folder: Path | None, answer: Path) -> None:
    warnings.simplefilter("ignore")
    estimator = FITS[name]().set_params(random_state=0, checkpoint=folder)
    estimator.fit(X, X[:, 0] + X[:, 1] ** 2 if name == "regressor" else Y)
    found = estimator.predict(X) if name == "regressor" else estimator.predict_proba(X)
    np.save(answer, found)


def run(name: str, folder: Path | None, answer: Path, stop: tuple[int, float] | None = None) -> float:
    """One fit in a process of its own, stopped after so many seconds by a signal; gives the seconds it took."""
    process = multiprocessing.get_context("fork").Process(target=fit, args=(name, folder, answer))
    began = time.perf_counter()
    sys.stdout.flush()
    process.start()
    if stop is not None:
        process.join(stop[1])
        if process.is_alive():
            os.kill(process.pid, stop[0])
    process.join()
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoints.EVERY = 0.1
    rng, began, found, faults = random.Random(options.seed), time.perf_counter(), {}, []
    with tempfile.TemporaryDirectory(prefix="kill-fits-") as place:
        for name in FITS:
            seconds = run(name, None, Path(place) / "wanted.npy")
            wanted = np.load(Path(place) / "wanted.npy")
            for kind in (signal.SIGKILL, signal.SIGTERM):
                stopped = 0
                for number in range(options.times):
                    folder, answer = (
                        Path(place) / f"{name}-{kind}-{number}",
                        Path(place) / f"{name}-{kind}-{number}.npy",
                    )
                    run(name, folder, answer, (kind, rng.uniform(0.02, seconds)))
                    stopped += not answer.exists()
                    answer.unlink(missing_ok=True)
                    run(name, folder, answer)
                    if not answer.exists() or not np.array_equal(np.load(answer), wanted):
                        faults.append(f"{name}, {kind.name}, {number}")
                found.setdefault(name, {})[kind.name] = {"times": options.times, "stopped": stopped}
                print(f"{name}: {options.times} x {kind.name}, {stopped} stopped before the end", flush=True)
    print(f"{len(faults)} faults.", *faults, sep="\n")
    if options.output is not None:
        result = {
            "command": "python benchmarks/kill_fits.py --output results/kill_fits.json", "found": found,
            "faults": faults, "seconds": round(time.perf_counter() - began, 1), "python": platform.python_version(),
        }  # fmt: skip
        options.output.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
