"""Methods that can be compared: how each is built, what of it is tuned, and which prior its probabilities assume."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from imblearn.pipeline import make_pipeline
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from ecrt.comparison.parts import ClasswiseSMOTE, TableReader
from ecrt.comparison.space import Choice, Number, Space, Whole
from ecrt.errors import InputError
from ecrt.estimators import BaselineClassifier, ECRTClassifier
from ecrt.estimators.baseline_methods import BASELINE_METHODS
from ecrt.estimators.effects import set_options

__all__ = ["DEFAULT_METHODS", "METHODS", "Method", "choose_methods"]

Parameters = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : its name for readers.
    build : an unfitted classifier from tuned parameters and a seed.
    space : what is tuned.
    starts : parameters to try first, the cheapest first; the first are also taken when no trial was finished.
    prior : class prior that its probabilities assume: the frequencies of training, or all classes alike.
    reference : the paper.
    """

    label: str
    build: Callable[[Parameters, int], Any]
    space: Space
    starts: tuple[Parameters, ...]
    prior: Literal["balanced", "training"]
    reference: str


HEAD: Space = {
    "scaling": Choice(("columns", "one")),
    "head": Choice(("linear", "mlp")),
    "weight_decay": Choice((None, 1e-4, 1e-3, 1e-2, 0.1, 1.0)),
    "learning_rate": Number(low=5e-4, high=8e-3, log=True),
}
HEAD_STARTS: tuple[Parameters, ...] = tuple(
    {"scaling": "columns", "head": head, "weight_decay": None, "learning_rate": 2e-3} for head in ("linear", "mlp")
)
MLP: Space = {
    "hidden_layers": Choice(("32", "100", "100-100")),
    "alpha": Number(low=1e-6, high=10.0, log=True),
    "learning_rate_init": Number(low=3e-4, high=1e-2, log=True),
}
MLP_START: Parameters = {"hidden_layers": "100", "alpha": 1e-4, "learning_rate_init": 1e-3}


def _baseline(method: str, label: str, own: Space | None = None, first: Parameters | None = None) -> Method:
    """A rival behind ``BaselineClassifier``.

    Parameters
    ----------
    own, first : options of its loss (``loss.NAME``) or of the method (``method.NAME``) that are tuned beside the head,
        and their first values. A model of another library has no head.
    """

    def build(parameters: Parameters, seed: int) -> Any:
        inner: dict[str, dict[str, Any]] = {"loss": {}, "method": {}}
        outer = {name: value for name, value in parameters.items() if "." not in name}
        for name in parameters.keys() - outer.keys():
            owner, _, option = name.partition(".")
            inner[owner][option] = parameters[name]
        return set_options(
            BaselineClassifier(method=method), loss_options=inner["loss"] or None,
            method_options=inner["method"] or None, device="cpu", random_state=seed, **outer,
        )  # fmt: skip

    is_model = BASELINE_METHODS[method].kind == "model"
    return Method(
        label=label,
        build=build,
        space={**({} if is_model else HEAD), **(own or {})},
        starts=tuple({**start, **(first or {})} for start in (({},) if is_model else HEAD_STARTS)),
        prior="balanced",
        reference=BASELINE_METHODS[method].reference,
    )


def _ecrt(parameters: Parameters, seed: int) -> Any:
    return set_options(ECRTClassifier(), **parameters, device="cpu", random_state=seed)


def _logistic_regression(parameters: Parameters, seed: int) -> Any:
    model = LogisticRegression(class_weight="balanced", max_iter=1000, random_state=seed, **parameters)
    return make_pipeline(TableReader(), StandardScaler(), model)


def _mlp(parameters: Parameters, seed: int) -> Any:
    model = MLPClassifier(random_state=seed, **_layers(parameters))
    return make_pipeline(TableReader(), StandardScaler(), model)


