"""The demonstration: four methods on data that need no download."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import joblib
import numpy as np
from numpy.typing import NDArray

from ecrt.data import Split, SyntheticData, imbalanced_digits, toy_sources
from ecrt.errors import InputError
from ecrt.estimators import ECRTClassifier
from ecrt.experiments.demo_results import SUBJECT, DataResult, DemoResult, DigitImages, FitResult, ToyPicture
from ecrt.metrics import PriorName, mean_correlation_coefficient, prediction_metrics, single_numbers
from ecrt.training import Progress, SilentProgress, one_thread

__all__ = ["METHODS", "QUICK", "DemoConfig", "run_demo"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
DataName = Literal["digits", "toy"]

METHODS: dict[str, dict[str, Any]] = {
    "ERM": {
        "demixing": "none",
        "augmentation_weight": 0.0,
        "head_loss": "cross-entropy",
        "class_prior": "training",
    },
    "Logit adjustment": {"demixing": "none", "augmentation_weight": 0.0},
    "ECRT without augmentation": {"augmentation_weight": 0.0},
    SUBJECT: {},
}
"""Options of ECRTClassifier. ERM and logit adjustment read the standardised features, with the same choice of heads."""

MINORITY_DIGITS = (5, 6, 7, 8, 9)
MINORITY_TOY = (0,)
POINTS_PER_CLASS = 300
IMAGES_PER_CLASS = 5


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Sizes of the demonstration.

    Attributes
    ----------
    digits_seeds, toy_seeds : repetitions, each with its own split or draw.
    digits_minority : training samples of each of the digits 5 to 9.
    toy_minority, toy_majority, toy_test : samples of the toy's class 0, of each other class, and of each test class.
    digits_options, toy_options : options of ECRTClassifier for every method alike.
    toy_flow_options : further ones for the methods that train a flow, to save time.
    """

    digits_seeds: int = 5
    toy_seeds: int = 3
    digits_minority: int = 10
    toy_minority: int = 50
    toy_majority: int = 1000
    toy_test: int = 2000
    digits_options: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 40})
    toy_options: Mapping[str, Any] = field(default_factory=dict)
    toy_flow_options: Mapping[str, Any] = field(default_factory=lambda: {"epochs": 30})


QUICK = DemoConfig(
    digits_seeds=2, toy_seeds=1, toy_majority=500, toy_test=500,
    digits_options={"epochs": 10}, toy_options={"epochs": 15}, toy_flow_options={"n_restarts": 1},
)  # fmt: skip
"""A short run, to see that everything works; its figures mean little."""


@dataclass(frozen=True, kw_only=True)
class _Fitted:
    data: DataName
    fit: FitResult
    picture: ToyPicture | DigitImages | None
    limit: dict[str, float] | None


def run_demo(
    *, seed: int = 0, config: DemoConfig | None = None, jobs: int | None = None, progress: Progress | None = None
) -> DemoResult:
    """Fit every method on every seed of both data sets.

    Parameters
    ----------
    seed : the first seed; the others follow it.
    config : sizes; ``None`` for the demonstration proper.
    jobs : processes, with one thread each; ``None`` for one on each core. The result does not depend on it.
    progress : is told of every fit that is done.
    """
    config = config or DemoConfig()
    progress = progress or SilentProgress()
    if seed < 0 or (jobs is not None and jobs < 1):
        raise InputError(f"seed={seed}, jobs={jobs}: a seed is 0 or more, and at least one job is needed.")
    # The toy's flows take longest, so they go first and no process is left with one at the end.
    tasks: list[tuple[DataName, str, int]] = [
        ("toy", method, seed + i) for method in reversed(METHODS) for i in range(config.toy_seeds)
    ]
    tasks += [("digits", method, seed + i) for method in reversed(METHODS) for i in range(config.digits_seeds)]
    started = time.perf_counter()
    progress.start("demo: fits", len(tasks))
    fitted: list[_Fitted] = []
    with joblib.parallel_config(n_jobs=min(jobs or joblib.cpu_count(), len(tasks))):
        calls = (joblib.delayed(_fit)(*task, config, task[2] == seed) for task in tasks)
        for done in joblib.Parallel(return_as="generator_unordered")(calls):
            fitted.append(done)
            progress.advance(f"{done.data}, {done.fit.method}, seed {done.fit.seed}: {done.fit.seconds:.0f} s")
    progress.finish()
    return _collect(fitted, seed, config, time.perf_counter() - started)


def _fit(data: DataName, method: str, seed: int, config: DemoConfig, pictured: bool) -> _Fitted:
    """One fit; the pictures are of ECRT on the first seed."""
    pictured = pictured and method == SUBJECT
    picture: ToyPicture | DigitImages | None = None
    limit: dict[str, float] | None = None
    with one_thread():
        if data == "toy":
            split, drawn = _toy(seed, config)
            further = {} if METHODS[method].get("demixing") == "none" else config.toy_flow_options
            fit, model = _score(method, seed, split, MINORITY_TOY, {**config.toy_options, **further})
            if method == SUBJECT:
                limit = _metrics(toy_sources().log_posterior(drawn.s), split, "balanced", MINORITY_TOY)
            if pictured:
                picture = _toy_picture(model, split, drawn)
        else:
            split = imbalanced_digits(config.digits_minority, seed, MINORITY_DIGITS)
            fit, model = _score(method, seed, split, MINORITY_DIGITS, config.digits_options)
            if pictured:
                picture = _digit_images(model, split)
    return _Fitted(data=data, fit=fit, picture=picture, limit=limit)


