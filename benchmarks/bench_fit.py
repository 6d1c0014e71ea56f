"""Memory of a fit against its rows; for its time see bench_default.py."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

from sklearn.datasets import make_classification

from ecrt import ECRTClassifier, Flow, Linear, MLPHead

RESULTS = Path(__file__).parent.parent / "results" / "bench_fit.json"


def data(n_samples: int):
    return make_classification(n_samples, n_features=32, n_classes=10, n_informative=16, n_redundant=8, random_state=0)


def peak_mebibytes(n_samples: int) -> float:
    """Peak memory of a process that fits on so many rows, a few epochs of each part."""
    code = f"import bench_fit; bench_fit.fit_once({n_samples})"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
    )
    return float(output.stdout)


def fit_once(n_samples: int) -> None:
    X, y = data(n_samples)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ECRTClassifier(
        demixing=[Linear(), Flow(n_restarts=1, epochs=2)],
        head=["linear", "gaussian", MLPHead(epochs=2)],
        random_state=0,
    ).fit(X, y)
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def main() -> None:
    memory = {n: peak_mebibytes(n) for n in (40_000, 80_000, 160_000)}
    result = {"command": "make bench", "peak_mebibytes_by_rows": memory}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
