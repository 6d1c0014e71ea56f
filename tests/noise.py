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

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    Linear,
    LinearHead,
    MLPHead,
    PseudoMinority,
    TreesHead,
    compare,
)
from ecrt.losses import label_odds, row_mass
from ecrt.metrics import bce_per_row, holm
from ecrt.rivals import known_rivals
from ecrt.runs import diagnose

__all__ = ["CONFIGURATIONS", "advantages", "judge"]

Array = NDArray[np.float64]
Advantages = dict[str, float]
COUNTS = (32, 28, 24, 12)
CHANCE = float(np.log(len(COUNTS)))
QUICK: dict[str, Any] = {"device": "cpu"}


def classes(seed: int, n_columns: int = 24, times: int = 1) -> tuple[Array, NDArray[np.int64]]:
    """Columns of noise, and classes that have nothing to do with them."""
    y = np.repeat(np.arange(len(COUNTS)), np.array(COUNTS) * times)
    rng = np.random.default_rng([seed, 17])
    return rng.standard_normal((len(y), n_columns)), rng.permutation(y)


def by_demixing(tried: dict[str, float]) -> dict[str, float]:
    """Mean loss of the heads on each de-mixing."""
    losses: dict[str, list[float]] = {}
    for name, loss in tried.items():
        losses.setdefault(f"{name.partition(',')[0]} de-mixing", []).append(loss)
    return {name: float(np.mean(values)) for name, values in losses.items()}


def of_history(history: dict[str, Any]) -> Advantages:
    """What the history of a classifier says of held-out rows."""
    found: Advantages = {}
    for name, loss in by_demixing(history.get("tried", {})).items():
        found[name] = CHANCE - loss
    if history.get("transfer"):
        found |= {name: CHANCE - history["transfer"][name] for name in ("blend", "plain")}
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


def rival(
    method: str, times: int = 1, own: dict[str, Any] | None = None, **options: Any
) -> Callable[[int], Advantages]:
    def run(seed: int) -> Advantages:
        X, y = classes(seed, 8 if method == "flow-augmentation" else 24, times)
        given = known_rivals()[method](**(own or {}))
        model = BaselineClassifier(method=given, random_state=seed, **(QUICK | options))
        if not model._end_to_end:
            model.set_params(head__epochs=3)
        history = model.fit(X, y).history_
        if (
            method == "smote" and history.get("encoder") is not None
        ):  # made of classes alike, it knows no better constant
            return {"encoder's stop": CHANCE - history["encoder"].best_loss}
        return of_history(history)

    return run


def transformer(seed: int) -> Advantages:
    """The flow's contrast is all that it reports of held-out rows."""
    X, y = classes(seed, 4)
    return of_history(ECRTTransformer(demixing=Flow(epochs=3), random_state=seed, **QUICK).fit(X, y).history_)


def new_classes(seed: int) -> Advantages:
    """A class that comes later."""
    X, y = classes(seed)
    clf = ECRTClassifier(demixing=Linear(n_sources=5), head="linear", random_state=seed, **QUICK)
    clf.fit(X[y > 0], y[y > 0]).add_classes(X[y == 0], y[y == 0])
    excess = np.log(len(COUNTS) / (len(COUNTS) - 1))  # figures are those of the fit, which knew one class less
    return {name: value - excess for name, value in of_history(clf.history_).items()}


def labels(**options: Any) -> Callable[[int], Advantages]:
    """Rows with several labels: chance is each label's frequency, rows weighed as if a label were drawn first."""

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
        found = {name: chance - loss for name, loss in by_demixing(clf.history_["tried"]).items()}
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
    clf = ECRTClassifier(head="gaussian", selection=PseudoMinority(trials=8), random_state=seed, **QUICK)
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
FEW: dict[str, Any] = {"demixing": Linear(n_sources=4), "n_columns": 40}


def few(n_columns: int = 40, augmentation: Any = "parametric", **options: Any) -> Callable[[int], Advantages]:
    """Four sources of many columns, and a linear head under strong weight decay."""
    head = LinearHead(weight_decay=0.3, **options)
    return classifier(demixing=Linear(n_sources=4), head=head, augmentation=augmentation, n_columns=n_columns)


