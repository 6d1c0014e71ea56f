"""arXiv abstracts: 147 categories, often several for one abstract, and a nearly balanced test set (supplement E.2).

Sentence features of MiniLM are used instead of SciBERT's. Every method is the same kind of network, stopped and
refitted in the same way; held-out rows, weighted as if a label were drawn first, choose the number of epochs.
Beforehand the same 16 settings of learning rate, weight decay, dropout, width and epochs were tried with each method,
and with ECRT shares of synthetic samples too, on held-out training rows (``results/arxiv-tuning.json``); ``TUNED`` is
what each chose. The test set is nearly balanced, so all methods but ERM predict under the balanced prior, estimated
from the training rows; figures under either prior are kept for all.

Table 1's methods where a row has several labels: FOCAL and LDAM take each label for a problem of two classes, that it
holds or does not (LDAM with a margin for either); VAT keeps the probabilities of all labels from changing within a
radius; the GAN is told one label of a row, and what it draws for a minority label says nothing of the others. FOCAL and
LDAM are no log-likelihoods, and their cross-entropy suffers for it.

A recipe of its own has the paper's preset and the steps from there to ours, Table 1's rivals in its network, and ours
with a flow. There VAT, GAN and SMOTE act on the features of ERM's encoder; SMOTE, too, is told one label of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn

from ecrt.data import ClassRoles, assign_roles, stratified_holdout
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.base import Session
from ecrt.estimators.inputs import resolve_device
from ecrt.losses import label_odds, row_mass
from ecrt.metrics import bce_per_row, best_thresholds, multilabel_metrics, top_k_accuracy
from ecrt.randomness import seeded
from ecrt.rivals import ConditionalGAN, heads
from ecrt.stages import (
    Augmentation,
    DemixResult,
    Flow,
    HeadChoice,
    Labelled,
    LabelTarget,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Parametric,
    Synthetic,
    head_outputs,
)
from ecrt.stages.choosing import Draw, try_heads
from ecrt.stages.heads import NetworkHead
from ecrt.training import Progress
from paper.data import load_arxiv
from paper.experiments.frequency import BY_CLASS, by_label
from paper.experiments.preset import (
    IN_NETWORK,
    PAPER_EPOCHS,
    PAPER_PRIORS,
    PAPER_STEPS,
    between_neighbours,
    fit_paper,
    paper_gan,
)
from paper.statistics import bootstrap_texts, observations, table

__all__ = ["COMMON", "METHODS", "PER_ROW", "TUNED", "cells", "preset_cells", "run_cell", "summarise"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Rows = Callable[[Array, Labels, Labels, Session], Array]

VAT, GAN = "MLP VAT", "MLP GAN"
RIVALS = (VAT, GAN)
GAN_OPTIONS: Row = {"width": 256, "n_noise": 64, "n_steps": 5000}
"""Units and noise of the supplement."""

PLAIN: Row = {"demixing": "none", "augmentation": "none"}
METHODS: dict[str, Row] = {
    "ECRT": {"demixing": "linear", "class_mass": "tempered", "n_synthetic": 200},
    "ECRT without augmentation": {"demixing": "linear", "class_mass": "tempered", "augmentation": "none"},
    "MLP, logit-adjusted": PLAIN,
    "MLP, weighted": {**PLAIN, "class_mass": "balanced", "loss": "cross-entropy"},
    "MLP ERM": {**PLAIN, "loss": "cross-entropy", "class_prior": "training"},
    "MLP, tempered weights": {**PLAIN, "class_mass": "tempered"},
    "MLP FOCAL": {**PLAIN, "loss": "focal"},
    "MLP LDAM": {**PLAIN, "loss": "ldam"},
    "MLP VAT": {**PLAIN, "loss": "cross-entropy"},
    "MLP GAN": {"demixing": "none", "loss": "cross-entropy", "n_synthetic": 200},
}
"""Options of the estimator, of its head and of its augmentation; see :func:`parts_of`."""

COMMON: Row = {"minority": 5000, "thresholds": "validation"}

TUNED: dict[str, Row] = {
    "ECRT": {
        "learning_rate": 0.000232, "weight_decay": 0.71, "dropout": 0.186, "hidden": [1536], "epochs": 14,
        "weight": 0.1,
    },
    "ECRT without augmentation": {
        "learning_rate": 0.000232, "weight_decay": 0.71, "dropout": 0.186, "hidden": [1536], "epochs": 14,
    },
    "MLP, logit-adjusted": {
        "learning_rate": 0.000667, "weight_decay": 0.368, "dropout": 0.587, "hidden": [1536], "epochs": 6,
    },
    "MLP, weighted": {
        "learning_rate": 0.000133, "weight_decay": 0.916, "dropout": 0.291, "hidden": [1024], "epochs": 14,
    },
    "MLP ERM": {
        "learning_rate": 0.000678, "weight_decay": 0.00725, "dropout": 0.462, "hidden": [1536], "epochs": 14,
    },
    "MLP, tempered weights": {
        "learning_rate": 0.000133, "weight_decay": 0.916, "dropout": 0.291, "hidden": [1024], "epochs": 14,
    },
    "MLP FOCAL": {
        "learning_rate": 0.000667, "weight_decay": 0.368, "dropout": 0.587, "hidden": [1536], "epochs": 6,
        "loss_options": {"gamma": 0.5},
    },
    "MLP LDAM": {
        "learning_rate": 0.000603, "weight_decay": 0.0121, "dropout": 0.522, "hidden": [1024], "epochs": 14,
        "loss_options": {"largest_margin": 0.25},
    },
    "MLP VAT": {
        "learning_rate": 0.000678, "weight_decay": 0.00725, "dropout": 0.462, "hidden": [1536], "epochs": 14,
        "epsilon": 0.2,
    },
    "MLP GAN": {
        "learning_rate": 0.000603, "weight_decay": 0.0121, "dropout": 0.522, "hidden": [1024], "epochs": 14,
        "weight": 0.2,
    },
}  # fmt: skip
"""The setting of each method with the lowest held-out loss, from ``results/arxiv-tuning.json``."""

WITH_FLOW, FLOW_SOURCES = "ECRT with a flow", 64
"""Ours with a flow, on as many leading sources as the paper has for this data."""

NETWORK_RIVALS: dict[str, Row] = {
    f"{name}{IN_NETWORK}": options
    for name, options in {
        "ERM": {"encoder__loss": "cross-entropy", "head__loss": "cross-entropy"},
        "IW": {"encoder__loss": "cross-entropy", "head__loss": "cross-entropy", "head__class_mass": "balanced",
               "class_prior": "balanced"},
        "FOCAL": {"encoder__loss": "focal", "head__loss": "focal"},
        "LDAM": {"encoder__loss": "ldam", "head__loss": "ldam"},
    }.items()
}  # fmt: skip
"""Options of the preset without its flow and augmentation, with an encoder on all labels."""

NETWORK_ERM = next(iter(NETWORK_RIVALS))
ON_ITS_FEATURES: dict[str, Row] = {
    f"VAT{IN_NETWORK}": {"class_prior": "training"}, f"GAN{IN_NETWORK}": {}, f"SMOTE{IN_NETWORK}": {},
}  # fmt: skip
"""Rivals that have the preset's decoder on the features of ERM's encoder; they assume what they do on other data.

