"""What ECRT must beat on Tiny-ImageNet embeddings: rivals tuned on held-out training rows, compared row by row."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ecrt.data import stratified_holdout
from ecrt.estimators import ECRTClassifier
from ecrt.losses import LossName, effective_prior, make_class_loss
from ecrt.metrics import (
    PRIORS,
    PriorName,
    class_prior_of,
    mean_over_classes,
    nll_per_sample,
    prediction_metrics,
    shift_prior,
    single_numbers,
)
from ecrt.rivals import BaselineClassifier
from ecrt.stages import LinearHead
from ecrt.stages.heads import HeadSample, LinearFitter, head_outputs
from paper.data import load_embeddings
from paper.experiments.table_one import ECRT_PARTS
from paper.statistics import bootstrap_texts, observations, table

__all__ = [
    "METHODS",
    "PER_ROW",
    "Problem",
    "cells",
    "linear",
    "linear_as_chosen",
    "run_cell",
    "summarise",
]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Row = dict[str, Any]

SUBJECT = "ECRT"
PER_ROW = "outcomes"
"""Key of what happened on each test row: the paired intervals need it, the file of results does not keep it."""

SEEDS = (0, 1, 2)
HELD_OUT = 0.2
SCALINGS = ("one scale", "standardised")
SHRINKAGES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8)

LINEAR_LOSSES: dict[str, LossName] = {
    "linear LA": "logit-adjusted",
    "linear post-hoc LA": "cross-entropy",
    "linear weighted": "weighted",
    "linear LDAM": "ldam",
    "linear focal": "focal",
}

SHOWN = ("top1", "top5", "nll", "nll_scaled", "macro_f1", "g_mean", "ece", "mean_average_precision")
WITH_INTERVAL = ("top1", "top5", "nll", "macro_f1")
PAIRED = ("top1", "nll")
CRITERIA = {"NLL": "balanced_nll", "accuracy": "balanced_accuracy"}


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Predictions of a fitted method.

    Attributes
    ----------
    what, chosen : the method and the settings that held-out rows chose.
    prior : that ``log_proba``, of the test rows, assumes; figures under it are the method's own.
    validation : log-probabilities and labels of held-out rows, by the model that had not seen them.
    """

    what: str
    prior: PriorName
    log_proba: Array
    chosen: Row = field(default_factory=dict)
    validation: tuple[Array, Labels] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Rows to learn from and to predict; labels are indices."""

    X: NDArray[Any]
    y: Labels
    X_test: NDArray[Any]
    seed: int

    @property
    def counts(self) -> Labels:
        """Training rows of each class."""
        return np.bincount(self.y)


Setting = tuple[Any, ...]
Predict = Callable[[NDArray[Any]], Array]
Method = Callable[[Problem], Iterator[Fitted]]


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with every seed; training rows are fixed: a seed changes held-out rows and whatever is drawn."""
    for seed in SEEDS[:1] if smoke else SEEDS:
        for method in ("shrinkage LDA",) if smoke else METHODS:
            yield {"method": method, "seed": seed, "most_rows": 1000 if smoke else None}


def run_cell(*, method: str, seed: int, most_rows: int | None) -> Row:
    """Choose settings on a held-out fifth of the training rows, fit on all of them, and measure on the test rows."""
    data = load_embeddings("tiny_imagenet")
    rows = np.random.default_rng(seed).permutation(len(data.y_train))[:most_rows]
    classes, y = np.unique(data.y_train[rows], return_inverse=True)
    known = np.flatnonzero(np.isin(data.y_test, classes))[:most_rows]  # all of them, but in a smoke run
    y_test = np.searchsorted(classes, data.y_test[known])
    problem = Problem(X=data.X_train[rows], y=y.astype(np.int64), X_test=data.X_test[known], seed=seed)
    entries, outcomes = [], {}
    for fitted in METHODS[method](problem):
        figures = {
            prior: single_numbers(
                prediction_metrics(
                    fitted.log_proba, y_test, problem.counts, prior=prior, assumed=fitted.prior,
                    validation=fitted.validation,
                )
            )
            for prior in PRIORS
        }  # fmt: skip
        entries.append({"what": fitted.what, "prior": fitted.prior, "chosen": fitted.chosen, "figures": figures})
        outcomes[fitted.what] = _outcomes(fitted, y_test, problem.counts)
    return {"entries": entries, PER_ROW: outcomes}


