"""Predicted class probabilities: the record of them, its files, and every measure of them.

Everywhere ``y`` and ``predicted`` are class indices; a ``y`` of -1 is a label that training never saw: never right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.metrics import (
    average_precision_score,
    confusion_matrix,
    precision_recall_fscore_support,
    roc_auc_score,
)

from ecrt.data import ColumnReading, read_data
from ecrt.disk import read_arrays, write_arrays
from ecrt.errors import InputError
from ecrt.metrics.probabilities import (
    PRIORS,
    PriorName,
    class_prior_of,
    clip_log_proba,
    expected_calibration_error,
    fit_temperature,
    nll_per_sample,
    scale_by_temperature,
    shift_prior,
)

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FREQUENCY_GROUPS = ("many", "medium", "few")
MOST_BYTES = 16 * 2**30
PROBABILITY = "p_"
"""How the names of probability columns begin in tables that ``ecrt predict`` writes; the label follows."""

MOST_RANKED = 100_000_000
"""Beyond this many rows times classes no average precision is computed: it sorts all rows once for every class."""

FARTHEST_SCORE = 1e300
"""scikit-learn ranks finite scores only; this one replaces infinity."""


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
    """Precision, recall, F1, support and number of predictions of each class.

    NaN where there is nothing to divide by: recall without test rows, precision without predictions, F1 without either.
    """
    precision, recall, f1, support = precision_recall_fscore_support(
        y, predicted, labels=np.arange(n_classes), zero_division=np.nan
    )
    n_predicted = np.bincount(predicted, minlength=n_classes)
    columns = {"precision": precision, "recall": recall, "f1": f1, "support": support, "predicted": n_predicted}
    return {name: np.asarray(values, dtype=np.float64) for name, values in columns.items()}


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


def confusion(y: Labels, predicted: Labels, n_classes: int) -> Labels:
    """Rows of each true class (down) by predicted class (across); unknown labels are left out."""
    known = y >= 0
    if not known.any():
        return np.zeros((n_classes, n_classes), dtype=np.int64)
    return np.asarray(confusion_matrix(y[known], predicted[known], labels=np.arange(n_classes)), dtype=np.int64)


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
    for prior in PRIORS:  # evaluation.npz holds the same predictions under each prior
        if f"log_proba.{prior}" in arrays and "classes.counts" in arrays:
            arrays |= {"log_proba": arrays[f"log_proba.{prior}"], "counts": arrays["classes.counts"]}
            arrays["prior"] = np.asarray(prior)
    missing = sorted({"log_proba", "y", "counts", "prior"} - set(arrays))
    if missing:
        raise InputError(f"{path} holds no {missing}; it has {sorted(arrays)}.")
    validation = None
    if "validation_log_proba" in arrays and "validation_y" in arrays:
        validation = (arrays["validation_log_proba"].astype(np.float64), arrays["validation_y"].astype(np.int64))
    counts = arrays["counts"].astype(np.int64)
    return Predictions(
        log_proba=arrays["log_proba"].astype(np.float64),
        y=arrays["y"].astype(np.int64),
        counts=counts,
        prior=_as_prior(arrays["prior"], counts),
        validation=validation,
    )


def read_prediction_table(
    path: str | Path, *, target: str, counts: Mapping[Any, int], prior: PriorName | ArrayLike
) -> Predictions:
    """Read a CSV, Parquet or JSON-lines table as ``ecrt predict`` writes it, with the true labels beside them.

    Parameters
    ----------
    target : the column with the true labels; those that are not in ``counts`` were not in training.
    counts : training samples of each label. A column ``p_<label>`` must hold its probability.
    prior : that the probabilities assume.
    """
    path = Path(path)
    names = [f"{PROBABILITY}{label}" for label in counts]
    columns = [ColumnReading(name=name, kind="number", decimal=".") for name in names]
    data = read_data(path, target=(target,), columns=columns)
    if not isinstance(data.X, pd.DataFrame) or data.y is None:
        raise InputError(f"{path.name} is not a table of predictions.")
    place = {str(label): index for index, label in enumerate(counts)}
    with np.errstate(divide="ignore"):  # a probability of zero is minus infinity
        log_proba = np.log(data.X[names].to_numpy(dtype=np.float64))
    n_rows = np.array(list(counts.values()), dtype=np.int64)
    return Predictions(
        log_proba=np.asarray(log_proba),
        y=np.array([place.get(str(label), -1) for label in data.y.tolist()], dtype=np.int64),
        counts=n_rows,
        prior=_as_prior(np.asarray(prior), n_rows),
    )


def _as_prior(stored: NDArray[Any], counts: Labels) -> PriorName | Array:
    prior = stored.item() if stored.ndim == 0 else stored.astype(np.float64)
    class_prior_of(prior, counts)  # refuses what is no prior of these classes
    return prior


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
    counts_m : training samples of each class.
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
    counts = np.asarray(counts_m, dtype=np.int64)
    log_proba, y = _under(prior, assumed, counts, log_proba_nm, y_n)
    if len(y) == 0:
        raise InputError("There are no predictions to measure.")
    predicted, known = log_proba.argmax(axis=1), y >= 0
    log_known, y_known = log_proba[known], y[known]
    scores = class_scores(y, predicted, len(counts))
    ranking = _average_precisions(log_known, y_known)
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
        found["roc_auc"] = _roc_auc(log_known, y_known, rare)
    order = np.argsort(-counts, kind="stable")
    columns = {
        "class": np.arange(len(counts)), "frequency": counts, "recall": scores["recall"], "f1": scores["f1"],
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


def _average_precisions(log_proba: Array, y: Labels) -> Array:
    """Area under the precision-recall curve of each class against the rest; NaN for classes without test rows."""
    found = np.full(log_proba.shape[1], np.nan)
    if log_proba.size > MOST_RANKED:
        return found
    for label in np.unique(y):
        found[label] = average_precision_score(y == label, _ranking_score(log_proba, label))
    return found


def _roc_auc(log_proba: Array, y: Labels, label: int) -> float:
    if len(np.unique(y)) < 2:
        return float("nan")
    return float(roc_auc_score(y == label, _ranking_score(log_proba, label)))


def _ranking_score(log_proba: Array, label: int) -> Array:
    """What rows are ranked by; of two classes the log-odds, whose order a prior does not change."""
    score = log_proba[:, label]
    if log_proba.shape[1] == 2:
        score = score - log_proba[:, 1 - label]
    return np.clip(score, -FARTHEST_SCORE, FARTHEST_SCORE)
