"""Table 1 and the figures on iNaturalist: a natural long tail; or 121 classes of plankton instead.

Neither the images of iNaturalist 2019 nor Inception-v3 features of them can be had everywhere: where ECRT_DATA has
inaturalist/embeddings.npz, which ``ecrt embed`` makes, that is used with its own test rows, and else plankton (NDSB,
EfficientNet-Lite0 features). Plankton's rarest classes have too few test rows for intervals, so its rows are split anew
for each seed, 30 % of every class for testing; the paper tests on as many rows of each class, and so all figures here
give every class the same weight.

Equal budget: all methods learn a linear head on the same features, 96 principal components of the training rows, and
choose its weight decay (VAT: radius and epochs; GAN: its steps too) on a held-out fifth of them. ECRT de-mixes on
classes with 120 training rows or more, the paper's limit, and augments the others with the default strength. A recipe
of its own has the paper's preset, the supplement's encoder, flow and decoder, the steps from there to ours, rivals in
the paper's network, and ours with a flow on the 32 leading sources.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.model_selection import train_test_split

from ecrt.data import ClassRoles, assign_roles
from ecrt.data.imbalance import Split
from ecrt.errors import ECRTWarning
from ecrt.metrics import PriorName, mean_over_classes, prediction_metrics, top_k_hits
from ecrt.stages import DemixResult, Flow, Linear, LinearHead, Parametric, Permutation, augment_classes
from paper.data import data_folder, load_embeddings
from paper.experiments.frequency import BY_CLASS, by_class
from paper.experiments.one_flow import Predictor, Sample, choose, find_sources, predicted, split
from paper.experiments.preset import PAPER_PRIORS, PAPER_RIVALS, PAPER_STEPS, fit_paper, fit_paper_rival
from paper.experiments.table_one import RIVALS, fit_rival
from paper.statistics import difference, observations, signed, table, values

__all__ = ["WEIGHTS", "cells", "preset_cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]

SUBJECT, PLAIN, WITH_FLOW = "ECRT", "ECRT without augmentation", "ECRT with a flow"
FLOW_SOURCES = 32
SEEDS = (0, 1, 2, 3, 4)
N_COLUMNS = 96
TRIAL_COLUMNS = 16
TESTED = 0.3
KEPT_BACK, KEPT_BACK_SEED = 0.2, 2026
"""A fifth of plankton is for a final test of other experiments, and no figure here may be computed on it."""

MOST_IN_TRIAL = 80
MINORITY = 120
"""Fewer training rows than this make a minority class, in the supplement."""

WEIGHTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of synthetic samples, lambda; the table's ECRT has the default."""
DEFAULT_WEIGHT = 0.5

PAPER_NOISE = 128
SHOWN_CLASSES, SHOWN_POINTS = 8, 60


def cells(smoke: bool) -> Iterable[Row]:
    """Every rival and ECRT on each seed, and the picture."""
    size: Row = {"n_classes": 8 if smoke else None}
    for seed in SEEDS[:1] if smoke else SEEDS:
        yield {"part": "ECRT", "seed": seed, **size}
        for method in ("ERM",) if smoke else RIVALS:
            yield {"part": "rival", "method": method, "seed": seed, **size}
    yield {"part": "picture", "seed": SEEDS[0], **size}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """The preset with either prior, the steps to ours, rivals in its network, and ours with a flow; three seeds."""
    size: Row = {"n_classes": 8 if smoke else None}
    for seed in SEEDS[:1] if smoke else SEEDS[:3]:
        yield {"part": "flow", "seed": seed, **size}
        for method in (list(PAPER_STEPS)[-1],) if smoke else (*PAPER_PRIORS, *PAPER_STEPS):
            yield {"part": "paper", "method": method, "seed": seed, **size}
        for method in list(PAPER_RIVALS)[: 1 if smoke else None]:
            yield {"part": "network", "method": method, "seed": seed, **size}