def _outcomes(fitted: Fitted, y: Labels, counts: Labels) -> Row:
    """Hit and loss of each test row under both priors, short enough for a journal."""
    found: Row = {}
    for prior in PRIORS:
        log_proba = shift_prior(fitted.log_proba, class_prior_of(fitted.prior, counts), class_prior_of(prior, counts))
        found[prior] = {
            "top1": (log_proba.argmax(axis=1) == y).astype(int).tolist(),
            "nll": nll_per_sample(log_proba, y).round(4).tolist(),
        }
    return found


# --- methods ------------------------------------------------------------------------------------------------------


def _ecrt(problem: Problem) -> Iterator[Fitted]:
    clf = ECRTClassifier(random_state=problem.seed, **ECRT_PARTS).fit(problem.X, problem.y)
    yield Fitted(
        what=SUBJECT,
        prior="balanced",
        log_proba=np.asarray(clf.predict_log_proba(problem.X_test)),
        chosen={"demixing": clf.demixing_, "head": clf.head_name_, "weight_decay": clf.history_["head_setting"]},
    )


def linear(what: str, loss: LossName, *, plain: bool = False, scalings: tuple[str, ...] = SCALINGS[:1]) -> Method:
    """A linear head under a loss, its weight decay tuned; meant for the balanced prior.

    Parameters
    ----------
    plain : also the same head meant for the training prior: cross-entropy is then ERM, and the other post-hoc LA.
    scalings : of the features. ERM and LA try both, and both take one scale for all; the others take that.
    """

    def method(problem: Problem) -> Iterator[Fitted]:
        tried = dict(_linear_path(problem, loss, scalings))
        fit = _memory(lambda setting: _fit_linear(problem, loss, setting))
        assumed = effective_prior(loss, torch.from_numpy(problem.counts)).numpy()
        if plain:
            yield from _chosen(problem, "linear ERM", tried, fit, assumed=assumed, aim="training")
        yield from _chosen(problem, what, tried, fit, assumed=assumed, aim="balanced")

    return method


def _baseline(what: str, rates: tuple[float | None, ...] = (None,), *, method: str, loss: str = "auto") -> Method:
    """A rival behind our interface, on standardised features, with what it chooses by itself on held-out rows.

    Parameters
    ----------
    rates : learning rates to try, where the head is trained by steps; the lowest held-out loss chooses.
    loss : of the head.
    """

    def fit(problem: Problem) -> Iterator[Fitted]:
        best: Any = None
        for rate in rates:
            head: Row = {} if rate is None else {"head": LinearHead(loss=loss, learning_rate=rate)}
            clf = BaselineClassifier(method=method, random_state=problem.seed, **head).fit(problem.X, problem.y)
            if best is None or _held_out_loss(clf) < _held_out_loss(best):
                best = clf
        rate = best.head.learning_rate if isinstance(best.head, LinearHead) else None
        chosen = {"method": method, "rate": rate, "head_setting": best.history_.get("head_setting")}
        log_proba = np.asarray(best.predict_log_proba(problem.X_test))
        yield Fitted(what=what, prior="balanced", log_proba=log_proba, chosen=chosen)

    return fit


def _held_out_loss(clf: BaselineClassifier) -> float:
    return min(clf.history_["head_candidates"].values())


