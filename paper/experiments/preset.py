"""The paper's preset in the recipes: the library's, the steps from there to ours, and rivals in the same networks."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors

from ecrt.data import ClassRoles
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier
from ecrt.rivals import BaselineClassifier, ConditionalGAN
from ecrt.stages import Augmentation, Flow, MLPHead, NoAugmentation, NoDemixing, Permutation
from paper.experiments.one_flow import Predictor, Sample, balanced_log_proba, find_sources

__all__ = [
    "EQUATION_3", "IN_NETWORK", "PAPER_EPOCHS", "PAPER_PRIORS", "PAPER_READINGS", "PAPER_RIVALS", "PAPER_STEPS",
    "STEPS", "Oracle", "between_neighbours", "fit_paper", "fit_paper_rival", "own_log_proba", "paper_flow", "paper_gan",
    "paper_head", "preset_runs",
]  # fmt: skip

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Prior = Literal["shared", "per-class"]

PAPER_EPOCHS = 20
PAPER_PRIORS: dict[str, Prior] = {"ECRT-1P, paper preset": "shared", "ECRT-MP, paper preset": "per-class"}

EQUATION_3 = ", Eq. 3 as it stands"
PAPER_READINGS = {f"{name}{EQUATION_3}": name for name in PAPER_PRIORS}
"""The preset with Eq. 3 in place of Algorithm 1's reading of it."""

STEPS: dict[str, Row] = {
    " + logit adjustment": {"head__loss": "logit-adjusted", "class_prior": "balanced"},
    " + signal weights": {"demixing__signal_weights": True},
    " + linear de-mixing first": {"demixing__linear_first": True},
}
"""From the paper's method to ours: each step is taken in addition to those before it."""

PAPER_STEPS = {f"ECRT-MP, paper preset{step}": place for place, step in enumerate(STEPS, start=1)}
"""Rows of a table that take so many of the steps."""


IN_NETWORK = " in the paper's network"
PAPER_RIVALS: dict[str, Row] = {
    f"{name}{IN_NETWORK}": options
    for name, options in {
        "ERM": {"method": "erm", "class_prior": "training"},
        "IW": {"method": "weighted"},
        "FOCAL": {"method": "focal"},
        "LDAM": {"method": "ldam"},
        "VAT": {"method": "vat", "class_prior": "training"},
        "GAN": {"method": ConditionalGAN(width=256, slope=0.01, dropout=0.1)},
        "SMOTE": {"method": "smote"},
    }.items()
}
"""Table 1's methods, and the prior that their predictions assume, that for equal classes where none is named. FOCAL and
LDAM are corrected for that, which the paper does not do: it is in their favour. The GAN is that of the supplement's
table, with torch's slope for LeakyReLU, as the table gives none."""

GAN_NOISE = {"mnist": 32, "cifar100": 64, "inaturalist": 128, "tiny-imagenet": 128, "arxiv": 64}
"""Values of noise that the GAN starts from, by the supplement's table."""


class Oracle(Permutation):
    """Oracle augmentation (supplement C): permutation of many samples that no fit has, for experiments alone.

    Parameters
    ----------
    weight, weighting, n_synthetic
        As in ``Parametric``.
    z, y : features of these samples, and their classes.
    """

    kind = "oracle"

    z: NDArray[Any] | None = None
    y: NDArray[Any] | None = None

    def others(self, sources_of: Any) -> tuple[Array, Labels] | None:
        """Their sources."""
        return sources_of(np.asarray(self.z, dtype=np.float64)), np.asarray(self.y, dtype=np.int64)


def fit_paper(
    method: str, data: str, X: Array, y: Labels, *, minority: int, seed: int, device: str = "auto",
    epochs: int = PAPER_EPOCHS, **options: Any,
) -> ECRTClassifier:  # fmt: skip
    """One of ``PAPER_PRIORS``, ``PAPER_READINGS`` or ``PAPER_STEPS``, under the supplement's settings for a data set.

    Parameters
    ----------
    y : classes, or an indicator of labels.
    minority : classes with fewer rows are minority classes.
    epochs : of encoder, flow and head at most.
    options : further ones of the classifier.
    """
    prior, n_steps = PAPER_PRIORS.get(PAPER_READINGS.get(method, method), "per-class"), PAPER_STEPS.get(method, 0)
    clf = ECRTClassifier.paper(
        data, source_prior=prior, minority=minority, random_state=seed, device=device, **options
    )  # fmt: skip
    clf.set_params(**{f"{part}__epochs": epochs for part in ("encoder", "demixing", "head")})
    for step in list(STEPS.values())[:n_steps]:
        clf.set_params(**step)
    if method in PAPER_READINGS:
        clf.set_params(augmentation__weighting="replaced")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return clf.fit(X, y)


def paper_gan(data: str, **options: Any) -> ConditionalGAN:
    """The GAN of the supplement's tables; ``options`` in place of its own."""
    gan: ConditionalGAN = clone(PAPER_RIVALS[f"GAN{IN_NETWORK}"]["method"])
    return gan.set_params(n_noise=GAN_NOISE[data], **options)


