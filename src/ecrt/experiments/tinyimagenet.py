"""Tiny-ImageNet embeddings with the paper's step imbalance: 450 images of 100 classes, 45 of the other 100."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ecrt.data import load_embeddings
from ecrt.estimators import ECRTClassifier
from ecrt.experiments.frequency import BY_CLASS, by_class
from ecrt.metrics import prediction_metrics, single_numbers

__all__ = ["METHODS", "cells", "run_cell", "summarise"]

Row = dict[str, Any]

METHODS: dict[str, Row] = {
    "ERM": {"demixing": "none", "head": "linear", "augmentation_weight": 0.0, "head_loss": "cross-entropy",
            "class_prior": "training"},
    "logit adjustment": {"demixing": "none", "head": "linear", "augmentation_weight": 0.0},
    "ECRT without augmentation": {"augmentation_weight": 0.0},
    "ECRT": {},
}  # fmt: skip


def cells(smoke: bool) -> Iterable[Row]:
    """Every method once; training rows are fixed, so another seed changes the validation split alone."""
    for method in ("ECRT",) if smoke else METHODS:
        yield {"method": method, "seed": 0, "max_train": 800 if smoke else None}


def run_cell(*, method: str, seed: int, max_train: int | None) -> Row:
    """Fit with no option but the method's own, all choices on validation rows, and measure on the test rows."""
    data = load_embeddings("tiny_imagenet")
    rows = np.random.default_rng(seed).permutation(len(data.y_train))[:max_train]
    clf = ECRTClassifier(random_state=seed, **METHODS[method]).fit(data.X_train[rows], data.y_train[rows])
    known = np.isin(data.y_test, clf.classes_)  # all of them, but in a smoke run
    y_test = np.searchsorted(clf.classes_, data.y_test[known])
    log_proba, prior = clf.predict_log_proba(data.X_test[known]), METHODS[method].get("class_prior", "balanced")
    figures = prediction_metrics(log_proba, y_test, clf.class_counts_, prior=prior)
    return single_numbers(figures) | {
        "demixing": clf.demixing_,
        "head": clf.head_name_,
        "weight_decay": clf.history_["head_setting"],
        BY_CLASS: by_class(figures),
    }


def summarise(rows: list[Row]) -> list[Row]:
    """One line a method."""
    return [
        {"what": row["cell"]["method"]} | {name: row[name] for name in ("top1", "top5", "nll", "macro_f1", "seconds")}
        for row in rows
    ]
