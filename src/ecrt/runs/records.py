"""What a fitted model did on test rows, as plain data, and its two files: metrics.json and evaluation.npz."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.disk import read_arrays, write_arrays, write_json
from ecrt.errors import InputError
from ecrt.io import read_json
from ecrt.metrics import PRIORS

__all__ = [
    "PRIORS",
    "ClassFacts",
    "Curve",
    "Evaluation",
    "ModelFacts",
    "SourcePoints",
    "as_written",
    "curve_arrays",
    "curve_facts",
    "read_curves",
    "read_metrics",
    "with_nan",
    "without_nan",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]

FORMAT = 1
METRICS_FILE, ARRAYS_FILE = "metrics.json", "evaluation.npz"


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
class Curve:
    """Losses of one trained network, epoch by epoch; a restart that failed has none but an error.

    Attributes
    ----------
    stage : "encoder" or "flow".
    best_epoch : counted from 0.
    n_blocks, held_out_contrast, error : of a flow.
    """

    stage: str
    train_loss: Array
    held_out_loss: Array
    best_epoch: int
    n_blocks: int = 0
    held_out_contrast: float = math.nan
    error: str = ""


def curve_facts(curves: tuple[Curve, ...]) -> list[dict[str, Any]]:
    """What JSON keeps of curves."""
    return [{name: value for name, value in vars(curve).items() if not name.endswith("_loss")} for curve in curves]


def curve_arrays(curves: tuple[Curve, ...]) -> dict[str, Array]:
    """Their losses."""
    names = ("train_loss", "held_out_loss")
    return {f"curve{index}.{name}": getattr(curve, name) for index, curve in enumerate(curves) for name in names}


def read_curves(facts: list[dict[str, Any]], arrays: dict[str, NDArray[Any]]) -> tuple[Curve, ...]:
    """Curves again, whose losses are taken out of the arrays."""
    return tuple(
        Curve(
            **fact,
            train_loss=arrays.pop(f"curve{index}.train_loss"),
            held_out_loss=arrays.pop(f"curve{index}.held_out_loss"),
        )
        for index, fact in enumerate(facts)
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """A model on test rows.

    Attributes
    ----------
    title : what the data are.
    subject : a sentence on which model this is, and what it has to do with the saved one.
    columns : how columns were read, cells of ``ecrt.data.column_rows``.
    model, classes, points, curves : of the model.
    y : class index of each row, -1 for a label that was not in training.
    unknown_labels : those labels, and their rows.
    metrics : for each prior, the numbers of ``prediction_metrics``; and, as "guessing", those of the training
        frequencies given for every row alike.
    groups : for each prior, recall of classes with many, medium and few training samples.
    predicted, confidence : for each prior, the top class of each row and its probability.
    log_proba : for each prior, as float32; empty where they are too many to store.
    """

    title: str
    model: ModelFacts
    classes: ClassFacts
    points: SourcePoints
    curves: tuple[Curve, ...]
    y: Labels
    unknown_labels: dict[str, int]
    metrics: dict[str, dict[str, float]]
    groups: dict[str, dict[str, dict[str, float]]]
    predicted: dict[str, Labels]
    confidence: dict[str, Array]
    log_proba: dict[str, NDArray[np.float32]]
    subject: str = ""
    columns: tuple[tuple[str, ...], ...] = ()

    def write(self, folder: str | Path) -> None:
        """Write ``metrics.json``, for readers, and ``evaluation.npz``, without pickles."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "format": FORMAT,
            "title": self.title,
            "subject": self.subject,
            "columns": self.columns,
            "rows": len(self.y),
            "unknown_labels": self.unknown_labels,
            "metrics": self.metrics,
            "groups": self.groups,
            "model": asdict(self.model),
            "curves": curve_facts(self.curves),
        }
        write_json(folder / METRICS_FILE, without_nan(document), indent=2)
        arrays: dict[str, NDArray[Any]] = {"y": self.y}
        arrays |= {f"classes.{name}": value for name, value in vars(self.classes).items()}
        arrays |= {f"points.{name}": value for name, value in vars(self.points).items()}
        arrays |= curve_arrays(self.curves)
        for name in ("predicted", "confidence", "log_proba"):
            arrays |= {f"{name}.{prior}": values for prior, values in getattr(self, name).items()}
        write_arrays(folder / ARRAYS_FILE, arrays)

    @classmethod
    def read(cls, folder: str | Path) -> Evaluation:
        """Read what ``write`` wrote."""
        folder = Path(folder)
        document = read_metrics(folder)
        arrays = read_arrays(folder / ARRAYS_FILE)

        def part(prefix: str) -> dict[str, Any]:
            return {name.partition(".")[2]: a for name, a in arrays.items() if name.startswith(f"{prefix}.")}

        with as_written(folder):
            return cls(
                title=document["title"],
                model=ModelFacts(**document["model"]),
                classes=ClassFacts(**part("classes")),
                points=SourcePoints(**part("points")),
                curves=read_curves(document["curves"], arrays),
                y=arrays["y"],
                unknown_labels=document["unknown_labels"],
                metrics=document["metrics"],
                groups=document["groups"],
                predicted=part("predicted"),
                confidence=part("confidence"),
                log_proba=part("log_proba"),
                subject=document["subject"],
                columns=tuple(map(tuple, document["columns"])),
            )


def read_metrics(folder: Path) -> dict[str, Any]:
    """What ``metrics.json`` says, NaN for null."""
    file = folder / METRICS_FILE
    if not file.exists():
        raise InputError(f"{folder} holds no {METRICS_FILE}: write an Evaluation of a fitted model there first.")
    document = with_nan(read_json(file))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise InputError(f"{file} has format {str(found)[:20]}, this version of ecrt reads {FORMAT}.")
    return document


@contextmanager
def as_written(folder: Path) -> Iterator[None]:
    """A field that is missing, or of another kind, is an error of the files and not of the program."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{METRICS_FILE} and {ARRAYS_FILE} in {folder} are not as ecrt writes them ({str(error)[:80]}): "
            "evaluate the model again."
        ) from error


def without_nan(value: Any) -> Any:
    """JSON knows no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {str(key): without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def with_nan(value: Any) -> Any:
    """NaN for null again."""
    if isinstance(value, dict):
        return {key: with_nan(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [with_nan(entry) for entry in value]
    return math.nan if value is None else value
