"""Measures of predictions: classes, labels and numbers; and which differences are more than noise.

Everywhere ``y`` and ``predicted`` are class indices; a ``y`` of -1 is a label that training never saw: never right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import t as student_t
from sklearn.metrics import average_precision_score, f1_score, precision_recall_fscore_support, roc_auc_score

from ecrt.arrays import Array, Labels
from ecrt.data.minority import TargetRegions
from ecrt.disk import read_arrays, write_arrays
from ecrt.errors import InputError

Indicator = NDArray[np.bool_]
PriorName = Literal["balanced", "training"]

PRIORS: tuple[PriorName, PriorName] = ("balanced", "training")
"""Class priors that everything is reported under: a method should not win by its prior alone."""

N_BINS = 15
COLDEST, HOTTEST = 1e-2, 1e2
LEAST_LOG_PROBABILITY = float(np.log(np.finfo(np.float64).eps))
"""scikit-learn's ``log_loss`` takes no probability below this one, so that a single zero does not make it infinite."""

FREQUENCY_GROUPS = ("many", "medium", "few")
MOST_BYTES = 16 * 2**30
MOST_RANKED = 100_000_000
"""Beyond this many rows times classes no average precision is computed: it sorts all rows once for every class."""

FARTHEST_SCORE = 1e300
"""scikit-learn ranks finite scores only; this one replaces infinity."""

LEAST_ERROR = 1e-10
"""An exact prediction would make the geometric mean of errors zero whatever the other errors."""

CONFIDENCE = 0.95
LEVEL = 0.05


# --- rows and classes -------------------------------------------------------------------------------------------------


def top_k_hits(scores: Array, y: Labels, k: int) -> NDArray[np.bool_]:
    """Whether the true class is among the k best scored; fewer than k classes always hit.

    Of equal scores the first counts as the best, as in ``argmax``; a true class whose score is NaN comes last.
    """
    true = scores[np.arange(len(y)), y][:, None]
    earlier = np.arange(scores.shape[1]) < y[:, None]
    ahead = ~(scores <= true) | ((scores == true) & earlier)
    return np.asarray(ahead.sum(axis=1) < k)


def mean_over_classes(values: Array, y: Labels) -> float:
    """Average within each class first, then over the classes present: every class counts the same."""
    counts = np.bincount(y)
    sums = np.bincount(y, weights=values)
    return float((sums[counts > 0] / counts[counts > 0]).mean())


def frequency_group(counts: Labels) -> NDArray[np.str_]:
    """Name of each class's group by training samples: many (above 100), medium (20 to 100), few (below 20).

    >>> frequency_group(np.array([101, 100, 20, 19])).tolist()
    ['many', 'medium', 'medium', 'few']
    """
    return np.select([counts > 100, counts >= 20], ["many", "medium"], default="few")


def class_scores(y: Labels, predicted: Labels, n_classes: int) -> dict[str, Array]:
    """Precision, recall, F1 and support of each class.

    NaN where there is nothing to divide by: recall without test rows, precision without predictions, F1 without either.
    """
    found = precision_recall_fscore_support(y, predicted, labels=np.arange(n_classes), zero_division=np.nan)
    names = ("precision", "recall", "f1", "support")
    return {name: np.asarray(values, dtype=np.float64) for name, values in zip(names, found, strict=True)}


def group_recalls(recall: Array, counts: Labels) -> dict[str, dict[str, float]]:
    """Mean recall of the classes with many, medium and few training samples.

    ``n_classes`` are all classes of a group, ``n_tested`` those with test rows: the recall is a mean over the latter.
    """
    found = {}
    for name in FREQUENCY_GROUPS:
        mine = recall[frequency_group(counts) == name]
        tested = float(np.isfinite(mine).sum())
        found[name] = {"recall": mean_of_finite(mine), "n_classes": float(len(mine)), "n_tested": tested}
    return found


