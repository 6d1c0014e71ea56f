"""The page of a classifier: how good it is under each prior, where it fails, and what its sources are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import confusion_matrix

from ecrt.arrays import Array, Labels
from ecrt.metrics import PRIORS, class_scores, confused_pairs, frequency_group, reliability_bins
from ecrt.report import drawing
from ecrt.report.drawing import DOTTED, GREY, INK, MINORITY, OTHERS, SMALL, svg
from ecrt.report.rendering import Plots, column_table, counted, short_label
from ecrt.report.sources import drawn_classes, source_panels
from ecrt.runs.evaluation import Evaluation
from ecrt.runs.findings import chance_correlation, source_findings
from ecrt.training import History

MOST_MATRIX_CLASSES, MOST_NUMBERED = 30, 12
"""Classes of a confusion matrix, and of one with numbers in it."""

MOST_ROWS = 500
"""Classes in a table."""

MOST_CURVES = 6


def summarise_classes(evaluation: Evaluation) -> dict[str, Any]:
    """What the page shows: the evaluation, and what follows from it."""
    model, classes, y = evaluation.facts, evaluation.arrays, evaluation.y
    tested = np.bincount(y[y >= 0], minlength=len(classes["labels"]))
    of_transfer: dict[str, Any] = {"findings": {}} if "method" in model else {
        "n_shown": len(drawn_classes(evaluation)),
        "findings": source_findings(classes, model),
        "chance": [chance_correlation(int(n), model["n_sources"]) for n in classes["n_examples"][:MOST_ROWS]],
    }  # fmt: skip
    return (
        vars(evaluation)
        | of_transfer
        | {
            "columns": column_table(evaluation.columns),
            "unknown_in": evaluation.unknown_in,
            "chosen_prior": "training" if model["class_prior"] == "training" else "balanced",
            "rare": classes["labels"][classes["minority"]].tolist(),
            "untested": classes["labels"][tested == 0].tolist(),
            "nearer_to": _nearer_prior(tested / tested.sum(), classes["counts"] / classes["counts"].sum()),
            "notes": np.where(classes["minority"], "rare", ""),
            "frequency": frequency_group(classes["counts"]),
            "views": [_view(evaluation, prior) for prior in PRIORS],
        }
    )


def frequency_bands(counts: Labels, most: int = 6) -> Labels:
    """The band of each class, by quantiles of training samples, the rarest 0; one band if all are equally frequent."""
    edges = np.unique(np.quantile(counts, np.linspace(0, 1, most + 1)[1:-1], method="lower"))
    return np.unique(np.searchsorted(edges, counts, side="left"), return_inverse=True)[1].astype(np.int64)


# --- data and predictions ------------------------------------------------------------------------------------------


def _nearer_prior(test: Array, training: Array) -> str:
    """Whether test frequencies are nearer to equal ones or to those of training, by total variation."""
    to_equal = np.abs(test - 1 / len(test)).sum() / 2
    to_training = np.abs(test - training).sum() / 2
    if abs(to_equal - to_training) < 0.02:
        return "neither"
    return "balanced" if to_equal < to_training else "training"


def _view(evaluation: Evaluation, prior: str) -> dict[str, Any]:
    """What the page shows under one prior."""
    classes, y, predicted = evaluation.arrays, evaluation.y, evaluation.under(prior, "predicted")
    n, known = len(classes["labels"]), y >= 0
    scores, pairs = class_scores(y, predicted, n), confused_pairs(y, predicted)
    recall, support = scores["recall"], scores["support"]
    order = np.lexsort((-support, recall))  # the weakest class first, those without test rows last
    true, first = np.unique(pairs["true"], return_index=True)
    taken_for = np.full(n, None)  # the class that each is most often taken for
    taken_for[true] = classes["labels"][pairs["predicted"][first]]
    tested = np.isfinite(recall)
    rare, others = recall[classes["minority"] & tested], recall[~classes["minority"] & tested]
    return {
        "prior": prior,
        "metrics": evaluation.metrics[prior],
        "guessing": evaluation.metrics["guessing"],
        "recalls": {"rare": rare.mean(), "others": others.mean()} if len(rare) and len(others) else None,
        "missed": [
            {"label": classes["labels"][at], "right": recall[at] * support[at], "rows": support[at],
             "taken_for": taken_for[at]}
            for at in order[:3].tolist() if recall[at] < 1
        ],
        "scores": scores,
        "order": order[:MOST_ROWS],
        "taken_for": taken_for,
        "confusion": "bands" if n > MOST_MATRIX_CLASSES else "matrix" if n > MOST_NUMBERED else "numbers",
        "pairs": pairs,
        "overconfidence": float(evaluation.under(prior, "confidence")[known].mean() - (predicted == y)[known].mean()),
    }  # fmt: skip


# --- figures -------------------------------------------------------------------------------------------------------


def class_plots(evaluation: Evaluation) -> Plots:
    """Every figure of the page."""
    plots: dict[str, list[str]] = {
        "sources": [] if "method" in evaluation.facts else source_panels(evaluation),
        "curves": curve_panels(evaluation),
    }
    for prior in PRIORS:
        plots[f"frequency-{prior}"] = frequency_panels(evaluation, prior)
        plots[f"confusion-{prior}"] = confusion_panels(evaluation, prior)
        panel = svg(_reliability, f"reliability-{prior}", evaluation, prior, size=(4.2, 4.2), heights=(3.2, 1))
        plots[f"reliability-{prior}"] = [panel]
    return plots


def frequency_panels(evaluation: Evaluation, prior: str) -> list[str]:
    """Recall and F1 of every class against its training samples."""
    n = len(evaluation.arrays["labels"])
    predicted = {name: evaluation.under(name, "predicted") for name in ("balanced", "training")}
    scores = {name: class_scores(evaluation.y, of, n) for name, of in predicted.items()}
    lowest = np.nanmin([found[key] for found in scores.values() for key in ("recall", "f1")])
    floor = max(np.floor(10 * lowest) / 10 - 0.1, 0.0) if lowest > 0.5 else 0.0  # the same under every prior
    return [
        svg(_frequency, f"{key}-{prior}", evaluation, scores[prior][key], title, floor)
        for key, title in (("recall", "Recall"), ("f1", "F1"))
    ]


def _frequency(axes: Axes, evaluation: Evaluation, values: Array, title: str, floor: float) -> None:
    of = evaluation.arrays
    drawing.count_scatter(axes, of["counts"], values, of["minority"], of["labels"].tolist(), title=title, floor=floor)
    axes.set_xlabel("training samples of the class (log scale)")
    low, high = axes.get_xlim()
    for left, right, name in ((0, 20, "few"), (20, 100, "medium"), (100, np.inf, "many")):
        start, end = max(left, low), min(right, high)
        if low < right < high:
            axes.axvline(right, **DOTTED | {"linewidth": 0.8, "alpha": 0.6})
        if end > 1.25 * start:
            axes.text(
                np.sqrt(start * end), 0.01, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=SMALL, alpha=0.8,
            )  # fmt: skip


def confusion_panels(evaluation: Evaluation, prior: str) -> list[str]:
    """Where rows of each class go; with many classes, rows of bands of classes (none if all are equally frequent)."""
    classes, y, predicted = evaluation.arrays, evaluation.y, evaluation.under(prior, "predicted")
    n = len(classes["labels"])
    if n <= MOST_MATRIX_CLASSES:
        rows = confusion_matrix(y, predicted, labels=np.arange(n))  # without labels that are not known
        names = [short_label(str(label), 12) for label in classes["labels"]]
        texts = np.where(rows > 0, rows.astype(str), "") if n <= MOST_NUMBERED else np.full((n, n), "")
        side = float(np.clip(2.6 + 0.2 * n, 3.4, 7.2))
        upright = max(map(len, names)) * 0.62 * SMALL > 0.7 * 72 * side / n
        ticks: dict[str, Any] = {"labels": names, "rotation": 90 if upright else 0}
        axis_labels, size = ("predicted class", "true class"), (side + 0.4, side)
        return [svg(_matrix, f"confusion-{prior}", rows, np.eye(n), texts, names, ticks, axis_labels, size=size)]
    bands, known = frequency_bands(classes["counts"]), y >= 0
    ranges = [classes["counts"][bands == band] for band in np.unique(bands)]
    names = [f"{counts.min()}–{counts.max()}" for counts in ranges]
    if len(names) == 1:
        return []
    given = np.where(predicted == y, 0, 1 + bands[predicted])
    rows = confusion_matrix(1 + bands[y[known]], given[known], labels=np.arange(len(names) + 1))[1:]
    texts = np.char.mod("%.0f", 100 * rows / np.maximum(rows.sum(axis=1, keepdims=True), 1))
    ticks = {"labels": ["right", *names], "rotation": 35, "ha": "right"}
    axis_labels = ("right, or training samples of the wrong class", "training samples of the true class")
    right = np.indices(rows.shape)[1] == 0
    return [svg(_matrix, f"bands-{prior}", rows, right, texts, names, ticks, axis_labels, size=(4.6, 4.0))]


def _matrix(
    axes: Axes, rows: Labels, right: Array, texts: NDArray[np.str_], names: list[str], ticks: dict[str, Any],
    labels: tuple[str, str],
) -> None:  # fmt: skip
    """The fuller a cell, the larger its share of the line: right ones in blue, wrong ones in red."""
    share = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    image = np.empty((*share.shape, 4))
    image[..., :3] = np.where(right[..., None], to_rgb(OTHERS), to_rgb(MINORITY))
    image[..., 3] = np.sqrt(share)
    axes.imshow(image, interpolation="nearest", aspect="auto")
    for (row, column), text in np.ndenumerate(texts):
        if text:
            colour = "white" if share[row, column] > 0.45 else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color=colour)
    axes.set_xticks(range(share.shape[1]), parse_math=False, fontsize=SMALL, **ticks)
    axes.set_yticks(range(len(share)), names, parse_math=False, fontsize=SMALL)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.tick_params(length=0)
    axes.spines[:].set(visible=True, linewidth=0.5)


def _reliability(upper: Axes, lower: Axes, evaluation: Evaluation, prior: str) -> None:
    """Accuracy against confidence with 95 % intervals, over the number of rows at each confidence."""
    known, right = evaluation.y >= 0, evaluation.under(prior, "predicted") == evaluation.y
    bins = reliability_bins(evaluation.under(prior, "confidence")[known], right[known])
    filled, n_bins = bins["count"] > 0, len(bins["count"])
    x, accuracy, n = (bins[name][filled] for name in ("confidence", "accuracy", "count"))
    intervals = [
        binomtest(round(share * rows), int(rows)).proportion_ci(method="wilson")
        for share, rows in zip(accuracy, n, strict=True)
    ]
    upper.plot([0, 1], [0, 1], **DOTTED)
    upper.text(0.99, 0.03, "dotted: as sure as right", fontsize=SMALL, ha="right", alpha=0.8)
    upper.vlines(x, *np.reshape(intervals, (-1, 2)).T, color=OTHERS, linewidth=1.5, alpha=0.7)
    upper.plot(x, accuracy, "o", color=OTHERS, markersize=5, clip_on=False)
    upper.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    lower.bar((np.arange(n_bins) + 0.5) / n_bins, bins["count"], width=0.9 / n_bins, color=GREY)
    lower.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    lower.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    lower.set(xlabel="confidence: probability of the predicted class", ylabel="rows")


def curve_panels(evaluation: Evaluation) -> list[str]:
    """Losses of the encoder and of every flow, the kept one first."""
    drawn = [(evaluation.training["encoder"], "Encoder")]
    for number, flow in enumerate(evaluation.training["restarts"], start=1):
        kept = ", kept" if number == 1 else ""
        drawn.append((flow.history, f"Flow {number}{kept}: {counted(flow.n_blocks, 'block', 'blocks')}"))
    shown = [one for one in drawn if one[0] is not None and one[0].train_loss][:MOST_CURVES]
    return [svg(_curve, f"curve{place}", *one, size=(4.2, 3.2)) for place, one in enumerate(shown)]


def _curve(axes: Axes, history: History, title: str) -> None:
    shown = {"training": (history.train_loss, OTHERS), "held out": (history.held_out_loss, MINORITY)}
    for name, (losses, colour) in shown.items():
        if len(losses):
            axes.plot(np.arange(1, len(losses) + 1), losses, color=colour, linewidth=1.6, label=name)
    axes.axvline(history.best_epoch + 1, label="kept epoch", **DOTTED)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set(title=title, xlabel="epoch", ylabel="loss")
    drawing.legend_below(axes)