def _toy(seed: int, config: DemoConfig) -> tuple[Split, SyntheticData]:
    sources, rng = toy_sources(), np.random.default_rng(seed)
    sizes = np.full(len(sources.means), config.toy_majority)
    sizes[list(MINORITY_TOY)] = config.toy_minority
    train = sources.draw(sizes, rng)
    test = sources.draw(np.full(len(sizes), config.toy_test), rng)
    return Split(train.z, train.y, test.z, test.y), test


def _score(
    method: str, seed: int, split: Split, minority: tuple[int, ...], options: Mapping[str, Any]
) -> tuple[FitResult, ECRTClassifier]:
    started = time.perf_counter()
    model = ECRTClassifier(random_state=seed, device="cpu", **{**options, **METHODS[method]})
    model.fit(split.X_train, split.y_train)
    prior = METHODS[method].get("class_prior", "balanced")
    metrics = _metrics(model.predict_log_proba(split.X_test), split, prior, minority)
    fit = FitResult(
        method=method,
        seed=seed,
        metrics=metrics,
        demixing=model.demixing_,
        head=model.head_name_,
        seconds=time.perf_counter() - started,
    )
    return fit, model


def _metrics(log_proba: Array, split: Split, prior: PriorName, minority: tuple[int, ...]) -> dict[str, float]:
    y, counts = split.y_test, np.bincount(split.y_train)
    hits = log_proba.argmax(axis=1) == y
    recall = float(np.mean([hits[y == label].mean() for label in minority]))
    return single_numbers(prediction_metrics(log_proba, y, counts, prior=prior)) | {"minority_recall": recall}


def _toy_picture(model: ECRTClassifier, split: Split, drawn: SyntheticData) -> ToyPicture:
    rows = np.concatenate([np.flatnonzero(drawn.y == label)[:POINTS_PER_CLASS] for label in np.unique(drawn.y)])
    train_z = split.X_train[np.isin(split.y_train, MINORITY_TOY)]
    synthetic: dict[str, Array] = {}
    for kind in ("parametric", "permutation"):
        model.set_params(augmentation=kind)
        for space in ("source", "feature"):
            points, _ = model.sample(POINTS_PER_CLASS, MINORITY_TOY, space=space, random_state=0)
            synthetic[f"{kind}_{'s' if space == 'source' else 'z'}"] = points
    return ToyPicture(
        z=drawn.z[rows],
        y=drawn.y[rows],
        true_s=drawn.s[rows],
        found_s=model.transform(drawn.z[rows]),
        minority=np.array(MINORITY_TOY),
        train_s=model.transform(train_z),
        train_z=train_z,
        **synthetic,
    )


def _digit_images(model: ECRTClassifier, split: Split) -> DigitImages:
    classes = np.array(MINORITY_DIGITS)
    points, labels = model.sample(IMAGES_PER_CLASS, MINORITY_DIGITS, space="feature", random_state=0)
    return DigitImages(
        classes=classes,
        real=np.stack([_images(split.X_train[split.y_train == label][:IMAGES_PER_CLASS]) for label in classes]),
        synthetic=np.stack([_images(points[labels == label]) for label in classes]),
    )


def _images(rows: Array) -> Array:
    return rows.reshape(-1, 8, 8)


def _collect(fitted: list[_Fitted], seed: int, config: DemoConfig, seconds: float) -> DemoResult:
    def fits(data: DataName) -> tuple[FitResult, ...]:
        found = [done.fit for done in fitted if done.data == data]
        return tuple(sorted(found, key=lambda fit: (list(METHODS).index(fit.method), fit.seed)))

    pictures = {done.data: done.picture for done in fitted if done.picture is not None}
    toy, digits = pictures["toy"], pictures["digits"]
    if not isinstance(toy, ToyPicture) or not isinstance(digits, DigitImages):
        raise TypeError("a picture went to the wrong data set")
    limits = [done.limit for done in fitted if done.limit is not None]
    limit = {key: float(np.mean([each[key] for each in limits])) for key in limits[0]}
    return DemoResult(
        data=(
            DataResult(
                name="digits",
                title="Handwritten digits",
                description=(
                    f"scikit-learn's 8 × 8 digits. Half the rows train, half test; the digits 5 to 9 keep "
                    f"{config.digits_minority} training samples each, the digits 0 to 4 about 90."
                ),
                fits=fits("digits"),
            ),
            DataResult(
                name="toy",
                title="Toy of the paper",
                description=(
                    f"Seven classes, Gaussian in two independent sources, mixed by the Hénon map. Class 0 keeps "
                    f"{config.toy_minority} training samples, the others {config.toy_majority:,} each; "
                    f"{config.toy_test:,} a class test.{_epochs_note(config)}"
                ),
                fits=fits("toy"),
                limit=limit,
            ),
        ),
        toy=toy,
        digits=digits,
        source_match=mean_correlation_coefficient(toy.true_s, toy.found_s),
        settings={"seed": seed, "full": config == DemoConfig(), **asdict(config)},
        versions=_versions(),
        seconds=seconds,
    )


def _epochs_note(config: DemoConfig) -> str:
    """Say where methods differ in how long they may train."""
    usual = ECRTClassifier().epochs
    flow = {**config.toy_options, **config.toy_flow_options}.get("epochs", usual)
    plain = config.toy_options.get("epochs", usual)
    return (
        "" if flow == plain else f" To save time, methods with a flow train for at most {flow} epochs, others {plain}."
    )


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("ecrt", "torch", "scikit-learn", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "(source tree)"
    return found
