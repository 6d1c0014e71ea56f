"""The figures of a run, from its predictions alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ecrt.errors import InputError
from ecrt.metrics import Predictions, PriorName, prediction_metrics

__all__ = ["MEASURES", "SHOWN", "Measure", "choose_measure", "measure"]


@dataclass(frozen=True)
class Measure:
    """A metric for readers: its label, its direction, and whether settings may be chosen by it."""

    label: str
    higher_is_better: bool = True
    tunable: bool = True


MEASURES: dict[str, Measure] = {
    "balanced_accuracy": Measure("Balanced accuracy"),
    "top1": Measure("Accuracy"),
    "top5": Measure("Top-5 accuracy"),
    "macro_f1": Measure("Macro F1"),
    "g_mean": Measure("G-mean"),
    "mean_average_precision": Measure("Mean average precision"),
    "average_precision": Measure("Average precision of the rarer class"),
    "roc_auc": Measure("ROC AUC"),
    "nll": Measure("NLL", higher_is_better=False),
    "balanced_nll": Measure("Balanced NLL", higher_is_better=False),
    # A temperature fitted on the validation rows cannot be judged on them.
    "nll_scaled": Measure("NLL, temperature-scaled", higher_is_better=False, tunable=False),
    "balanced_nll_scaled": Measure("Balanced NLL, temperature-scaled", higher_is_better=False, tunable=False),
    "ece": Measure("Calibration error", higher_is_better=False),
}
"""By the name that ``--metric`` takes and that ``ecrt.metrics.prediction_metrics`` gives."""

SHOWN = ("balanced_accuracy", "macro_f1", "g_mean", "top1", "mean_average_precision", "nll", "ece")
"""Columns of the table; the file of results has all."""


def choose_measure(name: str, n_classes: int) -> str:
    """The metric's name as it is kept; hyphens serve as well as underscores.

    >>> choose_measure("macro-f1", 3)
    'macro_f1'
    """
    key = name.strip().lower().replace("-", "_").replace(" ", "_")
    only = {"average_precision": n_classes == 2, "roc_auc": n_classes == 2, "top5": n_classes > 5}
    known = [measure for measure, about in MEASURES.items() if about.tunable and only.get(measure, True)]
    if key not in known:
        raise InputError(f"{name!r} is no metric to compare {n_classes} classes by. Known: {', '.join(known)}.")
    return key


def measure(predictions: Predictions, prior: PriorName) -> dict[str, Any]:
    """Every metric of predictions under one prior."""
    return prediction_metrics(
        predictions.log_proba, predictions.y, predictions.counts, prior=prior, assumed=predictions.prior,
        validation=predictions.validation,
    )  # fmt: skip