def mlp(**options: Any) -> Encoder:
    return Encoder("mlp", n_features=8, epochs=40, learning_rate=1e-2, patience=40, **options)


def flow(head: Any = "linear", times: int = 1, minority: Any = "auto", **options: Any) -> Callable[[int], Advantages]:
    demixing = Flow(**{"hidden": (16,), "n_restarts": 1, "epochs": 3} | options)
    return classifier(demixing=demixing, head=head, minority=minority, n_columns=4, times=times)


CONFIGURATIONS: dict[str, Callable[[int], Advantages]] = {
    "as it comes": classifier(
        head=["linear", "gaussian", MLPHead(hidden=(16,), epochs=3), TreesHead(steps=20, leaves=4)]
    ),
    "no de-mixing": classifier(demixing="none", head="linear"),
    "linear": classifier(**LINEAR),
    "linear, all classes": classifier(**FEW, head=LinearHead(weight_decay=0.3), minority="all"),
    "discriminant axes": classifier(demixing=Linear(rotation="discriminant"), head="linear", n_columns=60),
    "five sources of 60 columns": classifier(demixing=Linear(n_sources=5), head="linear", n_columns=60),
    "more columns than rows": classifier(**LINEAR, n_columns=120),
    "Gaussian head": classifier(**FEW, head="gaussian"),
    "MLP head": classifier(**FEW, head=MLPHead(hidden=(16,), epochs=10, weight_decay=0.3)),
    "permutation": few(augmentation="permutation"),
    "borrowed": few(augmentation="borrowed"),
    "no augmentation": few(augmentation="none"),
    "balanced mass": few(class_mass="balanced"),
    "focal head": few(loss="focal"),
    "LDAM head": few(loss="ldam"),
    "hinge head": few(loss="hinge", epochs=3),
    "mixup of sources": few(mixup=0.2, epochs=3),
    "flow": flow(),
    "flow, all classes": flow(minority="all", times=2),
    "flow, MLP head": flow(MLPHead(hidden=(16,), epochs=3)),
    "flow, two depths": flow(n_restarts=2, blocks=(1, 2)),
    "MLP encoder": classifier(**LINEAR, encoder=mlp(), times=2),
    "MLP encoder, all classes": classifier(**LINEAR, encoder=mlp(learn_from="all"), times=2),
    "auto-encoder": classifier(**LINEAR, encoder=Encoder("autoencoder", n_features=8, epochs=4), times=2),
    "several labels": labels(**LINEAR),
    "several labels, discriminant": labels(demixing=Linear(n_sources=3), head="linear"),
    "several labels, MLP head": labels(demixing=Linear(n_sources=3), head=MLPHead(hidden=(16,), epochs=3)),
    "regression": regressor(head="linear"),
    "regression, sources weighed": regressor(demixing="linear", head="linear", augmentation="none"),
    "regression, three sources": regressor(demixing=Linear(n_sources=3), head="linear", augmentation="none"),
    "regression, MLP head": regressor(
        demixing="linear", head=MLPHead(hidden=(16,), epochs=3), augmentation="none", region_mass=0.0
    ),
    "regression, flow": regressor(
        demixing=Flow(hidden=(16,), epochs=3), head="linear", augmentation="none", n_columns=4
    ),
    "transformer": transformer,
    "classes that come later": new_classes,
    "selection": selected,
    "compare": compared,
    "diagnose": diagnosed,
    **{
        f"rival {method}": rival(method)
        for method in (
            "erm", "hinge", "weighted", "class-balanced", "focal", "ldam", "ldam-drw", "logit-adjusted",
            "mixup", "remix", "vat", "isda", "smote", "distribution-calibration",
            "flow-augmentation", "crt", "tau-norm", "post-hoc",
        )
    },
    "rival cgan": rival("cgan", own={"n_steps": 20}),
    "rival flow-augmentation, linear": rival("flow-augmentation", own={"demixing": "linear"}),
    **{
        f"rival {method}, MLP encoder": rival(method, 8 if method == "smote" else 2, encoder=mlp())
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
