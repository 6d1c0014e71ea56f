"""docs/speed.md from results/bench_*.json: python benchmarks/speed_table.py."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NOT_MEASURED = "not measured"
Results = dict[str, Any]


def largest(growth: Results, *names: str) -> str:
    """The largest ratio of times between a size and half of it."""
    return f"{max(ratio for name in names for ratio in growth[name]['growth'].values()):.2f}"


def step(results: Results) -> str:
    others = [name for name in results["rival_over_ours"] if name.startswith("ours") and name != results["default"]]
    ratios = results["rival_over_ours"]
    return f"{ratios[results['default']]:.1f} times (" + ", ".join(f"{n[6:]}: {ratios[n]:.1f}" for n in others) + ")"


def reached(results: Results) -> str:
    """Means over data sets, and the paired differences from the rival."""
    rival, *ours = results["summary"].items()

    def told(name: str, one: Results) -> str:
        return (
            f"{name[6:] or 'default critic'} {one['mean']:.3f} (less the rival's: {one['less_the_rivals']:+.3f} ± "
            f"{one['less_the_rivals_standard_deviation']:.3f}, as low on {one['sets_as_low']} of {one['sets']} sets)"
        )

    return f"{'; '.join(told(*one) for one in ours)}; rival {rival[1]['mean']:.3f}"


def tiny(results: Results) -> str:
    return f"{results['fit_median']:.1f} s (first fit {results['fit_seconds'][0]:.1f} s), top-1 {results['top1']:.3f}"


def whole_images(results: Results) -> str:
    whole = results["whole"]
    return f"{whole['seconds']:.0f} s, {next(iter(whole['stages'].values())):.0f} s of them the encoder's"


def inverse(rows: int) -> Callable[[Results], str]:
    def said(results: Results) -> str:
        case = next(
            c for c in results["cases"] if c["d"] == 64 and c["rows"] == rows and c["dtype"] == "float32"
        )  # fmt: skip
        return f"{case['inverse_over_forward']:.2f} times, error {case['error']:.0e}"

    return said


def beside_zuko(results: Results) -> str:
    cases = [c for c in results["cases"] if "zuko_inverse_over_ours" in c and c["rows"] == 512]
    return ", ".join(f"d = {c['d']}: {c['zuko_inverse_over_ours']:.0f} times" for c in cases)


def million(results: Results) -> str:
    cases = [case for case in results["mapped_file"] if case["rows"] == 1_000_000]
    return "; ".join(
        f"{c['model']}: {c['seconds']:.1f} s, {c['beyond_the_answer_mebibytes']:.0f} MiB beyond the answer's "
        f"{c['answer_mebibytes']:.0f}"
        for c in cases
    )


def served(results: Results) -> str:
    models = results["models"].values()
    times = [1e3 * one["one_row_seconds"]["median"] for one in models]
    apart = max(one["largest_difference"] for one in models)
    return (
        f"{min(times):.2f} to {max(times):.2f} ms for {len(times)} kinds of models; probabilities of "
        f"{results['rows']:,} rows within {apart:.0e}"
    )


def many_classes(results: Results) -> str:
    cases = [c for c in results["cases"] if c["classes"] == 100_000 and c["label_marginal"] == "auto"]
    case = max(cases, key=lambda case: case["epoch_seconds"])
    return (
        f"{case['epoch_seconds']:.1f} s in batches of {case['batch_size']:,}, {case['gpu_peak_mebibytes']:,.0f} MiB at "
        f"most, "
        f"held-out loss {case['held_out_contrast']:.2f}"
    )


ROWS: list[tuple[str, str, str, Callable[[Results], str]]] = [
    ("De-mixing step (32 features, 50 classes, batches of 512) beside a loop over coordinates with critics of "
     "1-512-512-M units and two passes through the flow", "10 times faster", "demix_step", step),
    ("Held-out contrastive loss in as many epochs, each at its best", "as low", "demix_loss_cuda", reached),
    ("Time per epoch where rows double", "2.2 at most", "demix_step", lambda r: largest(r["growth"], "n")),
    ("... where classes double", "2.2 at most", "demix_step", lambda r: largest(r["growth"], "M")),
    ("... where features double, 32 to 256", "2.2 at most", "demix_step", lambda r: largest(r["growth"], "d")),
    ("Inverse of the flow over its forward pass, 64 features, 512 rows", "4 at most", "inverse", inverse(512)),
    ("... 65,536 rows", "4 at most", "inverse", inverse(65_536)),
    ("Inverse beside zuko's", "15 times faster", "inverse", beside_zuko),
    ("Prediction, linear de-mixing, over scikit-learn's default `MLPClassifier`", "1 at most", "predict",
     lambda r: f"{r['linear_over_mlp']:.2f} ({r['linear_over_equal_mlp']:.2f} over one of equal multiply-adds)"),
    ("Prediction, flow, over an `MLPClassifier` of equal multiply-adds", "1.5 at most", "predict",
     lambda r: f"{r['flow_over_equal_mlp']:.2f}"),
    ("A million rows of 64 numbers from a mapped .npy file", "bounded memory", "predict", million),
    ("One row of a model from `to_onnx`, in onnxruntime on one core (median of 2,000 calls)", "1 ms at most", "serving",
     served),
    ("100,000 classes, a million rows of 64 features: an epoch of FDV on an H200", "30 s at most",
     "extreme_labels_cuda", many_classes),
    ("CIFAR-100, 500/50, whole on an H200: ResNet-18, 60 epochs, de-mixing, head, test metrics", "75 s at most",
     "gpu_images", whole_images),
    ("Tiny-ImageNet features (49,500 x 512, 200 classes), default `ECRTClassifier` on an H200", "10 s at most",
     "tiny_cuda", tiny),
    ("ResNet-18 on CIFAR-100, an epoch on an H200", "reported", "gpu_images",
     lambda r: f"{r['times_faster_than_ordinary']:.1f} times faster than an ordinary loop, "
               f"{r['times_the_floor']:.1f} times the arithmetic alone"),
    ("A default fit over that of scikit-learn's default `MLPClassifier`, processor time on twelve tables",
     "3 in the median, 6 at most", "default",
     lambda r: f"{r['median_ratio']:.1f} in the median, {r['worst_ratio']:.1f} at most"),
]  # fmt: skip

TEXT = """# How fast it is

