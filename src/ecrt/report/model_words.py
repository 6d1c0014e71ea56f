"""What a fitted model achieves, in sentences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ecrt.metrics.classification import class_scores, confused_pairs
from ecrt.report.rendering import short_label
from ecrt.runs.records import Evaluation, ModelFacts

__all__ = [
    "METRIC_TEXTS",
    "PRIOR_TEXTS",
    "candidate_name",
    "data_sentences",
    "listed",
    "model_facts",
    "percent",
    "prior_sentences",
    "quoted",
    "taken_for",
    "versions_text",
    "weakest_first",
]

Labels = NDArray[np.int64]

METRIC_TEXTS = {
    "top1": ("Accuracy ↑", "share of test rows that are right"),
    "balanced_accuracy": ("Balanced accuracy ↑", "mean recall over the classes: a rare one counts like a frequent one"),
    "macro_f1": ("Macro F1 ↑", "mean F1 over the classes: minds what is wrongly given to a class, too"),
    "g_mean": ("G-mean ↑", "geometric mean of the recalls: zero as soon as one class is never recognised"),
    "top5": ("Top-5 accuracy ↑", "the true class is among the five most probable"),
    "nll": ("NLL ↓", "mean of minus log-probability of the true class: being sure and wrong costs most"),
    "balanced_nll": ("NLL, classes alike ↓", "averaged within each class first, as when heads were chosen"),
    "ece": ("Calibration error ↓", "mean distance between confidence and accuracy (ECE)"),
    "mean_average_precision": ("Mean average precision ↑", "of each class against the rest (AUPRC), classes alike"),
    "average_precision": ("Average precision ↑", "of the rarer class; the prior changes nothing here"),
    "roc_auc": ("ROC AUC ↑", "of the rarer class; the prior changes nothing here"),
}
"""Name, with the direction that is better, and meaning of every metric."""

PRIOR_TEXTS = {
    "balanced": ("Balanced", "every class is taken to be equally likely before a row is looked at"),
    "training": ("Training", "each class is taken to be as likely as it was frequent in training"),
}
SETTINGS = {"linear": "weight decay {}", "mlp": "{} epochs", "gaussian": "{} pseudo-samples"}
HEADS = {"linear": "linear", "mlp": "MLP", "gaussian": "Gaussian"}
DEMIXINGS = {
    "none": "none, features are only standardised",
    "linear": "linear: features whitened within classes",
    "flow": "a flow on top of linear whitening",
}


def percent(share: float) -> str:
    """A share for readers; a digit more where it matters.

    >>> percent(0.917), percent(0.9954), percent(float("nan"))
    ('92 %', '99.5 %', '–')
    """
    if not np.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share in (0, 1) or 0.01 <= share <= 0.99 else f"{100 * share:.1f} %"


def quoted(label: str) -> str:
    """A label within a sentence: numbers as they are, text in quotes."""
    label = short_label(str(label), 40)
    return label if label.replace(".", "").isdigit() else f"“{label}”"


def listed(items: list[str], most: int = 8) -> str:
    """Join with commas and an "and"; many are cut short.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    if len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def data_sentences(evaluation: Evaluation) -> list[str]:
    """What the model learned from, and what it was tested on."""
    classes, y = evaluation.classes, evaluation.y
    n_classes, counts = len(classes.labels), classes.counts
    span = f"{counts.min():,}" if counts.min() == counts.max() else f"{counts.min():,} to {counts.max():,}"
    sentences = [
        f"Trained on {counts.sum():,} rows of {n_classes:,} classes, {span} rows a class; tested on {len(y):,} rows."
    ]
    rare = [quoted(label) for label in classes.labels[classes.minority]]
    if len(rare) == n_classes:
        sentences.append("All classes are called rare.")
    elif rare:
        sentences.append(f"Rare {'class' if len(rare) == 1 else 'classes'}: {listed(rare)}.")
    else:
        sentences.append("No class is clearly rarer than the others.")
    untested = int((np.bincount(y[y >= 0], minlength=n_classes) == 0).sum())
    if untested:
        sentences.append(f"{untested:,} of the classes {'has' if untested == 1 else 'have'} no test row.")
    if evaluation.unknown_labels:
        n_rows = sum(evaluation.unknown_labels.values())
        names = [f"{quoted(label)} ({rows})" for label, rows in evaluation.unknown_labels.items()]
        sentences.append(
            f"{n_rows:,} test {'row has a label' if n_rows == 1 else 'rows have labels'} that training never saw: "
            f"{listed(names)}. They count as wrong in accuracy and are left out where a probability is needed."
        )
    sentences.append(_which_prior(evaluation))
    return sentences