def run_cell(*, part: str, seed: int, n_classes: int | None, method: str = SUBJECT) -> Row:
    """One part of the experiment; ``n_classes`` for a trial on some classes alone."""
    data = _rows(seed, n_classes)
    if part == "ECRT":
        return _ecrt(data, seed, trial=n_classes is not None)
    if part == "picture":
        return _picture(data, seed)
    if part == "flow":
        return {"runs": {WITH_FLOW: _with_flow(data, seed)}, "data": _source()}
    if part == "paper":
        fitted: Any = fit_paper(method, "inaturalist", data.X_train, data.y_train, minority=MINORITY, seed=seed)
    elif part == "network":
        fitted = fit_paper_rival(method, "inaturalist", data.X_train, data.y_train, seed=seed)
    else:
        fitted = fit_rival(method, data.X_train, data.y_train, seed, device="cpu", n_noise=PAPER_NOISE)
    log_proba = fitted.predict_log_proba(data.X_test)
    runs = {method: _score(log_proba, data, fitted.class_prior)}
    return {"runs": runs, "data": _source()}


# --- data ---------------------------------------------------------------------------------------------------------


def _source() -> str:
    return "inaturalist" if (data_folder() / "inaturalist" / "embeddings.npz").is_file() else "plankton"


@lru_cache(maxsize=1)
def _rows(seed: int, n_classes: int | None) -> Split:
    """Rows for training and testing, classes from 0 on; the few classes of a trial are of all frequencies."""
    data = load_embeddings(_source())
    if _source() != "inaturalist":
        data = _resplit(data, seed, n_classes)
    axes = PCA(N_COLUMNS if n_classes is None else TRIAL_COLUMNS, random_state=0).fit(data.X_train)
    X_train, X_test = (axes.transform(X).astype(np.float64) for X in (data.X_train, data.X_test))
    return Split(X_train, data.y_train, X_test, data.y_test)


def _resplit(data: Split, seed: int, n_classes: int | None) -> Split:
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    rest, _ = train_test_split(np.arange(len(y)), test_size=KEPT_BACK, stratify=y, random_state=KEPT_BACK_SEED)
    X, y = X[rest], y[rest]
    if n_classes is not None:
        by_size = np.argsort(np.bincount(y), kind="stable")
        chosen = np.sort(by_size[np.linspace(0, len(by_size) - 1, n_classes).astype(int)])
        rows = np.concatenate([np.flatnonzero(y == label)[:MOST_IN_TRIAL] for label in chosen])
        X, y = X[rows], np.searchsorted(chosen, y[rows])
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=TESTED, stratify=y, random_state=seed)
    return Split(X_train, y_train, X_test, y_test)