GAN and SMOTE draw as much as the tuned GAN does."""

PER_ROW = ("row_accuracy", "row_bce")
"""Entries that the intervals are computed from."""

SEEDS = (0, 1, 2)


def cells(smoke: bool) -> Iterable[Row]:
    """Every method with every seed; the supplement calls labels with fewer than 5,000 rows minority."""
    for seed in SEEDS[:1] if smoke else SEEDS:
        for method in ("ECRT",) if smoke else METHODS:
            yield {"method": method, "seed": seed, "max_train": 6000 if smoke else None}


def preset_cells(smoke: bool) -> Iterable[Row]:
    """Rivals in the paper's network, the preset, the steps to ours, and ours with a flow, with every seed."""
    every = (*NETWORK_RIVALS, *ON_ITS_FEATURES, *PAPER_PRIORS, *PAPER_STEPS, WITH_FLOW)
    for seed in SEEDS[:1] if smoke else SEEDS:
        for method in (NETWORK_ERM, list(ON_ITS_FEATURES)[-1], list(PAPER_STEPS)[-1], WITH_FLOW) if smoke else every:
            yield {"method": method, "seed": seed, "max_train": 6000 if smoke else None}


def run_cell(*, method: str, seed: int, max_train: int | None) -> Row:
    """Fit, and measure on the test rows under the method's own prior and under either."""
    data = load_arxiv()
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.y_train))[:max_train])
    clf = _fitted(method, data.X_train[rows], data.y_train[rows], seed, trial=max_train is not None)
    present = data.y_test > 0
    log_odds = clf.decision_function(data.X_test)
    labelled = clf.predict(data.X_test) > 0
    figures: Row = multilabel_metrics(log_odds, present, labelled)
    training = data.y_train[rows].sum(axis=0, dtype=np.int64)
    for prior in ("training", "balanced"):
        other = clf.set_params(class_prior=prior).decision_function(data.X_test)
        figures |= {
            f"accuracy_{prior}_prior": float(top_k_accuracy(other, present).mean()),
            f"bce_{prior}_prior": float(bce_per_row(other, present).mean()),
        }
    return figures | {
        "held_out_bce": min(clf.history_["head_candidates"].values()),
        "epochs": clf.history_["head_setting"],
        BY_CLASS: by_label(present, labelled, training),
        "row_accuracy": top_k_accuracy(log_odds, present).round(5).tolist(),
        "row_bce": bce_per_row(log_odds, present).round(6).tolist(),
    }


