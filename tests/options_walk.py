"""Every option of every estimator in every mode: does it change the fitted model, and do the rules know it?

Used by ``test_effects.py`` (some modes) and ``benchmarks/walk_options.py`` (all of them).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer, InputError
from ecrt.estimators import baseline, classifier, regressor, transformer
from ecrt.estimators.baseline_methods import BASELINE_METHODS
from ecrt.estimators.effects import idle_options

QUICK = {"epochs": 2, "random_state": 0, "device": "cpu"}
FLOW = {"demixing": "flow", "n_restarts": 2}
MLP = {"encoder": "mlp", "encoder_epochs": 2, "n_features": 3}
NOT_WALKED = ("device", "verbose", "random_state", "epochs", "encoder_epochs", "selection")
"""Options that say how and not what, limits, and the choice of other options."""

SHARED: dict[str, list[Any]] = {
    "encoder": ["mlp"], "train_encoder": [False], "encoder_holdout": [0.4],
    "encoder_options": [{"learning_rate": 0.02}], "n_features": [2], "validation_fraction": [0.4], "batch_size": [8],
    "learning_rate": [2e-2],
}  # fmt: skip
DEMIXING: dict[str, list[Any]] = {
    "encode_on": ["all", "majority"], "demix_on": ["all", "majority"], "encoder_loss": ["weighted"], "mixup": [0.5],
    "demixing": ["none"], "n_sources": [2], "rotation": ["joint", "discriminant"], "objective": ["gcl", "infonce"],
    "label_marginal": ["batch"], "critic": ["cosine"], "critic_width": [3], "likelihood_weight": [0.1],
    "source_prior": ["shared"], "n_restarts": [1], "flow_blocks": [2], "flow_hidden": [(5,)], "pseudo_samples": [1.0],
    "precision": ["float32"],
}  # fmt: skip
VALUES: dict[type, dict[str, list[Any]]] = {
    ECRTClassifier: SHARED | DEMIXING | {
        "minority": [[0]], "augmentation": ["permutation", "borrowed"], "augmentation_weight": [0.0, 0.9],
        "n_synthetic": [5], "mean_shrinkage": [1.0], "head": ["gaussian", "linear"], "class_mass": ["balanced"],
        "head_loss": ["focal"], "head_loss_options": [{"tau": 1.5}], "head_hidden": [(4,)], "head_dropout": [0.5],
        "weight_decay": [1.0], "class_prior": ["training"], "thresholds": ["validation"], "selection_trials": [4],
        "selection_budget": [2.0],
    },
    ECRTTransformer: SHARED | DEMIXING | {"minority": [[0]]},
    ECRTRegressor: SHARED | DEMIXING | {
        "loss": ["absolute"], "huber_delta": [0.2], "n_bins": [3], "head": ["linear", "mlp"], "head_hidden": [(4,)],
        "region_mass": [1.0], "weighted": [True, False], "augmentation": ["interpolated", "donors"],
        "augmentation_weight": [0.9], "n_synthetic": [5], "n_donors": [3], "weight_decay": [1.0],
    },
    BaselineClassifier: SHARED | {
        "method": ["lda"], "method_options": [], "loss": ["focal"], "loss_options": [], "scaling": ["one"],
        "head": ["mlp"], "head_hidden": [(4,)], "head_dropout": [0.5], "weight_decay": [1.0], "minority": [[0]],
        "class_prior": ["training"],
    },
}  # fmt: skip
"""Other values than the defaults; ``method_options`` and ``loss_options`` are walked by method."""


def modes(kind: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the modes that an estimator is walked in."""
    if kind is BaselineClassifier:
        for method in BASELINE_METHODS:
            yield method, {"method": method}
            yield f"{method}, encoder", {"method": method, **MLP}
        yield "erm, MLP", {"method": "erm", "head": "mlp"}
        yield "smote, autoencoder", {"method": "smote", **MLP, "encoder": "autoencoder"}
        return
    head = {} if kind is ECRTTransformer else {"head": "linear"}
    yield "linear", {"demixing": "linear", **head}
    yield "none", {"demixing": "none", **head}
    yield "flow", FLOW | head
    yield "encoder", {"demixing": "linear", **head, **MLP}
    yield "autoencoder", {"demixing": "linear", **head, **MLP, "encoder": "autoencoder"}
    yield "module", {"demixing": "linear", **head, "encoder": a_module(), "encoder_epochs": 2}
    yield "frozen module", {"demixing": "linear", **head, "encoder": a_module(), "train_encoder": False}
    yield "fewer sources", {"demixing": "linear", **head, "n_sources": 2}
    if kind is ECRTClassifier:
        yield "several labels", {"demixing": "linear", "head": "linear"}
        yield "several labels, MLP", {"demixing": "linear", "head": "mlp"}
        yield "Gaussian head", {"demixing": "linear", "head": "gaussian"}
        yield "no augmentation", {"demixing": "linear", "head": "linear", "augmentation_weight": 0.0}
        yield "permutation", {"demixing": "linear", "head": "linear", "augmentation": "permutation"}
    if kind is not ECRTTransformer:
        yield "MLP head", {"demixing": "linear", "head": "mlp"}
    if kind is ECRTRegressor:
        yield "donors", {"demixing": "linear", "head": "linear", "augmentation": "donors"}
        yield "no augmentation", {"demixing": "linear", "head": "linear", "augmentation": "none"}
        yield "Huber", {"demixing": "linear", "head": "linear", "loss": "huber"}


