"""MNIST with 1,200 images of one or of five digits and about 6,000 of the others, through two features.

The main text says a CNN, the supplement an MLP 784-32-32-2: both are run. The supplement does not name the digits; here
they are 9, and 5 to 9. All methods share network, optimiser, epochs and the 8/2 split whose smaller part chooses the
epoch. ERM, LA and LDAM predict with the network's own decoder (32-32-10 on the two features). ECRT replaces it: preset
``ours`` learns sources and head on the rows that the encoder has not seen, four fifths of them at first, while the rest
chooses linear de-mixing or a flow and the weight of augmentation; preset ``paper`` on all training rows, with the
supplement's flow, weights and decoder, and permutation. With all classes the encoder of ECRT is the very one of LA, and
its own decoder knows something too: ECRT then averages the log-probabilities of both, by a weight that other unseen
rows choose, and the head on the sources alone stands beside it. The same is done with the encoder of LDAM-DRW, whose
decoder's logits, of an improper loss, first get one temperature. Seeds begin at 8: settings were tried out with those
before.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import nn
from torch.utils.data import TensorDataset

from ecrt.data import ClassRoles, assign_roles
from ecrt.data.cifar import ImageSplit
from ecrt.data.idx import load_mnist
from ecrt.experiments.mnist_summary import summarise
from ecrt.experiments.one_flow import Sample, balanced_log_proba, choose, find_sources, paper_share, predicted, split
from ecrt.metrics import PriorName, fit_temperature, max_abs_correlation, prediction_metrics, single_numbers
from ecrt.nn import MLP, StandardiseChannels
from ecrt.stages import (
    AugmentConfig,
    DemixConfig,
    DemixResult,
    EncodeConfig,
    EncodeResult,
    HeadChoice,
    HeadConfig,
    augment_classes,
    encode,
    features_of,
    head_outputs,
)
from ecrt.training import TrainingConfig, seeded

__all__ = ["cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
MINORITY = {1: (9,), 5: (5, 6, 7, 8, 9)}
ON_MARGINS = "ECRT, encoder of LDAM-DRW"
LOSSES: dict[str, Row] = {
    "ERM": {"loss": "cross-entropy"},
    "LDAM-DRW": {"loss": "ldam-drw", "head": "cosine", "loss_options": {"scale": 30.0}},
    "ERM on all 60,000": {"loss": "cross-entropy"},
    "ECRT, encoder on all": {"loss": "logit-adjusted"},
    "ECRT, encoder on majority": {"loss": "cross-entropy"},
    ON_MARGINS: {"loss": "ldam-drw", "head": "cosine", "loss_options": {"scale": 30.0}},
    "correlation": {"loss": "cross-entropy"},
}
TRAINING_PRIOR = ("ERM", "ERM on all 60,000")
"""Methods whose predictions assume the training frequencies; those of the others assume equal classes."""

PAPER_STRENGTH, PAPER_LIKELIHOOD = 1e-3, 1e-2
WEIGHTS = (0.0, 0.1, 0.5)
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
FIRST_SEED, TRIAL_SEED = 8, 2
POINTS = 60


def cells(smoke: bool) -> Iterable[Row]:
    """Both networks, one and five rare digits, all methods, five seeds; then the correlation during training."""
    first = TRIAL_SEED if smoke else FIRST_SEED
    size: Row = {"n_majority": 60, "epochs": 1} if smoke else {"n_majority": 10_000, "epochs": 15}
    methods = ["ERM", "LDAM-DRW", "ECRT, encoder on all", "ECRT, encoder on majority"]
    for network in ("mlp", "cnn"):
        for n_rare in (5,) if smoke else (1, 5):
            for seed in range(first, first + (1 if smoke else 5)):
                for method in methods if not smoke else methods[:3] if network == "mlp" else methods[3:]:
                    yield {"method": method, "network": network, "n_rare": n_rare, "seed": seed, **size}
        for seed in range(first, first + (0 if smoke else 5)):
            yield {"method": "ERM on all 60,000", "network": network, "n_rare": 0, "seed": seed, **size}
            yield {"method": ON_MARGINS, "network": network, "n_rare": 5, "seed": seed, **size}
    for seed in range(first, first + (1 if smoke else 3)):
        flow_epochs = [1, 2] if smoke else [1, 2, 4, 8, 16, 32, 64]
        yield {"method": "correlation", "network": "cnn", "n_rare": 5, "seed": seed, **size, "flow_epochs": flow_epochs}


def run_cell(
    *, method: str, network: str, n_rare: int, seed: int, n_majority: int, epochs: int, flow_epochs: Any = ()
) -> Row:
    """Train on the imbalanced images and measure on the official test images."""
    data = _load(n_rare, n_majority)
    roles = assign_roles(
        np.bincount(data.y_train), np.arange(10), minority=MINORITY.get(n_rare, ()),
        encode_on="majority" if method in ("ECRT, encoder on majority", "correlation") else "all",
    )  # fmt: skip
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with seeded(seed):
        to_features, whole = _networks(network, torch.from_numpy(data.X_train))
        result = _train(whole, data, roles, LOSSES[method], epochs, seed, device)
        z_train, z_test = _features(to_features, data.X_train, device), _features(to_features, data.X_test, device)
        runs: Row = {}
        decoder: tuple[Array, Array] | None = None
        if roles.encoded_on.all() and result.head is not None:
            own: PriorName = "training" if method in TRAINING_PRIOR else "balanced"
            images = (data.X_train[result.unseen], data.X_test)
            seen, tested = (head_outputs(result.head, _features(whole, part, device)) for part in images)
            decoder = np.asarray(log_softmax(seen, axis=1)), np.asarray(log_softmax(tested, axis=1))
            if method == ON_MARGINS:
                y = data.y_train[result.unseen]
                temperature = fit_temperature(decoder[0], y, 1 / np.bincount(y)[y])
                decoder = decoder[0] / temperature, decoder[1] / temperature
            else:
                runs["LA" if LOSSES[method]["loss"] == "logit-adjusted" else method] = _score(tested, data, own)
    if method == "correlation":
        return _correlation(z_train[result.unseen], data.y_train[result.unseen], roles, flow_epochs, seed)
    if not method.startswith("ECRT"):
        return {"runs": runs}
    found = _ours(z_train, z_test, data, result.unseen, roles, method, seed, epochs, decoder)
    if method != ON_MARGINS:
        found["runs"] |= runs | _paper(z_train, z_test, data, roles, method, seed, epochs)
    return found


@cache
def _load(n_rare: int, n_majority: int) -> ImageSplit:
    smaller = n_majority < 6000
    return load_mnist(
        MINORITY.get(n_rare, ()), n_minority=20 if smaller else 1200, n_majority=n_majority if smaller else None
    )


def _networks(name: str, images: torch.Tensor) -> tuple[nn.Module, nn.Module]:
    """From images to two features; and the same with the decoder's hidden layers on top."""
    standardise = StandardiseChannels.of(images)
    layers: list[nn.Module]
    if name == "mlp":
        layers = [nn.Flatten(), MLP(28 * 28, (32, 32), 2)]
    else:
        layers = [
            nn.Conv2d(1, 16, 5, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 2),
        ]  # fmt: skip
    to_features = nn.Sequential(standardise, *layers)
    return to_features, nn.Sequential(to_features, nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())


