"""ECRT on CIFAR-100 as the paper has it, an encoder that has seen the majority only, and what its parts are worth.

Preset ``ours`` holds a fifth of the majority images out of the encoder's training; flow and heads learn from those and
from the minority. On these features: a linear head on linear sources with and without augmentation (and which of its
parts gains, with the encoder the same); the same synthetic samples sent back through the inverse, to a head on the
features; and rivals that act on features. Then the accuracy after every epoch of a
network on features, on sources, and on sources with augmentation. An encoder on all classes, a fifth of all images held
out, is run beside it. Preset ``paper`` has the supplement's networks (32 features, a decoder of 256 units, MAF with
four blocks), weights, Adam and permutation, on all training images; the 8/2 split chooses the epoch. A recipe of its
own has that preset, once more with an encoder on all classes, with encoders that differ in one thing and in more, and
rivals in its network.

``ECRT`` and ``ECRT, linear head`` are one fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.data import ClassRoles
from ecrt.estimators import ECRTClassifier
from ecrt.losses import class_mass, make_class_loss, sample_weights
from ecrt.metrics import PriorName
from ecrt.nn import make_head
from ecrt.randomness import seeded
from ecrt.rivals import BaselineClassifier, FlowAugmentation
from ecrt.stages import DEMIXING, Flow, Linear, Parametric, augment_classes, demix, encode, head_outputs
from ecrt.training import IndexBatches, TrainingConfig, train
from paper.data.images import CifarProtocol, ImageSplit
from paper.experiments.cifar_training import (
    ADAM,
    MIXUP,
    SGD,
    encoder_of,
    figures,
    image_features,
    items_of,
    load,
    network,
    roles_of,
)
from paper.experiments.one_flow import (
    split,
    the_device,
)
from paper.experiments.preset import PAPER_RIVALS, fit_paper_rival, preset_runs
from paper.experiments.table_one import ECRT_PARTS
from paper.statistics import difference, figure, groups, observations, table, values

__all__ = ["cells", "preset_cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]

ECRT = "ECRT"
BARE, AUGMENTED = "ECRT, linear head, no augmentation", "ECRT, linear head"
ON_FEATURES = "linear head on features, samples through the inverse"
OURS: dict[str, Row] = {ECRT: ECRT_PARTS, BARE: ECRT_PARTS | {"augmentation": "none"}}
RIVALS: dict[str, tuple[Row, str]] = {
    "ERM on the same features": ({"method": "erm"}, "training"),
    "LA on the same features": ({"method": "logit-adjusted"}, "balanced"),
    "SMOTE on the same features": ({"method": "feature-smote"}, "balanced"),
    "GAN on the same features": ({"method": "cgan"}, "balanced"),
    ON_FEATURES: ({"method": FlowAugmentation(demixing=Linear(learn_from="majority"))}, "balanced"),
}
"""Options of ``BaselineClassifier``, and the prior that predictions assume."""

GAINS = {"augmentation": (AUGMENTED, BARE), "sources": (AUGMENTED, ON_FEATURES)}
PAPER_FEATURES = 32
WITH_FLOW, FLOW_SOURCES = "ECRT with a flow", 32
"""Ours with a flow, on as many leading sources as the paper has."""

CHANGED: dict[str, tuple[int, Row]] = {
    "paper, 128 features": (128, ADAM),
    "paper, encoder by SGD": (PAPER_FEATURES, SGD),
    "paper, encoder by SGD, mixup": (PAPER_FEATURES, SGD | MIXUP),
    "paper, encoder by SGD, mixup, 128 features": (128, SGD | MIXUP),
}
"""Encoders on the majority that differ from the paper's in features, and in how they are trained: the first two in one
thing, the others in one thing more each."""
UNSEEN = ", on images that the encoder has not seen"
LOSSES = {"erm": "cross-entropy", "weighted": "weighted", "focal": "focal", "ldam": "ldam"}
IN_NETWORK = {name: LOSSES.get(str(options["method"])) for name, options in PAPER_RIVALS.items()}
"""The loss that a rival trains encoder and decoder with; none for those that act on the features of ERM."""


def cells(smoke: bool) -> Iterable[Row]:
    """Encoders on the majority under every protocol, and on all classes under the first; three seeds."""
    size: Row = {"n_classes": 6, "width": 4, "epochs": 1} if smoke else {"n_classes": 100, "width": 64, "epochs": 60}
    kinds = [("majority", "500/50"), ("majority", "500/5"), ("majority", "exponential-100"), ("all", "500/50")]
    for encoder, protocol in kinds[:1] if smoke else kinds:
        for seed in range(1 if smoke else 3):
            yield {"encoder": encoder, "protocol": protocol, "seed": seed, **size}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """The preset with an encoder on the majority and on all classes, rivals in its network, and ours; three seeds."""
    size: Row = {"n_classes": 6, "width": 4, "epochs": 1} if smoke else {"n_classes": 100, "width": 64, "epochs": 60}
    trained = [name for name, loss in IN_NETWORK.items() if loss not in (None, "cross-entropy")]
    encoders = ("paper", "paper on all", *trained, *CHANGED, WITH_FLOW)
    for seed in range(1 if smoke else 3):
        for encoder in ("paper on all", trained[0], WITH_FLOW) if smoke else encoders:
            yield {"encoder": encoder, "protocol": "500/50", "seed": seed, **size}


def run_cell(*, encoder: str, protocol: CifarProtocol, seed: int, n_classes: int, width: int, epochs: int) -> Row:
    """Train the encoder, then everything on its features."""
    data = load(protocol, n_classes)
    if encoder.startswith("paper") or encoder in IN_NETWORK:
        return _in_paper_network(encoder, data, seed, width, epochs)
    roles = roles_of(data, "all" if encoder == "all" else "majority")
    with seeded(seed):
        config = encoder_of(network(data, width), epochs, holdout=0.2, **MIXUP)
        encoded = encode(
            items_of(data), data.y_train, roles, config, rng=np.random.default_rng(seed), device=the_device()
        )
        z, z_test = (image_features(encoded.encoder, images) for images in (data.X_train, data.X_test))
    z, y = z[encoded.unseen], data.y_train[encoded.unseen]
    minority = np.flatnonzero(roles.minority)
    runs: Row = {}
    ours = {ECRT: OURS[ECRT], WITH_FLOW: ECRT_PARTS | {"demixing": Flow(n_sources=FLOW_SOURCES)}}
    for name, options in (ours if encoder == WITH_FLOW else OURS).items():
        clf = ECRTClassifier(minority=minority, random_state=seed, **options).fit(z, y)
        runs[name] = figures(clf.decision_function(z_test), data)
    if encoder == WITH_FLOW:
        return {"runs": runs}
    runs[AUGMENTED] = runs[ECRT]
    for name, (options, prior) in RIVALS.items() if epochs > 1 else list(RIVALS.items())[-1:]:
        rival = BaselineClassifier(minority=minority, random_state=seed, **options).fit(z, y)
        runs[name] = figures(rival.decision_function(z_test), data, prior)  # type: ignore[arg-type]
    return {"runs": runs, "top1_by_epoch": _dynamics(z, y, z_test, data.y_test, roles, seed, 2 if epochs == 1 else 30)}


def _in_paper_network(encoder: str, data: ImageSplit, seed: int, width: int, epochs: int) -> Row:
    """The paper's encoder, or one that differs in one thing, and the preset on its features; or a rival in its network.

    ERM and the rivals that act on its features stand beside the preset with an encoder on all classes, which is theirs.
    """
    on_all = encoder == "paper on all"
    roles = roles_of(data, "all" if on_all or encoder in IN_NETWORK else "majority")
    n_features, optimizer = CHANGED.get(encoder, (PAPER_FEATURES, ADAM))
    with seeded(seed):
        whole = nn.Sequential(network(data, width, n_features), nn.Linear(n_features, 256), nn.ReLU())
        loss = IN_NETWORK.get(encoder) or "cross-entropy"
        encoded = encode(
            items_of(data), data.y_train, roles, encoder_of(whole, epochs, optimizer, holdout=0.2, loss=loss),
            rng=np.random.default_rng(seed), device=the_device(),
        )  # fmt: skip
        whole_again: Any = encoded.encoder
        z, z_test = (image_features(whole_again[0], images) for images in (data.X_train, data.X_test))
        last = image_features(whole_again, data.X_test)
    runs: Row = {}
    rivals = [name for name, loss in IN_NETWORK.items() if loss in (None, "cross-entropy")] if on_all else [encoder]
    for name in rivals if on_all or encoder in IN_NETWORK else ():
        if IN_NETWORK[name] is None:  # acts on the features of ERM
            rival = fit_paper_rival(name, "cifar100", z, data.y_train, seed=seed, encoded=False)
            runs[name] = figures(rival.decision_function(z_test), data, _prior_of(name))
        elif encoded.head is not None:
            runs[name] = figures(head_outputs(encoded.head, last), data, _prior_of(name))
    if encoder in IN_NETWORK:
        return {"runs": runs}
    runs |= _paper(z, z_test, data, slice(None), seed, epochs)
    if encoder == "paper" or optimizer is not ADAM:
        steps = encoder != "paper"
        unseen = _paper(z, z_test, data, encoded.unseen, seed, epochs, priors=("per-class",), steps=steps)
        runs |= {name + UNSEEN: run for name, run in unseen.items()}
    return {"runs": runs}


def _prior_of(rival: str) -> PriorName:
    """What the predictions of a rival in the paper's network assume."""
    prior: PriorName = PAPER_RIVALS[rival].get("class_prior", "balanced")
    return prior


