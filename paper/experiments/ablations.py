"""What each part of the method is worth in final accuracy, on the toy and on a small extreme classification.

One thing is changed at a time from the base: FDV with the exact label marginal, additive critic, likelihood weight 1,
one prior a class, parametric augmentation. A flow of one block is trained in both orders of the features, and held-out
contrast chooses. ``drift`` repeats the training on the same data: how far do solutions of one problem lie apart?

A recipe of its own takes back departures from the paper one at a time, beside a base of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ecrt.data import ClassRoles, assign_roles, toy_sources
from ecrt.data.imbalance import SyntheticData
from ecrt.diagnostics import mean_correlation_coefficient
from ecrt.stages import Augmentation, Flow, Head, LinearHead, MLPHead, NoAugmentation, Parametric, Permutation
from paper.data.synthetic import extreme_sources
from paper.experiments.one_flow import Predictor, balanced_log_proba, find_sources, score, split
from paper.statistics import difference, figure, observations, table, values

__all__ = [
    "AS_IN_EQUATION_1", "BASE", "FLOWS", "HEADS", "cells", "departure_cells", "naive_cells", "run_cell",
    "run_departure", "small_flow", "small_head", "small_problem", "summarise",
]  # fmt: skip

Row = dict[str, Any]
BASE = "base"
PAPER_LIKE = {"critic": "cosine", "label_marginal": "batch", "blocks": 4, "n_restarts": 1}

FLOWS: dict[str, Row] = {
    BASE: {},
    "FDV, labels of the batch": {"label_marginal": "batch"},
    "InfoNCE, labels of the batch": {"label_marginal": "batch", "objective": "infonce"},
    "GCL, labels of the batch": {"label_marginal": "batch", "objective": "gcl"},
    "GCL, exact marginal": {"objective": "gcl"},
    "cosine critic": {"critic": "cosine"},
    "label-network critic": {"critic": "label-network"},
    "likelihood weight 0": {"likelihood_weight": 0.0},
    "one prior for all classes (1P)": {"source_prior": "shared"},
    "four blocks": {"blocks": 4},
    "naive GCL: cosine, batch, four blocks, no likelihood": PAPER_LIKE
    | {"objective": "gcl", "likelihood_weight": 0.0, "source_prior": "shared"},
}
"""Options of the flow that differ from the base."""

HEADS: dict[str, Augmentation] = {
    "permutation": Permutation(),
    "no augmentation": NoAugmentation(),
    "majority augmented too": Parametric(),
}
"""Augmentations other than the base's, or for other classes; the flow is the base's own."""

PAPER_FLOWS: dict[str, Row] = {
    BASE: {},
    "one restart": {"n_restarts": 1},
    "likelihood of a row at weight 0.01": {"likelihood_weight": 0.01, "likelihood_of": "row"},
}
PAPER_HEADS: dict[str, Augmentation | Head] = {
    BASE: Parametric(),
    "synthetic samples added at weight 0.001": Parametric(weight=1e-3, weighting="added"),
    "variances as they are": Parametric(pseudo_samples=0.0),
    "drawn from trained priors": Parametric(source="prior"),
    "linear head": LinearHead(),
}
"""Where the base departs from the paper, and, the last one, where the default departs from the base."""

DRIFTING = (BASE, "naive GCL: cosine, batch, four blocks, no likelihood")
AS_IN_EQUATION_1 = "naive GCL: label network, batch, four blocks, no likelihood"
"""With the critic of Eq. 1, a network for each source and label; it has a recipe of its own."""


def cells(smoke: bool) -> Iterable[Row]:
    """Every variant with five seeds, each its own data; then five trainings on one draw."""
    size: Row = {"n": 40, "n_classes": 12, "epochs": 1} if smoke else {"n": 1000, "n_classes": 200, "epochs": 60}
    for data in ("toy", "extreme"):
        variants = (BASE, *list(FLOWS)[-1:]) if smoke else tuple(FLOWS)
        for seed in range(1 if smoke else 5):
            for variant in variants:
                yield {"data": data, "variant": variant, "seed": seed, "draw": seed, **size}
            for variant in () if smoke or seed == 0 else DRIFTING:
                yield {"data": data, "variant": variant, "seed": seed, "draw": 0, **size}


def naive_cells(smoke: bool) -> Iterable[Row]:
    """Naive GCL with the critic of Eq. 1: five seeds, each its own data, and five trainings on one draw."""
    size: Row = {"n": 40, "n_classes": 12, "epochs": 1} if smoke else {"n": 1000, "n_classes": 200, "epochs": 60}
    for data in ("toy", "extreme"):
        for seed in range(1 if smoke else 5):
            for draw in {seed, 0}:
                yield {"data": data, "variant": AS_IN_EQUATION_1, "seed": seed, "draw": draw, **size}


def run_cell(*, data: str, variant: str, seed: int, draw: int, n: int, n_classes: int, epochs: int) -> Row:
    """Accuracy of a network on the sources that one flow gives, for all variants of the head that share it."""
    train, test, roles = small_problem(data, draw, n, n_classes)
    sample = split(train.z, train.y, seed)
    naive = FLOWS[DRIFTING[-1]] | {"critic": "label-network"}
    demixed = find_sources(
        sample, roles, small_flow(data, epochs, naive if variant == AS_IN_EQUATION_1 else FLOWS[variant]), seed
    )
    runs = {}
    for name in (BASE, *HEADS) if variant == BASE and seed == draw else (BASE,):
        if name == "majority augmented too" and roles.augmented.all():
            continue
        everyone = replace(roles, augmented=np.ones_like(roles.augmented))
        augmented = everyone if name == "majority augmented too" else roles
        predictor = Predictor(small_head(epochs), HEADS.get(name, Parametric()))
        log_proba = balanced_log_proba(demixed, sample, augmented, predictor, test.z, seed)
        runs[variant if name == BASE else name] = score(log_proba, test.y, roles.counts)
    return {"mcc": mean_correlation_coefficient(test.s, demixed.sources(test.z)), "runs": runs}


def departure_cells(smoke: bool) -> Iterable[Row]:
    """The base and every flow that is more like the paper's, with three seeds, each its own data."""
    for cell in cells(smoke):
        if cell["variant"] == BASE and cell["seed"] == cell["draw"] < 3:
            yield from ({**cell, "variant": variant} for variant in PAPER_FLOWS)