def _train(
    whole: nn.Module, data: ImageSplit, roles: ClassRoles, options: Row, epochs: int, seed: int, device: torch.device
) -> EncodeResult:
    """Adam for so many epochs, of which the held-out rows choose one."""
    config = EncodeConfig(
        **options,
        holdout=0.2,
        training=TrainingConfig(epochs=epochs, batch_size=128, learning_rate=2e-3, patience=epochs),
    )
    items = TensorDataset(torch.from_numpy(data.X_train), torch.from_numpy(data.y_train))
    return encode(whole, items, data.y_train, roles, config, rng=np.random.default_rng(seed), device=device)


def _features(module: nn.Module, images: NDArray[np.uint8], device: torch.device) -> Array:
    items = TensorDataset(torch.from_numpy(images), torch.zeros(len(images), dtype=torch.int64))
    return features_of(module, items, device=device)


def _score(balanced_logits: Array, data: ImageSplit, own: PriorName) -> Row:
    log_proba, counts = log_softmax(balanced_logits, axis=1), np.bincount(data.y_train)
    priors: tuple[PriorName, ...] = ("balanced", "training")
    found = {p: prediction_metrics(log_proba, data.y_test, counts, prior=p, assumed="balanced") for p in priors}
    return single_numbers(found[own]) | {f"top1_{p}_prior": found[p]["top1"] for p in priors} | {"prior": own}


