"""What every stage costs per row and class on one core, and what a billion rows would cost on 64 GPUs.

    python benchmarks/bench_scale.py           measures, prints, and writes results/bench_scale.json
    python benchmarks/bench_scale.py --page    writes the tables of results/bench_scale.json into docs/scale.md

Seconds are those of the processor, on one thread: other work on the machine does not count. What GPUs would take is
arithmetic: rates that results/*_cuda.json has measured on one GPU where there are any, and otherwise half of what the
maker publishes for it.
"""

from __future__ import annotations

import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ecrt.augmentation import ClassSources
from ecrt.flows import ClassPrior, Demixer, LinearDemixing, MaskedFlow, SharedPrior, _whitener, within_class_residuals
from ecrt.machine import one_thread
from ecrt.nn import make_critic, make_encoder
from ecrt.stages.augmenting import Parametric
from ecrt.stages.demixing import ContrastiveModel, Flow, sources_of
from ecrt.stages.heads import SoftmaxGradients
from ecrt.stages.scoring import predict_outputs

ROOT = Path(__file__).parent.parent
RESULT, PAGE = ROOT / "results" / "bench_scale.json", ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- figures of benchmarks/bench_scale.py -->", "<!-- end of figures -->"

D, Q, M, B = 768, 64, 1000, 512
"""Columns, sources of a flow, classes, and rows of a step that are measured."""

ROWS, COLUMNS, CLASSES, GPUS = 10**9, 768, 10**6, 64
"""What is asked for."""

FLOW_EPOCHS, HEAD_PASSES, GLOBAL_BATCH = 10, 20, 64 * 1024
PUBLISHED = {
    "float64_flops": 67e12,  # tensor cores; what NVIDIA publishes for the H200
    "float32_flops": 67e12,  # without tensor cores, as torch multiplies by default
    "network_bytes": 50e9,  # of a port of 400 Gbit/s for each GPU
}
SHARE = 0.5
"""Of a published rate that is counted on."""

