"""Does the pseudo-minority test choose well? Its choice against every fixed choice, on test rows it never saw.

Regret is what the best fixed choice in hindsight has more in balanced accuracy than the one that was selected. Where
a set says so, a fixed half of the test rows is left out of every figure here, to be looked at once.

Heads are those of the default, and predict together. The stored results were made when held-out rows chose one of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from ecrt.data import exponential_imbalance, step_imbalance, toy_sources
from ecrt.data.imbalance import Split, rare_feature_data
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier
from ecrt.metrics import prediction_metrics
from ecrt.selection import PseudoMinority
from ecrt.stages import MLPHead
from paper.data import load_embeddings
from paper.data.images import load_mnist

__all__ = [
    "FIXED",
    "SETS",
    "cells",
    "development_rows",
    "final_rows",
    "mnist",
    "run_cell",
    "summarise",
    "tiny",
    "toy",
    "twin",
]

Row = dict[str, Any]
Rows = NDArray[np.int64]
Half = Callable[[NDArray[Any]], Rows]
"""Labels of test rows to those that are looked at."""

SELECTED = "selected"
SEED = 20
"""Of the draws; the draws of earlier ones were looked at when the selection was made."""
FIXED: dict[str, Row] = {
    "logit adjustment": {"demixing": "none", "augmentation": "none"},
    "linear": {"demixing": "linear", "augmentation": "none"},
    "linear, parametric": {"demixing": "linear"},
    "linear, permutation": {"demixing": "linear", "augmentation": "permutation"},
    "linear, borrowed": {"demixing": "linear", "augmentation": "borrowed"},
    "Gaussian head": {"demixing": "linear", "head": "gaussian"},
}
"""Choices that a user might always make."""


def mnist(rng: np.random.Generator, long_tail: bool, test_rows: Half) -> Split:
    """Pixels of MNIST, 32 principal components: digits 5 to 9 cut to 20 images, or a tail from 2,000 to 20."""
    data = load_mnist((), seed=0)
    y = np.asarray(data.y_train, dtype=np.int64)
    rows = np.flatnonzero(np.isin(y, range(10)))
    rows = rows[step_imbalance(y[rows], range(10), 2000, rng)]
    cut = exponential_imbalance(y[rows], 100, rng) if long_tail else step_imbalance(y[rows], range(5, 10), 20, rng)
    rows = rows[cut]
    flat = [np.asarray(x, dtype=np.float64).reshape(len(x), -1) / 255 for x in (data.X_train[rows], data.X_test)]
    axes = PCA(32, random_state=0).fit(flat[0])
    test = test_rows(np.asarray(data.y_test))
    return Split(axes.transform(flat[0]), y[rows], axes.transform(flat[1])[test], np.asarray(data.y_test)[test])


def tiny(rng: np.random.Generator, n_classes: int, test_rows: Half) -> Split:
    """Some classes of Tiny-ImageNet, as many of either kind, in 64 principal components."""
    data = load_embeddings("tiny_imagenet")
    kinds = [rng.permutation(np.arange(start, start + 100))[: n_classes // 2] for start in (0, 100)]
    chosen = np.sort(np.concatenate(kinds))
    train, test = (np.isin(labels, chosen) for labels in (data.y_train, data.y_test))
    axes = PCA(64, random_state=0).fit(data.X_train[train])
    y_train, y_test = (np.searchsorted(chosen, labels) for labels in (data.y_train[train], data.y_test[test]))
    half = test_rows(y_test)
    X_test = axes.transform(data.X_test[test])
    return Split(axes.transform(data.X_train[train]), y_train, X_test[half], y_test[half])


def _plankton(rng: np.random.Generator) -> Split:
    """Plankton resplit, half of every class for testing, in 64 principal components."""
    data = load_embeddings("plankton")
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    seed = int(rng.integers(2**31))
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    axes = PCA(64, random_state=0).fit(X_train)
    return Split(axes.transform(X_train), y_train, axes.transform(X_test), y_test)


def toy(rng: np.random.Generator) -> Split:
    """The paper's toy, 50 samples of class 0 and 1,000 of the others."""
    truth = toy_sources()
    train, test = truth.draw([50] + [1000] * 6, rng), truth.draw([2000] * 7, rng)
    return Split(train.z, train.y, test.z, test.y)