def confused_pairs(y: Labels, predicted: Labels) -> dict[str, Labels]:
    """Each true class with each wrong one it was taken for, and how many rows; most rows first.

    Of pairs with as many rows the one that is the larger share of its true class comes first. No matrix is made, so
    that ten thousand classes cost no more than their rows.
    """
    wrong = (y >= 0) & (y != predicted)
    pairs, rows = np.unique(np.stack([y[wrong], predicted[wrong]]), axis=1, return_counts=True)
    support = np.bincount(y[y >= 0], minlength=int(pairs.max(initial=0)) + 1)
    order = np.lexsort((support[pairs[0]], -rows))
    return {"true": pairs[0][order], "predicted": pairs[1][order], "rows": rows[order]}


def mean_of_finite(values: Array) -> float:
    """Mean of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


# --- what probabilities assume, and whether their confidence can be trusted ------------------------------------------


def nll_per_sample(log_proba: Array, y: Labels) -> Array:
    """Negative log-probability of the true class (an index into the columns)."""
    return -log_proba[np.arange(len(y)), y]


def class_prior_of(prior: PriorName | ArrayLike, counts: NDArray[np.int64]) -> Array:
    """Share of each class: equal, as in training, or as given; they sum to one.

    >>> class_prior_of("training", np.array([30, 10])).tolist()
    [0.75, 0.25]
    """
    if isinstance(prior, str) and prior not in PRIORS:
        raise InputError(f"There is no class prior {prior!r}: use {PRIORS}, or one number for each class.")
    named = {"balanced": np.ones(len(counts)), "training": counts}
    shares = np.asarray(named[prior] if isinstance(prior, str) else prior, dtype=np.float64)
    if shares.shape != (len(counts),):
        raise InputError(f"The class prior has the shape {shares.shape}, but there are {len(counts)} classes.")
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise InputError("A class prior needs numbers of at least 0, not all of them 0.")
    return np.asarray(shares / shares.sum())


def shift_prior(log_proba_nm: ArrayLike, from_prior_m: ArrayLike, to_prior_m: ArrayLike) -> Array:
    """What the same model says if classes are as frequent as ``to_prior_m``: p(m | x) to(m) / from(m), normalised.

    Bayes' rule with unchanged p(x | m), so that predictions of methods with different priors can be compared under one.
    A probability of zero stays zero under every prior.

    Parameters
    ----------
    log_proba_nm : log-probabilities, or logits, of rows by classes.
    from_prior_m, to_prior_m : the prior that they assume and the one wanted; they need not sum to one.

    References
    ----------
    Saerens, Latinne and Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities.

    >>> np.exp(shift_prior(np.log([[0.9, 0.1]]), [9, 1], [1, 1])).round(6).tolist()
    [[0.5, 0.5]]
    """
    log_proba = np.asarray(log_proba_nm, dtype=np.float64)
    counts = np.zeros(log_proba.shape[1], dtype=np.int64)
    assumed, wanted = class_prior_of(from_prior_m, counts), class_prior_of(to_prior_m, counts)
    impossible = np.isneginf(log_proba)
    lost = (assumed == 0) & (wanted > 0) & ~impossible.all(axis=0)
    if lost.any():
        raise InputError(
            f"Class {int(np.flatnonzero(lost)[0])} has probabilities although the prior they assume gives it none: "
            "from_prior_m does not belong to these predictions."
        )
    with np.errstate(divide="ignore"):
        change = np.log(wanted) - np.log(np.where(assumed > 0, assumed, 1.0))
    moved = np.where(impossible, -np.inf, log_proba + change)
    nothing = np.isneginf(moved).all(axis=1)
    if nothing.any():
        raise InputError(
            f"Row {int(np.flatnonzero(nothing)[0])} gives no probability to any class that the prior allows."
        )
    return np.asarray(log_softmax(moved, axis=1))


def clip_log_proba(log_proba: Array) -> Array:
    """Log-probabilities of at least log(2.2e-16), as in scikit-learn's ``log_loss``: an impossible class costs 36."""
    return np.maximum(log_proba, LEAST_LOG_PROBABILITY)


