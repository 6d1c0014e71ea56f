"""What the page of a classifier shows: how good it is under each prior, where it fails, and what its sources are worth.

Findings are codes with the numbers behind them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from scipy.stats import t as student_t

from ecrt.metrics import PRIORS
from ecrt.metrics.classification import FREQUENCY_GROUPS, class_scores, confused_pairs, frequency_group
from ecrt.report.rendering import percent
from ecrt.report.tables import Cell, Table, column_table, count_cell, label_cell, number_cell
from ecrt.runs.diagnosis import Answer, Finding, theory_finding
from ecrt.runs.records import Evaluation

__all__ = [
    "MOST_MATRIX_CLASSES",
    "MOST_NUMBERED",
    "chance_correlation",
    "dependence_is_known",
    "drawn_classes",
    "findings",
    "frequency_bands",
    "summarise_classes",
]

Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_MATRIX_CLASSES, MOST_NUMBERED = 30, 12
"""Classes of a confusion matrix, and of one with numbers in it."""

METRICS = (
    "top1", "balanced_accuracy", "macro_f1", "g_mean", "top5", "nll", "balanced_nll", "ece", "mean_average_precision",
    "average_precision", "roc_auc",
)  # fmt: skip
LONG_TABLE, WEAKEST, MOST_ROWS = 30, 10, 500
"""From more classes than the first on the weakest are shown apart; tables end after the last."""

MOST_RARE_PANELS = 5
BY_CHANCE = 0.05
"""How often independent sources are called dependent."""

STRONG, COPIES = 0.3, 0.95
"""Correlations from which sources depend on each other by more than a blemish, and are copies of each other."""

BLIND = 0.6
"""Where chance alone reaches such a correlation, few samples say nothing about independence."""


def summarise_classes(evaluation: Evaluation) -> dict[str, Any]:
    """Turn an evaluation into what the page shows."""
    model, points = evaluation.model, evaluation.points
    flows = [curve for curve in evaluation.curves if curve.stage == "flow"]
    return {
        "title": evaluation.title,
        "subject": evaluation.subject,
        "columns": column_table(evaluation.columns),
        "model": model,
        "head": f"{model.head} {model.head_setting:g}",
        "chosen_prior": "training" if model.class_prior == "training" else "balanced",
        "data": _data(evaluation),
        "metrics": _metric_table(evaluation),
        "groups": _group_table(evaluation),
        "views": [_view(evaluation, prior) for prior in PRIORS],
        "n_points_columns": len(points.columns),
        "n_drawn": len(np.unique(points.synthetic_y)),
        "n_shown": len(drawn_classes(evaluation)),
        "n_curves": len(evaluation.curves),
        "n_flows": len(flows),
        "failed": [curve.error for curve in flows if curve.error],
        "findings": findings(evaluation),
        "independence": _independence_table(evaluation),
    }


def drawn_classes(evaluation: Evaluation) -> Labels:
    """Classes with synthetic samples that get a panel of their own: those with the fewest training samples."""
    drawn = np.unique(evaluation.points.synthetic_y)
    order = np.argsort(evaluation.classes.counts[drawn], kind="stable")
    return np.sort(drawn[order[:MOST_RARE_PANELS]])


def dependence_is_known(evaluation: Evaluation) -> bool:
    """Whether there are sources to depend on each other, and samples to measure it on."""
    return evaluation.model.n_sources > 1 and bool(np.isfinite(evaluation.classes.max_correlation).any())


def frequency_bands(counts: Labels, most: int = 6) -> Labels:
    """The band of each class, by quantiles of training samples, the rarest 0; one band if all are equally frequent."""
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, most + 1)[1:-1], method="lower"))
    return np.unique(np.searchsorted(edges, counts, side="left"), return_inverse=True)[1].astype(np.int64)


# --- data and predictions ------------------------------------------------------------------------------------------


def _data(evaluation: Evaluation) -> dict[str, Any]:
    """What the model learned from, and what it was tested on."""
    classes, y = evaluation.classes, evaluation.y
    tested = np.bincount(y[y >= 0], minlength=len(classes.labels))
    return {
        "train_rows": int(classes.counts.sum()),
        "n_classes": len(classes.labels),
        "smallest": int(classes.counts.min()),
        "largest": int(classes.counts.max()),
        "test_rows": len(y),
        "rare": classes.labels[classes.minority].tolist(),
        "untested": int((tested == 0).sum()),
        "unknown": evaluation.unknown_labels,
        "nearer_to": _nearer_prior(tested / tested.sum(), classes.counts / classes.counts.sum()),
    }


def _nearer_prior(test: NDArray[np.float64], training: NDArray[np.float64]) -> str:
    """Whether test frequencies are nearer to equal ones or to those of training, by total variation."""
    to_equal = np.abs(test - 1 / len(test)).sum() / 2
    to_training = np.abs(test - training).sum() / 2
    if abs(to_equal - to_training) < 0.02:
        return "neither"
    return "balanced" if to_equal < to_training else "training"


def _view(evaluation: Evaluation, prior: str) -> dict[str, Any]:
    """What the page shows under one prior."""
    classes, predicted, metrics = evaluation.classes, evaluation.predicted[prior], evaluation.metrics[prior]
    scores = class_scores(evaluation.y, predicted, len(classes.labels))
    recall, known, n = scores["recall"], evaluation.y >= 0, len(classes.labels)
    order = np.lexsort((-scores["support"], recall))
    order = order[np.isfinite(recall[order])]  # the weakest class first
    target = _taken_for(evaluation.y, predicted)
    tested = np.isfinite(recall)
    rare, others = recall[classes.minority & tested], recall[~classes.minority & tested]
    table = _class_table(evaluation, prior, scores, order, target)
    return {
        "prior": prior,
        "metrics": metrics,
        "guessing": evaluation.metrics["guessing"],
        "recalls": {"rare": rare.mean(), "others": others.mean()} if len(rare) and len(others) else None,
        "missed": [
            {"label": classes.labels[at], "right": recall[at] * scores["support"][at], "rows": scores["support"][at],
             "taken_for": classes.labels[target[at]]}
            for at in order[:3].tolist() if recall[at] < 1
        ],
        "classes": table,
        "weakest": Table(table.columns, table.rows[:WEAKEST], f"weakest-{prior}", sortable=True)
        if n > LONG_TABLE else None,
        "confusion": "bands" if n > MOST_MATRIX_CLASSES else "matrix" if n > MOST_NUMBERED else "numbers",
        "pairs": _pair_table(evaluation, prior) if n > 2 else None,
        "overconfidence": float(evaluation.confidence[prior][known].mean() - (predicted == evaluation.y)[known].mean()),
    }  # fmt: skip


def _taken_for(y: Labels, predicted: Labels) -> dict[int, int]:
    """For each class that is ever missed, the class it is most often taken for."""
    pairs = confused_pairs(y, predicted)
    found: dict[int, int] = {}
    for true, wrong in zip(pairs["true"].tolist(), pairs["predicted"].tolist(), strict=True):
        found.setdefault(true, wrong)
    return found


def _metric_table(evaluation: Evaluation) -> Table:
    """Every metric under both priors, beside guessing."""
    columns = (*PRIORS, "guessing")
    rows = tuple(
        (Cell(key), *(number_cell(evaluation.metrics[column][key]) for column in columns))
        for key in METRICS
        if key in evaluation.metrics["balanced"]
    )
    return Table(("Metric", "Balanced prior", "Training prior", "Guessing"), rows, "metrics")


def _group_table(evaluation: Evaluation) -> Table:
    """Mean recall of classes with many, medium and few training samples."""
    rows = []
    for name in FREQUENCY_GROUPS:
        groups = [evaluation.groups[prior][name] for prior in PRIORS]
        untested = groups[0]["n_classes"] - groups[0]["n_tested"]
        recalls = (number_cell(group["recall"]) for group in groups)
        note = f"{untested:.0f} without test rows" if untested else ""
        rows.append((Cell(name, note=note), count_cell(groups[0]["n_classes"]), *recalls))
    columns = ("Training samples", "Classes", "Recall, balanced prior", "Recall, training prior")
    return Table(columns, tuple(rows), "groups")


def _class_table(
    evaluation: Evaluation, prior: str, scores: dict[str, NDArray[np.float64]], order: Labels, target: dict[int, int]
) -> Table:
    """Every class, the weakest first; those without test rows last."""
    classes, group = evaluation.classes, frequency_group(evaluation.classes.counts)
    everyone = np.concatenate([order, np.setdiff1d(np.arange(len(classes.labels)), order)])
    rows = tuple(
        (
            label_cell(str(classes.labels[at]), "rare" if classes.minority[at] else ""),
            count_cell(classes.counts[at]), Cell(str(group[at])), count_cell(scores["support"][at]),
            *(number_cell(scores[key][at]) for key in ("recall", "precision", "f1")),
            label_cell(str(classes.labels[target[at]])) if at in target else Cell("–"),
        )
        for at in everyone[:MOST_ROWS].tolist()
    )  # fmt: skip
    columns = ("Class", "Training rows", "Group", "Test rows", "Recall", "Precision", "F1", "Mostly taken for")
    return Table(columns, rows, f"classes-{prior}", sortable=True)


def _pair_table(evaluation: Evaluation, prior: str) -> Table:
    """Which class is taken for which, most rows first."""
    labels, y = evaluation.classes.labels, evaluation.y
    pairs = confused_pairs(y, evaluation.predicted[prior])
    support = np.bincount(y[y >= 0], minlength=len(labels))
    few = 15 if len(labels) > MOST_MATRIX_CLASSES else 5
    rows = []
    for true, wrong, n in zip(*(pairs[key][:few].tolist() for key in ("true", "predicted", "rows")), strict=True):
        share = n / support[true]
        names = (label_cell(str(labels[at])) for at in (true, wrong))
        rows.append((*names, count_cell(n), Cell(percent(share), share)))
    return Table(("True class", "Taken for", "Rows", "Of its rows"), tuple(rows), f"pairs-{prior}", sortable=True)


def _independence_table(evaluation: Evaluation) -> Table:
    """Dependence left between the sources of each class, beside what chance gives."""
    classes, n_sources = evaluation.classes, evaluation.model.n_sources
    rows = tuple(
        (
            label_cell(str(classes.labels[at])), Cell("yes" if classes.demixed_on[at] else "no"),
            count_cell(classes.n_examples[at]), number_cell(classes.max_correlation[at], 2),
            number_cell(chance_correlation(int(classes.n_examples[at]), n_sources), 2),
            number_cell(classes.hsic[at], 2), number_cell(classes.log_likelihood[at], 1),
        )
        for at in range(min(len(classes.labels), MOST_ROWS))
    )  # fmt: skip
    columns = ("Class", "Learned from", "Samples", "Correlation", "By chance", "HSIC", "Log-likelihood")
    return Table(columns, rows, "independence", sortable=True)


# --- findings ------------------------------------------------------------------------------------------------------


def chance_correlation(n_samples: int, n_sources: int) -> float:
    """What the largest correlation among independent Gaussian sources stays below in 95 of 100 samples.

    >>> round(chance_correlation(100, 2), 3)
    0.197
    """
    pairs = n_sources * (n_sources - 1) / 2
    if n_samples < 3 or pairs < 1:
        return 1.0
    level = 1 - (1 - BY_CHANCE) ** (1 / pairs)
    t = float(student_t.ppf(1 - level / 2, n_samples - 2))
    return t / float(np.sqrt(n_samples - 2 + t**2))


def findings(evaluation: Evaluation) -> dict[str, Finding]:
    """All findings, the most telling first."""
    seen, model = evaluation.classes.demixed_on, evaluation.model
    found = {"independence-unseen": _independence(evaluation, ~seen)} if (~seen).any() else {}
    found["independence-seen"] = _independence(evaluation, seen)
    if (~seen).any():
        found["likelihood"] = _likelihood(evaluation, seen)
    losses = model.demixing_held_out
    flow: Answer = "cannot tell" if len(losses) < 2 else "yes" if model.demixing == "flow" else "no"
    error = model.round_trip_error
    back: Answer = "yes" if error <= 1e-3 else "partly" if error <= 0.05 else "no"
    n_classes = int(seen.sum())
    return found | {
        "flow": Finding(flow, {"losses": losses, "kept": model.demixing}, harmless=len(losses) > 1),
        "round-trip": Finding(back, {"error": error}),
        "theory": theory_finding(model.n_sources, n_classes, model.enough_classes, model.smallest_singular_value),
    }


def _independence(evaluation: Evaluation, mask: Mask) -> Finding:
    classes, n_sources = evaluation.classes, evaluation.model.n_sources
    rows = np.flatnonzero(mask & np.isfinite(classes.max_correlation))
    numbers: dict[str, Any] = {"n_sources": n_sources, "n_classes": int(mask.sum()), "measured": len(rows)}
    if n_sources < 2:
        return Finding("yes", numbers, because="one source")
    if len(rows) == 0:
        return Finding("cannot tell", numbers, because="no samples")
    value = classes.max_correlation[rows]
    chance = np.array([chance_correlation(int(n), n_sources) for n in classes.n_examples[rows]])
    beyond, strong = int((value > chance).sum()), int(((value > chance) & (value >= STRONG)).sum())
    numbers |= {
        "correlation": float(np.median(value)), "chance": float(np.median(chance)), "beyond": beyond,
        "copies": bool(np.median(value) > COPIES), "samples": float(np.median(classes.n_examples[rows])),
    }  # fmt: skip
    if binom.sf(beyond - 1, len(rows), BY_CHANCE) >= BY_CHANCE:
        if np.median(chance) > BLIND:
            return Finding("cannot tell", numbers, because="few samples")
        return Finding("yes", numbers)
    return Finding("partly" if strong <= 0.25 * len(rows) else "no", numbers)


def _likelihood(evaluation: Evaluation, seen: Mask) -> Finding:
    value = evaluation.classes.log_likelihood
    known = np.isfinite(value)
    if not (seen & known).any() or not (~seen & known).any():
        return Finding("cannot tell")
    here, there = float(np.median(value[seen & known])), float(np.median(value[~seen & known]))
    gap = (here - there) / evaluation.model.n_sources
    return Finding(
        "yes" if gap < 0.5 else "partly" if gap < 2 else "no", {"seen": here, "unseen": there, "lower_by": gap}
    )