def _which_prior(evaluation: Evaluation) -> str:
    """Whether test frequencies are nearer to equal ones or to those of training, by total variation."""
    counts, y = evaluation.classes.counts, evaluation.y
    test = np.bincount(y[y >= 0], minlength=len(counts)) / (y >= 0).sum()
    to_equal = np.abs(test - 1 / len(counts)).sum() / 2
    to_training = np.abs(test - counts / counts.sum()).sum() / 2
    if abs(to_equal - to_training) < 0.02:
        return "Classes in the test rows are about as near to equal frequencies as to those in training."
    nearer, name = ("equal", "balanced") if to_equal < to_training else ("training", "training")
    return (
        f"Class frequencies in the test rows are nearer to {nearer} ones, so probabilities are best read under the "
        f"{name} prior; choose by the frequencies where the model will be used."
    )


def prior_sentences(evaluation: Evaluation, prior: str) -> list[str]:
    """How good the predictions are under one prior, and where they are worst."""
    metrics, guessing = evaluation.metrics[prior], evaluation.metrics["guessing"]
    classes, predicted = evaluation.classes, evaluation.predicted[prior]
    scores = class_scores(evaluation.y, predicted, len(classes.labels))
    sentences = [
        f"Under the {prior} prior {percent(metrics['top1'])} of the test rows are right (always naming the most "
        f"frequent class: {percent(guessing['top1'])}). Averaged over classes, recall is "
        f"{percent(metrics['balanced_accuracy'])} and F1 {metrics['macro_f1']:.2f}."
    ]
    told = np.isfinite(scores["recall"])
    rare, others = classes.minority & told, ~classes.minority & told
    if rare.any() and others.any():
        means = [percent(float(scores["recall"][mask].mean())) for mask in (rare, others)]
        sentences.append(f"Rare classes are recalled at {means[0]}, the others at {means[1]}.")
    weakest = [index for index in weakest_first(scores)[:3] if scores["recall"][index] < 1]
    if not weakest:
        return [*sentences, "No test row of a known class is missed."]
    target = taken_for(evaluation, prior)
    names = [
        f"{quoted(classes.labels[index])} ({scores['recall'][index] * scores['support'][index]:.0f} of "
        f"{scores['support'][index]:.0f} rows right, mostly taken for {quoted(classes.labels[target[index]])})"
        for index in weakest
    ]
    return [*sentences, f"Weakest: {listed(names)}."]


def weakest_first(scores: dict[str, NDArray[np.float64]]) -> Labels:
    """Classes with test rows by recall, those with most rows first among equals."""
    order = np.lexsort((-scores["support"], scores["recall"]))
    return order[np.isfinite(scores["recall"][order])]


def taken_for(evaluation: Evaluation, prior: str) -> dict[int, int]:
    """For each class that is ever missed, the class it is most often taken for."""
    pairs = confused_pairs(evaluation.y, evaluation.predicted[prior])
    found: dict[int, int] = {}
    for true, wrong in zip(pairs["true"].tolist(), pairs["predicted"].tolist(), strict=True):
        found.setdefault(true, wrong)
    return found


def candidate_name(candidate: str) -> str:
    """A head as it was tried.

    >>> candidate_name("linear 0.003"), candidate_name("gaussian 1e+06")
    ('linear, weight decay 0.003', 'Gaussian, 1,000,000 pseudo-samples')
    """
    head, _, setting = candidate.partition(" ")
    number = float(setting)
    text = f"{number:,.0f}" if number >= 1 else f"{number:g}"
    return f"{HEADS.get(head, head)}, {SETTINGS.get(head, '{}').format(text)}"


def model_facts(model: ModelFacts) -> tuple[tuple[str, str], ...]:
    """Name and text of what was fitted."""
    synthetic = f"{model.augmentation}, {percent(model.augmentation_weight)} of a rare class's weight"
    prior = "an array of your own, neither of the two below" if model.class_prior == "given" else model.class_prior
    return (
        ("De-mixing", f"{DEMIXINGS.get(model.demixing, model.demixing)}; {model.n_sources} sources"),
        ("Head", candidate_name(f"{model.head} {model.head_setting:g}")),
        ("Synthetic samples", synthetic if model.augmentation_weight else "none"),
        ("Prior in predict", prior),
        ("Versions", versions_text(model.versions)),
    )


def versions_text(versions: dict[str, str]) -> str:
    """Packages with their versions."""
    return ", ".join(f"{name} {number}" for name, number in versions.items())
