"""Tiny-ImageNet embeddings with the paper's step imbalance: 450 images of 100 classes, 45 of the other 100.

ECRT by linear de-mixing and a linear head, with and without augmentation, and Table 1's methods as linear heads on the
same features. An experiment of its own has the paper's preset, the supplement's encoder, flow and decoder, the steps
from there to ours one at a time, rivals in the paper's network, and ours with a flow. Training and test rows are
fixed: seeds change the validation rows and whatever is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ecrt.estimators import ECRTClassifier
from ecrt.metrics import prediction_metrics, single_numbers
from ecrt.stages import Flow
from paper.data import load_embeddings
from paper.experiments.frequency import BY_CLASS, by_class
from paper.experiments.preset import (
    PAPER_PRIORS,
    PAPER_READINGS,
    PAPER_RIVALS,
    PAPER_STEPS,
    fit_paper,
    fit_paper_rival,
)
from paper.experiments.table_one import ECRT_PARTS, RIVALS, fit_rival
from paper.statistics import observations, table

__all__ = ["METHODS", "cells", "preset_cells", "run_cell", "summarise"]

Row = dict[str, Any]

OURS: dict[str, Row] = {
    "ECRT without augmentation": ECRT_PARTS | {"augmentation": "none"},
    "ECRT": ECRT_PARTS,
}
WITH_FLOW = "ECRT with a flow"
FLOW_SOURCES = 32
"""Leading sources that the flow and the head on it have: as many as in the paper."""
METHODS = (*RIVALS, *OURS)
PAPER_METHODS = (*PAPER_PRIORS, *PAPER_READINGS, *PAPER_STEPS)
ORDER = (*RIVALS, *PAPER_RIVALS, *PAPER_METHODS, *OURS, WITH_FLOW)
PAPER_MINORITY, PAPER_NOISE = 100, 128
SEEDS = (0, 1, 2)


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with every seed."""
    for seed in SEEDS[:1] if smoke else SEEDS:
        for method in ("ECRT",) if smoke else METHODS:
            yield {"method": method, "seed": seed, "max_train": 800 if smoke else None}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """The paper's preset with either prior and either reading of Eq. 3, the steps to ours, and rivals, every seed."""
    every = (*PAPER_RIVALS, *PAPER_METHODS, "ECRT", WITH_FLOW)
    for seed in SEEDS[:1] if smoke else SEEDS:
        for method in (list(PAPER_STEPS)[-1], next(iter(PAPER_RIVALS)), WITH_FLOW) if smoke else every:
            yield {"method": method, "seed": seed, "max_train": 800 if smoke else None}


def run_cell(*, method: str, seed: int, max_train: int | None) -> Row:
    """Fit with no option but the method's own, all choices on validation rows, and measure on the test rows."""
    data = load_embeddings("tiny_imagenet")
    rows = np.random.default_rng(seed).permutation(len(data.y_train))[:max_train]
    X, y = data.X_train[rows], data.y_train[rows]
    clf: Any
    if method in RIVALS:
        clf = fit_rival(method, X, y, seed, n_noise=PAPER_NOISE)
    elif method in PAPER_METHODS:
        clf = fit_paper(method, "tiny-imagenet", X, y, minority=PAPER_MINORITY, seed=seed)
    elif method in PAPER_RIVALS:
        clf = fit_paper_rival(method, "tiny-imagenet", X, y, seed=seed)
    else:
        flow = {"demixing": Flow(n_sources=FLOW_SOURCES)} if method == WITH_FLOW else {}
        clf = ECRTClassifier(random_state=seed, **(OURS.get(method, ECRT_PARTS) | flow)).fit(X, y)
    known = np.isin(data.y_test, clf.classes_)  # all of them, but in a smoke run
    y_test = np.searchsorted(clf.classes_, data.y_test[known])
    log_proba = clf.predict_log_proba(data.X_test[known])
    figures = prediction_metrics(log_proba, y_test, clf.class_counts_, prior=clf.class_prior)
    return single_numbers(figures) | {
        "setting": clf.history_.get("head_setting"),  # a network that was trained with its encoder has none
        BY_CLASS: by_class(figures),
    }


def summarise(rows: list[Row]) -> list[Row]:
    """One line a method: means over seeds, with the half-width of a 95 % interval."""
    metrics = ("top1", "top5", "nll", "macro_f1")
    return table(observations(rows), ("what",), metrics, means=("seconds",), order=lambda key: ORDER.index(key[0]))