def _ours(
    z: Array, z_test: Array, data: ImageSplit, unseen: Labels, roles: ClassRoles, method: str, seed: int, epochs: int,
    decoder: tuple[Array, Array] | None,
) -> Row:  # fmt: skip
    """Linear de-mixing or a flow, a network on the sources and a weight of augmentation, on unseen rows alone.

    ``decoder``: what the encoder's own decoder says of the unseen rows and of the test rows, if it knows all classes.
    """
    sample = split(z[unseen], data.y_train[unseen], seed)
    tried: list[tuple[float, float, DemixConfig, DemixResult, HeadChoice]] = []
    for config in (
        DemixConfig(method="linear"),
        DemixConfig(method="flow", training=TrainingConfig(epochs=2 * epochs, batch_size=256)),
    ):
        demixed = find_sources(sample, roles, config, seed)
        for weight in WEIGHTS:
            choice = choose(demixed, sample, roles, _network(weight, epochs), seed)
            tried.append((min(choice.candidates.values()), weight, config, demixed, choice))
    runs: Row = {}
    alone = method if decoder is None else f"{method}, sources alone"
    for name, weights in ((f"{alone}, no augmentation", (0.0,)), (alone, WEIGHTS)):
        allowed = [one for one in tried if one[1] in weights]
        _, weight, config, demixed, choice = min(allowed, key=lambda one: one[0])
        log_proba = predicted(demixed, choice, z_test, seed)
        chosen: Row = {"demixing": config.method, "augmentation_weight": weight}
        runs[name] = _score(log_proba, data, "balanced") | chosen
        if decoder is not None:
            share = _share_of_sources(sample, roles, config, _network(weight, epochs), decoder[0], seed)
            both = share * log_proba + (1 - share) * decoder[1]
            name = name.replace(", sources alone", "")
            runs[name] = _score(both, data, "balanced") | chosen | {"share_of_sources": share}
    first = seed in (FIRST_SEED, TRIAL_SEED) and method != ON_MARGINS
    return {"runs": runs} | ({"picture": _picture(demixed, sample, z_test, data, roles)} if first else {})


def _network(weight: float, epochs: int) -> HeadConfig:
    return HeadConfig(
        heads=("mlp",), hidden=(64, 64), dropout=0.0, augmentation=AugmentConfig(weight=weight),
        training=TrainingConfig(epochs=4 * epochs, batch_size=256, learning_rate=2e-3, weight_decay=1e-2),
    )  # fmt: skip


def _share_of_sources(
    sample: Sample, roles: ClassRoles, config: DemixConfig, head: HeadConfig, decoder: Array, seed: int
) -> float:
    """How much of the average the sources get: what lowers the loss on held-out rows, each class counted alike.

    De-mixing and head are learned again without these rows; neither have they been seen by encoder and decoder.
    """
    rows, judges = sample.train_rows, sample.held_out_rows
    fewer = split(sample.z[rows], sample.y[rows], seed)
    log_proba = balanced_log_proba(
        find_sources(fewer, roles, config, seed), fewer, roles, head, sample.z[judges], seed
    )  # fmt: skip
    y = sample.y[judges]
    weight = 1 / np.bincount(y, minlength=len(roles.counts))[y]

    def loss(share: float) -> float:
        mixed = log_softmax(share * log_proba + (1 - share) * decoder[judges], axis=1)
        return float(weight @ -mixed[np.arange(len(y)), y])

    return min(SHARES, key=loss)


