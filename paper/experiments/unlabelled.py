"""Are unlabelled rows worth having? The default with and without them, on test rows that neither has seen.

Of every set, some rows have their labels taken away and are given as ``X_unlabelled``. How pseudo-labels are made was
settled on other draws, of classes 0 to 39 of Tiny-ImageNet (40 to 99 are here) and of every other class of plankton,
with one linear head. When rows count as strange was settled on other draws of ten of these sets. The last sets ask
whether rows that cannot help harm: unlabelled rows of classes that were never seen, of shifted columns, and labels that
are pure noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from ecrt.data import step_imbalance, toy_sources
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier
from ecrt.metrics import mean_over_classes, nll_per_sample
from paper.data import load_embeddings, load_keel
from paper.data.images import load_mnist
from paper.statistics import estimate, excludes_zero

__all__ = ["SETS", "cells", "run_cell", "summarise"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Row = dict[str, Any]

SEEDS = range(600, 605)
MORE_SEEDS = {"Tiny-ImageNet": range(600, 616), "plankton": range(600, 616)}
"""Where a gain is asked for. Three and five of these were run first, and showed that fewer than sixteen say little."""

MEASURES = ("balanced_accuracy", "rare_recall", "nll")
"""Of the balanced prior; recall of the classes that are rarest, with less than half the rows of the largest."""


class Rows(NamedTuple):
    """Labelled rows, rows whose labels were taken away, and test rows."""

    X: Any
    y: NDArray[Any]
    unlabelled: Any
    X_test: Any
    y_test: NDArray[Any]


def _dealt(X: Any, y: NDArray[Any], shares: tuple[float, float], rng: np.random.Generator, rare: Any = ()) -> Rows:
    """Shares of each class for testing and without labels, at least one row with a label; of ``rare`` ones 20 have."""
    labelled, unlabelled, test = [], [], []
    for label in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == label))
        n_test, n_unlabelled = (round(share * len(rows)) for share in shares)
        test.append(rows[:n_test])
        unlabelled.append(rows[n_test : n_test + n_unlabelled])
        rest = rows[n_test + n_unlabelled :] if len(rows) > n_test + n_unlabelled else rows[-1:]
        labelled.append(rest[:20] if label in rare else rest)
    one, two, three = (rng.permutation(np.concatenate(part)) for part in (labelled, unlabelled, test))
    take = X.iloc.__getitem__ if hasattr(X, "iloc") else X.__getitem__
    return Rows(take(one), y[one], take(two), take(three), y[three])


def _tiny(rng: np.random.Generator) -> Rows:
    """60 classes of Tiny-ImageNet, half of them cut to 35 rows and the others 200; 150 unlabelled and 100 test rows."""
    data = load_embeddings("tiny_imagenet")
    classes = np.arange(40, 100)
    few = rng.permutation(classes)[:30]
    labelled, unlabelled, test = [], [], []
    for label in classes:
        rows = rng.permutation(np.flatnonzero(data.y_train == label))
        test.append(rows[:100])
        unlabelled.append(rows[100:250])
        labelled.append(rows[250:285] if label in few else rows[250:])
    one, two, three = (np.concatenate(part) for part in (labelled, unlabelled, test))
    X, y = data.X_train.astype(np.float64), data.y_train
    return Rows(X[one], y[one], X[two], X[three], y[three])


def _plankton(rng: np.random.Generator) -> Rows:
    """Plankton as it is, 121 classes: a fifth of each for testing, three fifths unlabelled."""
    data = load_embeddings("plankton")
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    return _dealt(X.astype(np.float64), y, (0.2, 0.6), rng)


def _digits(rng: np.random.Generator) -> Rows:
    """scikit-learn's digits, 5 to 9 with 20 labels each."""
    X, y = load_digits(return_X_y=True)
    return _dealt(X, y, (0.3, 0.35), rng, rare=range(5, 10))


def _digits_of_others(rng: np.random.Generator) -> Rows:
    """Digits 0 to 6, with unlabelled rows of 7 to 9 alone."""
    X, y = load_digits(return_X_y=True)
    rows = _dealt(X[y < 7], y[y < 7], (0.3, 0.35), rng, rare=range(4, 7))
    return rows._replace(unlabelled=X[y >= 7])


def _digits_shifted(rng: np.random.Generator) -> Rows:
    """Digits whose unlabelled rows have their columns in another order."""
    rows = _digits(rng)
    return rows._replace(unlabelled=rows.unlabelled[:, rng.permutation(rows.unlabelled.shape[1])])


def _noise(rng: np.random.Generator) -> Rows:
    """Five classes of which the ten columns know nothing."""
    y = np.repeat(np.arange(5), [800, 800, 800, 300, 300])
    return _dealt(rng.standard_normal((len(y), 10)), y, (0.3, 0.4), rng)


def _toy(rng: np.random.Generator) -> Rows:
    """The paper's toy: 20 labels of class 0, 200 of the others, 300 unlabelled rows of each."""
    truth = toy_sources()
    labelled, unlabelled, test = (truth.draw(sizes, rng) for sizes in ([20] + [200] * 6, [300] * 7, [2000] * 7))
    return Rows(labelled.z, labelled.y, unlabelled.z, test.z, test.y)


