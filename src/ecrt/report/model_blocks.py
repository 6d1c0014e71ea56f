"""Figures of a fitted model's page with the sentences that say what to see."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from ecrt.report.inside_figures import (
    candidate_panel,
    curve_panels,
    dependence_panel,
    drawn_rare_classes,
    source_panels,
)
from ecrt.report.model_figures import (
    MOST_MATRIX_CLASSES,
    MOST_NUMBERED,
    band_panel,
    class_panels,
    confusion_panel,
    reliability_panel,
)
from ecrt.report.model_words import candidate_name
from ecrt.report.rendering import FigureBlock, short
from ecrt.runs.records import Evaluation

__all__ = [
    "confusion_block",
    "dependence_block",
    "frequency_block",
    "reliability_block",
    "source_block",
    "training_blocks",
]


def frequency_block(evaluation: Evaluation, prior: str) -> FigureBlock:
    """Recall and F1 against label frequency."""
    return FigureBlock(
        "Recall and F1 of each class against its training samples",
        _panels(class_panels(evaluation, prior)),
        "Each dot is a class. Rare classes stand on the left: if the dots fall off there, what is rare is missed. "
        "High recall with low F1 means that other classes are wrongly taken for this one.",
    )


def confusion_block(evaluation: Evaluation, prior: str) -> FigureBlock | None:
    """The confusion matrix; with many classes, of bands of classes (none if all are equally frequent)."""
    n = len(evaluation.classes.labels)
    if n <= MOST_MATRIX_CLASSES:
        numbers = "Numbers are test rows; the" if n <= MOST_NUMBERED else "The"
        return FigureBlock(
            "Confusion matrix",
            _panels([confusion_panel(evaluation, prior)]),
            f"Each line is a true class and each column a prediction. {numbers} fuller the colour, the larger the "
            "share of the line. Blue on the diagonal is right; a full red cell is a class often taken for another.",
            wide=n > MOST_NUMBERED,
        )
    panel = band_panel(evaluation, prior)
    if panel is None:
        return None
    return FigureBlock(
        "Where rows of frequent and of rare classes go",
        _panels([panel]),
        "Classes are put together by their training samples. Each line shows, in per cent, how many rows of such "
        "classes are right (blue) and to classes of which frequency the others go (red). Red that grows to the right "
        "means that frequent classes swallow the rare ones.",
    )


def reliability_block(evaluation: Evaluation, prior: str) -> FigureBlock:
    """Confidence against accuracy."""
    known = evaluation.y >= 0
    gap = float(
        evaluation.confidence[prior][known].mean() - (evaluation.predicted[prior] == evaluation.y)[known].mean()
    )
    error = evaluation.metrics[prior]["ece"]
    tendency = "about as sure as it is right" if abs(gap) < 0.01 else "too sure" if gap > 0 else "not sure enough"
    return FigureBlock(
        "Reliability diagram",
        _panels([reliability_panel(evaluation, prior)]),
        "Rows are put together by confidence; dots on the dotted line mean that of all rows predicted with 80 % "
        "confidence 80 % are right. Below the line the model is too sure, above it not sure enough; upright lines are "
        f"95 % intervals. On the whole the model is {tendency} ({abs(100 * gap):.1f} points); the calibration error is "
        f"{error:.3f}. Only where test classes are as frequent as the prior says can confidence be expected to fit.",
    )


def source_block(evaluation: Evaluation) -> FigureBlock:
    """Real and synthetic samples in source space."""
    points, classes = evaluation.points, evaluation.classes
    shown, drawn = len(drawn_rare_classes(evaluation)), len(np.unique(points.synthetic_y))
    which = "The two sources with most signal" if len(points.columns) == 2 else "The only source"
    some = "" if shown == drawn else f" Of {drawn} such classes the {shown} with the fewest training samples are shown."
    who = "a rare class" if classes.minority.any() else "one class"
    unused = (
        "" if evaluation.model.augmentation_weight else " They are drawn for this picture only: training used none."
    )
    return FigureBlock(
        "Sources of test rows and of synthetic samples",
        _panels(source_panels(evaluation)),
        f"{which}. First all classes, then {who} in each panel: the blue dots, drawn from its training samples, should "
        f"cover the red crosses, which nothing was fitted on. Blue where no red is means that the sources depend on "
        f"each other or that training samples were untypical.{some}{unused}",
    )


def training_blocks(evaluation: Evaluation) -> tuple[FigureBlock, ...]:
    """Losses epoch by epoch, where something was trained so, and the heads that were tried."""
    model = evaluation.model
    flows = [curve for curve in evaluation.curves if curve.stage == "flow"]
    failed = [curve.error for curve in flows if curve.error]
    words = []
    if len(flows) > 1:
        words.append(f"Of {len(flows)} flows the one with the lowest held-out contrastive loss was kept.")
    if failed:
        words.append(f"{len(failed)} failed: {short(failed[0], 200)}")
    curves = FigureBlock(
        "Training curves",
        _panels(curve_panels(evaluation)),
        "Held-out loss should fall with training loss and level off; where it turns up, the network memorises, and the "
        "epoch at the dotted line was kept. " + " ".join(words),
    )
    names = list(model.head_candidates)
    chosen = f"{model.head} {model.head_setting:g}"
    panel = candidate_panel(
        [candidate_name(name) for name in names],
        list(model.head_candidates.values()),
        names.index(chosen) if chosen in names else -1,
    )
    heads = FigureBlock(
        "Heads tried",
        _panels([panel]),
        "Loss on held-out rows, every class counted alike: lower is better. Of each kind of head the most regular "
        "comes first; red is the chosen one. A later kind must be better beyond noise, so the chosen one need not be "
        "the lowest.",
    )
    return (curves, heads) if curves.panels else (heads,)


def dependence_block(evaluation: Evaluation) -> FigureBlock | None:
    """Dependence left between sources; none where nothing could be measured."""
    if evaluation.model.n_sources < 2 or not np.isfinite(evaluation.classes.max_correlation).any():
        return None
    return FigureBlock(
        "Dependence left between the sources of each class",
        _panels([dependence_panel(evaluation)]),
        "Each mark is a class. Below the dotted line its sources are as independent as its samples can tell; marks far "
        "above it are classes whose sources still depend on each other. Squares are classes that de-mixing never saw.",
    )


def _panels(panels: list[str]) -> tuple[Markup, ...]:
    return tuple(Markup(panel) for panel in panels)