def _smote_mlp(parameters: Parameters, seed: int) -> Any:
    rest = {name: value for name, value in parameters.items() if name != "k_neighbors"}
    smote = ClasswiseSMOTE(k_neighbors=parameters["k_neighbors"], random_state=seed)
    model = MLPClassifier(random_state=seed, **_layers(rest))
    return make_pipeline(TableReader(), StandardScaler(), smote, model)


def _layers(parameters: Parameters) -> dict[str, Any]:
    """Hidden layers are chosen by name, since a choice must be a plain value."""
    sizes = tuple(int(size) for size in str(parameters["hidden_layers"]).split("-"))
    rest = {name: value for name, value in parameters.items() if name != "hidden_layers"}
    return {"hidden_layer_sizes": sizes} | rest


METHODS: dict[str, Method] = {
    "erm": _baseline("erm", "ERM"),
    "logit-adjusted": _baseline("logit-adjusted", "Logit adjustment"),
    "ecrt": Method(
        label="ECRT",
        build=_ecrt,
        space={
            "demixing": Choice(("linear", "auto")),
            "head": Choice(("linear", "auto", "mlp")),
            "weight_decay": HEAD["weight_decay"],
            "learning_rate": HEAD["learning_rate"],
            "augmentation_weight": Number(low=0.0, high=0.9),
            "pseudo_samples": Number(low=1.0, high=100.0, log=True),
        },
        starts=tuple(
            {"demixing": demixing, "head": head, "weight_decay": None, "learning_rate": 2e-3,
             "augmentation_weight": 0.5, "pseudo_samples": 10.0}
            for demixing, head in (("linear", "linear"), ("linear", "auto"), ("auto", "auto"))
        ),
        prior="balanced",
        reference="Energy-based causal representation transfer, NeurIPS 2021.",
    ),
    "weighted-logistic": Method(
        label="Weighted logistic regression",
        build=_logistic_regression,
        space={"C": Number(low=1e-4, high=1e3, log=True)},
        starts=({"C": 1.0},),
        prior="balanced",
        reference="scikit-learn's LogisticRegression with class_weight='balanced'.",
    ),
    "balanced-forest": _baseline(
        "balanced-forest", "Balanced random forest",
        {"method.n_estimators": Whole(low=50, high=400, log=True), "method.max_features": Choice(("sqrt", 0.3, 0.6)),
         "method.min_samples_leaf": Whole(low=1, high=20, log=True)},
        {"method.n_estimators": 100, "method.max_features": "sqrt", "method.min_samples_leaf": 1},
    ),
    "gradient-boosting": _baseline(
        "gradient-boosting", "Weighted gradient boosting",
        {"method.learning_rate": Number(low=0.02, high=0.3, log=True),
         "method.max_iter": Whole(low=50, high=300, log=True),
         "method.max_leaf_nodes": Whole(low=4, high=63, log=True),
         "method.min_samples_leaf": Whole(low=2, high=50, log=True),
         "method.l2_regularization": Number(low=1e-3, high=10.0, log=True)},
        {"method.learning_rate": 0.1, "method.max_iter": 100, "method.max_leaf_nodes": 15,
         "method.min_samples_leaf": 20, "method.l2_regularization": 1e-3},
    ),
    "mlp": Method(
        label="MLP", build=_mlp, space=MLP, starts=(MLP_START,), prior="training",
        reference="scikit-learn's MLPClassifier.",
    ),
    "smote-mlp": Method(
        label="SMOTE + MLP",
        build=_smote_mlp,
        space={"k_neighbors": Whole(low=1, high=10), **MLP},
        starts=({"k_neighbors": 5, **MLP_START},),
        prior="balanced",
        reference="Chawla et al., JAIR 2002, before scikit-learn's MLPClassifier.",
    ),
    "weighted": _baseline("weighted", "Importance weighting"),
    "class-balanced": _baseline(
        "class-balanced", "Class-balanced weights", {"loss.beta": Choice((0.9, 0.99, 0.999, 0.9999))},
        {"loss.beta": 0.9999},
    ),
    "focal": _baseline("focal", "Focal loss", {"loss.gamma": Number(low=0.5, high=5.0)}, {"loss.gamma": 2.0}),
    "ldam": _baseline(
        "ldam", "LDAM", {"loss.largest_margin": Number(low=0.1, high=5.0, log=True)}, {"loss.largest_margin": 0.5}
    ),
    "ldam-drw": _baseline(
        "ldam-drw", "LDAM-DRW", {"loss.largest_margin": Number(low=0.1, high=5.0, log=True)},
        {"loss.largest_margin": 0.5},
    ),
    "balanced-softmax": _baseline("balanced-softmax", "Balanced softmax"),
    "mixup": _baseline(
        "mixup", "Mixup", {"method.alpha": Number(low=0.05, high=2.0, log=True)}, {"method.alpha": 0.2}
    ),
    "remix": _baseline("remix", "Remix", {"method.tau": Number(low=0.0, high=1.0)}, {"method.tau": 0.5}),
    "vat": _baseline(
        "vat", "Virtual adversarial training", {"method.epsilon": Number(low=0.02, high=1.0, log=True)},
        {"method.epsilon": 0.2},
    ),
    "isda": _baseline("isda", "ISDA", {"method.strength": Number(low=0.05, high=2.0, log=True)},
                      {"method.strength": 0.5}),
    "smote": _baseline("smote", "SMOTE", {"method.k_neighbors": Whole(low=1, high=10)}, {"method.k_neighbors": 5}),
    "distribution-calibration": _baseline(
        "distribution-calibration", "Distribution calibration",
        {"method.spread": Number(low=0.01, high=1.0, log=True), "method.n_nearest": Whole(low=1, high=3)},
        {"method.spread": 0.21, "method.n_nearest": 2},
    ),
    "cgan": _baseline("cgan", "Conditional GAN", {"method.width": Choice((32, 64, 128))}, {"method.width": 64}),
    "flow-augmentation": _baseline(
        "flow-augmentation", "Augmentation through the flow",
        {"method.demixing": Choice(("linear", "flow")), "method.weight": Number(low=0.1, high=0.9)},
        {"method.demixing": "linear", "method.weight": 0.5},
    ),
    "crt": _baseline("crt", "Decoupling, cRT"),
    "tau-norm": _baseline("tau-norm", "Decoupling, tau-normalised"),
    "lda": _baseline("lda", "Shrinkage LDA", {"method.shrinkage": Choice(("auto", 0.01, 0.1, 0.3, 0.6, 0.9))},
                     {"method.shrinkage": "auto"}),
    "qda": _baseline("qda", "Shrinkage QDA", {"method.ridge": Number(low=1e-4, high=1.0, log=True)},
                     {"method.ridge": 1e-3}),
}  # fmt: skip
"""By the name that ``--methods`` takes; rivals have the name that they have in ``BaselineClassifier``."""

DEFAULT_METHODS = ("erm", "logit-adjusted", "ecrt", "weighted-logistic", "balanced-forest", "gradient-boosting")


def choose_methods(names: str | Sequence[str]) -> tuple[str, ...]:
    """Names of methods, ``"default"`` or ``"all"``; a list, or text with commas. None twice, in the order given.

    >>> choose_methods("ecrt, erm,ecrt")
    ('ecrt', 'erm')
    """
    parts = [part.strip() for part in names.split(",")] if isinstance(names, str) else list(names)
    chosen: dict[str, None] = {}
    for part in filter(None, parts):
        if part not in METHODS and part not in ("all", "default"):
            close = difflib.get_close_matches(part, METHODS, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise InputError(f"No method is called {part!r}{hint} Known: default, all, {', '.join(METHODS)}.")
        chosen |= dict.fromkeys(METHODS if part == "all" else DEFAULT_METHODS if part == "default" else (part,))
    if not chosen:
        raise InputError(f"No method is named. Known: default, all, {', '.join(METHODS)}.")
    return tuple(chosen)