def _mnist(rng: np.random.Generator) -> Rows:
    """Pixels of MNIST in 32 principal components: 300 labels of 0 to 4, 20 of 5 to 9, 200 unlabelled rows of each."""
    data = load_mnist((), seed=0)
    y = np.asarray(data.y_train, dtype=np.int64)
    rows = rng.permutation(len(y))
    rows = rows[step_imbalance(y[rows], range(10), 500, rng)]
    bare = rows[step_imbalance(y[rows], range(10), 200, rng)]
    rest = np.setdiff1d(rows, bare)
    labelled = rest[step_imbalance(y[rest], range(5, 10), 20, rng)]
    flat = [
        np.asarray(x, dtype=np.float64).reshape(len(x), -1) / 255
        for x in (data.X_train[labelled], data.X_train[bare], data.X_test)
    ]
    axes = PCA(32, random_state=0).fit(flat[0])
    X, unlabelled, X_test = (axes.transform(x) for x in flat)
    return Rows(X, y[labelled], unlabelled, X_test, np.asarray(data.y_test, dtype=np.int64))


def _keel(name: str) -> Callable[[np.random.Generator], Rows]:
    """A KEEL table: three tenths for testing, half unlabelled."""
    return lambda rng: _dealt(*load_keel(name), (0.3, 0.5), rng)


SETS: dict[str, Callable[[np.random.Generator], Rows]] = {
    "Tiny-ImageNet": _tiny,
    "plankton": _plankton,
    "digits": _digits,
    "toy": _toy,
    "MNIST, step": _mnist,
    "KEEL page-blocks0": _keel("page-blocks0"),
    "KEEL yeast3": _keel("yeast3"),
    "KEEL vehicle1": _keel("vehicle1"),
    "digits, unlabelled rows of other classes": _digits_of_others,
    "digits, unlabelled rows with shuffled columns": _digits_shifted,
    "pure noise": _noise,
}


def cells(smoke: bool) -> Iterable[Row]:
    """Every set with every seed, seed by seed, so that a run that is stopped knows something of all sets."""
    names = ("toy", "pure noise") if smoke else tuple(SETS)
    for seed in SEEDS[:2] if smoke else sorted({*SEEDS}.union(*MORE_SEEDS.values())):
        for name in names:
            if seed in MORE_SEEDS.get(name, SEEDS):
                yield {"set": name, "seed": seed, "smoke": smoke}


def run_cell(*, set: str, seed: int, smoke: bool) -> Row:
    """Fit twice, without and with the unlabelled rows, and measure on the test rows under the balanced prior."""
    rows = SETS[set](np.random.default_rng(seed))
    classes, y = np.unique(rows.y, return_inverse=True)
    y_test, counts = np.searchsorted(classes, rows.y_test), np.bincount(y)
    rare = (2 * counts < counts.max())[y_test]
    options: Row = {"demixing": "linear", "head": "gaussian"} if smoke else {}
    found: Row = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        for name, more in (("without", None), ("with", rows.unlabelled)):
            clf = ECRTClassifier(random_state=seed, **options).fit(rows.X, rows.y, X_unlabelled=more)
            log_proba = np.asarray(clf.predict_log_proba(rows.X_test))
            hits = (log_proba.argmax(axis=1) == y_test).astype(np.float64)
            found[name] = {
                "balanced_accuracy": mean_over_classes(hits, y_test),
                "rare_recall": mean_over_classes(hits[rare], y_test[rare]) if rare.any() else None,
                "nll": mean_over_classes(nll_per_sample(log_proba, y_test), y_test),
            }
    return found | {
        "used": clf.unlabelled_used_,
        "told": clf.unlabelled_verdict_,
        "labelled": len(y),
        "unlabelled": len(rows.unlabelled),
        "classes": len(classes),
    }


def summarise(rows: list[Row]) -> list[Row]:
    """Of each set, means without and with unlabelled rows and what is gained, paired by seed, with its interval."""
    table: list[Row] = []
    for name in dict.fromkeys(row["cell"]["set"] for row in rows):
        mine = [row for row in rows if row["cell"]["set"] == name]
        line: Row = {"what": name, "seeds": len(mine), "used": sum(row["used"] for row in mine)}
        line |= {
            key: round(float(np.mean([row[key] for row in mine]))) for key in ("classes", "labelled", "unlabelled")
        }
        for measure in MEASURES:
            pairs = [(row["without"][measure], row["with"][measure]) for row in mine]
            if any(value is None for pair in pairs for value in pair):
                continue
            gain = estimate([(two - one) * (-1 if measure == "nll" else 1) for one, two in pairs])
            line |= {f"{measure}_without": float(np.mean([one for one, _ in pairs]))}
            line |= {f"{measure}_with": float(np.mean([two for _, two in pairs]))}
            line |= {f"{measure}_gain": gain.mean, f"{measure}_gain_half_width": gain.half_width}
            if measure == "balanced_accuracy":
                line["beyond_noise"] = excludes_zero(gain)
        table.append(line)
    return table