Times of rivals are medians of runs made in turn, in one process, on two cores unless an H200 is named. `make bench`
measures all that needs no GPU and writes `results/bench_*.json` (with `--device cuda`, a benchmark measures there);
`python benchmarks/speed_table.py` writes this page.

| What | Wanted | Measured | Results |
|---|---|---|---|
{rows}

## What the GPU spends its time on, and how far from the floor it is

The floor adds up, operation by operation, the longer of its arithmetic at the rate of a large matrix product and of its
bytes at that of a copy, both measured beside it; operations are launched one by one unless recorded in a graph.

{gpu}

## What de-mixing learns meanwhile

{learned}

## What makes it so

- **De-mixing** trains all critics in one batched product, with one pass through the flow for sources, likelihood and
  critic together. Activations are held in parts that stay in the processor's cache: time grows with features and rows,
  and hardly with classes.
- **Very many classes**: beyond 1,024, negatives are the labels of the batch, and a row's own label is taken with its
  exact frequency. Without it the paper's in-batch objective has no bound where a batch holds few of the labels: scores
  grow without end, and held-out rows are recognised worse than by chance. `label_marginal="batch"` is still there, and
  warns when that has happened.
- **The flow's inverse** evaluates every hidden unit once, in the order in which its inputs become known: compiled for
  the CPU by numba, which also serves tensors of a GPU, and in plain torch without it.
- **Prediction** goes through a large array in parts, so that memory does not grow with the rows but for the answer.
  Linear de-mixing is multiplied into the head: a linear head on de-mixed features costs what it would cost on the
  features themselves. Everything is float64 on the CPU (`precision="float32"` asks for less), and may be called from
  several threads.
- **A fit** measures the independence of its sources only when `diagnostics_` is read. On a GPU the sources stay there
  while heads are tried, and an evaluation of the loss waits for the device once. On a CPU, gradients of heads for
  classes are written out: autograd would take longer than the arithmetic. With fewer than 16 classes, the logits of a
  class are next to each other in memory, because torch's softmax takes the numbers of a short row one by one.
