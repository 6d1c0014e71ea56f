"""Pure noise, and what estimators, rivals, comparisons and diagnoses report of it: nothing may look better than chance.

Each configuration gives, for one draw of noise, by how much each of its reported figures is better than chance. Chance
is the best constant answer: ``log(classes)`` nats where classes count alike, the variance of a target, 0 nats of
contrast. Over many draws these advantages have a mean of zero or less, unless held-out rows had a part in what they
judge.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import t as student_t

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, compare
from ecrt.losses import label_odds, row_mass
from ecrt.metrics import bce_per_row, holm
from ecrt.runs import diagnose

__all__ = ["CONFIGURATIONS", "advantages", "judge"]

Array = NDArray[np.float64]
Advantages = dict[str, float]
COUNTS = (32, 28, 24, 12)
CHANCE = float(np.log(len(COUNTS)))
QUICK: dict[str, Any] = {"epochs": 3, "encoder_epochs": 4, "device": "cpu"}


def classes(seed: int, n_columns: int = 24, times: int = 1) -> tuple[Array, NDArray[np.int64]]:
    """Columns of noise, and classes that have nothing to do with them."""
    y = np.repeat(np.arange(len(COUNTS)), np.array(COUNTS) * times)
    rng = np.random.default_rng([seed, 17])
    return rng.standard_normal((len(y), n_columns)), rng.permutation(y)


def of_history(history: dict[str, Any]) -> Advantages:
    """What the history of a classifier says of held-out rows."""
    found: Advantages = {}
    for name, loss in history.get("demixing_held_out", {}).items():
        found[f"{name} de-mixing"] = CHANCE - loss
    if "held_out" in history:
        found["chosen head"] = CHANCE - history["held_out"]
    if history.get("head_candidates"):
        found["mean of heads"] = CHANCE - float(np.mean(list(history["head_candidates"].values())))
    for restart in history.get("restarts", ()):
        found["flow's contrast"] = -restart.held_out_contrast
    return found


def classifier(n_columns: int = 24, times: int = 1, **options: Any) -> Callable[[int], Advantages]:
    def run(seed: int) -> Advantages:
        X, y = classes(seed, n_columns, times)
        history = ECRTClassifier(random_state=seed, **(QUICK | options)).fit(X, y).history_
        return of_history(history)

    return run


def rival(method: str, times: int = 1, **options: Any) -> Callable[[int], Advantages]:
    def run(seed: int) -> Advantages:
        X, y = classes(seed, 8 if method == "flow-augmentation" else 24, times)
        history = BaselineClassifier(method=method, random_state=seed, **(QUICK | options)).fit(X, y).history_
        if (
            method == "smote" and history.get("encoder") is not None
        ):  # made of classes alike, it knows no better constant
            return {"encoder's stop": CHANCE - history["encoder"].best_loss}
        return of_history(history)

    return run


def transformer(seed: int) -> Advantages:
    """The flow's contrast is all that it reports of held-out rows."""
    X, y = classes(seed, 4)
    return of_history(ECRTTransformer(demixing="flow", random_state=seed, **QUICK).fit(X, y).history_)


def new_classes(seed: int) -> Advantages:
    """A class that comes later."""
    X, y = classes(seed)
    clf = ECRTClassifier(demixing="linear", head="linear", n_sources=5, random_state=seed, **QUICK)
    clf.fit(X[y > 0], y[y > 0]).add_classes(X[y == 0], y[y == 0])
    excess = np.log(len(COUNTS) / (len(COUNTS) - 1))  # figures are those of the fit, which knew one class less
    return {name: value - excess for name, value in of_history(clf.history_).items()}


