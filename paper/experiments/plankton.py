"""Plankton embeddings, resplit five times: does selection serve the rarest classes better than tuned rivals?

A fixed stratified fifth of all rows is a final test that no resplit touches; every fit predicts it as well. The rest is
split anew for each seed, four fifths to learn from. Rivals choose their regularisation on held-out training rows.

ECRT has a linear head, selected or not, and linear de-mixing where nothing is selected: what the default came to on
these rows when the stored results were made. The selection might also have asked for another head then.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split

from ecrt.data import stratified_holdout
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier
from ecrt.metrics import class_prior_of, mean_over_classes, nll_per_sample, shift_prior
from ecrt.rivals import BaselineClassifier
from ecrt.selection import PseudoMinority
from paper.data import load_embeddings
from paper.experiments.table_one import ECRT_PARTS
from paper.statistics import class_bootstrap_text, resplit_estimate

__all__ = ["FEW", "METHODS", "PER_ROW", "cells", "resplit", "run_cell", "summarise"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Row = dict[str, Any]
Predict = Callable[[Array], Array]

PER_ROW = "final_predictions"
SELECTED = "ECRT, selected"
FEW = 50
"""Training rows below which a class is one of the rarest."""

SHARE = 0.2
FINAL_SEED = 2026
N_RESPLITS = 5
SHRINKAGES = (0.1, 0.2, 0.4, 0.6, 0.8)
MEASURES = ("balanced_accuracy", "few_recall", "macro_f1", "nll")


def _ecrt(**options: Any) -> Callable[[Array, Labels, int, bool], tuple[Predict, Row]]:
    def fit(X: Array, y: Labels, seed: int, smoke: bool) -> tuple[Predict, Row]:
        more: Row = {"demixing": "linear", "head": "gaussian"} if smoke else {}
        if "selection" in options:
            more["selection"] = PseudoMinority(trials=4 if smoke else 12)
        clf = ECRTClassifier(random_state=seed, device="cpu", **options | more).fit(X, y)
        found = clf.selection_ if "selection" in options else {}
        told = {name: found[name] for name in ("options", "transfer", "vetoed", "sentence") if name in found}
        return clf.predict_log_proba, {"head": clf.head_name_, "setting": clf.history_["head_setting"], **told}

    return fit


def _baseline(**options: Any) -> Callable[[Array, Labels, int, bool], tuple[Predict, Row]]:
    def fit(X: Array, y: Labels, seed: int, smoke: bool) -> tuple[Predict, Row]:
        clf = BaselineClassifier(random_state=seed, device="cpu", **options).fit(X, y)
        return clf.predict_log_proba, {"setting": clf.history_["head_setting"]}

    return fit


def _shrinkage_lda(X: Array, y: Labels, seed: int, smoke: bool) -> tuple[Predict, Row]:
    """Pooled covariance; balanced accuracy on a held-out fifth chooses how far it is shrunk."""
    train, held_out = stratified_holdout(y, SHARE, np.random.default_rng(seed))
    counts = np.bincount(y)

    def fitted(shrinkage: float, rows: Labels) -> Predict:
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Only one sample")
            lda.fit(X[rows], y[rows])
        prior = class_prior_of("training", counts)
        return lambda data: shift_prior(np.asarray(lda.predict_log_proba(data)), prior, np.ones(len(counts)))

    def right(shrinkage: float) -> float:
        hits = fitted(shrinkage, train)(X[held_out]).argmax(axis=1) == y[held_out]
        return mean_over_classes(hits.astype(np.float64), y[held_out])

    best = max(SHRINKAGES, key=right)
    return fitted(best, np.arange(len(y))), {"setting": best}


METHODS: dict[str, Callable[[Array, Labels, int, bool], tuple[Predict, Row]]] = {
    SELECTED: _ecrt(selection="pseudo-minority", head="linear"),
    "ECRT, default": _ecrt(**ECRT_PARTS),
    "linear LA": _baseline(method="logit-adjusted"),
    "linear ERM": _baseline(method="erm", class_prior="training"),
    "tau-norm": _baseline(method="tau-norm"),
    "shrinkage LDA": _shrinkage_lda,
}
"""By name; all but ERM are asked for predictions under the balanced prior."""

POST_HOC = "post-hoc LA"
"""The same fit as ERM, under the balanced prior."""

NAMES = (*METHODS, POST_HOC)


def cells(smoke: bool) -> Iterable[Row]:
    """Every method on every resplit."""
    for method in (SELECTED, "shrinkage LDA") if smoke else METHODS:
        for seed in range(1 if smoke else N_RESPLITS):
            yield {"method": method, "seed": seed, "smoke": smoke}


def resplit(y: Labels, seed: int) -> tuple[Labels, Labels, Labels]:
    """Rows to learn from, rows to test on, and those of the final test, which are the same for all seeds."""
    rest, final = train_test_split(np.arange(len(y)), test_size=SHARE, stratify=y, random_state=FINAL_SEED)
    train, test = train_test_split(rest, test_size=SHARE, stratify=y[rest], random_state=seed)
    return train, test, final


def run_cell(*, method: str, seed: int, smoke: bool) -> Row:
    """Fit on one resplit, and measure on its test rows and on the final fifth."""
    data = load_embeddings("plankton")
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    if smoke:
        small = np.flatnonzero(np.isin(y, np.unique(y)[:10]))
        X, y = X[small][:, :16], np.unique(y[small], return_inverse=True)[1].astype(np.int64)
    X = X.astype(np.float64)
    train, test, final = resplit(y, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        predict, told = METHODS[method](X[train], y[train], seed, smoke)
    counts = np.bincount(y[train], minlength=len(np.unique(y)))
    parts = {"resplit": test, "final": final}
    log_proba = {part: np.asarray(predict(X[rows])) for part, rows in parts.items()}
    entries = {method: log_proba}
    if method == "linear ERM":
        training, even = class_prior_of("training", counts), np.ones(len(counts))
        entries[POST_HOC] = {part: shift_prior(of, training, even) for part, of in log_proba.items()}
    return {
        "figures": {
            name: {part: _figures(of[part], y[rows], counts) for part, rows in parts.items()}
            for name, of in entries.items()
        },
        "few_classes": int((counts < FEW).sum()),
        "told": told,
        PER_ROW: {name: of["final"].argmax(axis=1).tolist() for name, of in entries.items()},
        "final_y": y[final].tolist(),
        "few": np.flatnonzero(counts < FEW).tolist(),
    }  # fmt: skip


def _figures(log_proba: Array, y: Labels, counts: Labels) -> Row:
    predicted = log_proba.argmax(axis=1)
    hits, few = (predicted == y).astype(np.float64), counts[y] < FEW
    return {
        "balanced_accuracy": mean_over_classes(hits, y),
        "few_recall": mean_over_classes(hits[few], y[few]),
        "macro_f1": float(f1_score(y, predicted, average="macro", labels=np.unique(y), zero_division=0)),
        "nll": mean_over_classes(nll_per_sample(log_proba, y), y),
    }


def summarise(rows: list[Row]) -> list[Row]:
    """Means over resplits, then how far the selection is ahead of each method, on resplits and on the final fifth."""
    found: dict[str, dict[int, Row]] = {}
    for row in rows:
        for name, figures in row["figures"].items():
            found.setdefault(name, {})[row["cell"]["seed"]] = {**figures, "row": row}
    table: list[Row] = []
    for name in [name for name in NAMES if name in found]:
        line: Row = {"what": name, "resplits": len(found[name])}
        for part in ("resplit", "final"):
            line |= {f"{part}_{m}": float(np.mean([of[part][m] for of in found[name].values()])) for m in MEASURES}
        table.append(line | {"seconds": float(np.mean([of["row"]["seconds"] for of in found[name].values()]))})
    if SELECTED in found:
        rivals = [name for name in NAMES if name in found and name != SELECTED]
        table += [{"what": f"{SELECTED} less {name}", **_gains(found[SELECTED], found[name], name)} for name in rivals]
    return table


def _gains(ours: dict[int, Row], theirs: dict[int, Row], rival: str) -> Row:
    """Paired by resplit, with the variance that shared rows call for; in the final fifth, by row within classes."""
    seeds = sorted(ours.keys() & theirs.keys())
    line: Row = {}
    for measure in MEASURES:
        sign = -1 if measure == "nll" else 1
        pairs = [sign * (ours[s]["resplit"][measure] - theirs[s]["resplit"][measure]) for s in seeds]
        line[f"resplit_{measure}"] = resplit_estimate(pairs, SHARE / (1 - SHARE)).text(4)
    one = ours[seeds[0]]["row"]
    y = np.asarray(one["final_y"])
    hits = np.mean([
        (np.asarray(ours[s]["row"][PER_ROW][SELECTED]) == y).astype(float)
        - (np.asarray(theirs[s]["row"][PER_ROW][rival]) == y)
        for s in seeds
    ], axis=0)  # fmt: skip
    few = np.isin(y, one["few"])
    line["final_balanced_accuracy"] = class_bootstrap_text(hits, y)
    line["final_few_recall"] = class_bootstrap_text(hits[few], y[few])
    return line