def _dynamics(
    z: Array, y: Labels, z_test: Array, y_test: Labels, roles: ClassRoles, seed: int, epochs: int
) -> dict[str, list[float]]:
    """Test accuracy after every epoch of a network with 256 hidden units; nothing is chosen by it."""
    rng, device = np.random.default_rng([seed, 5]), the_device()
    rows = np.arange(len(y))
    curves: dict[str, list[float]] = {}
    for name, method, weight in (("z", "none", 0.0), ("s", "linear", 0.0), ("s, augmented", "linear", 0.5)):
        demixed = demix(
            z, y, train_rows=rows, held_out_rows=rows[:0], demixed_on=roles.demixed_on,
            config=DEMIXING.part(method, "demixing"), rng=rng, device=device,
        )  # fmt: skip
        s, s_test = demixed.sources(z), torch.from_numpy(demixed.sources(z_test) * demixed.head_scale).float()
        drawn = augment_classes(s, y, roles.augmented, demixed.within_variance, Parametric(weight=weight), rng)
        x = torch.from_numpy(np.concatenate([s, drawn.s]) * demixed.head_scale).float().to(device)
        labels = torch.from_numpy(np.concatenate([y, drawn.y])).to(device)
        synthetic = torch.arange(len(labels), device=device) >= len(y)
        counts_m = torch.from_numpy(np.bincount(y)).to(device)
        lambda_m = weight * torch.from_numpy(roles.augmented).to(device)
        weight_n = (sample_weights(labels, synthetic, class_mass(counts_m, "training"), lambda_m) * len(labels)).float()
        curves[name] = _accuracies(x, labels, weight_n, counts_m, s_test.to(device), y_test, seed, epochs)
    return curves