def _shrinkage_lda(problem: Problem) -> Iterator[Fitted]:
    """Pooled covariance under training frequencies: a rare class says little about it."""

    def fit(setting: Setting, rows: Labels | slice = slice(None)) -> Predict:
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=setting[0])
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Only one sample")  # of a class, in a smoke run
            lda.fit(problem.X[rows].astype(np.float64), problem.y[rows])
        return lambda X: np.asarray(lda.predict_log_proba(X.astype(np.float64)))

    train, held_out = _split(problem)
    tried = {(shrinkage,): fit((shrinkage,), train)(problem.X[held_out]) for shrinkage in SHRINKAGES}
    final = _memory(lambda setting: fit(setting)(problem.X_test))
    yield from _chosen(
        problem, "shrinkage LDA", tried, final, assumed="training", aim="balanced", names=("shrinkage",)
    )  # fmt: skip


METHODS: dict[str, Method] = {
    SUBJECT: _ecrt,
    "linear LA": linear("linear LA", "logit-adjusted", scalings=SCALINGS),
    "shrinkage LDA": _shrinkage_lda,
    "linear ERM": linear("linear post-hoc LA", "cross-entropy", plain=True, scalings=SCALINGS),
    "linear weighted": linear("linear weighted", "weighted"),
    "linear LDAM": linear("linear LDAM", "ldam"),
    "linear focal": linear("linear focal", "focal"),
    "tau-norm": _baseline("tau-norm", method="tau-norm"),
    "mixup": _baseline("mixup, LA", (4e-3, 1.6e-2), method="mixup", loss="logit-adjusted"),
    "SMOTE": _baseline("SMOTE of features", method="feature-smote"),
    "distribution calibration": _baseline("distribution calibration", method="distribution-calibration"),
    "LDA": _baseline("LDA behind our interface", method="lda"),
}
"""By name; one fit may give several lines."""


def _split(problem: Problem) -> tuple[Labels, Labels]:
    return stratified_holdout(problem.y, HELD_OUT, np.random.default_rng(problem.seed))


def _memory(fit: Callable[[Setting], Array]) -> Callable[[Setting], Array]:
    """Two criteria often choose the same setting, which is then fitted once."""
    kept: dict[Setting, Array] = {}

    def remembered(setting: Setting) -> Array:
        if setting not in kept:
            kept[setting] = fit(setting)
        return kept[setting]

    return remembered


def _chosen(
    problem: Problem,
    what: str,
    tried: dict[Setting, Array],
    fit: Callable[[Setting], Array],
    *,
    assumed: PriorName | NDArray[Any],
    aim: PriorName,
    names: tuple[str, ...] = ("scaling", "weight_decay"),
) -> Iterator[Fitted]:
    """The setting with the best held-out NLL, and the one with the best held-out accuracy, each fitted on all rows.

    Parameters
    ----------
    tried : setting to log-probabilities of the held-out rows, which assume the prior ``assumed``.
    aim : prior that the method is meant for: under the balanced one classes have equal weight in both criteria.
    """
    y = problem.y[_split(problem)[1]]
    found = {
        setting: prediction_metrics(log_proba, y, problem.counts, prior=aim, assumed=assumed)
        for setting, log_proba in tried.items()
    }
    for label, key in CRITERIA.items():
        key = key if aim == "balanced" else {"balanced_nll": "nll", "balanced_accuracy": "top1"}[key]
        sign = -1 if key.endswith("nll") else 1
        best = max(found, key=lambda setting: sign * found[setting][key])
        start, end = class_prior_of(assumed, problem.counts), class_prior_of(aim, problem.counts)
        yield Fitted(
            what=f"{what}, by {label}",
            prior=aim,
            log_proba=shift_prior(fit(best), start, end),
            chosen=dict(zip(names, best, strict=True)) | {f"held_out_{key}": found[best][key]},
            validation=(shift_prior(tried[best], start, end), y),
        )


def _scaled(problem: Problem, scaling: str, X: NDArray[Any]) -> NDArray[Any]:
    """Centred features, divided by one number or each column by its own: the difference matters to weight decay."""
    spread = problem.X.std(axis=0)
    divisor = np.sqrt((spread**2).mean()) if scaling == "one scale" else spread
    return np.asarray((X - problem.X.mean(axis=0)) / divisor, dtype=np.float32)