def reliability_bins(confidence: Array, hit: NDArray[np.bool_], n_bins: int = N_BINS) -> dict[str, Array]:
    """Rows in equal bins of the top class's probability: how many, their mean confidence and their accuracy.

    NaN in empty bins. A bin holds its lower edge; the last one also holds 1.
    """
    index = np.clip((confidence * n_bins).astype(np.int64), 0, n_bins - 1)
    count = np.bincount(index, minlength=n_bins).astype(np.float64)
    divisor = np.where(count > 0, count, np.nan)
    return {
        "count": count,
        "confidence": np.bincount(index, weights=confidence, minlength=n_bins) / divisor,
        "accuracy": np.bincount(index, weights=hit, minlength=n_bins) / divisor,
    }


def expected_calibration_error(confidence: Array, hit: NDArray[np.bool_], n_bins: int = N_BINS) -> float:
    """Mean over rows of the distance between accuracy and mean confidence of their bin.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
    """
    bins = reliability_bins(confidence, hit, n_bins)
    distance = np.nan_to_num(np.abs(bins["accuracy"] - bins["confidence"]))
    return float(distance @ bins["count"] / bins["count"].sum()) if len(confidence) else float("nan")


def scale_by_temperature(log_proba: Array, temperature: float) -> Array:
    """Probabilities to the power 1 / temperature, normalised: above 1 less sure, below 1 surer."""
    return np.asarray(log_softmax(log_proba / temperature, axis=1))


def fit_temperature(log_proba: Array, y: Labels, weight: Array | None = None) -> float:
    """The temperature with the lowest NLL on these rows, which must not be those that are measured afterwards.

    Parameters
    ----------
    log_proba : of rows by classes; zeros count as 2.2e-16.
    weight : of each row; without it all rows have the same weight.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), On calibration of modern neural networks.
    """
    if len(y) == 0:
        raise InputError("A temperature needs validation rows with labels that were in training; there are none.")
    weight = np.ones(len(y)) if weight is None else weight
    clipped = clip_log_proba(log_proba)
    return lowest_temperature(
        lambda temperature: float(weight @ nll_per_sample(scale_by_temperature(clipped, temperature), y))
    )


def lowest_temperature(loss: Callable[[float], float]) -> float:
    """The temperature at which a loss, which has one minimum, is lowest."""
    found = minimize_scalar(
        lambda log_temperature: loss(float(np.exp(log_temperature))),
        bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded", options={"xatol": 1e-6},
    )  # fmt: skip
    return float(np.exp(found.x))