DISK_BYTES = 1e9
"""Per second and GPU that storage is assumed to give."""


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Of the processor: the median."""
    work()
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return statistics.median(times)


def n_numbers(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def measure() -> dict[str, dict[str, float]]:
    """Rows a second of each stage, and the multiplications and additions of a row."""
    rng = np.random.default_rng(0)
    n = 4096
    z, y = rng.normal(size=(n, D)), rng.integers(0, M, n)
    rates: dict[str, dict[str, float]] = {}

    def note(name: str, rows: int, flops: float, work: Callable[[], Any]) -> None:
        took = seconds(work)
        rates[name] = {"rows_per_second": rows / took, "flops_per_row": flops, "gflops": rows * flops / took / 1e9}
        print(f"{name}: {rows / took:,.0f} rows/s, {rates[name]['gflops']:.1f} GFLOP/s", flush=True)

    def moments() -> None:
        residuals, _, _ = within_class_residuals(z, y)
        residuals.T @ residuals

    note("moments", n, 2 * D**2, moments)
    covariance = np.cov(z.T)
    whitening = seconds(lambda: _whitener(covariance, symmetric=True), 2)
    print(f"whitening, once: {whitening:.2f} s", flush=True)
    linear = LinearDemixing.identity(D)
    whitener = torch.from_numpy(_whitener(covariance, symmetric=True))
    linear = LinearDemixing(linear.standardise, linear.kept_k, whitener, D)
    demixer = Demixer(linear, SharedPrior())
    note("linear sources", n, 2 * D**2, lambda: sources_of(demixer, z))
    encoder = make_encoder("mlp", (D,))
    x = torch.from_numpy(z[:B]).float()

    def encoder_step() -> None:
        encoder.zero_grad()
        encoder(x).square().mean().backward()

    note("encoder, a step", B, 6 * n_numbers(encoder), encoder_step)
    s, labels, prior = torch.randn(B, Q), torch.from_numpy(y[:B]), torch.full((M,), 1 / M)
    for exact in (False, True):
        config = Flow(label_marginal="exact" if exact else "auto")
        model = ContrastiveModel(
            MaskedFlow(Q, 1, (128, 128)), make_critic("additive", Q, M, 32), ClassPrior(M, Q), config
        )
        flops = 6 * (n_numbers(model.flow) + n_numbers(model.critic) - M * 32) + 6 * 32 * (M if exact else B)

        def flow_step(model: ContrastiveModel = model, exact: bool = exact) -> None:
            model.zero_grad()
            sum(part.mean() for part in model.losses(s, labels, prior, exact=exact)).backward()

        note(f"flow, a step, {'all classes' if exact else 'labels of the batch'}", B, flops, flow_step)
    head = nn.Linear(D, M)
    written, rows, weight = SoftmaxGradients(head, torch.zeros(M)), torch.randn(1024, D), torch.full((1024,), 1 / 1024)
    written.clear()
    note("linear head, a pass", 1024, 4 * D * M, lambda: written.add(rows, torch.from_numpy(y[:1024]), weight))
    scale, float64 = np.ones(D), head.double()
    note("prediction", n, 2 * D * M, lambda: predict_outputs(demixer, scale, float64, z))
    drawn = Parametric()
    some = torch.from_numpy(z[:, :Q])
    labels_k, row_k = torch.sort(torch.from_numpy(y % 10))
    sources = ClassSources(some, row_k, labels_k, 10, torch.ones(Q, dtype=torch.float64))
    wanted = torch.randint(0, 10, (n,))
    note("synthetic samples", n, 2 * Q, lambda: drawn.draw(sources, wanted, None))
    return rates | {"whitening": {"seconds": whitening, "flops": 9 * D**3}}


# --- what 64 GPUs would take ------------------------------------------------------------------------------------------


def plan(rates: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Seconds of each stage, bytes on the wire, and memory; all of it arithmetic."""
    cuda = json.loads((ROOT / "results" / "bench_extreme_labels_cuda.json").read_text())
    cases = [one for one in cuda["cases"] if one["label_marginal"] == "auto"]
    case = max(cases, key=lambda one: (one["classes"], one["batch_size"]))
    flow_rate = case["rows"] / case["epoch_seconds"]
    double, single = (SHARE * PUBLISHED[name] for name in ("float64_flops", "float32_flops"))
    core = {name: one["rows_per_second"] for name, one in rates.items() if "rows_per_second" in one}
    flow_numbers = n_numbers(MaskedFlow(Q, 1, (128, 128))) + n_numbers(make_critic("additive", Q, 2, 32)) - 2 * 32
    encoder_numbers = n_numbers(make_encoder("mlp", (COLUMNS,)))

    def stage(flops: float, rate: float) -> dict[str, float]:
        return {"flops": flops, "rate": rate, "seconds": flops / (GPUS * rate)}

    ring = 2 * (GPUS - 1) / GPUS
    head_bytes = 4 * CLASSES * Q
    stages = {
        "read all rows once": {"bytes": 4 * ROWS * COLUMNS, "seconds": 4 * ROWS * COLUMNS / (GPUS * DISK_BYTES)},
        "moments": stage(ROWS * 2 * COLUMNS**2, double),
        "64 linear sources": stage(ROWS * 2 * COLUMNS * Q, double),
        "flow": {
            "rows_per_second": flow_rate, "epochs": FLOW_EPOCHS, "seconds": FLOW_EPOCHS * ROWS / (GPUS * flow_rate)
        },
        "linear head on 64 sources": stage(HEAD_PASSES * ROWS * 4 * Q * CLASSES, single),
        "linear head on 768 sources": stage(HEAD_PASSES * ROWS * 4 * COLUMNS * CLASSES, single),
        "prediction of all rows, 768 sources": stage(ROWS * 2 * COLUMNS * CLASSES, double),
    }  # fmt: skip
    wire = {
        "moments, once": ring * 8 * (COLUMNS**2 + CLASSES * (COLUMNS + 1)),
        "encoder, gradients of a step": ring * 4 * encoder_numbers,
        "flow, gradients of a step": ring * 4 * flow_numbers,
        "labels of a step": 8 * GLOBAL_BATCH,
        "sources of a step, where the objective asks": 4 * GLOBAL_BATCH * Q,
        "head on 64 sources, whole on each GPU, gradients of a step": ring * head_bytes,
        "head on 64 sources, classes sharded, a step": 4 * GLOBAL_BATCH * (Q + 2),
    }
    return {
        "case": case,
        "stages": stages,
        "core_years": {
            "moments": ROWS / core["moments"] / 86400 / 365,
            "linear head on 768 sources": HEAD_PASSES * ROWS * CLASSES / M / core["linear head, a pass"] / 86400 / 365,
        },
        "wire_bytes": wire,
        "wire_seconds": {name: size / (SHARE * PUBLISHED["network_bytes"]) for name, size in wire.items()},
        "memory_bytes": {
            "rows on each GPU's machine": 4 * ROWS * COLUMNS / GPUS,
            "64 sources of the rows on each GPU": 4 * ROWS * Q / GPUS,
            "class means and counts, sharded": 8 * CLASSES * (COLUMNS + 1) / GPUS,
            "head on 768 sources with gradient and two moments, whole": 4 * 4 * CLASSES * COLUMNS,
            "the same, sharded": 4 * 4 * CLASSES * COLUMNS / GPUS,
            "logits of a step, sharded": 4 * GLOBAL_BATCH * CLASSES / GPUS,
        },
        "checkpoint_bytes": 4 * 3 * CLASSES * COLUMNS,
    }