def run_departure(*, data: str, variant: str, seed: int, draw: int, n: int, n_classes: int, epochs: int) -> Row:
    """Accuracy on the sources of one such flow; on those of the base also with heads that are more like the paper's."""
    train, test, roles = small_problem(data, draw, n, n_classes)
    sample = split(train.z, train.y, seed)
    demixed = find_sources(sample, roles, small_flow(data, epochs, PAPER_FLOWS[variant]), seed)
    runs = {}
    for name, part in PAPER_HEADS.items() if variant == BASE else [(variant, PAPER_HEADS[BASE])]:
        predictor = Predictor(part, Parametric()) if isinstance(part, Head) else Predictor(small_head(epochs), part)
        log_proba = balanced_log_proba(demixed, sample, roles, predictor, test.z, seed)
        runs[name] = score(log_proba, test.y, roles.counts)
    return {"mcc": mean_correlation_coefficient(test.s, demixed.sources(test.z)), "runs": runs}


def small_flow(data: str, epochs: int, options: Row) -> Flow:
    """The base's flow; ``options`` in place of its own."""
    chosen: Row = {"n_restarts": 2, "critic_width": 64} | options
    return Flow(epochs=epochs, batch_size=256 if data == "toy" else 64, **chosen)


def small_head(epochs: int) -> MLPHead:
    """The base's head."""
    return MLPHead(hidden=(64, 64), dropout=0.0, epochs=epochs, batch_size=256)


def small_problem(data: str, draw: int, n: int, n_classes: int) -> tuple[SyntheticData, SyntheticData, ClassRoles]:
    """Training and test rows of the toy or of the extreme data, and the roles of classes."""
    return _toy(draw, n) if data == "toy" else _extreme(draw, n_classes)


def _toy(draw: int, n: int) -> tuple[SyntheticData, SyntheticData, ClassRoles]:
    """Twenty samples of class 0, n of the others."""
    truth, rng = toy_sources(), np.random.default_rng([draw, 0])
    counts = np.array([20] + [n] * 6)
    roles = assign_roles(counts, np.arange(7), minority=[0])
    return truth.draw(counts, rng), truth.draw([2 * n] * 7, rng), roles


def _extreme(draw: int, n_classes: int) -> tuple[SyntheticData, SyntheticData, ClassRoles]:
    """Ten samples of every class."""
    rng = np.random.default_rng([draw, 0])
    truth = extreme_sources(n_classes, rng)
    counts = np.full(n_classes, 10)
    roles = assign_roles(counts, np.arange(n_classes), minority="all", encode_on="all", demix_on="all")
    return truth.draw(counts, rng), truth.draw([20] * n_classes, rng), roles


def summarise(rows: list[Row]) -> list[Row]:
    """Each variant's mean over draws and its difference from the base, paired by draw; then the spread on one draw."""
    entries = observations(rows)
    lines: list[Row] = []
    for data in ("toy", "extreme"):
        mine = [entry for entry in entries if entry["data"] == data and entry["seed"] == entry["draw"]]
        for line in table(mine, ("what", "data"), ("top1", "nll", "mcc")):
            for metric in ("top1", "nll"):
                ours, base = (values(mine, metric, what=what) for what in (line["what"], BASE))
                if base:
                    line |= figure(f"{metric}_gain", difference(ours, base))
            lines.append(line)
        for name in (*DRIFTING, AS_IN_EQUATION_1):
            wanted = {"data": data, "variant": name, "what": name, "draw": 0}
            drifting = [entry | {"what": f"drift: {name}"} for entry in entries if wanted.items() <= entry.items()]
            if len(drifting) > 1:
                lines += [line | _spread(drifting) for line in table(drifting, ("what", "data"), ("top1", "mcc"))]
    return lines


def _spread(entries: list[Row]) -> Row:
    found = {name: [entry[name] for entry in entries] for name in ("top1", "mcc")}
    return {f"{name}_spread": float(np.std(of, ddof=1)) for name, of in found.items()} | {
        "lowest_mcc": min(found["mcc"])
    }