def twin(rng: np.random.Generator, unique: bool) -> Split:
    """Rare classes that differ by a source that frequent ones share, or do not know; half the rows for testing."""
    data = rare_feature_data(unique=unique, rng=rng, majority_rows=260, minority_rows=225)
    rare = data.y >= 18
    train = np.zeros(len(data.y), dtype=bool)
    for label in np.unique(data.y):
        rows = rng.permutation(np.flatnonzero(data.y == label))
        train[rows[: 25 if rare[rows[0]] else 60]] = True
    return Split(data.z[train], data.y[train], data.z[~train], data.y[~train])


def development_rows(y: NDArray[Any]) -> Rows:
    """The fixed half of test rows that development may look at: every other row of each class."""
    order = np.argsort(y, kind="stable")
    return np.sort(order[::2])


def final_rows(y: NDArray[Any]) -> Rows:
    """The other half."""
    order = np.argsort(y, kind="stable")
    return np.sort(order[1::2])


SETS: dict[str, Callable[[np.random.Generator], Split]] = {
    "MNIST, step": lambda rng: mnist(rng, long_tail=False, test_rows=development_rows),
    "MNIST, long tail": lambda rng: mnist(rng, long_tail=True, test_rows=development_rows),
    "Tiny-ImageNet, 80 classes": lambda rng: tiny(rng, n_classes=80, test_rows=development_rows),
    "plankton": _plankton,
    "toy": toy,
    "shared feature": lambda rng: twin(rng, unique=False),
    "unique feature": lambda rng: twin(rng, unique=True),
}


def cells(smoke: bool) -> Iterable[Row]:
    """Every set with every choice; a budget of 180 seconds for the selection."""
    for name in ("toy",) if smoke else SETS:
        for choice in (SELECTED, "logit adjustment") if smoke else (SELECTED, *FIXED):
            yield {"set": name, "choice": choice, "seed": SEED, "budget": 3.0 if smoke else 180.0, "smoke": smoke}


def run_cell(*, set: str, choice: str, seed: int, budget: float, smoke: bool) -> Row:
    """Fit one choice, or what is selected, and measure under the balanced prior."""
    rng = np.random.default_rng(seed)
    data = SETS[set](rng)
    rows = rng.permutation(len(data.y_train))[: 600 if smoke else None]
    heads: Row = {"head": ["linear", "gaussian", MLPHead(epochs=2)]} if smoke else {}
    options = heads | FIXED.get(choice, {"selection": PseudoMinority(budget=budget)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        clf = ECRTClassifier(random_state=seed, device="cpu", **options)
        clf.fit(data.X_train[rows], data.y_train[rows])
    y = np.searchsorted(clf.classes_, data.y_test)
    found = prediction_metrics(clf.predict_log_proba(data.X_test), y, clf.class_counts_, prior="balanced")
    figures: Row = {name: found[name] for name in ("balanced_accuracy", "nll", "macro_f1")}
    figures |= {"test_rows": len(y), "by_group": found.get("by_group")}
    if choice == SELECTED:
        told = ("options", "transfer", "gain", "low", "high", "vetoed", "finished", "seconds", "sentence")
        figures["selection"] = {name: clf.selection_[name] for name in told}
    return figures


def summarise(rows: list[Row]) -> list[Row]:
    """Regret on each set, then its mean, and the same for every fixed choice."""
    accuracy: dict[str, dict[str, float]] = {}
    for row in rows:
        accuracy.setdefault(row["cell"]["set"], {})[row["cell"]["choice"]] = row["balanced_accuracy"]
    lines: list[Row] = []
    for name, of in accuracy.items():
        best = max((value, choice) for choice, value in of.items() if choice != SELECTED)
        line: Row = {"what": name, **of, "best_fixed": best[1]}
        lines.append(line | {"regret_points": 100 * (best[0] - of[SELECTED])})
    means: Row = {
        choice: float(np.mean([of[choice] for of in accuracy.values()]))
        for choice in (SELECTED, *FIXED)
        if all(choice in of for of in accuracy.values())
    }
    mean_regret = float(np.mean([line["regret_points"] for line in lines]))
    return [*lines, {"what": "mean over sets", **means, "regret_points": mean_regret}]
