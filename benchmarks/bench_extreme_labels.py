"""An epoch of FDV de-mixing with very many classes: time, memory and held-out loss of three label marginals.

"auto" draws negatives from the batch and takes a row's own label exactly; "batch" is the paper's, whose scores grow
without end where a batch holds few of the labels; "exact" scores every row against all labels (batch x M).
With --device cuda: 10,000 and 100,000 classes, a million rows of 64 features. On the CPU: a fiftieth of that.
"""

from __future__ import annotations

import gc
import resource
import time
from typing import Any

import numpy as np
import torch
from measuring import arguments, write

from ecrt.flows import fit_linear_demixing
from ecrt.stages.demixing import Flow, FlowPairs, Pairs, train_flow
from ecrt.training import Progress

N_FEATURES = 64


class Stopwatch(Progress):
    """Seconds of every epoch, its held-out loss included."""

    def __init__(self, device: str) -> None:
        self.device, self.seconds, self.last = device, [], 0.0

    def now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def start(self, stage: str, total: int) -> None:
        self.last = self.now()

    def advance(self, note: str = "") -> None:
        now = self.now()
        self.seconds.append(now - self.last)
        self.last = now


def data(n: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Class means and noise, mixed by a curved map; class sizes fall as a power."""
    rng = np.random.default_rng(0)
    mass = 1 / np.arange(10, n_classes + 10)
    y = rng.choice(n_classes, n, p=mass / mass.sum())
    y[:n_classes] = np.arange(n_classes)
    s = rng.standard_normal((n_classes, N_FEATURES), dtype=np.float32)[y]
    s += 0.5 * rng.standard_normal((n, N_FEATURES), dtype=np.float32)
    z = s.copy()
    z[:, 1:] += 0.5 * np.tanh(s[:, :-1])
    return z.astype(np.float64), y


def epoch(
    z: np.ndarray, y: np.ndarray, *, held_out: int, batch_size: int, marginal: str, epochs: int, device: str
) -> dict[str, Any]:
    """Seconds of the fastest epoch, peak memory of the whole, and the held-out contrastive loss (no skill: 0)."""
    rows = np.random.default_rng(1).permutation(len(y))
    used, check = rows[held_out:], rows[:held_out]
    check = check[np.isin(y[check], y[used])]
    config = Flow(label_marginal=marginal, critic_width=64, epochs=epochs, batch_size=batch_size)
    linear = fit_linear_demixing(z[used[:200_000]], y[used[:200_000]], rotation="triangular")
    if device == "cuda":
        gc.collect()  # recorded steps of the case before still hold their memory
        torch.cuda.reset_peak_memory_stats()
    stopwatch = Stopwatch(device)
    started = time.perf_counter()
    torch.manual_seed(0)
    trained = train_flow(
        Pairs(z, y), config, linear, 1, FlowPairs(used, check, check[:0]), "de-mixing", np.random.default_rng(0),
        torch.device(device), stopwatch,
    )  # fmt: skip
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    result = {
        "classes": int(y.max()) + 1,
        "rows": len(used),
        "held_out_rows": len(check),
        "batch_size": batch_size,
        "label_marginal": marginal,
        "epoch_seconds": min(stopwatch.seconds),
        "whole_seconds": time.perf_counter() - started,
        "held_out_contrast": trained.restart.held_out_contrast,
        "gpu_peak_mebibytes": torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None,
        "resident_peak_mebibytes": resident,
    }
    print(result, flush=True)
    return result


def main() -> None:
    chosen = arguments(__doc__)
    cuda = chosen.device == "cuda"
    n, held_out = (1_000_000, 20_000) if cuda else (20_000, 1000)
    class_numbers = (10_000, 100_000) if cuda else (1500, 3000, 6000)
    cases = []
    for n_classes in class_numbers:
        z, y = data(n, n_classes)
        # The first run of all starts the device; its epochs are not the fastest.
        sizes = (1024, 4096) if cuda else (512,)
        for batch_size in sizes:
            for marginal in ("auto", "batch"):
                cases.append(
                    epoch(z, y, held_out=held_out, batch_size=batch_size, marginal=marginal, epochs=2,
                          device=chosen.device)
                )  # fmt: skip
        part = slice(0, max(n // 10, n_classes) if cuda else n)
        cases.append(
            epoch(z[part], y[part], held_out=held_out // 10, batch_size=sizes[-1], marginal="exact", epochs=2,
                  device=chosen.device)
        )  # fmt: skip
    write("extreme_labels", {"features": N_FEATURES, "cases": cases}, chosen)


if __name__ == "__main__":
    main()
