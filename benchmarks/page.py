"""One page of plots from results/bench_*.json: python benchmarks/page.py [-o benchmarks/page.html]."""

from __future__ import annotations

import argparse
import html
import io
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parent.parent / "results"
OURS, RIVAL = "#1f6f8b", "#b0a68f"


def bars(axes: Axes, names: list[str], values: list[float], limit: float | None, label: str) -> None:
    """Ratios, one bar each, with the bound they must keep."""
    places = range(len(names))
    axes.barh(places, values, color=OURS, height=0.6)
    for place, value in zip(places, values, strict=True):
        axes.text(value, place, f" {value:,.0f}" if value >= 100 else f" {value:.3g}", va="center")
    if limit is not None:
        axes.axvline(limit, color="#c0392b", linestyle="--", linewidth=1)
        axes.text(limit, -0.8, f"bound {limit:g}", color="#c0392b", ha="center", fontsize=8)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_xlim(0, 1.2 * max([*values, limit or 0]))
    axes.spines[["top", "right"]].set_visible(False)


def losses(axes: Axes, names: list[str], values: list[float], label: str) -> None:
    """Losses of either sign, as points; where one is large the axis is linear about zero alone."""
    axes.axvline(0, color="grey", linewidth=1)
    axes.scatter(values, range(len(names)), color=OURS)
    for place, value in enumerate(values):
        axes.text(value, place - 0.35, f"{value:.3g}", ha="center", fontsize=8)
    if max(map(abs, values)) > 10:
        axes.set_xscale("symlog", linthresh=10)
        axes.set_xticks([-10, 0, 10, 100, 1000], ["-10", "0", "10", "100", "1000"])
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -1)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)


def growth_lines(axes: Axes, curves: dict[str, dict[str, float]], label: str) -> None:
    """Seconds against sizes on logarithmic axes, and a line of slope one."""
    for name, seconds in curves.items():
        sizes = [int(size) for size in seconds]
        values = [value / next(iter(seconds.values())) for value in seconds.values()]
        axes.plot([size / sizes[0] for size in sizes], values, marker="o", label=name)
    most = max(len(seconds) for seconds in curves.values())
    axes.plot(
        [2**k for k in range(most)], [2**k for k in range(most)], color="grey", linestyle=":", label="proportional"
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("size over the smallest")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def figure(draw: Callable[[Axes], None], height: float = 2.6) -> str:
    """An axes drawn upon, as SVG text."""
    drawn, axes = plt.subplots(figsize=(7.5, height), layout="constrained")
    draw(axes)
    text = io.StringIO()
    drawn.savefig(text, format="svg")
    plt.close(drawn)
    return text.getvalue()[text.getvalue().index("<svg") :]


def inverse(results: dict[str, Any]) -> list[str]:
    cases = [case for case in results["cases"] if case["dtype"] == "float32"]
    ratios = [case["inverse_over_forward"] for case in cases]
    names = [f"d={case['d']}, {case['rows']:,} rows" for case in cases]
    faster = [(name, case["zuko_inverse_over_ours"]) for name, case in zip(names, cases, strict=True)
              if "zuko_inverse_over_ours" in case]  # fmt: skip
    return [
        figure(lambda axes: bars(axes, names, ratios, 4, "inverse over forward pass")),
        figure(lambda axes: bars(axes, [n for n, _ in faster], [v for _, v in faster], 15, "zuko's inverse over ours")),
    ]  # fmt: skip


def demix_step(results: dict[str, Any]) -> list[str]:
    ratios = {name: value for name, value in results["rival_over_ours"].items() if name.startswith("ours")}
    curves = {name: part["seconds"] for name, part in results["growth"].items()}
    doublings = {
        f"{name}: {step}": ratio for name, part in results["growth"].items() for step, ratio in part["growth"].items()
    }

    return [
        figure(lambda axes: bars(axes, list(ratios), list(ratios.values()), 10, "the rival's step over ours")),
        figure(lambda axes: growth_lines(axes, curves, "time of an epoch"), 3.8),
        figure(
            lambda axes: bars(axes, list(doublings), list(doublings.values()), 2.2, "time over that at half the size"),
            0.3 * len(doublings) + 1,
        ),
    ]


def demix_loss(results: dict[str, Any]) -> list[str]:
    def learned(axes: Axes) -> None:
        colours = dict(zip(results["summary"], (RIVAL, OURS, "#c0392b"), strict=True))
        for number, one in enumerate(results["data_sets"]):
            for name, learning in one["learned"].items():
                label = name if number == 0 else None
                axes.plot(learning["steps"], learning["held_out_contrast"], label=label, color=colours[name])
        lowest = min(one["best"]["rival"]["held_out_contrast"] for one in results["data_sets"])
        axes.set_ylim(top=lowest + 0.25)
        axes.set_xlabel("steps of training, each line a data set")
        axes.set_ylabel("held-out contrastive loss")
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)

    return [figure(learned, 3.4)]


def tiny_cuda(results: dict[str, Any]) -> list[str]:
    kinds = {kind: part["seconds"] for kind, part in results["gpu"]["kinds"].items()}
    stages = results["stage_seconds"]
    return [
        figure(lambda axes: bars(axes, list(stages), list(stages.values()), None, "seconds of a stage"), 2.8),
        figure(lambda axes: bars(axes, list(kinds), list(kinds.values()), None, "seconds of the GPU"), 2.8),
    ]