# --- all measures, and files ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """Predictions of test rows, and all that is needed to measure them.

    Attributes
    ----------
    log_proba : log-probabilities of rows by classes.
    y : index of the true class of each row, -1 for a label that was not in training.
    counts : training samples of each class.
    prior : that the probabilities assume: "balanced", "training", or one number for each class.
    validation : log-probabilities and class indices of rows to fit a temperature on, if there are any.
    """

    log_proba: Array
    y: Labels
    counts: Labels
    prior: PriorName | Array
    validation: tuple[Array, Labels] | None = None

    def write(self, path: str | Path) -> None:
        """Write an ``.npz`` file without pickles that ``read_predictions`` reads."""
        arrays: dict[str, Any] = {
            "log_proba": self.log_proba, "y": self.y, "counts": self.counts, "prior": np.asarray(self.prior),
        }  # fmt: skip
        if self.validation is not None:
            arrays["validation_log_proba"], arrays["validation_y"] = self.validation
        write_arrays(path, arrays)

    def metrics(self, prior: PriorName) -> dict[str, Any]:
        """Every metric under one class prior: see ``prediction_metrics``."""
        return prediction_metrics(
            self.log_proba, self.y, self.counts, prior=prior, assumed=self.prior, validation=self.validation
        )


def read_predictions(path: str | Path) -> Predictions:
    """Read an ``.npz`` file: one that ``Predictions`` has written, or the ``evaluation.npz`` of a fitted model.

    The arrays are ``log_proba``, ``y``, ``counts``, ``prior``, and maybe ``validation_log_proba`` and ``validation_y``.
    """
    path = Path(path)
    arrays = read_arrays(path, MOST_BYTES)
    for name in PRIORS:  # evaluation.npz holds the same predictions under each prior
        if f"log_proba.{name}" in arrays:
            arrays |= {"log_proba": arrays[f"log_proba.{name}"], "prior": np.asarray(name)}
    missing = sorted({"log_proba", "y", "counts", "prior"} - set(arrays))
    if missing:
        raise InputError(f"{path} holds no {missing}; it has {sorted(arrays)}.")
    validation = None
    if "validation_log_proba" in arrays and "validation_y" in arrays:
        validation = (arrays["validation_log_proba"].astype(np.float64), arrays["validation_y"].astype(np.int64))
    counts, stored = arrays["counts"].astype(np.int64), arrays["prior"]
    prior = stored.item() if stored.ndim == 0 else stored.astype(np.float64)
    class_prior_of(prior, counts)  # refuses what is no prior of these classes
    return Predictions(
        log_proba=arrays["log_proba"].astype(np.float64),
        y=arrays["y"].astype(np.int64),
        counts=counts,
        prior=prior,
        validation=validation,
    )


def prediction_metrics(
    log_proba_nm: ArrayLike,
    y_n: ArrayLike,
    counts_m: ArrayLike,
    *,
    prior: PriorName,
    assumed: PriorName | ArrayLike | None = None,
    validation: tuple[ArrayLike, ArrayLike] | None = None,
) -> dict[str, Any]:
    """How good predictions are under one class prior.

    A label that was not in training (-1) is wrong in top-1 and top-5 and costs precision; it has no probability and is
    left out of the rest. A class without test rows has no recall and no average precision, and F1 only where it was
    predicted (then 0); means are over the classes that have a value. Probabilities below 2.2e-16 count as that much in
    the NLL, as in scikit-learn.

    Parameters
    ----------
    log_proba_nm : log-probabilities of rows by classes.
    y_n : index of the true class of each row, -1 for a label that was not in training.
    counts_m : training samples of each class, or the sums of their weights.
    prior : the prior to measure under.
    assumed : the prior that ``log_proba_nm`` assume, if it is another: they are shifted to ``prior`` first.
    validation : log-probabilities (under the same assumed prior) and class indices of rows that neither the model was
        fitted on nor are measured here, to fit the temperature on; under the balanced prior every class has the same
        weight there, under the training prior every row. Without it there is nothing temperature-scaled.

    Returns
    -------
    Numbers: ``top1``, ``balanced_accuracy``, ``macro_f1``, ``g_mean``, ``top5`` (of more than five classes), ``nll``,
    ``balanced_nll`` (mean over classes), ``ece``, ``mean_average_precision`` (over classes), with two classes
    ``average_precision`` and ``roc_auc`` of the rarer one, and with ``validation`` also ``temperature``,
    ``nll_scaled`` and ``balanced_nll_scaled``.

    Tables: ``by_group``, for classes with many, medium and few training samples their mean ``recall``, ``n_classes``
    and ``n_tested``; ``by_class``, columns ``class``, ``frequency`` (training samples; most frequent first),
    ``recall``, ``f1`` and ``average_precision``.

    >>> log_proba = np.log([[0.7, 0.3], [0.6, 0.4], [0.2, 0.8], [0.8, 0.2]])
    >>> found = prediction_metrics(log_proba, [0, 0, 1, 1], [90, 10], prior="balanced", assumed="training")
    >>> found["top1"], found["by_class"]["frequency"], found["by_class"]["recall"]
    (0.5, [90, 10], [0.0, 1.0])
    """
    counts = np.asarray(counts_m)
    log_proba, y = _under(prior, assumed, counts, log_proba_nm, y_n)
    if len(y) == 0:
        raise InputError("There are no predictions to measure.")
    predicted, known = log_proba.argmax(axis=1), y >= 0
    log_known, y_known = log_proba[known], y[known]
    scores = class_scores(y, predicted, len(counts))
    ranks, each = _ranking_scores(log_known), np.arange(len(counts))
    too_many = log_known.size > MOST_RANKED
    ranking = np.full(len(counts), np.nan) if too_many else label_average_precision(ranks, y_known[:, None] == each)
    found: dict[str, Any] = {
        "top1": float((predicted == y).mean()),
        "balanced_accuracy": mean_of_finite(scores["recall"]),
        "macro_f1": mean_of_finite(scores["f1"]),
        "g_mean": _geometric_mean(y_known, predicted[known]),
    }
    if len(counts) > 5:
        found["top5"] = float(top_k_hits(log_known, y_known, 5).sum() / len(y))
    found |= _nll(log_known, y_known)
    if validation is not None:
        temperature = _validated_temperature(prior, *_under(prior, assumed, counts, *validation))
        scaled = _nll(scale_by_temperature(clip_log_proba(log_known), temperature), y_known)
        found |= {f"{name}_scaled": value for name, value in scaled.items()} | {"temperature": temperature}
    found["ece"] = expected_calibration_error(np.exp(log_known.max(axis=1)), predicted[known] == y_known)
    found["mean_average_precision"] = mean_of_finite(ranking)
    if len(counts) == 2:
        rare = 0 if counts[0] < counts[1] else 1
        found["average_precision"] = float(ranking[rare])
        both = len(np.unique(y_known)) == 2
        found["roc_auc"] = float(roc_auc_score(y_known == rare, ranks[:, rare])) if both else float("nan")
    order = np.argsort(-counts, kind="stable")
    columns = {
        "class": each, "frequency": counts, "recall": scores["recall"], "f1": scores["f1"],
        "average_precision": ranking,
    }  # fmt: skip
    found["by_group"] = group_recalls(scores["recall"], counts)
    found["by_class"] = {name: values[order].tolist() for name, values in columns.items()}
    return found


def measure_predictions(predictions: Predictions | str | Path) -> dict[PriorName, dict[str, Any]]:
    """``prediction_metrics`` of predictions, or of a file of them (see ``read_predictions``), under both priors."""
    if not isinstance(predictions, Predictions):
        predictions = read_predictions(predictions)
    return {prior: predictions.metrics(prior) for prior in PRIORS}


def single_numbers(found: dict[str, Any]) -> dict[str, float]:
    """The metrics without the tables."""
    return {name: value for name, value in found.items() if not isinstance(value, dict)}


def _under(
    prior: PriorName, assumed: PriorName | ArrayLike | None, counts: Labels, log_proba_nm: ArrayLike, y_n: ArrayLike
) -> tuple[Array, Labels]:
    """Checked predictions, normalised, under the prior asked for."""
    log_proba, y = np.asarray(log_proba_nm, dtype=np.float64), np.asarray(y_n)
    if log_proba.ndim != 2 or log_proba.shape != (len(y), len(counts)):
        raise InputError(
            f"log_proba has the shape {log_proba.shape}; with {len(y)} labels in y and {len(counts)} classes in counts "
            f"it must be ({len(y)}, {len(counts)})."
        )
    bad = (np.isnan(log_proba) | np.isposinf(log_proba)).any(axis=1)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(f"log_proba holds NaN or infinity, first in row {row}; only minus infinity is allowed.")
    if len(y) and (y.dtype.kind not in "iu" or y.min() < -1 or y.max() >= len(counts)):
        raise InputError(
            f"y must hold class indices from 0 to {len(counts) - 1}, and -1 for labels that were not in training; "
            f"it holds {np.unique(y)[:5].tolist()} and so on."
        )
    wanted = class_prior_of(prior, counts)
    present = class_prior_of(prior if assumed is None else assumed, counts)
    if len(y) == 0 or np.array_equal(wanted, present):
        return np.asarray(log_softmax(log_proba, axis=1)) if len(y) else log_proba, y.astype(np.int64)
    return shift_prior(log_proba, present, wanted), y.astype(np.int64)


def _nll(log_proba: Array, y: Labels) -> dict[str, float]:
    nll = nll_per_sample(clip_log_proba(log_proba), y)
    return {"nll": mean_of_finite(nll), "balanced_nll": mean_over_classes(nll, y) if len(y) else float("nan")}


def _validated_temperature(prior: PriorName, log_proba: Array, y: Labels) -> float:
    log_proba, y = log_proba[y >= 0], y[y >= 0]
    return fit_temperature(log_proba, y, 1 / np.bincount(y)[y] if prior == "balanced" else None)


def _geometric_mean(y: Labels, predicted: Labels) -> float:
    """Geometric mean of the recalls: zero as soon as one class is never recognised."""
    if len(y) == 0:
        return float("nan")
    from imblearn.metrics import geometric_mean_score  # slow to import

    return float(geometric_mean_score(y, predicted, labels=np.unique(y), average="multiclass"))


def _ranking_scores(log_proba: Array) -> Array:
    """What rows are ranked by; of two classes the log-odds, whose order a prior does not change."""
    scores = log_proba - log_proba[:, ::-1] if log_proba.shape[1] == 2 else log_proba
    return np.clip(scores, -FARTHEST_SCORE, FARTHEST_SCORE)


# --- several labels: ``present`` is the true indicator, rows by labels, of booleans ----------------------------------


def top_k_accuracy(scores: Array, present: Indicator) -> Array:
    """The paper's accuracy of each row: the share of its k true labels among its k best scored ones.

    Of equal scores the first label counts as the best. NaN for a row without labels.
    """
    k = present.sum(axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    hits = np.take_along_axis(present, order, axis=1) & (np.arange(scores.shape[1]) < k[:, None])
    return np.divide(hits.sum(axis=1), k, out=np.full(len(k), np.nan), where=k > 0)


def bce_per_row(log_odds: Array, present: Indicator) -> Array:
    """Binary cross-entropy of each row, its mean over labels."""
    return np.asarray((np.logaddexp(0.0, log_odds) - np.where(present, log_odds, 0.0)).mean(axis=1))


def label_f1(predicted: Indicator, present: Indicator) -> Array:
    """F1 of each label; NaN for a label that neither occurs nor is predicted."""
    return np.asarray(f1_score(present, predicted, average=None, zero_division=np.nan))


def label_average_precision(scores: Array, present: Indicator) -> Array:
    """Average precision of each label; NaN for a label that does not occur."""
    return np.array([
        average_precision_score(present[:, label], scores[:, label]) if present[:, label].any() else np.nan
        for label in range(present.shape[1])
    ])  # fmt: skip


def best_thresholds(scores: Array, present: Indicator, fallback: Array, least_positives: int = 2) -> Array:
    """For each label the cut, half-way between two scores, above which F1 is highest.

    Parameters
    ----------
    fallback : the cut of labels with fewer than ``least_positives`` rows; where all rows are best above the cut, it is
        no higher than this.
    """
    cuts = np.array(fallback, dtype=np.float64)
    for label in np.flatnonzero(present.sum(axis=0) >= least_positives):
        order = np.argsort(-scores[:, label], kind="stable")
        ranked, hits = scores[order, label], np.cumsum(present[order, label])
        f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + hits[-1])
        last_of_ties = np.append(ranked[1:] < ranked[:-1], True)  # a cut cannot part equal scores
        best = int(np.argmax(np.where(last_of_ties, f1, -1.0)))
        lowest = best + 1 == len(ranked)
        cuts[label] = min(ranked[best], cuts[label]) if lowest else (ranked[best] + ranked[best + 1]) / 2
    return cuts


def multilabel_metrics(
    log_odds: Array, present: Indicator, predicted: Indicator, unknown: Indicator | None = None
) -> dict[str, float]:
    """Top-k accuracy, BCE, macro- and micro-F1, mean average precision of the labels, and subset accuracy.

    Parameters
    ----------
    unknown : an indicator of further labels, which the model does not know. They count as missed, and are left out
        where a probability is needed (BCE and average precision).
    """
    if unknown is None:
        unknown = np.zeros((len(present), 0), dtype=bool)
    every = np.hstack([present, unknown])
    predicted = np.hstack([predicted, np.zeros_like(unknown)])
    scores = np.hstack([log_odds, np.full(unknown.shape, -np.inf)])
    return {
        "accuracy": mean_of_finite(top_k_accuracy(scores, every)),
        "bce": float(bce_per_row(log_odds, present).mean()),
        "macro_f1": mean_of_finite(label_f1(predicted, every)),
        "micro_f1": float(f1_score(every, predicted, average="micro", zero_division=np.nan)),
        "mean_average_precision": mean_of_finite(label_average_precision(log_odds, present)),
        "subset_accuracy": float((predicted == every).all(axis=1).mean()),
    }


# --- numbers ---------------------------------------------------------------------------------------------------------


def target_groups(y_train: Array | TargetRegions, y: Array) -> NDArray[np.str_]:
    """Group of each target: equal-width regions with more than 100 training rows are many, 20 to 100 medium, else few.

    The thresholds are those of the literature on imbalanced regression (Yang et al., 2021, Delving into deep imbalanced
    regression). Targets beyond the training range belong to the region next to them.
    """
    regions = y_train if isinstance(y_train, TargetRegions) else TargetRegions.learn(_columns(y_train))
    return np.asarray(frequency_group(regions.counts)[regions.region_of(_columns(y))])


def regression_metrics(predicted: Array, y: Array, y_train: Array | TargetRegions) -> dict[str, dict[str, float]]:
    """MAE, RMSE and geometric mean error of all rows and of the many, medium and few regions, with their rows.

    The geometric mean asks that no row be far off (Yang et al., 2021).

    Parameters
    ----------
    predicted, y : predictions and truth, one output or several.
    y_train : targets of training, which say how many is many, or the regions that were learned from them.
    """
    group = target_groups(y_train, y)
    error = _columns(predicted) - _columns(y)
    return {"all": _errors(error)} | {name: _errors(error[group == name]) for name in FREQUENCY_GROUPS}


def _errors(error: Array) -> dict[str, float]:
    distance = np.abs(error) if len(error) else np.full(1, np.nan)
    return {
        "mae": float(distance.mean()),
        "rmse": float(np.sqrt((distance**2).mean())),
        "gm": float(np.exp(np.log(np.maximum(distance, LEAST_ERROR)).mean())),
        "rows": float(len(error)),
    }


def _columns(y: Array) -> Array:
    y = np.asarray(y, dtype=np.float64)
    return y[:, None] if y.ndim == 1 else y


# --- more than noise? ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with the half-width of its 95 % interval and its p-value against zero; one value alone has neither."""

    mean: float
    half_width: float | None
    p_value: float | None

    def text(self, decimals: int = 3) -> str:
        """Mean ± half-width, rounded."""
        mean = f"{self.mean:.{decimals}f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.{decimals}f}"


