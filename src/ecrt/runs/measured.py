"""What a regression, or a model of several labels a row, did on test rows, as plain data and its two files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ecrt.disk import read_arrays, write_arrays, write_json
from ecrt.estimators.options import log_class_prior
from ecrt.io import package_versions
from ecrt.metrics import (
    FREQUENCY_GROUPS,
    frequency_group,
    label_average_precision,
    label_f1,
    mean_of_finite,
    multilabel_metrics,
    regression_metrics,
    target_groups,
)
from ecrt.runs.evaluation import training_curves
from ecrt.runs.records import (
    ARRAYS_FILE,
    FORMAT,
    METRICS_FILE,
    Curve,
    as_written,
    curve_arrays,
    curve_facts,
    read_curves,
    read_metrics,
    without_nan,
)

__all__ = ["Measured", "measure_labels", "measure_numbers", "task_of"]

Array = NDArray[np.float64]

MOST_BYTES = 2 * 2**30
"""Of the arrays on disk: every label of every test row is among them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A model on test rows.

    Attributes
    ----------
    task : what was predicted.
    title : what the data are.
    subject : a sentence on which model this is, and what it has to do with the saved one.
    columns : how columns were read, cells of ``ecrt.data.column_rows``.
    names : of the targets, or of the labels.
    metrics : figures of groups of rows, the main one first; "guessing" is what needs no look at the row.
    groups : of labels with many, medium and few training rows, their number and mean scores.
    facts : name and text of what was chosen.
    candidates : held-out figures of all that was tried.
    chosen : which of these it is.
    curves : of what was trained epoch by epoch.
    versions : of the packages that matter.
    unknown_labels : of test rows, labels that the model does not know, and their rows; they count as missed.
    arrays : of every test row ``y`` and ``predicted``. Of a regression also ``edges`` and ``counts``, regions of the
        target with their training rows, and of every test row its ``region`` and ``group``; of labels their training
        rows (``counts``), ``minority``, ``threshold`` (a probability) and scores.
    """

    task: Literal["regression", "multilabel"]
    title: str
    names: tuple[str, ...]
    metrics: dict[str, dict[str, float]]
    groups: dict[str, dict[str, float]]
    facts: dict[str, str]
    candidates: dict[str, dict[str, float]]
    chosen: str
    curves: tuple[Curve, ...]
    versions: dict[str, str]
    arrays: dict[str, NDArray[Any]]
    unknown_labels: dict[str, int] = field(default_factory=dict)
    subject: str = ""
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def y(self) -> NDArray[Any]:
        """The truth of each test row."""
        return self.arrays["y"]

    def write(self, folder: str | Path) -> None:
        """Write ``metrics.json``, for readers, and ``evaluation.npz``, without pickles."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        plain = {name: value for name, value in vars(self).items() if name not in ("arrays", "curves")}
        document = {"format": FORMAT, "rows": len(self.y), **plain, "curves": curve_facts(self.curves)}
        write_json(folder / METRICS_FILE, without_nan(document), indent=2)
        write_arrays(folder / ARRAYS_FILE, {**self.arrays, **curve_arrays(self.curves)})

    @classmethod
    def read(cls, folder: str | Path) -> Measured:
        """Read what ``write`` wrote."""
        folder = Path(folder)
        document = read_metrics(folder)
        arrays = read_arrays(folder / ARRAYS_FILE, MOST_BYTES)
        with as_written(folder):
            curves = read_curves(document.pop("curves"), arrays)
            del document["rows"], document["format"]
            document |= {"names": tuple(document["names"]), "columns": tuple(map(tuple, document["columns"]))}
            return cls(**document, curves=curves, arrays=arrays)


def task_of(folder: str | Path) -> str:
    """The task that the figures in a folder are of."""
    return str(read_metrics(Path(folder)).get("task", "classification"))