def _sample(X: NDArray[Any], y: Labels) -> HeadSample:
    n = len(y)
    return HeadSample(
        torch.from_numpy(X), torch.from_numpy(y), torch.full((n,), 1 / n), torch.zeros(n, dtype=torch.bool)
    )


def _fitter(problem: Problem, loss: LossName) -> LinearFitter:
    return LinearFitter(len(problem.counts), make_class_loss(loss, torch.from_numpy(problem.counts)))


def _linear_path(problem: Problem, loss: LossName, scalings: tuple[str, ...]) -> Iterator[tuple[Setting, Array]]:
    """Held-out log-probabilities from strong to weak weight decay, until two in a row were worse than the best."""
    train, held_out = _split(problem)
    y = problem.y[held_out]
    for scaling in scalings:
        X = _scaled(problem, scaling, problem.X)
        losses: list[float] = []
        for decay, head in _fitter(problem, loss).path(_sample(X[train], problem.y[train]), lambda _: 0.0):
            log_proba = _log_softmax(head_outputs(head, X[held_out].astype(np.float64)))
            yield (scaling, decay), log_proba
            losses.append(mean_over_classes(nll_per_sample(log_proba, y), y))
            if len(losses) - int(np.argmin(losses)) > 2:
                break


def _fit_linear(problem: Problem, loss: LossName, setting: Setting) -> Array:
    scaling, decay = setting
    head = _fitter(problem, loss).fit(_sample(_scaled(problem, scaling, problem.X), problem.y), decay)
    return _log_softmax(head_outputs(head, _scaled(problem, scaling, problem.X_test).astype(np.float64)))


def linear_as_chosen(problem: Problem, what: str, chosen: Row) -> Array:
    """Balanced log-probabilities of test rows under a linear rival, with the settings that its entry names."""
    loss = LINEAR_LOSSES[what.rpartition(", by")[0]]
    log_proba = _fit_linear(problem, loss, (chosen["scaling"], chosen["weight_decay"]))
    assumed = effective_prior(loss, torch.from_numpy(problem.counts)).numpy()
    return shift_prior(log_proba, assumed, np.ones_like(assumed))


def _log_softmax(logits: Array) -> Array:
    return logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)


# --- summary ------------------------------------------------------------------------------------------------------


def summarise(rows: list[Row]) -> list[Row]:
    """One line a method under the prior it is meant for, means over seeds; and how much better ECRT is, row by row."""
    means = [name for name in SHOWN if name not in WITH_INTERVAL]
    lines = table(observations(rows), ("what", "prior"), WITH_INTERVAL, means=(*means, "seconds"))
    outcomes: dict[str, list[Row]] = {}
    for row in rows:
        for what, found in row[PER_ROW].items():
            outcomes.setdefault(what, []).append(found)
    for line in lines:
        line |= {name: None for name in SHOWN if name not in line}
        if SUBJECT in outcomes and line["what"] != SUBJECT:
            pair = ([found[line["prior"]] for found in outcomes[what]] for what in (SUBJECT, line["what"]))
            line |= _gain(*map(_by_row, pair))
    return sorted(lines, key=lambda line: -line["top1"])


def _by_row(outcomes: list[Row]) -> dict[str, Array]:
    """Hits and losses of each test row, averaged over seeds."""
    return {name: np.mean([outcome[name] for outcome in outcomes], axis=0) for name in PAIRED}


def _gain(subject: dict[str, Array], rival: dict[str, Array]) -> Row:
    """What ECRT has over a rival, in top-1 and in NLL: positive is better."""
    columns = np.column_stack([subject["top1"] - rival["top1"], rival["nll"] - subject["nll"]])
    return dict(zip((f"{SUBJECT}_gain_{name}" for name in PAIRED), bootstrap_texts(columns), strict=True))