def half_width(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the width of the Student interval of a mean with this standard error."""
    return float(student_t.ppf((1 + confidence) / 2, freedom)) * error


def corrected_estimate(values: ArrayLike, test_to_train: float = 0.0) -> Estimate:
    r"""Mean, interval and two-sided p-value against zero, by the corrected resampled t-test.

    Random splits of one table share most of their training rows. Their results are not independent, and
    :math:`\sigma^2 / J` is far too small. The corrected variance of the mean over J splits is

    .. math:: \left(\frac{1}{J} + \frac{n_\text{test}}{n_\text{train}}\right) \hat\sigma^2

    with J - 1 degrees of freedom. With a ratio of 0 this is the usual t-test of independent values.

    References
    ----------
    Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.

    >>> found = corrected_estimate([0.02, 0.03, 0.01, 0.02, 0.02], 0.25)
    >>> round(found.mean, 3), round(found.half_width, 4)
    (0.02, 0.0132)
    """
    numbers = np.asarray(values, dtype=np.float64)
    mean, n = float(numbers.mean()), len(numbers)
    if n < 2:
        return Estimate(mean=mean, half_width=None, p_value=None)
    error = float(numbers.std(ddof=1)) * math.sqrt(1 / n + test_to_train)
    if error <= 1e-12 * max(abs(mean), 1e-300):  # the same on every split
        p_value = 1.0 if mean == 0 else 0.0
    else:
        p_value = float(2 * student_t.sf(abs(mean) / error, n - 1))
    return Estimate(mean=mean, half_width=half_width(error, n - 1), p_value=p_value)


def balanced_gain(values: Array, y: NDArray[np.int64]) -> Estimate:
    """Mean of one value for each row, every class with the same weight, with its interval over rows.

    A class with one row has the variance of all rows together.
    """
    counts = np.bincount(y)
    present = counts > 0
    n = counts[present]
    mean_m = np.bincount(y, weights=values)[present] / n
    square_m = np.bincount(y, weights=values**2)[present] / n
    variance_m = np.where(n > 1, (square_m - mean_m**2).clip(min=0) * n / np.maximum(n - 1, 1), values.var())
    error = float(np.sqrt((variance_m / n).sum())) / len(n)
    mean = float(mean_m.mean())
    if len(values) < 2:
        return Estimate(mean=mean, half_width=None, p_value=None)
    p_value = float(2 * student_t.sf(abs(mean) / error, len(values) - 1)) if error > 0 else float(mean == 0)
    return Estimate(mean=mean, half_width=half_width(error, len(values) - 1), p_value=p_value)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How much better ``first`` is than ``second`` (positive: better, whatever the metric's direction).

    Attributes
    ----------
    gain : mean over splits, with the interval that this pair would have alone.
    adjusted : p-value after Holm's correction for all pairs tested together; None with one split.
    """

    first: str
    second: str
    gain: Estimate
    adjusted: float | None

    @property
    def beyond_noise(self) -> bool:
        """Whether the difference is significant at 5 % among all that were tested together."""
        return self.adjusted is not None and self.adjusted < LEVEL


def paired(
    pairs: Sequence[tuple[str, str]],
    values: Mapping[str, Sequence[float]],
    *,
    higher_is_better: bool,
    test_to_train: float = 0.0,
) -> list[Pair]:
    """Test pairs of methods on the same splits, together."""
    sign = 1.0 if higher_is_better else -1.0
    gains = [
        corrected_estimate(sign * (np.asarray(values[first]) - np.asarray(values[second])), test_to_train)
        for first, second in pairs
    ]
    known = [gain.p_value for gain in gains if gain.p_value is not None]
    adjusted: list[float | None] = list(holm(known)) if len(known) == len(gains) else [None] * len(gains)
    return [
        Pair(first=first, second=second, gain=gain, adjusted=p)
        for (first, second), gain, p in zip(pairs, gains, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: all that fall below a level are significant together at that level.

    A NaN stands for a test that was not made: it stays, and does not count.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.array(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")[: int(np.isfinite(p).sum())]  # NaN comes last
    p[order] = np.maximum.accumulate(np.minimum(p[order] * np.arange(len(order), 0, -1), 1.0))
    return p.tolist()
