"""Where the time of a GPU goes and how short it could be: shared by the benchmarks that need one."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

KINDS = {
    "batch norm": ("batch_norm",),
    "convolution, weights": ("wgrad",),
    "convolution, inputs": ("dgrad",),
    "convolution, forward": ("fprop", "conv"),
    "matrix products": ("gemm", "Gemm", "cutlass", "splitKreduce", "gemv", "dot_kernel"),
    "optimizer and gradient norm": ("multi_tensor",),
    "softmax and losses": ("softmax", "nll_loss", "SoftMax"),
    "sums and extremes": ("reduce_kernel",),
    "copies to and from the host": ("Memcpy HtoD", "Memcpy DtoH"),
    "casts, copies and collecting rows": ("copy", "Memcpy", "index", "gather", "CatArray"),
    "element by element": ("elementwise", "Memset"),
}
"""Kernels by what their names hold; the first match counts."""

TAKES_SOME = {torch.ops.aten.index, torch.ops.aten.index_select, torch.ops.aten.gather}
"""Operations that read no more of their input than they give."""


def timed(run: Callable[[], Any], repeats: int = 12, warmups: int = 2) -> float:
    """Median seconds, the GPU waited for."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times[warmups:])


def attainable(device: str = "cuda", side: int = 8192) -> dict[str, float]:
    """What this GPU reaches: operations a second in large products, bytes a second in a copy, seconds of a launch."""
    found = {}
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        found[f"{str(dtype)[6:]}_operations_a_second"] = 2 * side**3 / timed(lambda a=a, b=b: a @ b, 6)
    source = torch.empty(32 * side**2 // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    found["bytes_a_second"] = 2 * len(source) / timed(lambda: target.copy_(source))
    little, n = torch.zeros(1, device=device), 2000
    found["launch_seconds"] = timed(lambda: [little.add_(1) for _ in range(n)], 5) / n
    return found


class Work(TorchDispatchMode):
    """What operations on the GPU have to do, as they are issued.

    ``floor_seconds`` adds up, operation by operation, the longer of its arithmetic at the rate of a large product and
    its bytes (inputs and outputs, each once) at that of a copy: nothing made of these operations is faster.
    """

    def __init__(self, rates: dict[str, float]) -> None:
        super().__init__()
        self.rates = rates
        self.operations, self.bytes, self.calls, self.floor_seconds = 0.0, 0.0, 0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.is_cuda]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.is_cuda]
        if func.is_view or not (given or made) or func._overloadpacket is torch.ops.aten._unsafe_view:
            return out
        read = made if func._overloadpacket in TAKES_SOME else given
        size = sum(min(t.numel() * t.element_size(), t.untyped_storage().nbytes()) for t in [*read, *made])
        count = flop_registry.get(func._overloadpacket)
        operations = count(*args, **kwargs, out_val=out) if count else 0
        rate = self.rates.get(f"{str((made or given)[0].dtype)[6:]}_operations_a_second", float("inf"))
        self.operations, self.bytes, self.calls = self.operations + operations, self.bytes + size, self.calls + 1
        self.floor_seconds += max(operations / rate, size / self.rates["bytes_a_second"])
        return out

    def told(self, times: float = 1.0) -> dict[str, float]:
        """The figures, times a number of repetitions."""
        return {
            "teraflop": times * self.operations / 1e12, "gigabytes": times * self.bytes / 1e9,
            "operations": times * self.calls, "floor_seconds": times * self.floor_seconds,
            "launching_seconds": times * self.calls * self.rates["launch_seconds"],
        }  # fmt: skip


def kernels(run: Callable[[], Any]) -> dict[str, Any]:
    """Seconds that the GPU was busy in ``run``, by kind of kernel, and kernels launched."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    spent: Counter[str] = Counter()
    launched: Counter[str] = Counter()
    longest: Counter[str] = Counter()
    for event in profiler.key_averages():
        if not event.self_device_time_total:
            continue
        kind = next((kind for kind, signs in KINDS.items() if any(sign in event.key for sign in signs)), "other")
        spent[kind] += event.self_device_time_total / 1e6
        launched[kind] += event.count
        longest[f"{kind}: {event.key[:70]}"] += event.self_device_time_total / 1e6
    return {
        "busy_seconds": spent.total(), "launches": launched.total(),
        "kinds": {
            kind: {"share": round(value / spent.total(), 3), "seconds": value, "launches": launched[kind]}
            for kind, value in spent.most_common()
        },
        "longest": dict(longest.most_common(6)),
    }  # fmt: skip
