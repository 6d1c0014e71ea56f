"""What the demonstration found, as plain data, and its two files: results.json and arrays.npz."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.disk import write_arrays, write_text
from ecrt.errors import InputError
from ecrt.experiments.summary import METRICS, Estimate, t_interval, verdict

__all__ = [
    "DEMO_FILES",
    "SUBJECT",
    "VARIANTS",
    "DataResult",
    "DemoResult",
    "DigitImages",
    "FitResult",
    "ToyPicture",
    "is_full_demo",
    "read_demo",
    "write_demo",
]

DEMO_FILES = ("results.json", "arrays.npz", "tables.md", "sources.png", "report.html")

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SUBJECT = "ECRT"
"""The method that the sentences are about."""

VARIANTS = ("ECRT without augmentation",)
"""Methods that share its de-mixing, and so are no baselines."""


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """One method on one seed.

    Attributes
    ----------
    metrics : the numbers of ``ecrt.metrics.prediction_metrics``, and ``minority_recall``.
    demixing, head : what the estimator chose.
    seconds : time that fitting and predicting took.
    """

    method: str
    seed: int
    metrics: dict[str, float]
    demixing: str
    head: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DataResult:
    """All methods on one data set.

    Attributes
    ----------
    fits : one for each method and seed, the seeds of a method in order.
    limit : metrics of the Bayes classifier, where the truth is known.
    """

    name: str
    title: str
    description: str
    fits: tuple[FitResult, ...]
    limit: dict[str, float] | None = None

    @property
    def methods(self) -> list[str]:
        """Names in the order they were run."""
        return list(dict.fromkeys(fit.method for fit in self.fits))

    @property
    def n_seeds(self) -> int:
        """Number of repetitions of each method."""
        return len({fit.seed for fit in self.fits})

    def values(self, method: str, key: str) -> list[float]:
        """A metric of a method, seed by seed."""
        return [fit.metrics[key] for fit in self.fits if fit.method == method]

    def estimate(self, method: str, key: str) -> Estimate:
        """Mean and interval over the seeds."""
        return t_interval(self.values(method, key))

    def verdicts(self) -> list[str]:
        """Sentences on accuracy and NLL, computed from the numbers."""
        chosen = [metric for metric in METRICS if metric.key in ("top1", "nll")]
        return [
            verdict({method: self.values(method, metric.key) for method in self.methods}, metric, SUBJECT, VARIANTS)
            for metric in chosen
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class ToyPicture:
    """Points of one toy seed.

    Attributes
    ----------
    z, y, true_s, found_s : features, labels, true and recovered sources of some test rows.
    minority : the rare class.
    train_s, train_z : its training samples, as recovered sources and as features.
    parametric_s, permutation_s, parametric_z, permutation_z : synthetic ones, the last two sent back to features.
    """

    z: Array
    y: Labels
    true_s: Array
    found_s: Array
    minority: Labels
    train_s: Array
    train_z: Array
    parametric_s: Array
    permutation_s: Array
    parametric_z: Array
    permutation_z: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class DigitImages:
    """Minority digits, one row of images for each class: training samples and synthetic ones."""

    classes: Labels
    real: Array
    synthetic: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class DemoResult:
    """Everything that the report of the demonstration shows.

    Attributes
    ----------
    data : results on each data set.
    toy, digits : what the pictures show.
    source_match : mean absolute rank correlation of true and recovered toy sources in the picture.
    settings : first seed, whether these are the sizes of the demonstration proper (``full``), sizes and options.
    versions : of the packages that matter.
    seconds : time of the whole run.
    """

    data: tuple[DataResult, ...]
    toy: ToyPicture
    digits: DigitImages
    source_match: float
    settings: dict[str, Any]
    versions: dict[str, str]
    seconds: float


def write_demo(result: DemoResult, folder: Path) -> None:
    """Write ``results.json`` and ``arrays.npz``; the sentences and means in the former are for readers."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "settings": result.settings,
        "versions": result.versions,
        "seconds": result.seconds,
        "source_match": result.source_match,
        "data": [asdict(data) | {"summary": _summary(data), "verdicts": data.verdicts()} for data in result.data],
    }
    write_text(folder / "results.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    pictures: dict[str, ToyPicture | DigitImages] = {"toy": result.toy, "digits": result.digits}
    arrays = {
        f"{part}.{field.name}": getattr(values, field.name)
        for part, values in pictures.items()
        for field in fields(values)
    }
    write_arrays(folder / "arrays.npz", arrays)


def is_full_demo(folder: Path) -> bool:
    """Whether a folder holds results that are not, for certain, those of a short run."""
    if not (folder / "results.json").exists():
        return False
    try:
        return bool(json.loads((folder / "results.json").read_text(encoding="utf-8"))["settings"]["full"])
    except (OSError, ValueError, KeyError, TypeError):
        return True


def read_demo(folder: Path) -> DemoResult:
    """Read what ``write_demo`` wrote."""
    for name in ("results.json", "arrays.npz"):
        if not (folder / name).is_file():
            raise InputError(f"{folder} holds no {name}: run `ecrt demo --output {folder}` first.")
    document = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    with np.load(folder / "arrays.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    return DemoResult(
        data=tuple(_read_data(entry) for entry in document["data"]),
        toy=ToyPicture(**_part(arrays, "toy")),
        digits=DigitImages(**_part(arrays, "digits")),
        source_match=document["source_match"],
        settings=document["settings"],
        versions=document["versions"],
        seconds=document["seconds"],
    )


def _summary(data: DataResult) -> dict[str, dict[str, Any]]:
    keys = data.fits[0].metrics
    return {method: {key: asdict(data.estimate(method, key)) for key in keys} for method in data.methods}


def _read_data(entry: dict[str, Any]) -> DataResult:
    return DataResult(
        name=entry["name"],
        title=entry["title"],
        description=entry["description"],
        fits=tuple(FitResult(**fit) for fit in entry["fits"]),
        limit=entry["limit"],
    )


def _part(arrays: dict[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    return {name.partition(".")[2]: values for name, values in arrays.items() if name.startswith(f"{part}.")}
