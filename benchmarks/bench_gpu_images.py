"""Training on images with a GPU: an epoch beside an ordinary training loop, its kernels, and the floor; in one run.

27,500 random images of 32 x 32 (the size of CIFAR-100, 500/50), ResNet-18, batches of 128, SGD, random crops and
mirror images. The rival is the loop that most scripts have: a DataLoader with workers, transforms of torchvision image
by image, the same mixed precision and memory layout, the loss read at every step. With CIFAR-100 in ``ECRT_DATA`` the
whole recipe (500/50, 60 epochs, de-mixing, head, test metrics) is timed too. Needs PYTHONPATH=. since
it runs a recipe of paper/.
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

import numpy as np
import torch
from gpu_time import Work, attainable, kernels
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ecrt.errors import InputError
from ecrt.nn import ResNet18, StandardiseChannels
from ecrt.randomness import seeded
from ecrt.stages import Encoder
from ecrt.stages.encoding import EncoderTraining
from paper.experiments.cifar100 import run_cell
from paper.experiments.cifar_training import load

N_IMAGES, N_CLASSES, BATCH = 27_500, 100, 128
RESULTS = Path(os.environ.get("ECRT_RESULTS", Path(__file__).parent.parent / "results")) / "bench_gpu_images.json"

REST = "encoder, and all that is no other stage"
STAGES = {
    "features of the test images": ("cifar_training.py", "image_features"),
    "de-mixing and head": ("classifier.py", "fit"),
    "prediction": ("classifier.py", "decision_function"),
    "metrics": ("cifar_training.py", "figures"),
}
"""Functions that are a stage of the whole recipe each, by file and name; what they leave is the encoder's."""


