"""What a fitted model did on test rows, as plain data, and its two files: metrics.json and evaluation.npz."""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.disk import write_arrays, write_json

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
TaskName = Literal["classification", "multilabel", "regression"]


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What was fitted.

    Attributes
    ----------
    demixing, head, head_setting : what was chosen.
    demixing_held_out, head_candidates : held-out loss of all that was tried.
    n_sources : signal sources.
    augmentation, augmentation_weight : how synthetic samples are drawn, and their share of a rare class's weight.
    class_prior : that ``predict`` assumes: "balanced", "training", or "given" for an array.
    round_trip_error, enough_classes, smallest_singular_value : of the diagnostics.
    versions : of the packages that matter.
    """

    demixing: str
    head: str
    head_setting: float
    demixing_held_out: dict[str, float]
    head_candidates: dict[str, float]
    n_sources: int
    augmentation: str
    augmentation_weight: float
    class_prior: str
    round_trip_error: float
    enough_classes: bool
    smallest_singular_value: float
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassFacts:
    """One entry for each class.

    Attributes
    ----------
    labels : as text.
    counts : training samples.
    minority, demixed_on : called minority; learned from in de-mixing.
    n_examples, max_correlation, hsic, log_likelihood : training samples that the diagnostics were measured on, and what
        they found.
    """

    labels: NDArray[np.str_]
    counts: Labels
    minority: Mask
    demixed_on: Mask
    n_examples: Labels
    max_correlation: Array
    hsic: Array
    log_likelihood: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class SourcePoints:
    """Points of the source scatter: the two sources with most signal (one, if there is only one).

    Attributes
    ----------
    columns : which sources.
    real, real_y : test rows.
    synthetic, synthetic_y : drawn samples of the minority classes, or of all classes if none is minority.
    """

    columns: Labels
    real: Array
    real_y: Labels
    synthetic: Array
    synthetic_y: Labels


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskResults:
    """A model on test rows, whatever its task.

    Attributes
    ----------
    title : what the data are.
    subject : a sentence on which model this is, and what it has to do with the saved one.
    columns : how columns were read, rows of ``ecrt.data.column_rows``.
    metrics : figures by group of rows or by class prior; "guessing" is what needs no look at the row.
    training : losses of every epoch: ``encoder``, if one was trained, and ``restarts`` of flows, the kept one first.
    unknown_labels : labels that the model does not know, and their rows.
    """

    title: str
    metrics: dict[str, dict[str, float]]
    training: dict[str, Any]
    unknown_labels: dict[str, int] = field(default_factory=dict)
    subject: str = ""
    columns: tuple[tuple[str, ...], ...] = ()

    def write(self, folder: str | Path) -> None:
        """Write ``metrics.json``, for readers, and ``evaluation.npz``, without pickles."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {}
        n_rows = len(self.y)  # type: ignore[attr-defined]  # of the subclasses
        document = {"format": 2, "rows": n_rows, **_without_arrays(self, "", arrays)}
        write_json(folder / "metrics.json", document, indent=2)
        write_arrays(folder / "evaluation.npz", arrays)


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation(TaskResults):
    """A classifier on test rows.

    Attributes
    ----------
    model, classes, points : of the model.
    y : class index of each row, -1 for a label that was not in training.
    metrics : for each prior, the numbers of ``prediction_metrics``; and, as "guessing", those of the training
        frequencies given for every row.
    groups : for each prior, recall of classes with many, medium and few training samples.
    predicted, confidence : for each prior, the top class of each row and its probability.
    log_proba : for each prior, as float32; empty where they are too many to store.
    """

    task: Literal["classification"] = "classification"
    model: ModelFacts
    classes: ClassFacts
    points: SourcePoints
    y: Labels
    groups: dict[str, dict[str, dict[str, float]]]
    predicted: dict[str, Labels]
    confidence: dict[str, Array]
    log_proba: dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured(TaskResults):
    """A regressor, or a multi-label model, on test rows.

    Attributes
    ----------
    names : of the targets, or of the labels.
    metrics : figures of groups of rows, the main one first.
    groups : of labels with many, medium and few training rows, their number and mean scores.
    facts : what was chosen, by name.
    candidates : held-out figures of all that was tried.
    chosen : which of these it is.
    versions : of the packages that matter.
    arrays : of every test row ``y`` and ``predicted``. Of a regression also ``edges`` and ``counts``, regions of the
        target with their training rows, and of every test row its ``region`` and ``group``; of labels their training
        rows (``counts``), ``minority``, ``threshold`` (a probability) and scores.
    """

    task: Literal["regression", "multilabel"]
    names: tuple[str, ...]
    groups: dict[str, dict[str, float]]
    facts: dict[str, str | float]
    candidates: dict[str, dict[str, float]]
    chosen: str
    versions: dict[str, str]
    arrays: dict[str, NDArray[Any]]

    @property
    def y(self) -> NDArray[Any]:
        """The truth of each test row."""
        return self.arrays["y"]


def _without_arrays(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value with null for its arrays, which are put aside under their path."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    value = vars(value) if is_dataclass(value) else value
    begin = f"{name}." if name else ""
    if isinstance(value, dict):
        return {str(key): _without_arrays(entry, f"{begin}{key}", arrays) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(entry, f"{begin}{place}", arrays) for place, entry in enumerate(value)]
    return value
