"""Methods that can be compared: how each is built, what of it is tuned, and which prior its probabilities assume."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin, clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ecrt.arrays import Array
from ecrt.data import TableEncoder
from ecrt.errors import InputError
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.base import ClassProbabilities, FitBase
from ecrt.rivals import BaselineClassifier, Rival, known_rivals
from ecrt.rivals.base import Choice, Number, Space
from ecrt.stages import LinearHead, MLPHead, Parametric

Parameters = Mapping[str, Any]
Prior = Literal["balanced", "training"]


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
    space: Space = field(default_factory=dict)
    prior: Prior = "balanced"
    reference: str = ""
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


OWN_NAME = re.compile(r"[A-Za-z0-9][\w .+-]{0,59}")
"""What a method of the user's own may be called: its name is that of a folder, too."""

Asked = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""Methods to compare: names, and estimators of one's own by name."""


def choose_methods(asked: Asked) -> dict[str, Method]:
    """Methods by name, in the order given and none twice.

    Parameters
    ----------
    asked : names of methods, ``"default"`` or ``"all"``, in a list or in text with commas; and mappings from names of
        your own to classifiers, or to a :class:`Method` of yours.

    Examples
    --------
    >>> list(choose_methods("ecrt, erm,ecrt"))
    ['ecrt', 'erm']
    >>> list(choose_methods(["erm", {"logistic": LogisticRegression()}]))
    ['erm', 'logistic']
    """
    listed = asked.split(",") if isinstance(asked, str) else [asked] if isinstance(asked, Mapping) else list(asked)
    chosen: dict[str, Method] = {}
    for one in listed:
        if isinstance(one, Mapping):
            for name, given in one.items():
                if name in chosen:
                    raise InputError(f"methods: {name!r} is there twice. Give one of them another name.")
                chosen[name] = _own_method(name, given)
        elif not isinstance(one, str):
            raise InputError(f"methods: {one!r} has no name. Give it one: {{'my method': {type(one).__name__}(...)}}.")
        elif one.strip():
            chosen |= {name: METHODS[name] for name in _names(one.strip())}
    if not chosen:
        raise InputError(f"No method is named. Known: default, all, {', '.join(METHODS)}.")
    return chosen


def _names(name: str) -> Sequence[str]:
    """Names of our methods that one name stands for."""
    if name not in METHODS and name not in ("all", "default"):
        close = difflib.get_close_matches(name, METHODS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        raise InputError(f"No method is called {name!r}{hint} Known: default, all, {', '.join(METHODS)}.")
    return tuple(METHODS) if name == "all" else DEFAULT_METHODS if name == "default" else (name,)


def _own_method(name: Any, given: Any) -> Method:
    """A classifier of the user's own as a method without anything to tune; a ``Method`` as it is."""
    if not isinstance(name, str) or not OWN_NAME.fullmatch(name):
        raise InputError(f"methods: {name!r} cannot be a name. Use up to 60 letters, digits, spaces and - _ . +.")
    if name in METHODS:
        raise InputError(f"methods: {name!r} is one of our methods. Give yours another name.")
    if isinstance(given, Method):
        return given
    kind = getattr(given, "__name__", type(given).__name__)
    if isinstance(given, type) or not hasattr(given, "get_params") or not is_classifier(given):
        raise InputError(
            f"methods: {name!r} ({kind}) is not a scikit-learn classifier, such as ExtraTreesClassifier()."
        )
    if not hasattr(given, "predict_proba"):
        raise InputError(
            f"methods: {name!r} ({kind}) gives no probabilities. Wrap it: sklearn.calibration.CalibratedClassifierCV."
        )
    whole = [given, *given.get_params().values()]
    if any(isinstance(one, FrozenEstimator) and is_classifier(one) for one in whole):
        raise InputError(
            f"methods: {name!r} holds a FrozenEstimator that is fitted already, perhaps on the rows that test it. "
            "Give a classifier that can be fitted on each split."
        )
    return Method(
        label=name, build=partial(_built, given), space={}, prior=_prior(name, given), reference=_shown(given)
    )


def _prior(name: str, given: Any) -> Prior:
    """The class prior that probabilities of the user's own classifier assume; refused where that is not certain."""
    found = {*_priors(given)}
    if len(found) == 1 and (prior := found.pop()) is not None:
        return prior
    raise InputError(
        f"methods: {name!r} weighs or resamples classes, so it is not certain which class frequencies its "
        "probabilities assume, equal ones or those of training. Say so: "
        "Method(label=..., build=lambda parameters, seed: ..., prior='balanced' or 'training')."
    )


def _priors(model: Any) -> Iterator[Prior | None]:
    """What each classifier whose probabilities a model gives, or averages, assumes; ``None`` where it is unknown."""
    options = model.get_params(deep=False)
    if isinstance(model, Pipeline):
        samplers = [step for _, step in model.steps[:-1] if hasattr(step, "fit_resample")]
        if not samplers:
            yield from _priors(model.steps[-1][1])
        else:
            yield "balanced" if all(map(_balances, samplers)) else None
    elif isinstance(model, ClassProbabilities):
        named = isinstance(model.class_prior, str)
        yield None if not named else "training" if model.class_prior == "training" else "balanced"
    elif isinstance(model, CalibratedClassifierCV | StackingClassifier):
        yield "training"  # whatever they are made of, the last step has seen the rows as they are
    elif "sampling_strategy" in options:  # ensembles of imbalanced-learn
        yield "balanced" if _balances(model) else None
    elif isinstance(model, VotingClassifier):
        for _, one in model.estimators:
            yield from _priors(one)
    elif isinstance(model, BaseSearchCV):
        tried = options.get("param_grid", options.get("param_distributions"))
        grids = [tried] if isinstance(tried, Mapping) else tried
        names = {path.rpartition("__")[2] for grid in grids for path in grid}
        if names & {"class_weight", "class_prior", "sampling_strategy"}:
            yield None
        else:
            yield from _priors(model.estimator)
    elif "class_weight" in options:
        weight = options["class_weight"]
        yield "training" if weight is None else "balanced" if str(weight).startswith("balanced") else None
    elif hasattr(options.get("estimator"), "get_params"):  # bagging, boosting, thresholds
        yield from _priors(options["estimator"])
    else:
        yield "training"


def _balances(sampler: Any) -> bool:
    """Whether what a sampler leaves has equally many rows of each class."""
    equal = getattr(sampler, "sampling_strategy", None) in ("auto", "all", "not majority", "not minority")
    return equal and getattr(sampler, "_sampling_type", None) != "clean-sampling"


def _built(given: Any, parameters: Parameters, seed: int) -> Any:
    """A copy with seeds where none were set; what is neither a pipeline nor ours reads a table as numbers."""
    model = clone(given)
    options = model.get_params()
    unset = [path for path in options if path.rpartition("__")[2] == "random_state" and options[path] is None]
    model.set_params(**dict.fromkeys(unset, seed))
    return model if isinstance(model, Pipeline | FitBase) else make_pipeline(TableReader(), model)


def _shown(estimator: Any) -> str:
    """An estimator with all that was set, the same in every process: no addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(estimator.__repr__(N_CHAR_MAX=10**6).split()))
