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

from ecrt import (
    BaselineClassifier,
    Borrowed,
    Donors,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    GaussianHead,
    InputError,
    Interpolated,
    Kernel,
    Linear,
    LinearHead,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Pairs,
    Parametric,
    Permutation,
    PseudoMinority,
    TreesHead,
)
from ecrt.estimators import base
from ecrt.rivals import FlowAugmentation, known_rivals
from ecrt.stages import Part, parts


def changed(value: Any) -> Any:
    """Another value of an option."""
    if isinstance(value, str):
        return {"flow": "linear", "auto": 0.5, "sqrt": 0.5}.get(value, value)
    return value * 2 if value else 0.5


NOT_WALKED = (
    "checkpoint",
    "device",
    "verbose",
    "random_state",
    "epochs",
    "selection",
    "network",
    "trials",
    "budget",
    "kind",
    "time_budget",
)
"""Options that say how and not what, limits, and the choice of other options."""

DEMIXING = {"learn_from": ["all", "majority"], "source_prior": ["shared"], "pseudo_samples": [1.0]}
DRAWN = {"weight": [0.9], "weighting": ["added", "replaced"], "n_synthetic": [5]}
HEAD = {
    "loss": ["focal"], "loss_options": [{"tau": 1.5}], "class_mass": ["balanced"], "mixup": [0.5],
    "weight_decay": [1.0], "learning_rate": [2e-2],
}  # fmt: skip
COSTS = [[0, 9, 9, 9, 9, 9], *([1, 0, 1, 1, 1, 1] for _ in range(5))]
COMMON = {"encoder": ["mlp"], "validation_fraction": [0.4]}
VALUES: dict[type, dict[str, list[Any]]] = {
    Encoder: {
        "n_features": [2], "hidden": [(5,)], "dropout": [0.5], "batch_norm": [False], "reuse_rows": [True],
        "head_hidden": [(4,)], "train": [False], "learn_from": ["all", "majority"], "holdout": [0.4],
        "loss": ["weighted"], "loss_options": [{}], "head": ["cosine"], "mixup": [0.5], "mixup_off": [0.5],
        "crop_padding": [], "flip": [],
        "precision": ["bfloat16"], "batch_size": [8], "learning_rate": [0.02], "weight_decay": [0.1],
        "gradient_norm": [1e-3], "optimizer": ["sgd"], "momentum": [0.5], "patience": [1],
    },
    NoDemixing: DEMIXING | {"scaling": ["one"]},
    Linear: DEMIXING | {"n_sources": [2], "rotation": ["discriminant"], "signal_weights": [False]},
    Flow: DEMIXING | {
        "n_sources": [2], "linear_first": [False], "likelihood_of": ["row"], "signal_weights": [False],
        "objective": ["gcl", "infonce"], "label_marginal": ["batch"], "critic": ["cosine"],
        "critic_width": [3], "likelihood_weight": [0.1], "n_restarts": [1], "blocks": [2], "hidden": [(5,)],
        "batch_size": [8], "learning_rate": [2e-2], "patience": [1],
    },
    NoAugmentation: {},
    Parametric: DRAWN | {"pseudo_samples": [1.0], "source": ["prior"]},
    Permutation: DRAWN,
    Borrowed: DRAWN | {"pseudo_samples": [1.0]},
    Kernel: DRAWN | {"width": [0.2]},
    Pairs: DRAWN,
    Interpolated: {"n_donors": [3]},
    Donors: DRAWN | {"n_donors": [3]},
    LinearHead: HEAD,
    MLPHead: HEAD | {"hidden": [(4,)], "dropout": [0.5], "batch_size": [8], "networks": [2]},
    GaussianHead: {},
    TreesHead: {"steps": [2], "learning_rate": [0.5], "leaves": [2]},
    PseudoMinority: {},
    ECRTClassifier: COMMON | {
        "demixing": ["none"], "augmentation": ["permutation", "borrowed", "kernel", "pairs", "none"],
        "head": ["gaussian", "linear"],
        "minority": [[0]], "class_prior": ["training"], "costs": [COSTS], "thresholds": ["validation"],
        "precision": ["float32"],
    },
    ECRTTransformer: COMMON | {"demixing": ["none"], "minority": [[0]], "precision": ["float32"]},
    ECRTRegressor: COMMON | {
        "demixing": ["none"], "augmentation": ["interpolated", "donors"], "head": ["linear", "mlp"], "n_bins": [3],
        "region_mass": [1.0], "weighted": [True, False], "precision": ["float32"],
    },
    BaselineClassifier: COMMON | {
        "method": ["lda"], "scaling": ["one"], "head": ["mlp"], "minority": [[0]], "class_prior": ["training"],
        "costs": [COSTS],
    },
}  # fmt: skip
"""Other values than the defaults; those of rivals are made from the defaults."""

RIVALS = {name: kind for name, kind in known_rivals().items() if kind.__module__.startswith("ecrt.")}
for rival in RIVALS.values():
    VALUES[rival] = {name: [changed(value)] for name, value in rival().get_params(deep=False).items()}
VALUES[FlowAugmentation]["augmentation"] = ["permutation"]

PARTS = [kind for kind in VALUES if issubclass(kind, Part)]
ESTIMATORS = [kind for kind in VALUES if kind not in PARTS]