def extreme_labels(results: dict[str, Any]) -> list[str]:
    cases = results["cases"]
    names = [
        f"{c['classes']:,} classes, {c['rows']:,} rows, batch {c['batch_size']}, {c['label_marginal']}" for c in cases
    ]
    height = 0.3 * len(cases) + 1
    seconds, contrast = ([case[key] for case in cases] for key in ("epoch_seconds", "held_out_contrast"))
    drawn = [
        figure(lambda axes: bars(axes, names, seconds, None, "seconds an epoch"), height),
        figure(
            lambda axes: losses(axes, names, contrast, "held-out contrastive loss after 2 epochs (no skill: 0)"), height
        ),
    ]
    if all(case["gpu_peak_mebibytes"] for case in cases):
        memory = [case["gpu_peak_mebibytes"] for case in cases]
        drawn.append(figure(lambda axes: bars(axes, names, memory, None, "peak memory of the GPU, MiB"), height))
    return drawn


def predict(results: dict[str, Any]) -> list[str]:
    memory = results["mapped_file"]
    ratios = {
        "linear, beside the default (bound 1)": results["linear_over_mlp"],
        "linear, beside equal multiply-adds": results["linear_over_equal_mlp"],
        "flow, beside equal multiply-adds (bound 1.5)": results["flow_over_equal_mlp"],
    }
    parts = {"rows on disk": "rows_mebibytes", "answer": "answer_mebibytes",
             "memory beyond the answer": "beyond_the_answer_mebibytes"}  # fmt: skip
    values = {
        f"{case['model']}, {case['rows']:,} rows: {part}": case[key] for case in memory for part, key in parts.items()
    }
    return [
        figure(lambda axes: bars(axes, list(ratios), list(ratios.values()), None, "time over an MLPClassifier's")),
        figure(lambda axes: growth_lines(axes, {"rows": results["growth_in_rows"]["seconds"]}, "time to predict"), 3.2),
        figure(lambda axes: bars(axes, list(values), list(values.values()), None, "MiB"), 4.5),
    ]


def fit(results: dict[str, Any]) -> list[str]:
    times = {name: median(values) for name, values in results["seconds"].items()}
    memory = {f"{int(n):,} rows": value for n, value in results["peak_mebibytes_by_rows"].items()}
    return [
        figure(lambda axes: bars(axes, list(times), list(times.values()), None, "seconds of a default fit"), 1.8),
        figure(lambda axes: bars(axes, list(memory), list(memory.values()), None, "peak memory of a fit, MiB"), 2.0),
    ]


def gpu_images(results: dict[str, Any]) -> list[str]:
    epochs = {**results["epoch_median"], "the arithmetic alone": results["floor"]["seconds"]}
    shares = results["kernel_shares"]
    return [
        figure(lambda axes: bars(axes, list(epochs), list(epochs.values()), None, "seconds an epoch")),
        figure(lambda axes: bars(axes, list(shares), list(shares.values()), None, "share of the GPU's time"), 3.2),
    ]


def compare(results: dict[str, Any]) -> list[str]:
    fits = {name: median(values) for name, values in results["refit_seconds"].items()}
    return [
        figure(lambda axes: bars(axes, ["whole command"], [results["seconds"]], results["limit"], "seconds"), 1.6),
        figure(lambda axes: bars(axes, list(fits), list(fits.values()), None, "seconds of a fit in it")),
    ]


PARTS: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "inverse": ("Inverse of the flow", inverse),
    "inverse_cuda": ("Inverse of the flow, GPU", inverse),
    "demix_step": ("De-mixing step beside the paper's description", demix_step),
    "demix_loss_cuda": ("What de-mixing learns beside the paper's description", demix_loss),
    "extreme_labels": ("Very many classes", extreme_labels),
    "extreme_labels_cuda": ("Very many classes, GPU", extreme_labels),
    "predict": ("Prediction", predict),
    "fit": ("A default fit", fit),
    "compare": ("Comparing methods on 5,000 rows", compare),
    "gpu_images": ("Training an image encoder, GPU", gpu_images),
    "tiny_cuda": ("A default fit, GPU", tiny_cuda),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / "page.html")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    sections = []
    for name, (title, draw) in PARTS.items():
        path = chosen.results / f"bench_{name}.json"
        if not path.exists():
            sections.append(f"<h2>{title}</h2><p>Not measured yet: {path.name} is missing.</p>")
            continue
        results = json.loads(path.read_text())
        machine = ", ".join(f"{key} {value}" for key, value in results.get("machine", {}).items())
        command = results.get("command", f"python benchmarks/bench_{name}.py")
        note = f"<p><code>{html.escape(command)}</code><br>{html.escape(machine)}</p>"
        sections.append(f"<h2>{title}</h2>{note}{''.join(draw(results))}")
    style = (
        "body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}"
    )
    chosen.output.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>ecrt: benchmarks</title><style>{style}</style>'
        f"<h1>ecrt: benchmarks</h1>{''.join(sections)}</html>\n"
    )
    print(chosen.output)


if __name__ == "__main__":
    main()
