"""Stop fits that keep checkpoints, and other long work, by SIGKILL and SIGTERM at random moments, and let it go on.

    python benchmarks/kill_fits.py [--times 20] [--seed 0] [--only KIND ...] [--output results/kill_fits.json]

Each is stopped once, at a random moment, and begun again: fits of every stage, an embedding, a comparison, and a recipe
of the paper. It must then end with the same predictions, features, results or rows, bit by bit, as one that nothing
stopped. Ends with status 1 if one did not. With ``--only``, what the output says of other kinds stays.
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

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    Encoder,
    Flow,
    LinearHead,
    MLPHead,
    checkpoints,
    compare,
)
from ecrt.data import streams
from ecrt.embedding import embed, make_backbone, text_items
from ecrt.selection import PseudoMinority
from paper import recipes
from paper.journal import Journal

X, Y = make_classification(600, n_classes=4, n_informative=6, weights=[0.4, 0.3, 0.25, 0.05], random_state=0)
MLP = MLPHead(epochs=30, hidden=(32,), dropout=0.1)
TEXTS = [f"{word} {number % 17} of {number % 5}" for number in range(4000) for word in ("row", "line")]
FITS = {
    "encoder": lambda: ECRTClassifier(encoder=Encoder("mlp", epochs=30, mixup=0.3), head="linear"),
    "flow": lambda: ECRTClassifier(demixing=Flow(epochs=20, batch_size=128), head="linear"),
    "head": lambda: ECRTClassifier(demixing="linear", head=MLP),
    "selection": lambda: ECRTClassifier(selection=PseudoMinority(trials=6), head=MLP),
    "regressor": lambda: ECRTRegressor(demixing=Flow(epochs=20, batch_size=128), head=MLP),
    "stream": lambda: ECRTClassifier(demixing="linear", head=(LinearHead(weight_decay=1e-3), MLPHead(epochs=5))),
    "GAN": lambda: BaselineClassifier(method="cgan"),
}


def embedded(folder: Path) -> np.ndarray:
    items = text_items(TEXTS, ids=np.arange(len(TEXTS)).astype(str), y=None, test=None)
    embed(items, make_backbone("words:256"), folder / "out.npz", batch_size=64)
    return np.load(folder / "out.npz")["X"]


def compared(folder: Path) -> np.ndarray:
    compare(X, Y, methods=["weighted-logistic", "balanced-forest"], seeds=2, trials=2, output=folder / "out", jobs=1)
    return np.frombuffer((folder / "out" / "results.json").read_bytes(), np.uint8)


def recipe(folder: Path) -> np.ndarray:
    with Journal(folder / "rows.jsonl") as journal:
        found = recipes.run("extreme-sizes", smoke=True, journal=journal)
    rows = [{name: value for name, value in row.items() if "seconds" not in name} for row in found["rows"]]
    return np.frombuffer(json.dumps([rows, found["summary"]]).encode(), np.uint8)


OTHERS = {"embedding": embedded, "comparison": compared, "recipe": recipe}


def fit(name: str, folder: Path | None, answer: Path) -> None:
    warnings.simplefilter("ignore")
    if name in OTHERS:
        with tempfile.TemporaryDirectory() as place:
            folder = folder or Path(place)
            folder.mkdir(exist_ok=True)
            np.save(answer, OTHERS[name](folder))
        return
    estimator = FITS[name]().set_params(random_state=0, checkpoint=folder)
    if name == "stream":
        streams.KEPT_ROWS, streams.LEAST_KEPT, streams.BLOCK_ROWS = 300, 300, 300
        estimator.fit(streams.ArrayRows(np.vstack([X] * 10) + np.arange(6000)[:, None] * 1e-6, np.tile(Y, 10)))
    else:
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
    parser.add_argument("--only", nargs="*", choices=[*FITS, *OTHERS], default=[*FITS, *OTHERS])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoints.EVERY = 0.1
    with warnings.catch_warnings(action="ignore"):  # so that all is imported before the first fork
        ECRTClassifier(demixing=Flow(epochs=1), head=MLPHead(epochs=1), random_state=0).fit(X, Y)
    found: dict[str, dict[str, object]] = {}
    if options.output is not None and options.output.exists():
        found = json.loads(options.output.read_text())["found"]
    faults = []
    with tempfile.TemporaryDirectory(prefix="kill-fits-") as place:
        for name in options.only:
            rng, began, wrong = random.Random(f"{options.seed} {name}"), time.perf_counter(), []
            seconds = run(name, None, Path(place) / "wanted.npy")
            wanted = np.load(Path(place) / "wanted.npy")
            found[name] = {}
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
                        wrong.append(f"{name}, {kind.name}, {number}")
                found[name][kind.name] = {"times": options.times, "stopped": stopped}
                print(f"{name}: {options.times} x {kind.name}, {stopped} stopped before the end", flush=True)
            found[name] |= {"faults": wrong, "seconds": round(time.perf_counter() - began, 1)}
            faults += wrong
            if options.output is not None:  # at once: all kinds take half an hour
                command = "python benchmarks/kill_fits.py --output results/kill_fits.json"
                result = {"command": command, "python": platform.python_version(), "found": found}
                options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(faults)} faults.", *faults, sep="\n")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