class Clock:
    """Seconds of each epoch, as a progress display hears of them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def start(self, stage: str, total: int) -> None:
        self.before = time.perf_counter()

    def advance(self, note: str = "") -> None:
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.before)
        self.before = time.perf_counter()

    def finish(self) -> None:
        pass


def random_images() -> tuple[torch.Tensor, np.ndarray]:
    generator = torch.Generator().manual_seed(0)
    X = torch.randint(0, 256, (N_IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return X, np.random.default_rng(0).integers(0, N_CLASSES, N_IMAGES)


def ours(X: torch.Tensor, y: np.ndarray, epochs: int, batch: int = BATCH) -> list[float]:
    """Seconds of the epochs after the first, in which steps are recorded."""
    config = Encoder(
        holdout=0.0, crop_padding=4, flip=True, optimizer="sgd", learning_rate=0.1 * batch / 128, weight_decay=5e-4,
        batch_size=batch, epochs=epochs,
    )  # fmt: skip
    clock = Clock()
    with seeded(0):
        encoder = nn.Sequential(StandardiseChannels.of(X[:1000]), ResNet18())
        items = TensorDataset(X, torch.from_numpy(y))
        training = EncoderTraining(
            encoder, items, y, np.arange(len(y)), config, rng=np.random.default_rng(0), device=torch.device("cuda")
        )
        training.run(np.empty(0, dtype=np.int64), clock)
    return clock.seconds[1:]


class Transformed(Dataset):
    """Images with torchvision's random views, one at a time."""

    def __init__(self, X: torch.Tensor, y: np.ndarray) -> None:
        from torchvision.transforms import v2

        self.X, self.y = X, y
        self.view = v2.Compose([
            v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.view(self.X[index]), int(self.y[index])


def ordinary(X: torch.Tensor, y: np.ndarray, epochs: int) -> list[float]:
    """Seconds of the epochs after the first of an ordinary loop."""
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(ResNet18(), nn.Linear(512, N_CLASSES)).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    workers = min(8, os.cpu_count() or 1)
    loader = DataLoader(
        Transformed(X, y), BATCH, shuffle=True, num_workers=workers, pin_memory=True, persistent_workers=True
    )
    seconds = []
    for _ in range(epochs):
        torch.cuda.synchronize()
        started, total = time.perf_counter(), 0.0
        for x, labels in loader:
            x = x.to("cuda", non_blocking=True, memory_format=torch.channels_last)
            with torch.autocast("cuda", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), labels.to("cuda", non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def epoch_work(X: torch.Tensor, y: np.ndarray, rates: dict[str, float]) -> dict[str, float]:
    """What an epoch has to do, from one plain step: forward, backward, update."""
    model = nn.Sequential(ResNet18(), nn.Linear(512, N_CLASSES)).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True)
    x = X[:BATCH].cuda().float().to(memory_format=torch.channels_last)
    labels = torch.from_numpy(y[:BATCH]).cuda()
    for number in range(2):  # the first makes the optimizer's state
        with Work(rates) as work:
            with torch.autocast("cuda", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print("step", number, work.told(), flush=True)
    return work.told(N_IMAGES / BATCH)


def epoch_kernels(X: torch.Tensor, y: np.ndarray) -> dict[str, Any]:
    """The GPU's busy time in an epoch of replayed steps: a run of four epochs less one of two, over two."""
    short, long = (kernels(lambda epochs=epochs: ours(X, y, epochs)) for epochs in (2, 4))
    kinds = {
        kind: {
            name: (part[name] - short["kinds"].get(kind, {"seconds": 0.0, "launches": 0})[name]) / 2
            for name in ("seconds", "launches")
        }
        for kind, part in long["kinds"].items()
    }
    return {
        "busy_seconds": (long["busy_seconds"] - short["busy_seconds"]) / 2,
        "launches": (long["launches"] - short["launches"]) / 2, "kinds": kinds, "longest": long["longest"],
    }  # fmt: skip


def whole_recipe() -> dict[str, Any] | None:
    """Seconds of the whole recipe, the images in memory, and of its stages; ``None`` without the images."""
    warnings.simplefilter("ignore")
    try:
        load("500/50", N_CLASSES)
    except InputError as error:
        print(f"the whole recipe was not run: {error}")
        return None
    profile = cProfile.Profile()
    started = time.perf_counter()
    found = profile.runcall(
        run_cell, method="ECRT", protocol="500/50", seed=0, n_classes=N_CLASSES, width=64, epochs=60
    )
    seconds = time.perf_counter() - started
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    spent = {(Path(file).name, name): value[3] for (file, _, name), value in stats.items() if "ecrt" in file}
    stages = {stage: spent.get(place, 0.0) for stage, place in STAGES.items()}
    return {
        "seconds": seconds, "stages": {REST: seconds - sum(stages.values()), **stages},
        "top1": found["top1"], "nll": found["nll"],
    }  # fmt: skip


def main() -> None:
    if not torch.cuda.is_available():
        print("bench_gpu_images needs a GPU: nothing was measured")
        return
    X, y = random_images()
    epochs = {"ours": ours(X, y, 6), "ours, batches of 256": ours(X, y, 6, 256)}
    try:
        epochs["ordinary loop"] = ordinary(X, y, 4)
    except ImportError:
        print("torchvision is not installed: no ordinary loop to compare with (pip install 'ecrt[vision]')")
    epochs["ours, again"] = ours(X, y, 6)
    medians = {name: statistics.median(seconds) for name, seconds in epochs.items()}
    print(medians, flush=True)
    rates = attainable()
    work, spent = epoch_work(X, y, rates), epoch_kernels(X, y)
    floor = {
        "teraflop_an_epoch": work["teraflop"], "teraflop_a_second": rates["bfloat16_operations_a_second"] / 1e12,
        "seconds": work["teraflop"] * 1e12 / rates["bfloat16_operations_a_second"],
        "operation_by_operation_seconds": work["floor_seconds"],
    }  # fmt: skip
    result = {
        "command": "python benchmarks/bench_gpu_images.py",
        "machine": {"gpu": torch.cuda.get_device_name(), "cpu_count": os.cpu_count(), "torch": torch.__version__},
        "epoch_seconds": epochs,
        "epoch_median": medians,
        "times_faster_than_ordinary": medians["ordinary loop"] / medians["ours"]
        if "ordinary loop" in medians
        else None,
        "floor": floor,
        "times_the_floor": medians["ours"] / floor["seconds"],
        "peak_gigabytes": torch.cuda.max_memory_allocated() / 1e9,
        "kernel_shares": {
            kind: round(part["seconds"] / spent["busy_seconds"], 3) for kind, part in spent["kinds"].items()
        },
        "epoch_gpu": spent,
        "epoch_work": work,
        "attainable": rates,
        "whole": whole_recipe(),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