def _roles(data: Split) -> ClassRoles:
    counts = np.bincount(data.y_train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        # In a trial no class is that large: half the largest is the limit there.
        return assign_roles(counts, np.arange(len(counts)), minority=min(MINORITY, int(counts.max()) // 2))


def _score(log_proba: Array, data: Split, prior: PriorName = "balanced") -> Row:
    """With equal weight for every class, as in the paper."""
    found = prediction_metrics(log_proba, data.y_test, np.bincount(data.y_train), prior=prior)
    return {
        "top1": found["balanced_accuracy"],
        "top5": mean_over_classes(top_k_hits(log_proba, data.y_test, 5).astype(np.float64), data.y_test),
        "nll": found["balanced_nll"],
        "macro_f1": found["macro_f1"],
        **{name: group["recall"] for name, group in found["by_group"].items() if group["n_tested"]},
        BY_CLASS: by_class(found),
    }


# --- methods ------------------------------------------------------------------------------------------------------


def _sources(data: Split, roles: ClassRoles, seed: int) -> tuple[Sample, DemixResult]:
    sample = split(data.X_train, data.y_train, seed)
    return sample, find_sources(sample, roles, Linear(), seed)


def _ecrt(data: Split, seed: int, *, trial: bool) -> Row:
    """Sources once, then a head without and with augmentation, of both kinds and of every strength."""
    roles = _roles(data)
    sample, demixed = _sources(data, roles, seed)

    def run(kind: Any, weight: float, decay: float | None = None) -> Row:
        augmentation = (Parametric if kind == "parametric" else Permutation)(weight=weight)
        head = Predictor(LinearHead(weight_decay=decay), augmentation)
        choice = choose(demixed, sample, roles, head, seed)
        found = _score(predicted(demixed, choice, data.X_test, seed), data)
        return {"kind": kind, "weight": weight, "weight_decay": choice.setting, **found}

    plain, full = run("parametric", 0.0), run("parametric", DEFAULT_WEIGHT)
    strengths = [plain, full]
    # All else stays as it was, so that the strength alone makes the difference.
    decay = full["weight_decay"]
    for weight in () if trial else (weight for weight in WEIGHTS if weight not in (0.0, DEFAULT_WEIGHT)):
        strengths.append(run("parametric", weight, decay))
    for weight in (1.0,) if trial else WEIGHTS[1:]:
        strengths.append(run("permutation", weight, decay))
    return {"runs": {PLAIN: plain, SUBJECT: full}, "strengths": strengths, "data": _source()}


def _with_flow(data: Split, seed: int) -> Row:
    """The same head with the same augmentation, on the sources of a flow."""
    roles, sample = _roles(data), split(data.X_train, data.y_train, seed)
    demixed = find_sources(sample, roles, Flow(n_sources=min(FLOW_SOURCES, data.X_train.shape[1])), seed)
    choice = choose(demixed, sample, roles, Predictor(LinearHead(), Parametric(weight=DEFAULT_WEIGHT)), seed)
    return _score(predicted(demixed, choice, data.X_test, seed), data)


def _picture(data: Split, seed: int) -> Row:
    """t-SNE of sources of eight classes, half of them minority, and of synthetic sources of these, all in one."""
    roles = _roles(data)
    rng = np.random.default_rng(seed)
    sample, demixed = _sources(data, roles, seed)
    kinds = [np.flatnonzero(roles.minority), np.flatnonzero(~roles.minority)]
    chosen = [label for kind in kinds for label in rng.permutation(kind)[: SHOWN_CLASSES // 2]]
    s = demixed.sources(sample.z) * demixed.head_scale
    rows = np.concatenate([np.flatnonzero(sample.y == label)[:SHOWN_POINTS] for label in chosen])
    drawn = augment_classes(
        demixed.sources(sample.z), sample.y, roles.minority, demixed.within_variance,
        Parametric(weight=1.0, n_synthetic=SHOWN_POINTS), rng,
    )  # fmt: skip
    shown = np.isin(drawn.y, chosen)
    points = np.concatenate([s[rows], drawn.s[shown] * demixed.head_scale])
    placed = TSNE(perplexity=min(30, len(points) // 4), random_state=seed, init="pca").fit_transform(points)
    labels = np.concatenate([sample.y[rows], drawn.y[shown]])
    return {
        "points": placed.round(2).tolist(),
        "classes": labels.tolist(),
        "synthetic": (np.arange(len(points)) >= len(rows)).tolist(),
        "frequency": {str(label): int(roles.counts[label]) for label in chosen},
        "minority": {str(label): bool(roles.minority[label]) for label in chosen},
        "data": _source(),
    }


# --- summary ------------------------------------------------------------------------------------------------------


def summarise(rows: list[Row]) -> list[Row]:
    """One line a method: means over seeds with intervals, and what ECRT gains on it, paired by seed."""
    order = (*RIVALS, *PAPER_RIVALS, *PAPER_PRIORS, *PAPER_STEPS, PLAIN, SUBJECT, WITH_FLOW)
    entries = [entry for entry in observations(rows) if entry["what"] in order]
    metrics = ("top1", "top5", "nll", "macro_f1", "many", "medium", "few")
    lines = table(entries, ("what",), metrics, order=lambda key: order.index(key[0]))
    for line in lines:
        for name in ("top1", "nll", "macro_f1") if line["what"] != SUBJECT else ():
            pair = [values(entries, name, what=what) for what in (SUBJECT, line["what"])]
            if all(pair):
                line[f"ecrt_gain_{name}"] = signed(difference(*(reversed(pair) if name == "nll" else pair)))
    return lines
