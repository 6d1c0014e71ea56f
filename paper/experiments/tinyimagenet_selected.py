"""Tiny-ImageNet embeddings with options chosen by the pseudo-minority test, and what each component adds.

Half of the test rows are a final test: figures are given for the other half, for it, and for all. Nothing is chosen on
any of them but the rival to compare with, which is the one that did best on all of them. The head is linear in all
parts. When the stored results were made, the selection might have asked for another head, and held-out rows might have
chosen one: they chose the linear one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.estimators import ECRTClassifier, ECRTTransformer
from ecrt.metrics import nll_per_sample
from ecrt.selection import PseudoMinority
from ecrt.stages import Flow, Linear, LinearHead
from paper.data import load_embeddings
from paper.experiments.selection import development_rows
from paper.experiments.tinyimagenet_rivals import METHODS as RIVALS
from paper.experiments.tinyimagenet_rivals import Problem, linear, linear_as_chosen
from paper.statistics import bootstrap_texts

__all__ = ["PARTS", "PER_ROW", "cells", "run_cell", "summarise"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Row = dict[str, Any]

PER_ROW = "outcomes"
SELECTED, RIVAL = "selected", "best tuned rival"
RIVAL_RESULTS = Path("results/tinyimagenet-rivals.json")
"""The tuned rivals: the best linear one is fitted again as chosen there. Without the file, linear LA is tuned here."""

FEATURES_DECAY, SOURCES_DECAY = 1e-3, 3e-4
"""Weight decays that held-out training rows chose in the recipe ``tinyimagenet``: of features, and of sources weighted
by signal. Whitened sources without weights have their own chosen here."""

LINEAR: Row = {"demixing": "linear", "head": LinearHead(weight_decay=SOURCES_DECAY), "augmentation": "none"}
FEW: Row = {"head": "linear", "augmentation": "none"}

PARTS: dict[str, Row] = {
    SELECTED: {"selection": "pseudo-minority", "head": "linear"},
    "features": LINEAR | {"demixing": "none", "head": LinearHead(weight_decay=FEATURES_DECAY)},
    "whitening": {},  # no option of the estimator: sources without weights are given to a rival's linear head
    "signal weights": LINEAR,
    "rotation": LINEAR | {"demixing": Linear(rotation="discriminant")},
    "augmentation": LINEAR | {"augmentation": "parametric"},
    "32 sources": FEW | {"demixing": Linear(n_sources=32)},
    "flow on 32 sources": FEW | {"demixing": Flow(n_sources=32, epochs=15, batch_size=1024)},
}
"""Each component on top of others: :data:`ADDED` says which. A flow takes hours on 512 sources, so 32 are taken."""

ADDED = {
    "whitening": "features",
    "signal weights": "whitening",
    "rotation": "signal weights",
    "augmentation": "signal weights",
    "flow on 32 sources": "32 sources",
}


def cells(smoke: bool) -> Iterable[Row]:
    """The selection, its components, and the rival."""
    for part in (SELECTED, "whitening") if smoke else (*PARTS, RIVAL):
        yield {"part": part, "seed": 0, "budget": 1.0 if smoke else 120.0, "most_rows": 400 if smoke else None}


def run_cell(*, part: str, seed: int, budget: float, most_rows: int | None) -> Row:
    """Fit on the training rows, and keep what happened on every test row."""
    data = load_embeddings("tiny_imagenet")
    rows = np.random.default_rng(seed).permutation(len(data.y_train))[:most_rows]
    X, y, X_test = data.X_train[rows].astype(np.float64), data.y_train[rows], data.X_test.astype(np.float64)
    known = np.isin(data.y_test, y)  # all of them, but in a smoke run
    if part == RIVAL:
        return _rival(X, y, X_test, data.y_test, seed)
    if part == "whitening":
        return _whitening(X, y, X_test[known], data.y_test[known], seed)
    more: Row = {"selection": PseudoMinority(budget=budget)} if part == SELECTED else {}
    clf = ECRTClassifier(random_state=seed, **PARTS[part] | more).fit(X, y)
    found = _outcome(
        np.asarray(clf.predict_log_proba(X_test[known])), np.searchsorted(clf.classes_, data.y_test[known])
    )
    found |= {"what": part, "head": clf.head_name_, "weight_decay": clf.history_["head_setting"]}
    if part == SELECTED:
        told = ("options", "transfer", "gain", "low", "high", "vetoed", "finished", "seconds", "sentence")
        found["selection"] = {name: clf.selection_[name] for name in told}
    return found


def _whitening(X: Array, y: Labels, X_test: Array, y_test: Labels, seed: int) -> Row:
    """Sources without weights, under the head of the rivals, its weight decay chosen on held-out rows."""
    whiten = ECRTTransformer(demixing="linear", random_state=seed).fit(X, y)
    classes, labels = np.unique(y, return_inverse=True)
    problem = Problem(
        X=whiten.transform(X), y=labels.astype(np.int64), X_test=whiten.transform(X_test), seed=seed
    )  # fmt: skip
    by_nll = next(linear("whitening", "logit-adjusted")(problem))
    found = _outcome(by_nll.log_proba, np.searchsorted(classes, y_test))
    return found | {"what": "whitening", "head": "linear", "weight_decay": by_nll.chosen["weight_decay"]}


def _outcome(log_proba: Array, y: Labels) -> Row:
    """Figures of both halves and of all test rows under the balanced prior, and hits and losses of every row."""
    hits, losses = log_proba.argmax(axis=1) == y, nll_per_sample(log_proba, y)
    figures = {
        name: {"rows": len(half), "top1": float(hits[half].mean()), "nll": float(losses[half].mean())}
        for name, half in _halves(y).items()
    }
    rows = {"y": y.tolist(), "top1": hits.astype(int).tolist(), "nll": losses.round(4).tolist()}
    return {"figures": figures, PER_ROW: rows}


def _halves(y: NDArray[Any]) -> dict[str, Labels]:
    development = development_rows(y)
    everything = np.arange(len(y))
    return {"development": development, "final": np.setdiff1d(everything, development), "all": everything}


def _rival(X: Array, y: Labels, X_test: Array, y_test: Labels, seed: int) -> Row:
    """The best linear rival (none of the others comes near), or linear LA tuned here."""
    classes, labels = np.unique(y, return_inverse=True)
    problem = Problem(X=X, y=labels.astype(np.int64), X_test=X_test, seed=seed)
    if RIVAL_RESULTS.is_file():
        rows = json.loads(RIVAL_RESULTS.read_text())["rows"]
        entries = [entry for row in rows if row["cell"]["seed"] == seed for entry in row["entries"]]
        linear_ones = [
            entry for entry in entries if entry["what"].startswith("linear") and entry["prior"] == "balanced"
        ]
        best = max(linear_ones, key=lambda entry: entry["figures"]["balanced"]["top1"])
        what, log_proba = best["what"], linear_as_chosen(problem, best["what"], best["chosen"])
    else:
        fitted = next(RIVALS["linear LA"](problem))
        what, log_proba = fitted.what, fitted.log_proba
    return _outcome(log_proba, np.searchsorted(classes, y_test)) | {"what": what}


def summarise(rows: list[Row]) -> list[Row]:
    """Figures of every part, what each component adds, and how far the selection is ahead of the best rival."""
    of = {row["cell"]["part"]: row for row in rows}
    table: list[Row] = []
    for part, row in of.items():
        line: Row = {"what": part if part == row["what"] else f"{part}: {row['what']}"}
        for half, figures in row["figures"].items():
            line |= {f"{half}_{name}": figures[name] for name in ("top1", "nll")}
        table.append(line | {"weight_decay": row.get("weight_decay"), "seconds": row["seconds"]})
    for part, before in ADDED.items():
        if part in of and before in of:
            table.append({"what": f"{part} adds to {before}", **_gain(of[part], of[before])})
    if RIVAL in of and SELECTED in of:
        table.append({"what": f"{SELECTED} less {RIVAL}", **_gain(of[SELECTED], of[RIVAL])})
    return table


def _gain(row: Row, other: Row) -> Row:
    """What one has over another on the same rows, in each half: positive is better."""
    ours, theirs = row[PER_ROW], other[PER_ROW]
    columns = np.column_stack([
        np.subtract(ours["top1"], theirs["top1"], dtype=np.float64), np.subtract(theirs["nll"], ours["nll"])
    ])  # fmt: skip
    found: Row = {}
    for half, of_half in _halves(np.asarray(ours["y"])).items():
        names = (f"{half}_top1", f"{half}_nll")
        found |= zip(names, bootstrap_texts(columns[of_half]), strict=True)
    return found
