"""One row at a time in onnxruntime on one core, for models of several kinds, beside ``predict_proba`` itself.

Each model is fitted, written with ``to_onnx`` and run. Largest differences of probabilities are over 10,000 rows: those
of the fit with noise, and some far beyond them. Times are of one call with one row, which another program would make.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from measuring import arguments, write
from sklearn.datasets import load_breast_cancer, load_digits, make_classification

import ecrt

ROWS = 10_000
CALLS = 2000
PREDICTIONS = 100


def many_classes() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(200), 20)
    return rng.normal(size=(200, 512))[y] + 2 * rng.normal(size=(len(y), 512)), y


def twenty_classes() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        4000, n_features=64, n_informative=32, n_classes=20, n_clusters_per_class=1, random_state=0
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], Any], tuple[np.ndarray, np.ndarray]]] = {
    "default, breast cancer (30 columns, 2 classes)": (
        lambda: ecrt.ECRTClassifier(random_state=0), load_breast_cancer(return_X_y=True)
    ),
    "default, digits (64 columns, 10 classes)": (
        lambda: ecrt.ECRTClassifier(random_state=0), load_digits(return_X_y=True)
    ),
    "flow and MLP (64 columns, 20 classes)": (
        lambda: ecrt.ECRTClassifier(
            demixing=ecrt.Flow(blocks=4, n_restarts=1, epochs=3), head=ecrt.MLPHead(epochs=3), random_state=0
        ),
        twenty_classes(),
    ),
    "linear (512 columns, 200 classes)": (
        lambda: ecrt.ECRTClassifier(demixing="linear", head="linear", random_state=0), many_classes()
    ),
    "balanced forest, breast cancer": (
        lambda: ecrt.BaselineClassifier(method="balanced-forest", random_state=0), load_breast_cancer(return_X_y=True)
    ),
}  # fmt: skip


def new_rows(X: np.ndarray) -> np.ndarray:
    """Rows like those of the fit, one in ten of them far beyond."""
    rng = np.random.default_rng(1)
    rows = X[rng.integers(len(X), size=ROWS)] + 0.1 * X.std(axis=0) * rng.normal(size=(ROWS, X.shape[1]))
    rows[::10] *= 10.0 ** rng.uniform(0, 30, (len(rows[::10]), 1))
    return rows


def seconds_of(call: Callable[[], Any], times: int) -> dict[str, float]:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return {"median": statistics.median(found), "of_99_percent": float(np.quantile(found, 0.99))}


def measured(model: Any, X: np.ndarray, y: np.ndarray, path: Path) -> dict[str, Any]:
    model.fit(X, y).to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    rows = new_rows(X)
    label, p = session.run(None, {"X": rows})
    one = rows[1:2]
    members = [member.name for member in getattr(model, "members_", ()) if member.weight > 0]
    return {
        "members": members,
        "file_kibibytes": path.stat().st_size / 2**10,
        "largest_difference": float(np.abs(p - model.predict_proba(rows)).max()),
        "labels_that_differ": int((label != model.predict(rows)).sum()),
        "one_row_seconds": seconds_of(lambda: session.run(None, {"X": one}), CALLS),
        "predict_proba_seconds": seconds_of(lambda: model.predict_proba(one), PREDICTIONS),
    }


def main() -> None:
    chosen = arguments(__doc__)
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, data) in MODELS.items():
            found[name] = measured(make(), *data, Path(folder) / "model.onnx")
            print(name, found[name], flush=True)
    document = {"onnxruntime": onnxruntime.__version__, "rows": ROWS, "calls": CALLS, "models": found}
    write("serving", document, chosen)


if __name__ == "__main__":
    main()
