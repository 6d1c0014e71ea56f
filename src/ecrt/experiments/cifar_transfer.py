"""Does source-space transfer add to the strongest rival on CIFAR-100, an encoder trained from scratch on all images?

The rival: logit adjustment with mixup that is switched off for the last quarter. Encoders of a protocol and seed share
the first three quarters; from there the rival and each design go on, over the same batches. Five designs:

- inside training, three kinds of :class:`~ecrt.stages.DeferredTransfer`: features of rare classes get clouds around
  them, drawn source by source, borrowed from residuals of frequent classes, or in closed form;
- after it, two: ECRT's head on features of the trunk, which mixup kept from being memorised, or on features of the
  finished encoder; its log-probabilities are averaged with those of the rival's own head. The trunk's own head in
  place of ECRT's is the control: two heads are better than one, whatever they have learned;
- both: borrowed clouds inside training, then ECRT's head on the trunk.

Each design has one number to choose, a strength or a weight. A pilot chooses it by the pseudo-minority test, on
training images alone: of the 50 frequent classes 25 keep as few images as the protocol gives to rare ones, and 100
images of each class, hidden from training, judge. ``CHOSEN`` holds what the pilot of each protocol preferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from ecrt.data.cifar import CifarProtocol, ImageSplit
from ecrt.estimators import ECRTClassifier
from ecrt.experiments.cifar_training import (
    MIXUP,
    encode_config,
    image_features,
    items_of,
    load,
    network,
    roles_of,
)
from ecrt.experiments.one_flow import the_device
from ecrt.experiments.selection import development_rows
from ecrt.experiments.summary import t_interval
from ecrt.metrics import prediction_metrics, single_numbers
from ecrt.stages import DeferredTransfer, EncodeConfig, encode_branches, head_outputs
from ecrt.stages.deferred import DeferredKind
from ecrt.training import seeded

__all__ = ["CHOSEN", "cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]

RIVAL = "LA, mixup off for the last quarter"
INSIDE: dict[DeferredKind, str] = {
    "parametric": "clouds drawn source by source",
    "borrowed": "clouds of borrowed residuals",
    "closed-form": "clouds in closed form",
}
ON_TRUNK, ON_END, CONTROL = "ECRT's head on the trunk", "ECRT's head on the finished encoder", "the trunk's own head"
BOTH = "borrowed clouds, and ECRT's head on the trunk"
STRENGTHS = (1.0, 4.0, 16.0)
WEIGHTS = (0.25, 0.5, 0.75, 1.0)
N_HIDDEN = 100

CHOSEN: dict[str, dict[str, float]] = {
    "500/50": {
        INSIDE["parametric"]: 16.0, INSIDE["borrowed"]: 4.0, INSIDE["closed-form"]: 4.0,
        ON_TRUNK: 0.25, ON_END: 0.25, CONTROL: 0.5,
    },
    "500/5": {
        INSIDE["parametric"]: 16.0, INSIDE["borrowed"]: 16.0, INSIDE["closed-form"]: 4.0,
        ON_TRUNK: 0.5, ON_END: 0.25, CONTROL: 0.25,
    },
}  # fmt: skip
"""Strength or weight of each design."""


def cells(smoke: bool) -> Iterable[Row]:
    """A pilot and three runs of each protocol; a trial run has four classes and a narrow network."""
    if smoke:
        yield {"part": "run", "protocol": "500/5", "seed": 0, "n_classes": 4, "width": 2, "epochs": 4}
        return
    for part, n_seeds in (("pilot", 1), ("run", 3)):
        for protocol in CHOSEN:
            for seed in range(n_seeds):
                yield {"part": part, "protocol": protocol, "seed": seed, "n_classes": 100, "width": 64, "epochs": 60}


def run_cell(*, part: str, protocol: CifarProtocol, seed: int, n_classes: int, width: int, epochs: int) -> Row:
    """The rival and every design, from one trunk; a pilot tries every strength and weight."""
    data = load(protocol, n_classes)
    if part == "pilot":
        data = pseudo_minority(data, np.random.default_rng([seed, 7]))
    log_proba = dict(_log_probabilities(data, None if part == "pilot" else CHOSEN[protocol], seed, width, epochs))
    return {"runs": {name: _measure(values, data) for name, values in log_proba.items()}}


def pseudo_minority(data: ImageSplit, rng: np.random.Generator) -> ImageSplit:
    """The frequent classes alone: half of them cut to the size of the rare ones, and hidden images to judge by."""
    counts = np.bincount(data.y_train)
    n_frequent = len(counts) // 2
    n_hidden = min(N_HIDDEN, int(counts[:n_frequent].min()) // 4)
    order = rng.permutation(n_frequent)
    kept, hidden = [], []
    for place, label in enumerate(order):
        rows = rng.permutation(np.flatnonzero(data.y_train == label))
        rest = rows[n_hidden:]
        kept.append(rest if place < n_frequent // 2 else rest[: counts[n_frequent + place]])
        hidden.append(rows[:n_hidden])
    train_y, test_y = (np.repeat(np.arange(n_frequent), [len(rows) for rows in parts]) for parts in (kept, hidden))
    train, test = np.concatenate(kept), np.concatenate(hidden)
    return ImageSplit(data.X_train[train], train_y, data.X_train[test], test_y)


def _log_probabilities(
    data: ImageSplit, chosen: dict[str, float] | None, seed: int, width: int, epochs: int
) -> Iterator[tuple[str, Array]]:
    """Balanced log-probabilities of the test images, by design; with every setting in its name if none is chosen."""
    rival = encode_config(epochs, loss="logit-adjusted", **MIXUP)
    inside: dict[str, EncodeConfig] = {}
    for kind in get_args(DeferredKind):
        for strength in STRENGTHS if chosen is None else (chosen[INSIDE[kind]],):
            name = INSIDE[kind] if chosen is not None else _named(INSIDE[kind], strength)
            inside[name] = replace(rival, transfer=DeferredTransfer(kind=kind, strength=strength))
    roles = roles_of(data, "all")
    minority = np.flatnonzero(roles.minority)
    others: dict[str, Array] = {}
    with seeded(seed):
        encoder = network(data, width)
        branches = encode_branches(
            encoder, items_of(data), data.y_train, roles, {RIVAL: rival} | inside,
            after=DeferredTransfer().first_epoch(epochs), rng=np.random.default_rng(seed), device=the_device(),
        )  # fmt: skip
        for branch in branches:
            z_test = image_features(branch.encoder, data.X_test)
            own = log_softmax(head_outputs(branch.head, z_test), axis=1)
            if branch.name not in inside:
                clf = ECRTClassifier(minority=minority, random_state=seed, demixing="linear")
                clf.fit(image_features(branch.encoder, data.X_train), data.y_train)
                ecrt = log_softmax(clf.decision_function(z_test), axis=1)
                others |= {ON_END: ecrt} if branch.name == RIVAL else {ON_TRUNK: ecrt, CONTROL: own}
            if branch.name == RIVAL:
                yield RIVAL, own
                for name, other in others.items():
                    if chosen is not None:
                        yield f"{name}, alone", other
                    for weight in WEIGHTS if chosen is None else (chosen[name],):
                        mixed = (1 - weight) * own + weight * other
                        yield name if chosen is not None else _named(name, weight), mixed
            elif branch.name in inside:
                yield branch.name, own
                if branch.name == INSIDE["borrowed"] and chosen is not None:
                    yield BOTH, (1 - chosen[ON_TRUNK]) * own + chosen[ON_TRUNK] * others[ON_TRUNK]


def _named(design: str, setting: float) -> str:
    return f"{design}, {setting:g}"


def _measure(log_proba: Array, data: ImageSplit) -> Row:
    """Figures of all test images, and top-1 and NLL of the half that development never looks at."""
    counts = np.bincount(data.y_train)
    final = np.setdiff1d(np.arange(len(data.y_test)), development_rows(data.y_test))
    whole, half = (
        single_numbers(prediction_metrics(log_proba[rows], data.y_test[rows], counts, prior="balanced"))
        for rows in (slice(None), final)
    )
    hit = log_proba.argmax(axis=1) == data.y_test
    rare = data.y_test >= len(counts) // 2
    return {
        **{name: whole[name] for name in ("top1", "top5", "nll", "macro_f1") if name in whole},
        "top1_rare": float(hit[rare].mean()), "top1_frequent": float(hit[~rare].mean()),
        "top1_final_half": half["top1"], "nll_final_half": half["nll"],
    }  # fmt: skip


def summarise(rows: list[Row]) -> list[Row]:
    """Every design less the rival, by protocol, with paired intervals; pilots first."""
    table = []
    for part in ("pilot", "run"):
        for protocol in sorted({row["cell"]["protocol"] for row in rows}, reverse=True):
            wanted = {"part": part, "protocol": protocol}
            mine = [row["runs"] for row in rows if wanted.items() <= row["cell"].items()]
            for name in mine[0] if mine else ():
                line: Row = {"what": name, **wanted, "seeds": len(mine)}
                for metric in mine[0][name]:
                    values = np.array([runs[name][metric] for runs in mine])
                    gain = t_interval(values - np.array([runs[RIVAL][metric] for runs in mine]))
                    line[metric] = float(values.mean())
                    if name != RIVAL:
                        line |= {f"{metric}_gain": gain.mean, f"{metric}_gain_half_width": gain.half_width}
                table.append(line)
    return table


def preferred(summary: list[Row]) -> dict[str, dict[str, float]]:
    """What pilots say ``CHOSEN`` should be: of each design the setting with the best top-1 on hidden images."""
    best: dict[str, dict[str, tuple[float, float]]] = {}
    for line in summary:
        if line["part"] == "pilot" and line["what"] != RIVAL:
            design, _, setting = cast(str, line["what"]).rpartition(", ")
            found = (line["top1"], float(setting))
            of = best.setdefault(line["protocol"], {})
            of[design] = max(of.get(design, found), found)
    return {protocol: {design: setting for design, (_, setting) in of.items()} for protocol, of in best.items()}
