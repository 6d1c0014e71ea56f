"""Prediction beside scikit-learn's MLPClassifier, threads sharing one model, and a million rows from a mapped file.

The MLP beside linear de-mixing is scikit-learn's default, 100 hidden units: more multiply-adds than a linear head needs
once de-mixing is multiplied into it, so one of equal multiply-adds stands beside it too. The one beside the flow (four
blocks of 128 x 2 and an MLP head) has as many multiply-adds as linear map, flow and head together. Peak memory is of a
process that loads a saved model and predicts rows of a mapped .npy file, less what it had before predicting.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import arguments, growth, in_own_process, interleaved, write
from sklearn.datasets import make_classification
from sklearn.neural_network import MLPClassifier

import ecrt

D, M = 64, 20
N_TRAIN, N_PREDICT = 4000, 20_000
MILLION = 1_000_000


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        n, n_features=D, n_informative=32, n_classes=M, n_clusters_per_class=1, random_state=0
    )  # fmt: skip


def multiply_adds(classifier: ecrt.ECRTClassifier) -> int:
    """Of one row: the matrices it is multiplied with, masked weights counted as the dense products they are."""
    return sum(
        parameter.numel()
        for module in (classifier.demixer_.linear, classifier.demixer_.flow, classifier.head_)
        if module is not None
        for name, parameter in [*module.named_parameters(), *module.named_buffers()]
        if parameter.ndim == 2 and not name.endswith("mask") and "inverse" not in name
    )


def small_mlp_of(multiply_adds_wanted: int) -> tuple[int]:
    """One hidden layer h with (D + M) h multiply-adds."""
    return (max(round(multiply_adds_wanted / (D + M)), 1),)


def mlp_of(multiply_adds_wanted: int) -> tuple[int, int]:
    """Two equal hidden layers h with h^2 + (D + M) h multiply-adds."""
    width = round((-(D + M) + ((D + M) ** 2 + 4 * multiply_adds_wanted) ** 0.5) / 2)
    return width, width


def fitted(X: np.ndarray, y: np.ndarray, demixing: Any, head: Any) -> ecrt.ECRTClassifier:
    return ecrt.ECRTClassifier(demixing=demixing, head=head, random_state=0).fit(X, y)


def peak(folder: str, rows_file: str, n: int) -> None:
    """Run by itself: predict n rows of the mapped file; print mebibytes used beyond the model, and seconds."""
    torch.set_num_threads(2)
    model = ecrt.load(folder)
    X = np.load(rows_file, mmap_mode="r")[:n]
    model.predict_proba(np.array(X[:100]))
    before, own = mebibytes("VmHWM"), mebibytes("RssAnon")
    stop, highest = threading.Event(), [own]

    def watch() -> None:
        while not stop.wait(0.01):
            highest[0] = max(highest[0], mebibytes("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    answer = model.predict_proba(X)
    seconds = time.perf_counter() - started
    stop.set()
    watcher.join()
    print(json.dumps({
        "rows": n, "dtype": str(X.dtype), "seconds": seconds,
        "rows_mebibytes": X.nbytes / 2**20, "answer_mebibytes": answer.nbytes / 2**20,
        "resident_peak_mebibytes": mebibytes("VmHWM") - before,
        "own_memory_peak_mebibytes": highest[0] - own,
        "beyond_the_answer_mebibytes": highest[0] - own - answer.nbytes / 2**20,
    }))  # fmt: skip


def mebibytes(which: str) -> float:
    """Memory of this process: the most it ever had resident (VmHWM), or what it has now that is no page of a mapped
    file, which the system may drop at any time (RssAnon)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) / 2**10


def main() -> None:
    if sys.argv[1:2] == ["peak"]:
        peak(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return
    chosen = arguments(__doc__)
    warnings.simplefilter("ignore")
    X, y = data(N_TRAIN + N_PREDICT)
    train, new = (X[:N_TRAIN], y[:N_TRAIN]), X[N_TRAIN:]
    linear = fitted(*train, "linear", "linear")
    flow = fitted(*train, ecrt.Flow(blocks=4, n_restarts=1, epochs=3), ecrt.MLPHead(epochs=3))
    widths = {"default": (100,), "equal to linear": small_mlp_of(D * M), "equal to flow": mlp_of(multiply_adds(flow))}
    rivals = {
        f"MLPClassifier, {name}": MLPClassifier(hidden, max_iter=2, random_state=0).fit(*train)
        for name, hidden in widths.items()
    }
    models = {"linear": linear, "flow": flow, **rivals}
    seconds = interleaved({name: lambda model=model: model.predict_proba(new) for name, model in models.items()}, 15)
    print(seconds, flush=True)

    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(flow.predict_proba, np.array_split(new, 16)))
    largest = float(np.abs(np.concatenate(threaded) - flow.predict_proba(new)).max())
    rows = {n: (lambda part=X[:n]: flow.predict_proba(part)) for n in (3000, 6000, 12_000, 24_000)}
    by_rows = interleaved(rows, 5)

    memory = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(MILLION, D))
        generator = np.random.default_rng(0)
        for first in range(0, MILLION, 50_000):
            mapped[first : first + 50_000] = generator.standard_normal((50_000, D), dtype=np.float32)
        mapped.flush()
        for name, model in {"linear": linear, "flow": flow}.items():
            model.save(Path(folder) / name)
            for n in (250_000, MILLION):
                memory.append({"model": name, **in_own_process(__file__, "peak", Path(folder) / name, path, n)})
                print(memory[-1], flush=True)
    document = {
        "features": D, "classes": M, "rows": len(new),
        "multiply_adds": {"flow": multiply_adds(flow), "linear, maps made one": D * M},
        "mlp_widths": widths,
        "heads": {"linear": linear.head_name_, "flow": flow.head_name_},
        "seconds": seconds,
        "linear_over_mlp": seconds["linear"] / seconds["MLPClassifier, default"],
        "linear_over_equal_mlp": seconds["linear"] / seconds["MLPClassifier, equal to linear"],
        "flow_over_equal_mlp": seconds["flow"] / seconds["MLPClassifier, equal to flow"],
        "largest_difference_with_threads": largest,
        "growth_in_rows": {"seconds": by_rows, "growth": growth(by_rows)},
        "mapped_file": memory,
    }  # fmt: skip
    write("predict", document, chosen)


if __name__ == "__main__":
    main()