def _accuracies(
    x: Tensor, labels: Tensor, weight_n: Tensor, counts_m: Tensor, x_test: Tensor, y_test: Labels, seed: int,
    epochs: int,
) -> list[float]:  # fmt: skip
    loss, truth = make_class_loss("logit-adjusted", counts_m), torch.from_numpy(y_test).to(x.device)
    found: list[float] = []
    with seeded(seed):
        head = make_head(x.shape[1], len(counts_m), (256,), 0.1).to(x)

        def measure() -> float:
            found.append(float((head(x_test).argmax(1) == truth).float().mean()))
            return 0.0

        train(
            head, lambda batch: (loss(head(x[batch]), labels[batch]) * weight_n[batch]).mean(),
            IndexBatches(len(labels), 256, torch.Generator().manual_seed(seed), x.device), measure,
            TrainingConfig(epochs=epochs, learning_rate=1e-3, weight_decay=1e-2, patience=epochs), stage="dynamics",
        )  # fmt: skip
    return found


def _paper(
    z: Array, z_test: Array, data: ImageSplit, rows: Any, seed: int, epochs: int, **options: Any
) -> dict[str, Row]:
    """The supplement's flow and decoder on such training rows, for one prior (1P) and many (MP)."""
    most = min(30, 2 * epochs)
    roles = roles_of(replace(data, X_train=data.X_train[rows], y_train=data.y_train[rows]), "majority")
    runs = preset_runs(
        "cifar100", split(z[rows], data.y_train[rows], seed), roles, z_test, seed,
        flow={"epochs": most, "patience": most}, head={"epochs": most, "batch_size": 256}, **options,
    )  # fmt: skip
    found = {}
    for name, (own, balanced) in runs.items():
        either = {key: value for key, value in figures(balanced, data).items() if key.endswith("_prior")}
        found[name] = figures(own, data) | either | {"prior": "balanced" if own is balanced else "training"}
    return found


def summarise(rows: list[Row]) -> list[Row]:
    """Means and half-widths over seeds, by protocol and encoder; gains paired by seed; then curves."""
    lines: list[Row] = []
    for (encoder, protocol), mine in groups(observations(rows), "encoder", "protocol").items():
        wanted = {"encoder": encoder, "protocol": protocol}
        runs = [entry for entry in mine if "epoch" not in entry]
        lines += table(runs, ("what", *wanted), ("top1", "top5", "nll", "macro_f1"), means=("top1_balanced_prior",))
        for what, sides in GAINS.items():
            ours, theirs = (values(runs, "top1", what=name) for name in sides)
            if ours and theirs:
                gain = figure("top1_gain", difference(ours, theirs))
                lines.append({"what": f"gain from {what}", **wanted, "seeds": len(ours), **gain})
        points = table([entry for entry in mine if "epoch" in entry], ("what", "epoch"), (), means=("top1",))
        curves = {name: [point["top1"] for point in of] for (name,), of in groups(points, "what").items()}
        if curves:
            lines.append({"what": "top-1 by epoch", **wanted, "seeds": points[0]["seeds"], "curves": curves})
    return lines
