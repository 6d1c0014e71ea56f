"""Methods that can be compared: how each is built, what of it is tuned, and which prior its probabilities assume."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from imblearn.ensemble import BalancedRandomForestClassifier
from imblearn.pipeline import make_pipeline
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from ecrt.comparison.parts import ClasswiseSMOTE, TableReader
from ecrt.comparison.space import Choice, Number, Space, Whole
from ecrt.errors import InputError
from ecrt.estimators import ECRTClassifier

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


def _ecrt(**fixed: Any) -> Callable[[Parameters, int], Any]:
    def build(parameters: Parameters, seed: int) -> Any:
        return ECRTClassifier(**fixed, **parameters, class_prior="balanced", device="cpu", random_state=seed)

    return build


def _logistic_regression(parameters: Parameters, seed: int) -> Any:
    model = LogisticRegression(class_weight="balanced", max_iter=1000, random_state=seed, **parameters)
    return make_pipeline(TableReader(), StandardScaler(), model)


def _balanced_forest(parameters: Parameters, seed: int) -> Any:
    model = BalancedRandomForestClassifier(
        sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed, **parameters
    )
    return make_pipeline(TableReader(), model)


def _boosted_trees(parameters: Parameters, seed: int) -> Any:
    model = HistGradientBoostingClassifier(
        class_weight="balanced", early_stopping=False, random_state=seed, **parameters
    )
    return make_pipeline(TableReader(), model)


def _mlp(parameters: Parameters, seed: int) -> Any:
    model = MLPClassifier(random_state=seed, **_layers(parameters))
    return make_pipeline(TableReader(), StandardScaler(), model)


def _smote_mlp(parameters: Parameters, seed: int) -> Any:
    neighbours = {"k_neighbors": parameters["k_neighbors"]}
    rest = {name: value for name, value in parameters.items() if name != "k_neighbors"}
    model = MLPClassifier(random_state=seed, **_layers(rest))
    return make_pipeline(TableReader(), StandardScaler(), ClasswiseSMOTE(**neighbours, random_state=seed), model)


def _layers(parameters: Parameters) -> dict[str, Any]:
    """Hidden layers are chosen by name, since a choice must be a plain value."""
    sizes = tuple(int(size) for size in str(parameters["hidden_layers"]).split("-"))
    rest = {name: value for name, value in parameters.items() if name != "hidden_layers"}
    return {"hidden_layer_sizes": sizes} | rest


HEAD_SPACE: Space = {
    "head": Choice(("auto", "linear", "mlp")),
    "weight_decay": Choice((None, 0.001, 0.01, 0.1, 1.0)),
    "learning_rate": Number(low=5e-4, high=8e-3, log=True),
}
HEAD_STARTS: tuple[Parameters, ...] = (
    {"head": "linear", "weight_decay": None, "learning_rate": 2e-3},
    {"head": "auto", "weight_decay": None, "learning_rate": 2e-3},
)
MLP_SPACE: Space = {
    "hidden_layers": Choice(("32", "100", "100-100")),
    "alpha": Number(low=1e-6, high=10.0, log=True),
    "learning_rate_init": Number(low=3e-4, high=1e-2, log=True),
}
MLP_START: Parameters = {"hidden_layers": "100", "alpha": 1e-4, "learning_rate_init": 1e-3}

METHODS: dict[str, Method] = {
    "erm": Method(
        label="ERM",
        build=_ecrt(demixing="none", augmentation_weight=0.0, head_loss="cross-entropy"),
        space=HEAD_SPACE,
        starts=HEAD_STARTS,
        prior="balanced",
        reference="Cross-entropy on standardised features; under the balanced prior this is post-hoc logit adjustment.",
    ),
    "logit-adjustment": Method(
        label="Logit adjustment",
        build=_ecrt(demixing="none", augmentation_weight=0.0),
        space=HEAD_SPACE,
        starts=HEAD_STARTS,
        prior="balanced",
        reference="Menon et al. (2021), Long-tail learning via logit adjustment, ICLR.",
    ),
    "ecrt": Method(
        label="ECRT",
        build=_ecrt(),
        space={
            "demixing": Choice(("linear", "auto")),
            "augmentation_weight": Number(low=0.0, high=0.9),
            "pseudo_samples": Number(low=1.0, high=100.0, log=True),
            **HEAD_SPACE,
        },
        starts=tuple(
            {"demixing": demixing, "augmentation_weight": 0.5, "pseudo_samples": 10.0, **start}
            for demixing, start in zip(("linear", "auto"), HEAD_STARTS, strict=True)
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
    "balanced-forest": Method(
        label="Balanced random forest",
        build=_balanced_forest,
        space={
            "n_estimators": Whole(low=50, high=400, log=True),
            "max_features": Choice(("sqrt", 0.3, 0.6)),
            "min_samples_leaf": Whole(low=1, high=20, log=True),
        },
        starts=({"n_estimators": 100, "max_features": "sqrt", "min_samples_leaf": 1},),
        prior="balanced",
        reference="Chen, Liaw and Breiman (2004), Using random forest to learn imbalanced data; imbalanced-learn's.",
    ),
    "weighted-boosting": Method(
        label="Weighted gradient boosting",
        build=_boosted_trees,
        space={
            "learning_rate": Number(low=0.02, high=0.3, log=True),
            "max_iter": Whole(low=50, high=300, log=True),
            "max_leaf_nodes": Whole(low=4, high=63, log=True),
            "min_samples_leaf": Whole(low=2, high=50, log=True),
            "l2_regularization": Number(low=1e-3, high=10.0, log=True),
        },
        starts=(
            {"learning_rate": 0.1, "max_iter": 50, "max_leaf_nodes": 15, "min_samples_leaf": 20,
             "l2_regularization": 1e-3},
            {"learning_rate": 0.1, "max_iter": 100, "max_leaf_nodes": 31, "min_samples_leaf": 20,
             "l2_regularization": 1e-3},
        ),
        prior="balanced",
        reference="scikit-learn's HistGradientBoostingClassifier with class_weight='balanced'.",
    ),
    "mlp": Method(
        label="MLP",
        build=_mlp,
        space=MLP_SPACE,
        starts=(MLP_START,),
        prior="training",
        reference="scikit-learn's MLPClassifier.",
    ),
    "smote-mlp": Method(
        label="SMOTE + MLP",
        build=_smote_mlp,
        space={"k_neighbors": Whole(low=1, high=10), **MLP_SPACE},
        starts=({"k_neighbors": 5, **MLP_START},),
        prior="balanced",
        reference="Chawla et al. (2002), SMOTE, before scikit-learn's MLPClassifier.",
    ),
}  # fmt: skip
"""By the name that ``--methods`` takes."""

DEFAULT_METHODS = ("erm", "logit-adjustment", "ecrt", "weighted-logistic", "balanced-forest", "weighted-boosting")


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