def between_neighbours(z: Array, y: Labels, wanted: Labels, rng: np.random.Generator, k_neighbors: int = 5) -> Array:
    """SMOTE's points between a row and a neighbour of its class, for each of the classes ``wanted``.

    A class of fewer rows uses the neighbours that it has, and a single row is repeated.
    """
    drawn = np.empty((len(wanted), z.shape[1]))
    for label in np.unique(wanted):
        mine, places = z[y == label], np.flatnonzero(wanted == label)
        one, share = rng.integers(len(mine), size=len(places)), rng.random((len(places), 1))
        k = min(k_neighbors, len(mine) - 1)
        near = NearestNeighbors(n_neighbors=k + 1).fit(mine).kneighbors(mine, return_distance=False)
        other = near[one, rng.integers(min(k, 1), k + 1, size=len(places))]
        drawn[places] = mine[one] + share * (mine[other] - mine[one])
    return drawn


def fit_paper_rival(
    method: str, data: str, X: Array, y: Labels, *, seed: int, device: str = "auto", epochs: int = PAPER_EPOCHS,
    batch_size: int | None = None, encoded: bool = True,
) -> BaselineClassifier:  # fmt: skip
    """One of ``PAPER_RIVALS`` in the encoder and decoder of the preset, trained on all classes.

    Losses and SMOTE train the two together; VAT and GAN act on the features of an encoder that was trained so.

    Parameters
    ----------
    epochs : of encoder and decoder at most.
    batch_size : of a decoder that is trained by itself.
    encoded : ``False`` for a decoder on the columns as they are.
    """
    preset: Any = ECRTClassifier.paper(data).set_params(encoder__epochs=epochs, head__epochs=epochs)
    preset.set_params(head__batch_size=batch_size)
    options: Row = {"encoder": preset.encoder} if encoded else {}
    rival = BaselineClassifier(random_state=seed, device=device, **PAPER_RIVALS[method], **options)
    if not (encoded and rival.rival.trains_encoder):
        head = clone(preset.head)
        rival.set_params(head=head.set_params(loss="auto") if rival.rival.overrides("loss") else head)
    if isinstance(rival.rival, ConditionalGAN):
        rival.set_params(method__n_noise=GAN_NOISE[data])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return rival.fit(X, y)


def paper_flow(data: str, prior: Prior = "per-class", **options: Any) -> Flow:
    """The preset's flow; ``options`` in place of its own."""
    flow: Any = ECRTClassifier.paper(data, source_prior=prior).demixing
    return flow.set_params(**options)


def paper_head(
    data: str, prior: Prior = "per-class", *, augmented: bool = True, loss: str | None = None,
    weighting: str = "added", **options: Any,
) -> Predictor:  # fmt: skip
    """The preset's head and augmentation; ``options`` of the head in place of its own."""
    preset: Any = ECRTClassifier.paper(data, source_prior=prior).set_params(augmentation__weighting=weighting)
    head: MLPHead = preset.head.set_params(**options)
    return Predictor(
        head if loss is None else clone(head).set_params(loss=loss),
        preset.augmentation if augmented else NoAugmentation(),
    )


def own_log_proba(balanced: Array, counts: Labels, augmentation: Augmentation, augmented: NDArray[np.bool_]) -> Array:
    """What a head with a plain loss says itself: balanced log-probabilities under the frequencies of its training."""
    frequency = counts / counts.sum()
    frequency = frequency * np.add(*augmentation.multiples(frequency, augmented))
    return np.asarray(log_softmax(balanced + np.log(frequency), axis=1))


def preset_runs(
    data: str, sample: Sample, roles: ClassRoles, z_test: Array, seed: int, *, flow: Row, head: Row,
    priors: tuple[Prior, ...] = ("shared", "per-class"), steps: bool = True,
) -> dict[str, tuple[Array, Array]]:  # fmt: skip
    """The preset on features that are there already, for one prior (1P) and many (MP), and the steps from MP to ours.

    Its decoder on the features, without a flow, comes first.

    Parameters
    ----------
    flow, head : options in place of the preset's, such as epochs.
    priors, steps : which priors, of which MP is the last, and whether the steps are taken.

    Returns
    -------
    For each run, log-probabilities of the test rows as the head says them, and those for equal classes.
    """
    runs: dict[str, tuple[Array, Array]] = {}

    def run(name: str, demixed: Any, predictor: Predictor) -> None:
        balanced = balanced_log_proba(demixed, sample, roles, predictor, z_test, seed)
        plain = isinstance(predictor.head, MLPHead) and predictor.head.loss == "cross-entropy"
        own = own_log_proba(balanced, roles.counts, predictor.augmentation, roles.augmented) if plain else balanced
        runs[f"ECRT, paper preset {name}"] = own, balanced

    plain = paper_head(data, augmented=False, **head)
    run("without a flow", find_sources(sample, roles, NoDemixing(scaling="one"), seed), plain)
    for prior in priors:
        name = "1P" if prior == "shared" else "MP"
        demixed = find_sources(sample, roles, paper_flow(data, prior, **flow), seed)
        run(name, demixed, paper_head(data, prior, **head))
        run(f"{name}, no augmentation", demixed, paper_head(data, prior, augmented=False, **head))
    if not steps:
        return runs
    adjusted = paper_head(data, loss="logit-adjusted", **head)
    names = [f"MP{step}" for step in STEPS]
    run(names[0], demixed, adjusted)
    run(names[1], replace(demixed, weighted=True), adjusted)
    whitened = paper_flow(data, linear_first=True, signal_weights=True, **flow)
    run(names[2], find_sources(sample, roles, whitened, seed), adjusted)
    return runs
