"""Training on images with a GPU: an epoch beside an ordinary training loop, its kernels, and the floor; in one run.

27,500 random images of 32 x 32 (the size of CIFAR-100, 500/50), ResNet-18, batches of 128, SGD, random crops and
mirror images. The rival is the loop that most scripts have: a DataLoader with workers, transforms of torchvision image
by image, the same mixed precision and memory layout, the loss read at every step.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from ecrt.nn import ResNet18, StandardiseChannels
from ecrt.stages import EncodeConfig
from ecrt.stages.encoder_training import EncoderTraining
from ecrt.training import TrainingConfig, seeded

N_IMAGES, N_CLASSES, BATCH = 27_500, 100, 128
RESULTS = Path(os.environ.get("ECRT_RESULTS", Path(__file__).parent.parent / "results")) / "bench_gpu_images.json"

KINDS = {
    "batch norm": ("batch_norm",),
    "convolution, weights": ("wgrad",),
    "convolution, inputs": ("dgrad",),
    "convolution, forward": ("fprop", "conv"),
    "optimizer and gradient norm": ("multi_tensor",),
    "casts and copies": ("copy", "Memcpy"),
    "element by element": ("elementwise", "Memset"),
}
"""Kernels by what their names hold; the first match counts."""


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
    schedule = TrainingConfig(
        optimizer="sgd", learning_rate=0.1 * batch / 128, weight_decay=5e-4, batch_size=batch, epochs=epochs
    )
    config = EncodeConfig(holdout=0.0, crop_padding=4, flip=True, training=schedule)
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


def kernel_shares(X: torch.Tensor, y: np.ndarray) -> dict[str, float]:
    """Share of the GPU's busy time in each kind of kernel."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        ours(X, y, epochs=2)
    spent: Counter[str] = Counter()
    for event in profiler.key_averages():
        kind = next((kind for kind, signs in KINDS.items() if any(sign in event.key for sign in signs)), "other")
        spent[kind] += event.self_device_time_total
    return {kind: round(value / spent.total(), 3) for kind, value in spent.most_common()}


def floor_seconds() -> dict[str, float]:
    """Arithmetic of an epoch over the rate of a large matrix product: no epoch is shorter."""
    model, x = ResNet18(), torch.zeros(2, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    operations = counter.get_total_flops() / 2 * N_IMAGES
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    times = []
    for _ in range(12):
        torch.cuda.synchronize()
        started = time.perf_counter()
        a @ b
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    rate = 2 * 8192**3 / statistics.median(times[2:])
    return {"teraflop_an_epoch": operations / 1e12, "teraflop_a_second": rate / 1e12, "seconds": operations / rate}


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
    floor = floor_seconds()
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
        "kernel_shares": kernel_shares(X, y),
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
