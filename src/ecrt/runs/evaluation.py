"""How good a model is on test rows, as plain data; and the files of that, metrics.json and evaluation.npz."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils import _safe_indexing, column_or_1d
from torch.utils.data import Dataset, Subset

from ecrt.arrays import Array, Labels
from ecrt.data import thin_out
from ecrt.diagnostics import map_sources
from ecrt.disk import write_arrays, write_json
from ecrt.errors import InputError
from ecrt.estimators import ECRTClassifier, ECRTRegressor
from ecrt.estimators.decisions import lowest_cost
from ecrt.io.model_files import package_versions
from ecrt.metrics import (
    FREQUENCY_GROUPS,
    PRIORS,
    balanced_gain,
    class_prior_of,
    frequency_group,
    label_average_precision,
    label_f1,
    mean_of_finite,
    mean_over_classes,
    multilabel_metrics,
    nll_per_sample,
    prediction_metrics,
    regression_metrics,
    shift_prior,
    single_numbers,
    target_groups,
)
from ecrt.rivals import BaselineClassifier
from ecrt.runs.config import Target, TaskName

COUNT_UNKNOWN = {"top1", "top5", "macro_f1", "accuracy", "micro_f1", "subset_accuracy", "precision", "false_alarm_rate"}
"""Figures in which a label that the model does not know is an error; the others know classes of the model alone."""

OF_KNOWN = {"threshold", "recall"}
"""Figures on which other rows have no bearing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """A model on test rows.

    Attributes
    ----------
    task, title : what the model predicts, and what the data are.
    names : of the labels of a multi-label model, or of the targets of a regression.
    metrics : figures by class prior, or by group of rows, the main one first; "guessing" needs no look at the row.
    groups : scores of classes with many, medium and few training rows, for each prior; or of labels.
    facts : what was chosen, by name, all that was tried with its held-out figures, and versions of packages. The class
        prior is "given" for an array. A rival has its name (``method``), and neither members nor sources.
    training : losses of every epoch: ``encoder``, if one was trained, and ``restarts`` of flows, the kept one first.
    arrays : of every test row ``y``, for classes an index, -1 where the class was not in training, and ``predicted``.

        Classes and labels have training rows (``counts``, weights rounded) and ``minority``, labels a ``threshold`` (a
        probability) and scores. Classes have their ``labels``, what the diagnostics found on ``n_examples`` training
        rows, what is ``decided`` under costs, and for each prior, as in ``predicted.balanced``, ``predicted``, its
        ``confidence``, and ``log_proba``, unless they are too many to store. Of the two ``sources`` with most signal
        (or one) there are points: test rows (``real``, ``real_y``), and samples drawn of the minority classes, or of
        all if none is minority. Of more than two sources there is a ``map`` too: the principal components of these test
        rows, in the units of the head.

        A regression has ``edges`` and ``counts`` of regions of the target, and the ``region`` and ``group`` of rows.
    unknown_labels : labels that the model does not know, and their rows.
    subject : a sentence on which model this is, and what it has to do with the saved one.
    columns : how columns were read, rows of ``ecrt.data.column_rows``.
    plain : figures of this model and of plain logit adjustment on the same rows, and what is gained over it, with a
        95 % interval; empty where the two were not compared.
    verdict, unlabelled, decision : what transfer, and what unlabelled rows were worth, and how costs decide, in one
        sentence each; empty where there is nothing to say.
    positive : the class that a threshold, or costs of a miss and a false alarm, are for; empty without these.
    decided : what a threshold or costs give on the test rows; recall, precision and false alarms are of ``positive``.
    """

    task: TaskName
    title: str
    metrics: dict[str, dict[str, float]]
    groups: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    training: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    names: tuple[str, ...] = ()
    unknown_labels: dict[str, int] = field(default_factory=dict)
    subject: str = ""
    plain: dict[str, dict[str, float]] = field(default_factory=dict)
    verdict: str = ""
    unlabelled: str = ""
    decision: str = ""
    positive: str = ""
    decided: dict[str, float] = field(default_factory=dict)
    columns: tuple[tuple[str, ...], ...] = ()

    @property
    def y(self) -> NDArray[Any]:
        """The truth of each test row."""
        return self.arrays["y"]

    @property
    def unknown_in(self) -> tuple[list[str], list[str]]:
        """Figures in which labels that the model does not know are errors, and those that leave them out."""
        names = [*next(iter(self.metrics.values())), *(name for name in self.decided if name not in OF_KNOWN)]
        return [name for name in names if name in COUNT_UNKNOWN], [name for name in names if name not in COUNT_UNKNOWN]

    def under(self, prior: str, name: str) -> NDArray[Any]:
        """One of the arrays that there are for each prior."""
        return self.arrays[f"{name}.{prior}"]

    def write(self, folder: str | Path) -> None:
        """Write ``metrics.json``, for readers, and ``evaluation.npz``, without pickles."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {name: value for name, value in vars(self).items() if name != "arrays"}
        write_json(folder / "metrics.json", {"format": 3, "rows": len(self.y), **facts}, indent=2)
        write_arrays(folder / "evaluation.npz", self.arrays)


# --- measuring --------------------------------------------------------------------------------------------------------

TRAINED = ("encoder", "restarts")
DIAGNOSED = ("max_correlation", "hsic", "log_likelihood")
MOST_POINTS, POINTS_PER_CLASS = 2000, 500
MOST_LOG_PROBABILITIES = 20_000_000
"""Beyond this many numbers log-probabilities are not stored: predictions, confidences and metrics are."""


def measure(estimator: Any, X: Any, target: Target, *, title: str) -> Evaluation:
    """How good the model is on test rows."""
    if target.task == "classification":
        return evaluate(estimator, X, target.y, title=title)
    measure_task = measure_labels if target.task == "multilabel" else measure_numbers
    return measure_task(estimator, X, target, title=title)


def evaluate(clf: ECRTClassifier | BaselineClassifier, X: Any, y: ArrayLike, *, title: str = "") -> Evaluation:
    """Predict test rows under both priors and measure; gather what the report shows of the model.

    Parameters
    ----------
    clf : a fitted classifier, ours or a rival.
    X, y : test rows, or a torch Dataset of them, and their labels. Labels that were not in training count as wrong in
        the figures of ``COUNT_UNKNOWN``, and are left out of the others.
    title : what the data are, for the report.
    """
    labels = column_or_1d(y).tolist()
    index_of = {label: index for index, label in enumerate(clf.classes_.tolist())}
    truth = np.array([index_of.get(label, -1) for label in labels], dtype=np.int64)
    if not (truth >= 0).any():
        raise InputError(
            f"None of the {len(labels)} labels in y was in training: y holds {sorted(map(str, set(labels)))[:5]}, "
            f"training had {list(map(str, index_of))[:5]}. Are they of the same type and spelling?"
        )
    counts = np.asarray(clf.class_counts_)
    scores = np.asarray(clf.predict_log_proba(X)) - clf.log_class_prior_
    if len(scores) != len(truth):
        raise InputError(f"X has {len(scores)} rows, y has {len(truth)} labels.")
    log_proba = {
        prior: shift_prior(scores, class_prior_of("balanced", counts), class_prior_of(prior, counts))
        for prior in PRIORS
    }
    guessing = np.broadcast_to(np.log(counts / counts.sum()), scores.shape)
    found: dict[str, dict[str, Any]] = {
        prior: prediction_metrics(values, truth, counts, prior=prior) for prior, values in log_proba.items()
    }
    found["guessing"] = prediction_metrics(guessing, truth, counts, prior="training")
    stored = log_proba if scores.size <= MOST_LOG_PROBABILITIES else {}
    by_prior = {
        "predicted": {prior: values.argmax(axis=1) for prior, values in log_proba.items()},
        "confidence": {prior: np.exp(values.max(axis=1)) for prior, values in log_proba.items()},
        "log_proba": {prior: values.astype(np.float32) for prior, values in stored.items()},
    }
    costs = clf.cost_matrix_
    decided = None if costs is None else lowest_cost(scores + clf.log_class_prior_, costs, clf._offsets)
    return Evaluation(
        task="classification",
        title=title,
        metrics={name: single_numbers(figures) for name, figures in found.items()},
        groups={prior: found[prior]["by_group"] for prior in PRIORS},
        facts={
            **(_rival_facts(clf) if isinstance(clf, BaselineClassifier) else _transfer_facts(clf)),
            "class_prior": _prior_name(clf),
            "versions": package_versions(),
        },
        training={"encoder": clf.history_.get("encoder"), "restarts": clf.history_.get("restarts", [])},
        arrays={
            "y": truth,
            "labels": np.array(list(map(str, index_of)), dtype=np.str_),
            "counts": np.maximum(np.rint(counts), 1).astype(np.int64),
            "minority": np.isin(clf.classes_, clf.minority_classes_),
            **({} if decided is None else {"decided": decided}),
            **{f"{name}.{prior}": values[prior] for name, values in by_prior.items() for prior in values},
            **({} if isinstance(clf, BaselineClassifier) else _transfer_arrays(clf, X, truth)),
        },
        unknown_labels=dict(Counter(str(label) for label in labels if label not in index_of)),
        verdict="" if isinstance(clf, BaselineClassifier) else clf.verdict_,
        unlabelled="" if isinstance(clf, BaselineClassifier) else clf.unlabelled_verdict_,
        decision=clf.decision_verdict_,
        decided={}
        if costs is None or decided is None
        else _costs_paid(costs, decided, (scores + clf.log_class_prior_).argmax(axis=1), truth),
    )


def _costs_paid(costs: Array, decided: Labels, most_probable: Labels, truth: Labels) -> dict[str, float]:
    """Mean cost of test rows by what is predicted, by the most probable class, and by the best class for all rows."""
    known = truth >= 0
    paid = costs[truth[known]]
    rows = np.arange(len(paid))
    return {
        "cost_per_row": float(paid[rows, decided[known]].mean()),
        "cost_of_most_probable": float(paid[rows, most_probable[known]].mean()),
        "cost_of_one_for_all": float(paid.mean(axis=0).min()),
    }


def positive_figures(found: Evaluation, place: int) -> dict[str, float]:
    """How the class at a place fares among test rows, under what was decided; other labels are not it."""
    truth, predicted = found.y == place, found.arrays["decided"] == place
    hits = int((truth & predicted).sum())
    return {
        "recall": hits / max(int(truth.sum()), 1),
        "precision": hits / max(int(predicted.sum()), 1),
        "false_alarm_rate": int((~truth & predicted).sum()) / max(int((~truth).sum()), 1),
    }


def _rival_facts(clf: BaselineClassifier) -> dict[str, Any]:
    return {"method": clf.rival.label, "reference": clf.rival.reference()}


def _transfer_facts(clf: ECRTClassifier) -> dict[str, Any]:
    diagnosed, augmentation = clf.diagnostics_, clf.parts_["augmentation"]
    return {
        "demixing": clf.demixing_,
        "head": clf.head_name_,
        "tried": _tried(clf),
        "n_sources": len(clf.signal_weight_),
        "augmentation": augmentation.kind,
        "augmentation_weight": float(augmentation.weight),
        "round_trip_error": float(diagnosed.round_trip_error),
        "enough_classes": bool(diagnosed.enough_classes),
        "smallest_singular_value": float(diagnosed.smallest_singular_value),
    }


def _transfer_arrays(clf: ECRTClassifier, X: Any, y: Labels) -> dict[str, NDArray[Any]]:
    """What the diagnostics found in each class, and points of its sources."""
    found = clf.diagnostics_.classes
    return {
        "demixed_on": np.isin(clf.classes_, clf.demixed_on_),
        "n_examples": np.array([entry.n_samples for entry in found], dtype=np.int64),
        **{name: np.array([getattr(entry, name) for entry in found], float) for name in DIAGNOSED},
        **_source_points(clf, X, y),
    }


def _tried(clf: ECRTClassifier) -> dict[str, dict[str, float]]:
    """Held-out loss of all that was tried, and its weight; 0 for what does not predict."""
    weights = {(one.name, one.held_out): one.weight for one in clf.members_}
    return {
        name: {"loss": float(loss), "weight": weights.get((name.partition(" (")[0], loss), 0.0)}  # "linear, mlp (2)"
        for name, loss in clf.history_["tried"].items()
    }


def beside_plain(found: Evaluation, plain: Evaluation) -> dict[str, dict[str, float]]:
    """Figures of two models on the same rows, every class with the same weight; gains are those of the first."""
    known = found.y >= 0
    y = found.y[known]
    hits = [(one.arrays["predicted.balanced"] == one.y)[known].astype(np.float64) for one in (found, plain)]
    values = {"balanced_accuracy": (hits[0], hits[1], 1.0)}
    if all("log_proba.balanced" in one.arrays for one in (found, plain)):
        log_proba = [one.arrays["log_proba.balanced"][known].astype(np.float64) for one in (found, plain)]
        losses = [nll_per_sample(one, y) for one in log_proba]
        values["balanced_nll"] = (losses[0], losses[1], -1.0)
    compared = {}
    for name, (mine, other, sign) in values.items():
        gain = balanced_gain(sign * (mine - other), y)
        width = np.nan if gain.half_width is None else gain.half_width
        both = {"model": mean_over_classes(mine, y), "plain": mean_over_classes(other, y)}
        compared[name] = both | {"gain": gain.mean, "low": gain.mean - width, "high": gain.mean + width}
    return compared


def _prior_name(clf: ECRTClassifier | BaselineClassifier) -> str:
    return clf.class_prior if isinstance(clf.class_prior, str) else "given"


def _source_points(clf: ECRTClassifier, X: Any, y: Labels) -> dict[str, NDArray[Any]]:
    """Some test rows of each class, and as many drawn samples; always the same ones."""
    rng = np.random.default_rng(0)
    columns = np.argsort(-np.asarray(clf.signal_weight_), kind="stable")[:2]
    known = np.flatnonzero(y >= 0)
    present = np.unique(y[known])
    cap = max(min(POINTS_PER_CLASS, MOST_POINTS // len(present)), 1)
    rows = known[thin_out(y[known], dict.fromkeys(present.tolist(), cap), rng)]
    rows = np.sort(rng.permutation(rows)[:MOST_POINTS])
    some = Subset(X, rows.tolist()) if isinstance(X, Dataset) else _safe_indexing(X, rows)

    labels = clf.minority_classes_ if len(clf.minority_classes_) else clf.classes_
    labels = labels[:MOST_POINTS]
    n_drawn = max(min(POINTS_PER_CLASS, MOST_POINTS // len(labels)), 1)
    synthetic, drawn = clf.sample(n_drawn, classes=labels.tolist(), random_state=0)
    real = np.asarray(clf.transform(some), dtype=np.float64)
    scale = clf.members_[0].scale
    whole = {"map": map_sources(real * scale, synthetic[:0], "pca", 0)[0]} if len(scale) > 2 else {}
    return whole | {
        "sources": columns,
        "real": real[:, columns],
        "real_y": y[rows],
        "synthetic": np.asarray(synthetic, dtype=np.float64)[:, columns],
        "synthetic_y": np.searchsorted(clf.classes_, drawn),
    }


def measure_numbers(reg: ECRTRegressor, X: Any, target: Target, *, title: str) -> Evaluation:
    """Errors of a regressor, where training targets were many, medium and few; the mean of training as guess."""
    regions = reg.regions_
    truth = target.y.reshape(len(target.y), -1)
    predicted = np.asarray(reg.predict(X)).reshape(truth.shape)
    guess = np.broadcast_to(regions.center, truth.shape)
    metrics = regression_metrics(predicted, truth, regions)
    metrics["guessing"] = regression_metrics(guess, truth, regions)["all"]
    history: dict[str, Any] = reg.history_
    return Evaluation(
        task="regression",
        title=title,
        names=target.names,
        metrics=metrics,
        groups={},
        facts={
            "demixing": reg.demixing_,
            "n_sources": len(reg.signal_weight_),
            "head": reg.head_name_,
            "loss": reg.loss_,
            "region_mass": float(reg.region_mass_),
            "augmentation": reg.augmentation_,
            "candidates": history["candidates"],
            "chosen": history.get("chosen", ""),
            "versions": package_versions(),
        },
        training={name: history[name] for name in TRAINED},
        arrays={
            "y": truth,
            "predicted": predicted,
            "edges": regions.edges * regions.scale[0] + regions.center[0] if truth.shape[1] == 1 else regions.edges,
            "counts": regions.counts,
            "region": regions.region_of(truth),
            "group": target_groups(regions, truth),
        },
    )


def measure_labels(clf: ECRTClassifier, X: Any, target: Target, *, title: str) -> Evaluation:
    """Scores of every label, with training frequencies as guess; labels that the model does not know are missed."""
    present = target.y.astype(bool)
    others = np.column_stack([np.zeros((len(present), 0), dtype=bool), *target.unknown.values()])
    log_odds = np.asarray(clf.decision_function(X))
    predicted = np.asarray(clf.predict(X)).astype(bool)
    counts = np.asarray(clf.class_counts_, dtype=np.int64)
    guess = np.broadcast_to(clf.label_log_odds_[0], log_odds.shape)
    scores = _label_scores(log_odds, present, predicted)
    cuts = np.zeros(len(counts)) if clf.thresholds_ is None else clf.thresholds_ + clf.log_class_prior_
    group = frequency_group(counts)
    groups = {}
    for name in FREQUENCY_GROUPS:
        mine = (group == name) & (counts > 0)
        means = {key: mean_of_finite(values[mine]) for key, values in scores.items() if key != "support"}
        groups[name] = {"labels": float(mine.sum()), **means}
    history: dict[str, Any] = clf.history_
    return Evaluation(
        task="multilabel",
        title=title,
        names=target.names,
        metrics={
            "test": multilabel_metrics(log_odds, present, predicted, others),
            "guessing": multilabel_metrics(guess, present, guess > 0, others),
        },
        groups=groups,
        facts={
            "demixing": clf.demixing_,
            "n_sources": len(clf.signal_weight_),
            "head": clf.head_name_,
            "augmentation_weight": float(clf.parts_["augmentation"].weight),
            "class_prior": _prior_name(clf),
            "thresholds": "one half" if clf.thresholds_ is None else "highest F1",
            "tried": _tried(clf),
            "versions": package_versions(),
        },
        training={name: history[name] for name in TRAINED},
        unknown_labels={label: int(rows.sum()) for label, rows in target.unknown.items()},
        arrays={
            "y": present,
            "predicted": predicted,
            "counts": counts,
            "minority": np.isin(clf.classes_, clf.minority_classes_),
            "threshold": expit(cuts),
            **scores,
        },
        verdict=clf.verdict_,
    )


def _label_scores(log_odds: Array, present: NDArray[np.bool_], predicted: NDArray[np.bool_]) -> dict[str, Array]:
    """Scores of each label; NaN where there is nothing to divide by."""
    hits, support = (present & predicted).sum(axis=0), present.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return {
            "average_precision": label_average_precision(log_odds, present),
            "f1": label_f1(predicted, present),
            "recall": hits / support,
            "precision": hits / predicted.sum(axis=0),
            "support": support.astype(np.float64),
        }