def a_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def data(mode: str, kind: type) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(6), [30, 28, 26, 24, 6, 4])
    X = rng.normal(size=(len(classes), 4)) + 2 * rng.normal(size=(6, 4))[classes]
    X[:, 1] = 3 * X[:, 1] + X[:, 0]
    if kind is ECRTRegressor:
        return X, np.exp(X[:, 0]) + rng.normal(size=len(X))
    if mode.startswith("several"):
        return X, np.column_stack([X[:, 0] > 1, X[:, 1] > 2, X[:, 2] > 0, X[:, 3] > 3]).astype(int)
    return X, classes


def fingerprint(model: Any, X: np.ndarray) -> str:
    """What a fitted model is and gives."""
    parts: list[Any] = []
    for name in ("encoder_", "demixer_", "head_"):
        module = getattr(model, name, None)
        parts += [] if module is None else [value.double().numpy() for value in module.state_dict().values()]
    for method in ("predict", "decision_function", "transform"):
        parts += [getattr(model, method)(X)] if hasattr(model, method) else []
    if isinstance(model, ECRTClassifier):
        parts += [model.sample(3, random_state=0)[0]]
    if isinstance(model, ECRTRegressor):
        parts += [model.sample(3, y=[1.0], random_state=0)[0]]
    parts += [np.asarray(getattr(model, name)) for name in ("minority_classes_", "demixed_on_") if hasattr(model, name)]
    history = getattr(model, "history_", {})
    parts += [repr([history.get(name) for name in ("head_candidates", "candidates", "demixing_held_out")])]
    parts += [repr([(one.n_blocks, one.held_out_contrast) for one in history.get("restarts", ())])]
    parts += [repr(sorted(getattr(model, "selection_", {})))]
    return hashlib.sha256(b"".join(repr(np.asarray(part).tolist()).encode() for part in parts)).hexdigest()


def fitted(model: Any, X: np.ndarray, y: np.ndarray, *, unchecked: bool = False) -> str:
    """The fingerprint of a fit, or the error that it raised; ``unchecked`` lets options through that do nothing."""
    places = (classifier, regressor, transformer, baseline)
    kept = [place.refuse_idle for place in places]
    try:
        if unchecked:
            for place in places:
                place.refuse_idle = lambda *_: None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fingerprint(clone(model).fit(X, y), X)
    except InputError as error:
        return f"InputError: {error}"
    finally:
        for place, check in zip(places, kept, strict=True):
            place.refuse_idle = check


def walk(kind: type, mode: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One record for each option and value: whether the rules call it idle, and whether it changes the model."""
    X, y = data(mode, kind)
    several = mode.startswith("several")
    start = kind(**QUICK, **given)
    before = fitted(start, X, y)
    assert not before.startswith("InputError"), before
    values = dict(VALUES[kind])
    if kind is BaselineClassifier:
        method = BASELINE_METHODS[given["method"]]
        values["method_options"] = [{name: changed(value)} for name, value in method.options.items()]
        values["loss_options"] = [
            {name: changed(value)} for name, value in ecrt.losses.LOSS_OPTIONS[method.loss].items()
        ]
    for option, others in values.items():
        for value in others:
            if option in given and given[option] == value:
                continue
            model = clone(start).set_params(**{option: value})
            if getattr(kind(), option) is value or getattr(kind(), option) == value:
                continue
            idle = option in idle_options(model, several)
            after = fitted(model, X, y, unchecked=True)
            yield {
                "estimator": kind.__name__, "mode": mode, "option": option, "value": repr(value), "refused": idle,
                "error": after if after.startswith("InputError") else "", "changes": after != before,
            }  # fmt: skip


def changed(value: Any) -> Any:
    return {"flow": "linear"}.get(value, value) if isinstance(value, str) else value * 2 if value else 0.5