def _picture(demixed: DemixResult, sample: Sample, z_test: Array, data: ImageSplit, roles: ClassRoles) -> Row:
    """Points of features and sources, and synthetic minority samples in either space."""
    config = AugmentConfig(weight=1.0, n_synthetic=POINTS)
    rng = np.random.default_rng(0)
    drawn = augment_classes(demixed.sources(sample.z), sample.y, roles.minority, demixed.within_variance, config, rng)
    drawn_z = demixed.demixer.inverse(torch.from_numpy(drawn.s)).detach().numpy()

    def points(values: Array, y: Labels) -> dict[str, list[list[float]]]:
        return {str(k): values[y == k][:POINTS].round(3).tolist() for k in np.unique(y)}

    return {
        "features": points(z_test, data.y_test), "sources": points(demixed.sources(z_test), data.y_test),
        "synthetic_features": points(drawn_z, drawn.y), "synthetic_sources": points(drawn.s, drawn.y),
    }  # fmt: skip


def _paper(
    z: Array, z_test: Array, data: ImageSplit, roles: ClassRoles, method: str, seed: int, epochs: int
) -> dict[str, Row]:
    """The supplement's flow and decoder on all training rows, for one prior (1P) and many (MP)."""
    sample = split(z, data.y_train, seed)
    share = paper_share(PAPER_STRENGTH, len(z), int(roles.counts[roles.minority].min()))
    head = HeadConfig(
        heads=("mlp",), hidden=(32, 32), dropout=0.0, augmentation=AugmentConfig(kind="permutation", weight=share),
        training=TrainingConfig(epochs=epochs, batch_size=256, learning_rate=2e-3),
    )  # fmt: skip
    runs = {}
    for prior, name in (("shared", "1P"), ("per-class", "MP")):
        demixed = find_sources(sample, roles, _paper_flow(epochs, source_prior=prior), seed)
        log_proba = balanced_log_proba(demixed, sample, roles, head, z_test, seed)
        runs[f"{method}, paper preset {name}"] = _score(log_proba, data, "balanced")
    return runs


def _paper_flow(epochs: int, **options: Any) -> DemixConfig:
    chosen: Row = {"source_prior": "per-class", "objective": "fdv"} | options
    return DemixConfig(
        method="flow", n_blocks=(4,), n_restarts=1, critic="cosine", label_marginal="batch",
        likelihood_weight=PAPER_LIKELIHOOD * 2, **chosen,
        training=TrainingConfig(epochs=epochs, batch_size=256, learning_rate=1e-3, patience=epochs),
    )  # fmt: skip


def _correlation(z: Array, y: Labels, roles: ClassRoles, flow_epochs: list[int], seed: int) -> Row:
    """Correlation of the two sources within majority classes after so many epochs, each a run of its own."""
    sample = split(z, y, seed)
    kept = roles.demixed_on[y[sample.held_out_rows]]
    rows = sample.held_out_rows[kept]
    curves = {
        objective: [
            _mean_correlation(find_sources(sample, roles, _paper_flow(n, objective=objective), seed), sample, rows)
            for n in flow_epochs
        ]
        for objective in ("gcl", "fdv")
    }
    return {"before": _mean_correlation(None, sample, rows), "curves": curves}


def _mean_correlation(demixed: DemixResult | None, sample: Sample, rows: Labels) -> float:
    s, y = sample.z[rows] if demixed is None else demixed.sources(sample.z[rows]), sample.y[rows]
    return float(np.nanmean([max_abs_correlation(s[y == label]) for label in np.unique(y)]))