def labels(**options: Any) -> Callable[[int], Advantages]:
    """Several labels a row: chance is each label's frequency, rows weighed as if a label were drawn first."""

    def run(seed: int) -> Advantages:
        rng = np.random.default_rng([seed, 18])
        X, present = rng.standard_normal((120, 24)), rng.random((120, 4)) < (0.5, 0.4, 0.3, 0.15)
        present[~present.any(axis=1), 0] = True
        clf = ECRTClassifier(random_state=seed, **(QUICK | options)).fit(X, present.astype(int))
        indicator = sparse.csr_array(present.astype(np.int8))
        weight = row_mass(indicator, "balanced")
        constant = np.broadcast_to(label_odds(indicator, weight), present.shape)
        chance = float(weight @ bce_per_row(constant, present) / weight.sum())
        heads = list(clf.history_["head_candidates"].values())
        found = {f"{name} de-mixing": chance - loss for name, loss in clf.history_["demixing_held_out"].items()}
        return found | {"mean of heads": chance - float(np.mean(heads))}

    return run


def regressor(n_columns: int = 24, **options: Any) -> Callable[[int], Advantages]:
    """A target of unit variance: whatever is predicted of it, the mean squared error is 1 or more."""

    def run(seed: int) -> Advantages:
        rng = np.random.default_rng([seed, 19])
        X, y = rng.standard_normal((160, n_columns)), rng.standard_normal(160)
        reg = ECRTRegressor(random_state=seed, **(QUICK | options)).fit(X, y)
        tried = reg.history_["candidates"]
        losses = {"mean of plans": float(np.mean([one["all"] for one in tried.values()]))}
        losses["chosen plan"] = tried[reg.history_["chosen"]]["all"]
        return {name: 1 - loss for name, loss in losses.items()}

    return run


def selected(seed: int) -> Advantages:
    """Losses of all that selection tried; its gain is a difference of such losses."""
    X, y = classes(seed, 10)
    clf = ECRTClassifier(
        selection="pseudo-minority", selection_trials=8, head="gaussian", random_state=seed, **QUICK
    )  # fmt: skip
    tried = [one["loss"] for one in clf.fit(X, y).selection_["tried"]]
    return {"mean of tried": CHANCE - float(np.mean(tried))}


def compared(seed: int) -> Advantages:
    """Test rows of a comparison, after tuning: balanced accuracy against one in so many classes."""
    X, y = classes(seed)
    names = ["ecrt", "weighted-logistic"]
    found = compare(X, y + 10 * seed, methods=names, seeds=2, trials=2)
    scores = {name: found.estimate(name, "balanced_accuracy", "balanced") for name in names}
    return {name: score.mean - 1 / len(COUNTS) for name, score in scores.items() if score is not None}


def diagnosed(seed: int) -> Advantages:
    """Held-out rows of the minority, by features and by sources."""
    X, y = classes(seed, 6)
    found = diagnose(
        X, y, estimator=ECRTClassifier(head="gaussian", **QUICK), trials=4, refits=1, random_state=seed
    )  # fmt: skip
    gap = found.gap
    return {} if gap is None else {"features": CHANCE - gap.loss_z, "sources": CHANCE - gap.loss_s}


LINEAR: dict[str, Any] = {"demixing": "linear", "head": "linear"}
FEW: dict[str, Any] = LINEAR | {"n_sources": 4, "n_columns": 40, "weight_decay": 0.3}
ENCODER: dict[str, Any] = {
    "encoder": "mlp", "n_features": 8, "encoder_epochs": 40, "encoder_options": {"learning_rate": 1e-2, "patience": 40},
}  # fmt: skip
FLOW: dict[str, Any] = {"demixing": "flow", "head": "linear", "n_columns": 4, "flow_hidden": (16,), "n_restarts": 1}