def _fitted(method: str, X: NDArray[Any], y: NDArray[Any], seed: int, *, trial: bool) -> Any:
    if method in (*PAPER_PRIORS, *PAPER_STEPS):
        epochs = 2 if trial else PAPER_EPOCHS
        return fit_paper(method, "arxiv", X, y, minority=COMMON["minority"], seed=seed, epochs=epochs)
    if method in NETWORK_RIVALS:
        return _network_rival(method, seed, 2 if trial else PAPER_EPOCHS).fit(X, y)
    if method in ON_ITS_FEATURES:
        return _on_features(method, X, y, seed, 2 if trial else PAPER_EPOCHS)
    name = "ECRT" if method == WITH_FLOW else method
    options = METHODS[name] | TUNED[name] | ({"epochs": 2, "hidden": [64]} if trial else {})
    if method == WITH_FLOW:
        options |= {"demixing": Flow(n_sources=FLOW_SOURCES, epochs=2 if trial else None)}
    if method in RIVALS:
        parts = parts_of({name: value for name, value in options.items() if name != "epsilon"})
        if method == VAT:
            parts |= {
                "head": heads.VAT(epsilon=options["epsilon"]).head(parts["head"]),
                "augmentation": NoAugmentation(),
            }
        rows = ConditionalGAN(**GAN_OPTIONS).rows if method == GAN else None
        return LabelRival(parts["head"], parts["augmentation"], rows, seed).fit(X, y)
    return ECRTClassifier(random_state=seed, **COMMON, **parts_of(options)).fit(X, y)


def _network_rival(method: str, seed: int, epochs: int) -> ECRTClassifier:
    """The preset's encoder, on all labels, and its decoder, with nothing between the two."""
    clf = ECRTClassifier.paper("arxiv", minority=COMMON["minority"], random_state=seed)
    clf.set_params(demixing="none", augmentation="none", encoder__learn_from="all")
    return clf.set_params(encoder__epochs=epochs, head__epochs=epochs, **NETWORK_RIVALS[method])


def _on_features(method: str, X: NDArray[Any], y: NDArray[Any], seed: int, epochs: int) -> LabelRival:
    """One of ``ON_ITS_FEATURES``."""
    encoder = _network_rival(NETWORK_ERM, seed, epochs).fit(X, y)
    head: NetworkHead = encoder.get_params()["head"]
    drawn: Augmentation = Parametric(weight=TUNED[GAN]["weight"], n_synthetic=METHODS[GAN]["n_synthetic"])
    rows: Rows | None = None
    if method.startswith("GAN"):
        rows = paper_gan("arxiv", n_steps=GAN_OPTIONS["n_steps"]).rows
    elif method.startswith("SMOTE"):
        rows = smote_rows
    else:
        head, drawn = heads.VAT().head(head), NoAugmentation()
    rival = LabelRival(head, drawn, rows, seed, encoder.transform)
    return rival.set_params(ON_ITS_FEATURES[method].get("class_prior", "balanced")).fit(X, y)


def smote_rows(z: Array, y: Labels, wanted: Labels, session: Session) -> Array:
    """What SMOTE makes of features, each with one of its labels."""
    return between_neighbours(z, y, wanted, session.rng)


def parts_of(options: Row) -> Row:
    """Options as those of an estimator. The learning rate is a quarter of the head's, as it was tuned."""
    rest = dict(options)
    synthetic = {name: rest.pop(name) for name in ("weight", "n_synthetic") if name in rest}
    of_head = {name: rest.pop(name) for name in list(rest) if name in MLPHead().get_params()}
    of_head["learning_rate"] = 4 * of_head["learning_rate"]
    return {"augmentation": Parametric(**synthetic), "head": MLPHead(**of_head)} | rest


# --- rivals that are no options of an estimator -------------------------------------------------------------------