"""


def row(what: str, wanted: str, name: str, say: Callable[[Results], str]) -> str:
    path = ROOT / "results" / f"bench_{name}.json"
    try:
        measured = say(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, KeyError, TypeError, ValueError, StopIteration):
        measured = NOT_MEASURED
    return f"| {what} | {wanted} | {measured or NOT_MEASURED} | `bench_{name}.json` |"


def stages(seconds: Results) -> str:
    return ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())


def shares(kinds: Results) -> str:
    total = sum(part["seconds"] for part in kinds.values())
    longest = sorted(kinds.items(), key=lambda item: -item[1]["seconds"])
    return ", ".join(
        f"{kind} {part['seconds'] / total:.0%}" for kind, part in longest if part["seconds"] > 0.01 * total
    )


def floor(work: Results, rates: Results, product: str) -> str:
    return (
        f"{work['teraflop']:.1f} Tflop ({rates[f'{product}_operations_a_second'] / 1e12:.0f} a second in {product}), "
        f"{work['gigabytes']:,.0f} GB ({rates['bytes_a_second'] / 1e12:.1f} TB a second), {work['operations']:,.0f} "
        f"operations ({1e6 * rates['launch_seconds']:.0f} µs to launch one, {work['launching_seconds']:.2f} s for all)"
    )


def gpu_tiny(results: Results) -> str:
    gpu, work = results["gpu"], results["work"]
    return (
        f"**Tiny-ImageNet features, a fit of {results['fit_median']:.1f} s.** By stage, under a profiler: "
        f"{stages(results['stage_seconds'])}. The GPU is busy {gpu['busy_seconds']:.2f} s of it, in "
        f"{gpu['launches']:,} kernels: {shares(gpu['kinds'])}. It has to do "
        f"{floor(work, results['attainable'], 'float32')}: a floor of {work['floor_seconds']:.2f} s, of which the busy "
        f"time is {gpu['busy_seconds'] / work['floor_seconds']:.1f} times and the whole fit "
        f"{results['times_the_floor']:.0f} times. The rest is the host's: it reads the rows, whitens, and draws "
        f"synthetic sources in float64 by one generator, so that a seed gives the same on every device."
    )


def gpu_epoch(results: Results) -> str:
    gpu, work, seconds = results["epoch_gpu"], results["epoch_work"], results["epoch_median"]["ours"]
    whole = results["whole"]
    told = "" if whole is None else f" By stage of the whole, {whole['seconds']:.0f} s: {stages(whole['stages'])}."
    return (
        f"**CIFAR-100, an epoch of ResNet-18 in {seconds:.2f} s.** The GPU is busy {gpu['busy_seconds']:.2f} s of it, "
        f"in {gpu['launches']:,.0f} kernels replayed as graphs: {shares(gpu['kinds'])}. It has to do "
        f"{floor(work, results['attainable'], 'bfloat16')}: a floor of {work['floor_seconds']:.2f} s, of which the "
        f"epoch is {seconds / work['floor_seconds']:.1f} times ({results['times_the_floor']:.1f} times its arithmetic "
        f"alone).{told}"
    )


def learned(results: Results) -> str:
    """Where each critic stands beside the rival, and what that owes to the data."""
    sets = results["data_sets"]

    def beside(name: str, ours: str, rival: str) -> str:
        excess = [one["best"][name][ours] - one["best"]["rival"][rival] for one in sets]
        lower = sum(value <= 0 for value in excess)
        return f"{min(excess):+.3f} to {max(excess):+.3f} (as low on {lower} of {len(sets)} sets)"

    best, end, started = "held_out_contrast", "at_the_end", "ours, gaussian critic"
    latest = max(one["best"][started]["steps"] for one in sets)
    return (
        f"{len(sets)} data sets of 20,000 rows, {results['steps']} steps each. Held-out contrastive loss less that of "
        f"the rival: with the default critic {beside('ours', best, best)} where each is at its best, which for the "
        f"rival's noisy curve is the lowest of many looks, and {beside('ours', end, end)} at the end. "
        f"A critic that we tried starts at the Gaussians of the classes instead of learning them from nothing: "
        f"{beside(started, best, best)} where each is at its best, and, at its own end, {beside(started, end, best)} "
        f"less the rival's best. Sources here are Gaussian given the label, as it supposes: it is at its best within "
        f"{latest} steps, and what it learns later does not carry over to held-out rows."
    )


GPU: list[tuple[str, Callable[[Results], str]]] = [("gpu_images", gpu_epoch), ("tiny_cuda", gpu_tiny)]


def paragraph(name: str, say: Callable[[Results], str]) -> str:
    path = ROOT / "results" / f"bench_{name}.json"
    try:
        return textwrap.fill(say(json.loads(path.read_text(encoding="utf-8"))), 120, break_on_hyphens=False)
    except (FileNotFoundError, KeyError, ValueError):
        return f"Not measured: `bench_{name}.json`."


def page() -> str:
    return TEXT.format(
        rows="\n".join(row(*one) for one in ROWS),
        gpu="\n\n".join(paragraph(*one) for one in GPU),
        learned=paragraph("demix_loss_cuda", learned),
    )


if __name__ == "__main__":
    (ROOT / "docs" / "speed.md").write_text(page(), encoding="utf-8")