def modes(kind: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the modes that an estimator is walked in."""
    if kind is BaselineClassifier:
        for method, rival in RIVALS.items():
            own_head = {} if rival().overrides("fit_model") else {"head": LinearHead(epochs=2)}
            yield method, {"method": rival(), **own_head}
            with_head = {} if rival().trains_encoder else own_head
            yield f"{method}, encoder", {"method": rival(), "encoder": Encoder("mlp", **MLP), **with_head}
        yield "erm, MLP", {"method": "erm", "head": MLPHead(epochs=2)}
        yield "smote, autoencoder", {"method": "smote", "encoder": Encoder("autoencoder", **MLP)}
        return
    head = {} if kind is ECRTTransformer else {"head": LinearHead()}
    linear = {"demixing": Linear(), **head}
    yield "default", {}
    yield "linear", linear
    yield "none", {"demixing": NoDemixing(), **head}
    yield "flow", {"demixing": Flow(n_restarts=2, epochs=2), **head}
    yield "encoder", {**linear, "encoder": Encoder("mlp", **MLP)}
    yield "autoencoder", {**linear, "encoder": Encoder("autoencoder", **MLP)}
    yield "module", {**linear, "encoder": Encoder(a_module(), epochs=2)}
    yield "frozen module", {**linear, "encoder": Encoder(a_module(), train=False)}
    yield "fewer sources", {"demixing": Linear(n_sources=2), **head}
    if kind is ECRTClassifier:
        yield "several labels, default", {}
        yield "two de-mixings", {"demixing": [NoDemixing(), Linear()], **head}
        yield "two heads", {"head": ["gaussian", "trees"]}
        yield "trees alone", {"head": TreesHead(steps=3)}
        yield "several labels", linear
        yield "several labels, MLP", {**linear, "head": MLPHead(epochs=2)}
        yield "Gaussian head", {**linear, "head": GaussianHead()}
        yield "trees", {**linear, "head": TreesHead(steps=3)}
        yield "no augmentation", {**linear, "augmentation": NoAugmentation()}
        yield "parametric", {**linear, "augmentation": Parametric()}
        yield "permutation", {**linear, "augmentation": Permutation()}
        yield "borrowed", {**linear, "augmentation": Borrowed()}
        yield "kernel", {**linear, "augmentation": Kernel()}
        yield "pairs", {**linear, "augmentation": Pairs()}
    if kind is not ECRTTransformer:
        yield "MLP head", {**linear, "head": MLPHead(epochs=2)}
    if kind is ECRTRegressor:
        yield "donors", {**linear, "augmentation": Donors()}
        yield "interpolated", {**linear, "augmentation": Interpolated()}
        yield "no augmentation", {**linear, "augmentation": NoAugmentation()}
        yield "Huber", {**linear, "head": LinearHead(loss="huber")}


MLP = {"epochs": 2, "n_features": 3}


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
    for one in getattr(model, "members_", ()):
        parts += [one.weight, *(value.double().numpy() for value in one.network.state_dict().values())]
    for method in ("predict", "decision_function", "transform"):
        parts += [getattr(model, method)(X)] if hasattr(model, method) else []
    if isinstance(model, ECRTClassifier):
        parts += [model.sample(3, random_state=0)[0]]
    if isinstance(model, ECRTRegressor):
        parts += [model.sample(3, y=[1.0], random_state=0)[0]]
    parts += [np.asarray(getattr(model, name)) for name in ("minority_classes_", "demixed_on_") if hasattr(model, name)]
    history = getattr(model, "history_", {})
    parts += [repr([history.get(name) for name in ("head_candidates", "candidates", "tried", "transfer")])]
    parts += [repr([(one.n_blocks, one.held_out_contrast) for one in history.get("restarts", ())])]
    parts += [repr(sorted(getattr(model, "selection_", {})))]
    return hashlib.sha256(b"".join(repr(np.asarray(part).tolist()).encode() for part in parts)).hexdigest()


def fitted(model: Any, X: np.ndarray, y: np.ndarray, *, unchecked: bool = False) -> str:
    """The fingerprint of a fit, or the error that it raised; ``unchecked`` lets options through that do nothing."""
    kept = parts.refuse_idle, base.refuse_idle
    try:
        if unchecked:
            parts.refuse_idle = base.refuse_idle = lambda *_, **__: None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return fingerprint(clone(model).fit(X, y), X)
    except InputError as error:
        return f"InputError: {error}"
    finally:
        parts.refuse_idle, base.refuse_idle = kept


def is_refused(model: Any, several: bool) -> bool:
    """Whether an option of the model, or of its parts, is said to have no effect."""
    rules = model._rules(several) if isinstance(model, ECRTClassifier) else model._rules()
    try:
        model._check_parts(rules)
    except InputError as error:
        return "would have no effect" in str(error)
    return False


def is_same_part(model: Any, option: str, value: Any) -> bool:
    """Whether a short name stands for the part that the model has."""
    return isinstance(value, str) and option in model._roles and getattr(model, option) == model._roles[option].part(
        value, option
    )  # fmt: skip


def walk(kind: type, mode: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One record for each option and value: whether the rules call it idle, and whether it changes the model."""
    X, y = data(mode, kind)
    start = kind(random_state=0, device="cpu", **given)
    before = fitted(start, X, y)
    assert not before.startswith("InputError"), before
    values = dict(VALUES[kind])
    for role, part in given.items():
        if isinstance(part, Part):
            values |= {f"{role}__{option}": others for option, others in VALUES[type(part)].items()}
    for option, others in values.items():
        for value in others:
            model = clone(start).set_params(**{option: value})
            if model.get_params()[option] == start.get_params()[option] or is_same_part(start, option, value):
                continue
            after = fitted(model, X, y, unchecked=True)
            yield {
                "estimator": kind.__name__, "mode": mode, "option": option, "value": repr(value),
                "refused": is_refused(model, mode.startswith("several")),
                "error": after if after.startswith("InputError") else "", "changes": after != before,
            }  # fmt: skip