def measure_numbers(reg: Any, X: Any, y: Array, names: tuple[str, ...], *, title: str) -> Measured:
    """Errors of a regressor, where training targets were many, medium and few; the mean of training as guess."""
    regions = reg.regions_
    truth = y[:, None] if y.ndim == 1 else y
    predicted = np.asarray(reg.predict(X)).reshape(truth.shape)
    guess = np.broadcast_to(regions.center, truth.shape)
    metrics = regression_metrics(predicted, truth, regions)
    metrics["guessing"] = regression_metrics(guess, truth, regions)["all"]
    one = truth.shape[1] == 1
    return Measured(
        task="regression",
        title=title,
        names=names,
        metrics=metrics,
        groups={},
        facts={
            "De-mixing": f"{reg.demixing_}; {len(reg.signal_weight_)} sources",
            "Head": reg.head_name_,
            "Loss": reg.loss,
            "Weight of rare targets": f"a region of n rows counts as n to the power of {1 - reg.region_mass_:g}"
            if reg.region_mass_
            else "as frequent as they are",
            "Synthetic samples": reg.augmentation_,
        },
        candidates=reg.history_["candidates"],
        chosen=reg.history_.get("chosen", ""),
        curves=training_curves(reg),
        versions=package_versions(),
        arrays={
            "y": truth,
            "predicted": predicted,
            "edges": regions.edges * regions.scale[0] + regions.center[0] if one else regions.edges,
            "counts": regions.counts,
            "region": regions.region_of(truth),
            "group": target_groups(regions, truth),
        },
    )


def measure_labels(
    clf: Any,
    X: Any,
    present: NDArray[np.bool_],
    names: tuple[str, ...],
    *,
    title: str,
    unknown: dict[str, NDArray[np.bool_]] | None = None,
) -> Measured:
    """Scores of every label; their training frequencies as guess.

    Parameters
    ----------
    unknown : labels that the model does not know, with the rows that have them; they count as missed.
    """
    others = np.column_stack([np.zeros((len(present), 0), dtype=bool), *(unknown or {}).values()])
    log_odds = np.asarray(clf.decision_function(X))
    predicted = np.asarray(clf.predict(X)).astype(bool)
    counts = np.asarray(clf.class_counts_, dtype=np.int64)
    guess = np.broadcast_to(clf.label_log_odds_[0], log_odds.shape)
    scores = _label_scores(log_odds, present, predicted)
    cuts = np.zeros(len(counts)) if clf.thresholds_ is None else clf.thresholds_ + log_class_prior(clf)
    group = frequency_group(counts)
    groups = {}
    for name in FREQUENCY_GROUPS:
        mine = (group == name) & (counts > 0)
        means = {key: mean_of_finite(values[mine]) for key, values in scores.items() if key != "support"}
        groups[name] = {"labels": float(mine.sum()), **means}
    history = clf.history_
    return Measured(
        task="multilabel",
        title=title,
        names=names,
        metrics={
            "test": multilabel_metrics(log_odds, present, predicted, others),
            "guessing": multilabel_metrics(guess, present, guess > 0, others),
        },
        groups=groups,
        facts={
            "De-mixing": f"{clf.demixing_}; {len(clf.signal_weight_)} sources",
            "Head": clf.head_name_,
            "Synthetic samples": f"{100 * clf.augmentation_weight:.0f} % of a rare label's weight"
            if clf.augmentation_weight
            else "none",
            "Prior in predict": clf.class_prior if isinstance(clf.class_prior, str) else "given",
            "Thresholds": "one half" if clf.thresholds_ is None else "highest F1 of each label on held-out rows",
        },
        candidates={name: {"held-out loss": float(loss)} for name, loss in history["head_candidates"].items()},
        chosen=f"{clf.head_name_} {history['head_setting']:g}",
        curves=training_curves(clf),
        versions=package_versions(),
        unknown_labels={label: int(rows.sum()) for label, rows in (unknown or {}).items()},
        arrays={
            "y": present,
            "predicted": predicted,
            "counts": counts,
            "minority": np.isin(clf.classes_, clf.minority_classes_),
            "threshold": expit(cuts),
            **scores,
        },
    )


def _label_scores(log_odds: Array, present: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> dict[str, Array]:
    """Of each label; NaN where there is nothing to divide by."""
    hits = (present & predicted).sum(axis=0).astype(np.float64)
    support, given = present.sum(axis=0), predicted.sum(axis=0)

    def share(of: NDArray[np.int64]) -> Array:
        return np.divide(hits, of, out=np.full(len(hits), np.nan), where=of > 0)

    return {
        "average_precision": label_average_precision(log_odds, present),
        "f1": label_f1(predicted, present),
        "recall": share(support),
        "precision": share(given),
        "support": support.astype(np.float64),
    }