CONFIGURATIONS: dict[str, Callable[[int], Advantages]] = {
    "as it comes": classifier(head_hidden=(16,)),
    "no de-mixing": classifier(demixing="none", head="linear"),
    "linear": classifier(**LINEAR),
    "linear, all classes": classifier(**FEW, minority="all"),
    "discriminant axes": classifier(**LINEAR, rotation="discriminant", n_columns=60),
    "joint axes": classifier(**LINEAR, rotation="joint", n_columns=8),
    "five sources of 60 columns": classifier(**LINEAR, n_sources=5, n_columns=60),
    "more columns than rows": classifier(**LINEAR, n_columns=120),
    "Gaussian head": classifier(**FEW | {"head": "gaussian", "weight_decay": None}),
    "MLP head": classifier(**FEW | {"head": "mlp", "head_hidden": (16,), "epochs": 10}),
    "permutation": classifier(**FEW, augmentation="permutation"),
    "borrowed": classifier(**FEW, augmentation="borrowed"),
    "no augmentation": classifier(**FEW, augmentation_weight=0.0),
    "shrunk means": classifier(**FEW, mean_shrinkage=1.0),
    "balanced mass": classifier(**FEW, class_mass="balanced"),
    "focal head": classifier(**FEW, head_loss="focal"),
    "LDAM head": classifier(**FEW, head_loss="ldam"),
    "hinge head": classifier(**FEW, head_loss="hinge"),
    "mixup of sources": classifier(**FEW, mixup=0.2),
    "flow": classifier(**FLOW),
    "flow, all classes": classifier(**FLOW, minority="all", times=2),
    "flow, MLP head": classifier(**FLOW | {"head": "mlp", "head_hidden": (16,)}),
    "flow, two depths": classifier(**FLOW | {"n_restarts": 2, "flow_blocks": (1, 2)}, critic="gaussian"),
    "MLP encoder": classifier(**LINEAR, **ENCODER, times=2),
    "MLP encoder, all classes": classifier(**LINEAR, **ENCODER, encode_on="all", times=2),
    "auto-encoder": classifier(**LINEAR, encoder="autoencoder", n_features=8, times=2),
    "several labels": labels(**LINEAR),
    "several labels, discriminant": labels(**LINEAR, n_sources=3),
    "several labels, MLP head": labels(demixing="linear", head="mlp", head_hidden=(16,), n_sources=3),
    "regression": regressor(head="linear"),
    "regression, sources weighed": regressor(demixing="linear", head="linear", augmentation="none"),
    "regression, three sources": regressor(demixing="linear", head="linear", n_sources=3, augmentation="none"),
    "regression, MLP head": regressor(
        demixing="linear", head="mlp", head_hidden=(16,), augmentation="none", region_mass=0.0
    ),
    "regression, flow": regressor(demixing="flow", head="linear", augmentation="none", n_columns=4, flow_hidden=(16,)),
    "transformer": transformer,
    "classes that come later": new_classes,
    "selection": selected,
    "compare": compared,
    "diagnose": diagnosed,
    **{
        f"rival {method}": rival(method)
        for method in (
            "erm", "hinge", "weighted", "class-balanced", "focal", "ldam", "ldam-drw", "logit-adjusted",
            "balanced-softmax", "mixup", "remix", "vat", "isda", "smote", "distribution-calibration",
            "flow-augmentation", "crt", "tau-norm", "post-hoc",
        )
    },
    "rival cgan": rival("cgan", method_options={"n_steps": 20}),
    "rival flow-augmentation, linear": rival("flow-augmentation", method_options={"demixing": "linear"}),
    **{
        f"rival {method}, MLP encoder": rival(method, 8 if method == "smote" else 2, **ENCODER)
        for method in ("smote", "crt", "feature-smote")
    },
}  # fmt: skip
"""By name, a function from a seed to the advantages over chance of all that is reported."""


def advantages(name: str, seeds: range) -> dict[str, list[float]]:
    """Advantages over chance, by figure, of as many draws of noise as there are seeds."""
    found: dict[str, list[float]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            for figure, value in CONFIGURATIONS[name](seed).items():
                found.setdefault(figure, []).append(float(value))
    return found


def judge(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Mean advantage of every figure, its spread over draws, and its one-sided p-value, Holm-corrected over all."""
    told: dict[str, dict[str, dict[str, float]]] = {}
    p_values = []
    for name, figures in found.items():
        for figure, values in figures.items():
            mean, spread, n = float(np.mean(values)), max(float(np.std(values, ddof=1)), 1e-9), len(values)
            p_values.append(float(student_t.sf(mean / spread * np.sqrt(n), n - 1)))
            told.setdefault(name, {})[figure] = {"draws": n, "advantage": round(mean, 4), "spread": round(spread, 4)}
    adjusted = iter(holm(p_values))
    for figures in told.values():
        for line in figures.values():
            line["p"] = round(float(next(adjusted)), 4)
    return told