# --- the page ---------------------------------------------------------------------------------------------------------

COSTS = {
    "moments": "2 d²", "linear sources": "2 d q", "encoder, a step": "6 p",
    "flow, a step, labels of the batch": "6 p + 6 w b", "flow, a step, all classes": "6 p + 6 w m",
    "linear head, a pass": "4 q m", "prediction": "2 d m", "synthetic samples": "2 q",
}  # fmt: skip

ABOUT_RATES = """
Measured with d = {D} columns, q = {D} sources ({Q} of the flow), m = {M:,} classes, b = {B} rows in a batch and w = 32
units of the critic; p is the number of weights. Seconds are those of the processor. The whitening itself, once for all
rows, took {whitening:.2f} s.

A billion rows of {COLUMNS} columns with a million classes on {GPUS} GPUs:
"""
ABOUT_GPUS = """
The rate of the flow was measured on one {gpu} with {classes:,} classes and batches of {batch:,}
(`results/bench_extreme_labels_cuda.json`); with a million classes, and on several GPUs, nothing was measured. The other
rates of GPUs were not measured at all: they are half of what NVIDIA publishes for the H200, 67 TFLOP/s in float64 on
tensor cores and 67 in float32 without them. Storage is assumed to give {disk} a second to each GPU. The head makes
{HEAD_PASSES} passes over all rows, each with all classes. On one core, at the measured rates, the moments would take
{moments:.1f} hours and the head on 768 sources {head:,.0f} years.
"""


def size(number: float) -> str:
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number:.0f} B"


def duration(taken: float) -> str:
    if taken < 1:
        return f"{1000 * taken:.3g} ms"
    return f"{taken:.0f} s" if taken < 120 else f"{taken / 60:.0f} min" if taken < 7200 else f"{taken / 3600:.1f} h"


def page(result: dict[str, Any]) -> str:
    """The tables, as Markdown."""
    found, planned = result["rates"], result["plan"]
    lines = ["| Stage | Operations for a row | Rows a second on one core | GFLOP/s |", "| --- | --- | --- | --- |"]
    for name, formula in COSTS.items():
        one = found[name]
        lines.append(f"| {name} | {formula} | {one['rows_per_second']:,.0f} | {one['gflops']:.1f} |")
    case = planned["case"]
    lines += [
        ABOUT_RATES.format(**globals(), whitening=found["whitening"]["seconds"]),
        "| Stage | Arithmetic | Time |",
        "| --- | --- | --- |",
    ]
    for name, one in planned["stages"].items():
        if "bytes" in one:
            text = f"{size(one['bytes'])} / ({GPUS} × {size(DISK_BYTES)}/s)"
        elif "flops" in one:
            text = f"{one['flops']:.2e} FLOP / ({GPUS} × {one['rate'] / 1e12:.1f} TFLOP/s)"
        else:
            text = f"{one['epochs']} epochs × {ROWS:.0e} rows / ({GPUS} × {one['rows_per_second']:,.0f} rows/s)"
        lines.append(f"| {name} | {text} | {duration(one['seconds'])} |")
    years, wire = planned["core_years"], planned["wire_seconds"]
    lines += [
        ABOUT_GPUS.format(
            **globals(), gpu=result["gpu"], classes=case["classes"], batch=case["batch_size"], disk=size(DISK_BYTES),
            moments=years["moments"] * 365 * 24, head=years["linear head on 768 sources"],
        ),
        f"| On the wire, for each GPU and a global batch of {GLOBAL_BATCH:,} rows | Bytes | At half of 400 Gbit/s |",
        "| --- | --- | --- |",
        *(f"| {name} | {size(sent)} | {duration(wire[name])} |" for name, sent in planned["wire_bytes"].items()),
        "",
        "| In memory | Bytes |",
        "| --- | --- |",
        *(f"| {name} | {size(bytes_)} |" for name, bytes_ in planned["memory_bytes"].items()),
        "",
        f"A checkpoint of that head is {size(planned['checkpoint_bytes'])}: its weights and two moments.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    if "--page" in sys.argv:
        text, tables = PAGE.read_text(encoding="utf-8"), page(json.loads(RESULT.read_text()))
        text = re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{tables}\n{END}", text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")
        return
    with one_thread():
        rates = measure()
    cuda = json.loads((ROOT / "results" / "bench_extreme_labels_cuda.json").read_text())
    machine = {"processor": platform.processor() or platform.machine(), "threads": 1, "torch": torch.__version__}
    result = {
        "command": "python benchmarks/bench_scale.py", "machine": machine, "clock": "cpu",
        "gpu": cuda["machine"]["gpu"], "rates": rates, "published": PUBLISHED, "share": SHARE, "plan": plan(rates),
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(page(result))


if __name__ == "__main__":
    main()