class LabelRival:
    """A rival with as much of an estimator as the experiment asks for.

    Parameters
    ----------
    head : a network, as the rival trains it.
    augmentation : what its synthetic rows weigh, and how many there are.
    rows : makes them, from features, a label of each, and the labels that are wanted.
    features : from inputs to features; ``None`` for the inputs themselves.
    """

    def __init__(
        self, head: NetworkHead, augmentation: Augmentation, rows: Rows | None, seed: int,
        features: Callable[[Array], Array] | None = None,
    ) -> None:  # fmt: skip
        self.network, self.augmentation, self.rows, self.seed = head, augmentation, rows, seed
        self.features = features or (lambda X: X.astype(np.float64))
        self.class_prior = "balanced"

    def fit(self, X: Array, y: NDArray[np.int8]) -> LabelRival:
        """Choose on held-out rows, then fit on all."""
        rng, device = np.random.default_rng(self.seed), resolve_device("auto")
        labelled = Labelled(sparse.csr_array(y))
        names = np.arange(y.shape[1])
        roles = assign_roles(labelled.counts, names, minority=COMMON["minority"])
        train_rows, held_out_rows = stratified_holdout(labelled.rarest, 0.2, rng)
        z = self.features(X)
        with seeded(self.seed):
            target = LabelTarget(labelled, roles, NoAugmentation(), rng, torch.device("cpu"))
            self.demixed = target.demix(z, train_rows, held_out_rows, NoDemixing())
            choice = self._choose(labelled, (train_rows, held_out_rows), roles, rng, device)
            self.head: nn.Module = choice.fit()
        self.odds = {
            "training": label_odds(labelled.indicator),
            "balanced": label_odds(labelled.indicator, row_mass(labelled.indicator, "balanced")),
        }
        logits, judged = choice.trial()
        self.thresholds = best_thresholds(logits, labelled[judged].present(), -self.odds["balanced"])
        self.history_ = {"head_candidates": choice.candidates, "head_setting": choice.setting}
        return self

    def _choose(
        self,
        labelled: Labelled,
        rows: tuple[Labels, Labels],
        roles: ClassRoles,
        rng: np.random.Generator,
        device: torch.device,
    ) -> HeadChoice:
        """The network that held-out rows choose."""
        session = Session(rng, device, Progress())
        labels = np.flatnonzero(roles.augmented & (roles.counts > 0))
        wanted = np.repeat(labels, self.augmentation.n_synthetic or 0)

        def made_from(make: Rows, part: DemixResult, learn: Labels) -> Callable[[Labels], Synthetic]:
            """Pairs of a row and one of its labels are what synthetic rows are made of."""

            def draw(rows: Labels) -> Synthetic:
                pairs = labelled[rows]
                z = (part.learned[rows] * part.head_scale)[pairs.incidences.row]
                with seeded(int(rng.integers(2**62))):
                    drawn = make(z, pairs.label, wanted, session)
                return Synthetic(drawn / part.head_scale, wanted)

            return draw

        (choice,) = try_heads(
            LabelTarget(labelled, roles, self.augmentation, rng, device), self.demixed, [self.network],
            train_rows=rows[0], held_out_rows=rows[1],
            draw=None if self.rows is None else Draw(partial(made_from, self.rows)),
        )  # fmt: skip
        return choice

    def set_params(self, class_prior: str) -> LabelRival:
        """The prior that log-odds assume from now on."""
        self.class_prior = class_prior
        return self

    def decision_function(self, X: Array) -> Array:
        """Log-odds of every label."""
        s = self.demixed.sources(self.features(X)) * self.demixed.head_scale
        return np.asarray(head_outputs(self.head, s) + self.odds[self.class_prior])

    def predict(self, X: Array) -> NDArray[np.bool_]:
        """Labels above their thresholds, which do not depend on the prior."""
        return np.asarray(self.decision_function(X) >= self.thresholds + self.odds[self.class_prior])


# --- summary ------------------------------------------------------------------------------------------------------


def summarise(rows: list[Row]) -> list[Row]:
    """One line a method, means over seeds, with what ECRT gains over the same test rows (a lower BCE is a gain)."""
    means = ("macro_f1", "micro_f1", "mean_average_precision", "held_out_bce", "seconds")
    order = (*METHODS, *NETWORK_RIVALS, *ON_ITS_FEATURES, *PAPER_PRIORS, *PAPER_STEPS, WITH_FLOW)
    lines = table(
        observations(rows), ("what",), ("accuracy", "bce"), means=means, order=lambda key: order.index(key[0])
    )

    def by_row(method: str) -> list[Array]:
        return [np.mean([row[name] for row in rows if row["cell"]["method"] == method], axis=0) for name in PER_ROW]

    for line in lines if "ECRT" in {line["what"] for line in lines} else ():
        if line["what"] != "ECRT":
            ours, theirs = by_row("ECRT"), by_row(line["what"])
            gains = np.column_stack([ours[0] - theirs[0], theirs[1] - ours[1]])
            line |= zip(("ecrt_gains_accuracy", "ecrt_gains_bce"), bootstrap_texts(gains), strict=True)
    return lines
