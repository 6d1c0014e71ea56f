"""Diagnostics of a fitted model in plain words: what was found, what it means, what to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom
from scipy.stats import t as student_t

from ecrt.runs.findings import Answer, Finding
from ecrt.runs.records import Evaluation

__all__ = ["Finding", "chance_correlation", "findings"]

Mask = NDArray[np.bool_]

BY_CHANCE = 0.05
"""How often independent sources are called dependent."""

STRONG = 0.3
"""From here on a correlation is more than a blemish."""

COPIES = 0.95
BLIND = 0.6
"""Where chance alone reaches such a correlation, few samples say nothing about independence."""


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


def findings(evaluation: Evaluation) -> tuple[Finding, ...]:
    """All findings, the most telling first."""
    seen = evaluation.classes.demixed_on
    answers = [_independence(evaluation, seen, unseen=False)]
    if (~seen).any():
        answers.insert(0, _independence(evaluation, ~seen, unseen=True))
        answers.append(_likelihood(evaluation, seen))
    return (*answers, _flow(evaluation), _round_trip(evaluation), _theory(evaluation))


def _independence(evaluation: Evaluation, mask: Mask, *, unseen: bool) -> Finding:
    classes, n_sources = evaluation.classes, evaluation.model.n_sources
    who = "classes that de-mixing never saw" if unseen else "classes that de-mixing learned from"
    question = f"Are the sources independent in the {who}?"
    meaning = (
        "Synthetic samples are drawn source by source. That is right only for independent sources: here is where the "
        "mechanism learned from frequent classes has to carry over to the rare ones."
        if unseen
        else "Independence is what de-mixing strives for; where it fails even here, it cannot be hoped for elsewhere."
    )
    rows = np.flatnonzero(mask & np.isfinite(classes.max_correlation))
    if n_sources < 2:
        return Finding(question, "yes", "There is only one source.", meaning)
    if len(rows) == 0:
        return Finding(
            question, "cannot tell", f"All {_classes(int(mask.sum()))} have fewer than three samples to measure on.",
            meaning, "Collect a few more samples of these classes.",
        )  # fmt: skip
    value = classes.max_correlation[rows]
    chance = np.array([chance_correlation(int(n), n_sources) for n in classes.n_examples[rows]])
    beyond, strong = int((value > chance).sum()), int(((value > chance) & (value >= STRONG)).sum())
    found = (
        f"The largest correlation between two of the {n_sources} sources is {np.median(value):.2f} in the median of "
        f"{_classes(len(rows))}; chance alone would give up to {np.median(chance):.2f} with so many samples. "
        f"It is beyond chance in {beyond} of {len(rows)}."
    )
    if np.median(value) > COPIES:
        found += " So near 1, two sources are copies of each other, as with features that hardly vary in a class."
    flow = "more flow_blocks or n_restarts" if evaluation.model.demixing == "flow" else 'demixing="flow"'
    advice = (
        f'Try {flow}, let de-mixing learn from all classes (demix_on="all"), or lower augmentation_weight, and see '
        "whether the held-out loss falls."
        if unseen
        else f"Try {flow}; fewer n_sources are easier to make independent."
    )
    if binom.sf(beyond - 1, len(rows), BY_CHANCE) >= BY_CHANCE:
        if np.median(chance) > BLIND:
            few = (
                f"With a median of {np.median(classes.n_examples[rows]):.0f} samples only gross dependence would show."
            )
            return Finding(question, "cannot tell", f"{found} {few}", meaning, "Collect more samples to find out.")
        return Finding(question, "yes", found, meaning)
    answer: Answer = "partly" if strong <= 0.25 * len(rows) else "no"
    return Finding(question, answer, found, meaning, advice)


def _likelihood(evaluation: Evaluation, seen: Mask) -> Finding:
    question = "Do the unseen classes fit the model as well as the others?"
    meaning = (
        "The log-likelihood of a class's features under the de-mixing, with a prior of its own for each class. Much "
        "lower for unseen classes means that they are not made by the same mechanism."
    )
    value = evaluation.classes.log_likelihood
    told = np.isfinite(value)
    if not (seen & told).any() or not (~seen & told).any():
        return Finding(question, "cannot tell", "There are no samples to measure on.", meaning)
    here, there = np.median(value[seen & told]), np.median(value[~seen & told])
    gap = (here - there) / evaluation.model.n_sources
    found = (
        f"Median log-likelihood of a sample: {here:.1f} in classes learned from and {there:.1f} in unseen ones, "
        f"{'lower' if gap >= 0 else 'higher'} by {abs(gap):.2f} nats for each source. (Up to 0.5 lower is no "
        "worry, as a rule of thumb.)"
    )
    answer: Answer = "yes" if gap < 0.5 else "partly" if gap < 2 else "no"
    advice = 'Let de-mixing learn from all classes: demix_on="all".' if gap >= 0.5 else ""
    return Finding(question, answer, found, meaning, advice)


def _flow(evaluation: Evaluation) -> Finding:
    model = evaluation.model
    question = "Did a flow earn its place?"
    losses = ", ".join(f"{name} {loss:.3f}" for name, loss in model.demixing_held_out.items())
    meaning = "The simpler de-mixing is kept unless the flow lowers the held-out loss beyond noise."
    if len(model.demixing_held_out) < 2:
        return Finding(
            question, "cannot tell", f"Only {model.demixing} de-mixing was tried (held-out loss: {losses}).", meaning,
            'Automatic choice tries a flow on up to 64 sources and at least 500 rows; demixing="flow" insists on one.'
            if model.demixing == "linear" else 'demixing="auto" compares both.' if model.demixing == "flow" else "",
        )  # fmt: skip
    found = f"Held-out loss, classes alike: {losses}. Kept: {model.demixing}."
    return Finding(question, "yes" if model.demixing == "flow" else "no", found, meaning, harmless=True)


def _round_trip(evaluation: Evaluation) -> Finding:
    error = evaluation.model.round_trip_error
    answer: Answer = "yes" if error <= 1e-3 else "partly" if error <= 0.05 else "no"
    found = "The error is not finite." if not np.isfinite(error) else f"Largest error there and back: {error:.2g}."
    return Finding(
        "Can sources be turned back into features?", answer,
        f"{found} (Relative to the spread of the features; below 0.001 is as good as exact.)",
        "De-mixing must be invertible: only then do synthetic sources stand for features that could exist.",
        "" if answer == "yes" else "Use fewer flow_blocks, and look for extreme values or columns that hardly vary.",
    )  # fmt: skip


def _theory(evaluation: Evaluation) -> Finding:
    model, n_classes = evaluation.model, int(evaluation.classes.demixed_on.sum())
    needed = 2 * model.n_sources + 1
    question = "Do the conditions of the identification theorem hold?"
    meaning = (
        "If they hold, independent sources found by contrast are the true ones, up to order and stretching. If not, "
        "they are still useful coordinates, but nothing promises that they are the causes behind the data."
    )
    found = (
        f"{model.n_sources} sources ask for at least 2 × {model.n_sources} + 1 = {needed} classes to learn from; "
        f"there are {n_classes}."
    )
    if not model.enough_classes:
        most = (n_classes - 1) // 2
        advice = (
            f"From {n_classes} classes no more than {most} can be identified (n_sources={most}); predictions may well "
            "be better with more."
            if most
            else "With so few classes no number of sources can be identified; judge the model by its predictions."
        )
        return Finding(question, "no", found, meaning, advice, harmless=True)
    value = model.smallest_singular_value
    if value > 0:
        weak = " The smaller it is, the more samples that takes." if value < 0.1 else ""
        found += f" The classes also differ in enough ways: smallest singular value {value:.2g}, above 0.{weak}"
        return Finding(question, "yes", found, meaning)
    found += " But with one prior shared by all classes they do not differ in the way the theorem asks."
    return Finding(question, "no", found, meaning, 'Use source_prior="per-class".')


def _classes(n: int) -> str:
    return f"{n} class" if n == 1 else f"{n} classes"
