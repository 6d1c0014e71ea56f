"""Which method is best for this table? The same splits and tuning for all, on this machine or on a Dask cluster.

python examples/compare_methods.py          # three quick methods, half a minute
python examples/compare_methods.py --dask   # on a local cluster of two workers: pip install 'ecrt[cluster]'
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits

import ecrt
from ecrt.data import step_imbalance
from ecrt.report import verdict_text

METHODS = ["logit-adjusted", "weighted-logistic", "lda"]


def table() -> tuple[np.ndarray, np.ndarray]:
    """Digits of which five are rare."""
    X, y = load_digits(return_X_y=True)
    rows = step_imbalance(y, minority=[5, 6, 7, 8, 9], n_minority=30, rng=np.random.default_rng(0))
    return X[rows], y[rows]


def on_two_workers(**options: Any) -> Any:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster), joblib.parallel_config(backend="dask"):
        return ecrt.compare(*table(), **options)


def main(dask: bool = False) -> None:
    warnings.simplefilter("ignore")  # the rare digits have six test rows in each split; the result shows this, too
    options = {"methods": METHODS, "seeds": 2, "trials": 2}
    found = on_two_workers(**options) if dask else ecrt.compare(*table(), **options)
    for method in found.ranking("balanced"):
        both = [found.estimate(method, "balanced_accuracy", prior).text() for prior in ("balanced", "training")]
        print(f"{found.label(method):30} balanced prior {both[0]}, training prior {both[1]}")
    for sentence in found.warnings + verdict_text(found):
        print("-", sentence)


if __name__ == "__main__":  # the workers import this file
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dask", action="store_true", help="run on a local Dask cluster of two workers")
    main(parser.parse_args().dask)
