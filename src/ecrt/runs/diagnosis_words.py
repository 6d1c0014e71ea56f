"""A diagnosis in plain words: what was found, what it means, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ecrt.runs.findings import Answer, Finding

if TYPE_CHECKING:
    from ecrt.estimators.selection import Selection
    from ecrt.runs.diagnosis import Diagnosis

__all__ = ["findings", "recommendation"]

PLAIN = 'plain logit adjustment (demixing="none", augmentation_weight=0)'
STABLE, UNSTABLE = 0.95, 0.8


def recommendation(found: Diagnosis) -> str:
    """Whether to use ECRT on these data."""
    selection, unique = found.selection, found.unique is not None and found.unique.found
    harmed = selection.vetoed or (found.gap is not None and found.gap.high < 0)
    if selection.transfer and not unique and not harmed:
        return f"Use ECRT here: it beats plain logit adjustment beyond noise. {_evidence(selection)}"
    if selection.transfer and not harmed:
        return (
            "Use ECRT here with care: it beats plain logit adjustment beyond noise, but the "
            "rare classes vary where the frequent ones do not, and what is transferred says nothing about that. "
            f"{_evidence(selection)} Compare both on rows that you trust."
        )
    if harmed and selection.low > 0:
        why = "it serves classes like the frequent ones, but held-out rows of the rare classes fare worse with it"
    elif harmed:
        why = "held-out rows of the rare classes fare worse with it"
    elif selection.high < 0:
        why = "it is worse than plain logit adjustment beyond noise"
    else:
        why = "it does not beat plain logit adjustment beyond noise"
    why += ", and the rare classes vary where the frequent ones do not" if unique else ""
    return f"Do not use ECRT here: {why}. {_evidence(selection)} Use {PLAIN}."


def _evidence(selection: Selection) -> str:
    """What the best transfer saves, with its interval."""
    tried = [one["options"] for one in selection.tried if one["options"].get("demixing", "none") != "none"]
    if not tried or selection.low == selection.high:
        return "No transfer could be measured on rows that had no part in choosing it; more trials may tell."
    return (
        f"The best transfer saves {selection.gain:+.3f} nats of balanced log-loss (90 % interval {selection.low:+.3f} "
        f"to {selection.high:+.3f})."
    )


def findings(found: Diagnosis) -> dict[str, Finding]:
    """A finding for each question."""
    return {
        "transfer": _transfer(found),
        "theory": _theory(found),
        "dependence": _dependence(found),
        "gaussianity": _gaussianity(found),
        "stability": _stability(found),
        "gridding": _gridding(found),
        "memorisation": _memorisation(found),
        "unique feature": _unique(found),
        "features or sources": _gap(found),
    }


def _transfer(found: Diagnosis) -> Finding:
    selection = found.selection
    text = _evidence(selection)
    if selection.vetoed:
        text += " But held-out rows of the rare classes themselves are worse off with it."
    if not selection.finished:
        text += " Not everything was tried: trials or time ran out."
    by = (
        "Frequent classes were played down to minority size and judged on the rows that were hidden from the fit; "
        "held-out rows of all classes, the rare ones included, were judged beside them."
        if selection.by == "pseudo-minority"
        else "There are too few frequent classes to play some down, so rows of every class were held out."
    )
    advice = (
        'ECRTClassifier(selection="pseudo-minority") makes this choice by itself, and fits it.'
        if selection.transfer
        else f"Use {PLAIN}."
    )
    return Finding(
        "Does transfer help here?", "yes" if selection.transfer else "no", text,
        f"{by} The gain is in nats of log-loss under the balanced prior: 0.1 nats make the probability of the true "
        "class higher by a tenth.", advice,
    )  # fmt: skip


def _theory(found: Diagnosis) -> Finding:
    question = "Do the conditions of the identification theorem hold?"
    needed = 2 * found.n_sources + 1
    text = (
        f"{found.n_sources} sources ask for at least 2 × {found.n_sources} + 1 = {needed} classes to learn from; there "
        f"are {found.n_demixed}."
    )
    meaning = (
        "If they hold, independent sources are the true ones, up to order and stretching. If not, they may still be "
        "useful coordinates, but nothing promises that they are the causes behind the data."
    )
    if not found.theory.enough_classes:
        most = (found.n_demixed - 1) // 2
        advice = f"From {found.n_demixed} classes no more than {most} sources can be identified (n_sources={most})."
        return Finding(question, "no", text, meaning, advice if most else "", harmless=True)
    value = found.theory.smallest_singular_value
    if value > 0:
        text += f" The classes also differ in enough ways: smallest singular value of L {value:.2g}, above 0."
        return Finding(question, "yes", text, meaning)
    text += " But with one prior shared by all classes they do not differ in the way the theorem asks."
    return Finding(question, "no", text, meaning, 'Use source_prior="per-class".', harmless=True)


def _dependence(found: Diagnosis) -> Finding:
    question = "Are the sources independent within classes?"
    meaning = (
        "Synthetic samples are drawn source by source, which is right only for independent sources. Tested by HSIC "
        "with permutations, corrected for the number of classes (Holm)."
    )
    told, n_classes = found.dependence.told, len(found.dependence.classes)
    if found.n_sources < 2:
        return Finding(question, "yes", "There is only one source.", meaning)
    if not told:
        return Finding(
            question, "cannot tell", f"All {n_classes} classes have too few rows to tell.", meaning,
            "Collect a dozen rows of each class at least.",
        )  # fmt: skip
    after, before = found.dependence.dependent(), found.dependence.dependent(after=False)
    rare = [one for one in after if one.minority]
    text = f"Dependent beyond chance: {len(after)} of {len(told)} classes by sources, {len(before)} by features."
    if len(told) < n_classes:
        text += f" Too few rows to tell in {n_classes - len(told)}."
    if rare:
        text += f" Rare ones among them: {_names([one.label for one in rare])}."
    elif not any(one.minority for one in told):
        text += " No rare class has rows enough to be tested."
    if not after:
        return Finding(question, "yes", text, meaning)
    answer: Answer = "partly" if len(after) <= len(told) / 2 else "no"
    return Finding(
        question, answer, text, meaning,
        'Try demixing="flow" or another rotation, or fewer n_sources; or lower augmentation_weight.',
    )  # fmt: skip


def _gaussianity(found: Diagnosis) -> Finding:
    question = "Are the sources Gaussian within classes?"
    meaning = 'augmentation="parametric" draws each source from a Gaussian, and so does a Gaussian head.'
    shapes = found.gaussianity.sources
    if not shapes:
        return Finding(
            question, "cannot tell", "No class has 20 rows, too few to tell the shape of its sources.", meaning
        )
    strong, worst = found.gaussianity.strong, shapes[0]
    beyond = sum(one.p_value < 0.05 for one in shapes)
    text = (
        f"{beyond} of {len(shapes)} sources depart from it beyond chance, {len(strong)} by much. The furthest has "
        f"skewness {worst.skewness:+.2f} and excess kurtosis {worst.excess_kurtosis:+.2f} (both 0 for a Gaussian), "
        f"over {found.gaussianity.n_rows:,} rows of {found.gaussianity.n_classes} classes."
    )
    if not strong:
        return Finding(question, "yes" if beyond == 0 else "partly", text, meaning, harmless=beyond > 0)
    return Finding(
        question, "no" if len(strong) > len(shapes) / 2 else "partly", text, meaning,
        'Prefer augmentation="permutation" where rare classes have rows enough for it, and a linear head.',
    )  # fmt: skip


def _stability(found: Diagnosis) -> Finding:
    question = "Do other seeds find the same sources?"
    meaning = (
        "Each fit had another seed and four fifths of the rows. Sources that come out differently each time are not "
        "the causes of the data, though a classifier on them may be as good."
    )
    value = found.stability.lowest
    if not np.isfinite(value):
        return Finding(question, "cannot tell", "De-mixing was fitted only once.", meaning)
    text = (
        f"Mean correlation of matching sources (MCC): {found.stability.mean:.2f} over {len(found.stability.pairs)} "
        f"pairs of fits, {value:.2f} in the least alike; 1 is perfect."
    )
    answer: Answer = "yes" if value >= STABLE else "partly" if value >= UNSTABLE else "no"
    advice = (
        "" if answer == "yes" else "Use more n_restarts for a flow, or fewer n_sources; read nothing into one source."
    )
    return Finding(question, answer, text, meaning, advice)


def _gridding(found: Diagnosis) -> Finding:
    question = "Do rare classes have rows enough to be shuffled?"
    meaning = (
        'augmentation="permutation" draws each source from the values that the class has: few rows make a coarse grid '
        "where a cloud should be."
    )
    if not found.grids:
        return Finding(question, "cannot tell", "No class is minority.", meaning, harmless=True)
    coarse = [grid for grid in found.grids if grid.coarse]
    rarest = found.grids[0]
    gap = f"{rarest.gap:.2f} standard deviations apart" if np.isfinite(rarest.gap) else "a single point"
    text = (
        f"{len(coarse)} of {len(found.grids)} rare classes would give a grid that is plain to see. The rarest, "
        f"{str(rarest.label)!r}, has {rarest.distinct:.0f} different values of a source, {gap}."
    )
    if not coarse:
        return Finding(question, "yes", text, meaning)
    used = found.augmentation == "permutation"
    advice = 'Use augmentation="parametric", or "borrowed", for so few rows.' if used else ""
    return Finding(question, "no" if len(coarse) == len(found.grids) else "partly", text, meaning, advice,
                   harmless=not used)  # fmt: skip


def _memorisation(found: Diagnosis) -> Finding:
    question = "Are the features free of memorised rows?"
    meaning = (
        "Features of rows that an encoder has memorised sit on their class means. What is learned from them does not "
        "hold for new rows."
    )
    result = found.memorisation
    if result is None:
        return Finding(
            question, "cannot tell", found.memorisation_of, meaning,
            "If another program made these features, say which rows its encoder was trained on (seen=, --seen COL).",
            harmless=True,
        )  # fmt: skip
    text = (
        f"{found.memorisation_of} Squared distances from class means are {result.ratio:.2f} times as large in the "
        f"{result.n_held_out:,} rows that the encoder has not seen as in the {result.n_seen:,} that it has "
        f"(p = {result.p_value:.3g})."
    )
    if not result.memorised:
        return Finding(question, "yes", text, meaning)
    return Finding(
        question, "no", text, meaning,
        "Learn de-mixing and head from rows that the encoder has not seen: hold some out of its training, or use "
        "cross-fitted features.",
    )  # fmt: skip


def _unique(found: Diagnosis) -> Finding:
    question = "Do frequent classes show all that rare ones vary in?"
    meaning = (
        "The mechanism is learned from frequent classes. Where these are nearly constant it says nothing; rare classes "
        "that vary there lose by transfer."
    )
    result = found.unique
    if result is None:
        return Finding(
            question, "cannot tell", "Rare classes have fewer than four rows each, or there are none.", meaning
        )
    against = "played-down frequent classes" if result.by == "classes" else "random rows of frequent classes"
    text = (
        f"Along the direction in which they vary most, found on half of their rows, the other half of the rare "
        f"classes' rows has {result.ratio:.1f} times the variance of the frequent classes; {against} treated alike "
        f"reach {np.quantile(result.null, 0.95):.1f} in 95 of 100 (p = {result.p_value:.3g})."
    )
    if not result.found:
        return Finding(question, "yes", text, meaning)
    heaviest = np.argsort(-np.abs(result.weights), kind="stable")[:3]
    names = _names([found.features[at] if found.features else f"column {at}" for at in heaviest])
    return Finding(
        question, "no", f"{text} Features that weigh most in it: {names}.", meaning,
        f'Use {PLAIN}, or let de-mixing learn from all classes (demix_on="all") with as many sources as features.',
    )  # fmt: skip


def _gap(found: Diagnosis) -> Finding:
    question = "Do sources serve held-out rare rows as well as features do?"
    meaning = (
        "The same kind of head on the sources, h(s), and on the features, h(z), cross-validated on the rare classes."
    )
    gap = found.gap
    if gap is None:
        return Finding(question, "cannot tell", "No rows of rare classes could be held out.", meaning)
    text = (
        f"Sources save {gap.gain:+.3f} nats a row, 95 % interval {gap.low:+.3f} to {gap.high:+.3f} over the "
        f"{gap.n_classes if gap.over == 'classes' else gap.n_rows} {gap.over}: log-loss {gap.loss_s:.3f} by h(s), "
        f"{gap.loss_z:.3f} by h(z)."
    )
    if gap.high < 0:
        return Finding(question, "no", text, meaning, "Something that tells rare classes apart is lost in the sources.")
    return Finding(question, "yes" if gap.low > 0 else "partly", text, meaning, harmless=gap.low <= 0)


def _names(labels: list[object]) -> str:
    shown = ", ".join(repr(str(label)) for label in labels[:5])
    return f"{shown} and {len(labels) - 5} more" if len(labels) > 5 else shown
