"""Methods that can be compared: how each is built, what of it is tuned, and which prior its probabilities assume."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ecrt.data import TableEncoder
from ecrt.errors import InputError
from ecrt.estimators import ECRTClassifier
from ecrt.rivals import BaselineClassifier, Rival, known_rivals
from ecrt.rivals.base import Choice, Number, Space
from ecrt.stages import LinearHead, MLPHead, Parametric

Array = NDArray[np.float64]
Parameters = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method of the comparison.

    Attributes
    ----------
    label : its name for readers.
    build : an unfitted classifier from tuned parameters and a seed.
    space : what is tuned.
    prior : class prior that its probabilities assume: the frequencies of training, or all classes equal.
    reference : the paper.
    variants : changes of the first values, to try one after the other; the cheapest first.
    fitted_as : what ``ecrt fit --method`` calls it; ``None`` where it cannot be saved.
    """

    label: str
    build: Callable[[Parameters, int], Any]
    space: Space
    prior: Literal["balanced", "training"] = "balanced"
    reference: str
    variants: tuple[Parameters, ...] = ({},)
    fitted_as: str | None = None

    @property
    def starts(self) -> list[dict[str, Any]]:
        """Parameters to try first. The first of them are also taken when no trial was finished."""
        first = {name: part.first for name, part in self.space.items()}
        return [{**first, **variant} for variant in self.variants]


class TableReader(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A table as the numbers that ``ECRTClassifier`` makes of it, so that every method reads the same columns."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> TableReader:
        """Learn what the columns hold."""
        self.table_ = TableEncoder.learn(X)
        return self

    def transform(self, X: pd.DataFrame) -> Array:
        """Columns as numbers without gaps."""
        return self.table_.encode(X)


HEAD: Space = {
    "scaling": Choice(("columns", "one"), "columns"),
    "head": Choice(("linear", "mlp"), "linear"),
    "weight_decay": Choice((None, 1e-4, 1e-3, 1e-2, 0.1, 1.0), None),
    "learning_rate": Number(5e-4, 8e-3, first=2e-3, log=True),
}


def _of_rival(kind: type[Rival]) -> Method:
    """A rival, as ``BaselineClassifier`` has it; what is its own model has no head."""
    rival = kind()
    is_model = rival.overrides("fit_model")
    by_steps = rival.overrides("risk") or (rival.overrides("loss") and not rival.loss().smooth)
    defaults = rival.get_params()
    own = {
        f"method__{name}": part if part.first is not None else replace(part, first=defaults[name])
        for name, part in (kind.tuned or {}).items()
    }

    def build(parameters: Parameters, seed: int) -> Any:
        options = {name: parameters[name] for name in own}
        model = BaselineClassifier(method=kind(), device="cpu", random_state=seed).set_params(**options)
        if is_model:
            return model
        return model.set_params(scaling=parameters["scaling"], head=_head(parameters, by_steps=by_steps))

    return Method(
        label=kind.label,
        build=build,
        space={**({} if is_model else HEAD), **own},
        variants=({},) if is_model else ({"head": "linear"}, {"head": "mlp"}),
        reference=kind.reference(),
        fitted_as=rival.kind if rival.kept else None,
    )


def _head(parameters: Parameters, *, by_steps: bool) -> LinearHead | MLPHead:
    """The head of tuned parameters; a linear one takes ten times the learning rate, if it is trained by steps."""
    decay, rate = parameters["weight_decay"], 4 * parameters["learning_rate"]
    if parameters["head"] == "mlp":
        return MLPHead(weight_decay=decay, learning_rate=rate)
    return LinearHead(weight_decay=decay, learning_rate=10 * rate if by_steps else None)


def _ecrt(parameters: Parameters, seed: int) -> Any:
    """ECRT; a de-mixing or a head that is left to ``"auto"`` has its own options."""
    demixing, weight = parameters["demixing"], parameters["augmentation_weight"]
    head = "auto" if parameters["head"] == "auto" else _head(parameters, by_steps=False)
    augmentation = Parametric(weight=weight, pseudo_samples=parameters["pseudo_samples"])
    return ECRTClassifier(demixing=demixing, head=head, augmentation=augmentation, device="cpu", random_state=seed)


def _logistic_regression(parameters: Parameters, seed: int) -> Any:
    model = LogisticRegression(class_weight="balanced", max_iter=1000, random_state=seed, **parameters)
    return make_pipeline(TableReader(), StandardScaler(), model)


OTHERS: dict[str, Method] = {
    "ecrt": Method(
        label="ECRT",
        build=_ecrt,
        space={
            "demixing": Choice(("linear", "auto"), "auto"),
            "head": Choice(("linear", "auto", "mlp"), "auto"),
            "weight_decay": HEAD["weight_decay"],
            "learning_rate": HEAD["learning_rate"],
            "augmentation_weight": Number(0.0, 0.9, first=0.5),
            "pseudo_samples": Number(1.0, 100.0, first=10.0, log=True),
        },
        variants=({}, {"demixing": "linear", "head": "linear"}, {"demixing": "linear"}),
        reference="Energy-based causal representation transfer, NeurIPS 2021.",
        fitted_as="ecrt",
    ),
    "weighted-logistic": Method(
        label="Weighted logistic regression",
        build=_logistic_regression,
        space={"C": Number(1e-4, 1e3, first=1.0, log=True)},
        reference="scikit-learn's LogisticRegression with class_weight='balanced'.",
        fitted_as="weighted",  # the same loss; its weight decay is chosen on held-out rows
    ),
}
"""Methods that are no rivals."""

DEFAULT_METHODS = ("erm", "logit-adjusted", "ecrt", "weighted-logistic", "balanced-forest", "gradient-boosting")

RIVALS = {name: _of_rival(kind) for name, kind in sorted(known_rivals().items()) if kind.tuned is not None}

METHODS: dict[str, Method] = {name: (OTHERS | RIVALS)[name] for name in DEFAULT_METHODS} | OTHERS | RIVALS
"""By the name that ``--methods`` takes; rivals have the name that they have in ``BaselineClassifier``."""


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
