"""When an option acts: one table for each estimator. An option that was set and would do nothing is refused.

``epochs`` and ``encoder_epochs`` are limits, which a fit without steps keeps as well; ``device``, ``verbose`` and
``random_state`` say how and not what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ecrt.errors import InputError
from ecrt.estimators.baseline_encoding import is_end_to_end
from ecrt.estimators.baseline_methods import BASELINE_METHODS
from ecrt.estimators.options import fits_linear_head_at_once, set_by_user, trains_encoder
from ecrt.nn import AutoEncoder

__all__ = ["RULES", "Rule", "idle_options", "refuse_borrowing", "refuse_idle", "set_options"]


@dataclass(frozen=True)
class Rule:
    """Options that act under one condition.

    Attributes
    ----------
    options : their names, with blanks between.
    acts : of the estimator, and of whether rows have several labels (``None`` if that is not known).
    needs : what has to be so, in words.
    """

    options: str
    acts: Callable[[Any, bool | None], bool]
    needs: str


def _supervised(clf: Any) -> bool:
    """Whether an encoder learns to tell classes."""
    return trains_encoder(clf) and clf.encoder != "autoencoder" and not isinstance(clf.encoder, AutoEncoder)


def _flow(clf: Any) -> bool:
    return bool(clf.demixing in ("auto", "flow"))


def _heads(clf: Any) -> set[str]:
    """Heads that may be chosen."""
    if not isinstance(clf.head, str):
        return set(clf.head)
    return {"linear", "mlp", "gaussian"} if clf.head == "auto" else {clf.head}


def _learns_weights(clf: Any) -> bool:
    """Whether a head may be chosen that is trained: the Gaussian one is made of moments."""
    return _heads(clf) != {"gaussian"}


def _by_steps(clf: Any) -> bool:
    """Whether a head may be chosen that is trained by steps."""
    return "mlp" in _heads(clf) or ("linear" in _heads(clf) and not fits_linear_head_at_once(clf))


def _tree(clf: Any) -> bool:
    return clf.method in ("gradient-boosting", "balanced-forest")


def _has_own_head(clf: Any) -> bool:
    """Whether a rival fits a head of ours on features."""
    return BASELINE_METHODS[clf.method].kind != "model" and not is_end_to_end(clf)


def _rival_by_steps(clf: Any) -> bool:
    method = BASELINE_METHODS[clf.method]
    by_steps = clf.head == "mlp" or method.kind == "risk" or (clf.loss or method.loss) == "hinge"
    return _has_own_head(clf) and by_steps


ENCODER_RULES = (
    Rule(
        "encoder_holdout encoder_options", lambda clf, _: trains_encoder(clf),
        "an encoder that is trained",
    ),
    Rule(
        "n_features",
        lambda clf, _: not isinstance(clf.encoder, nn.Module) and clf.encoder != "identity",
        "an encoder that is made here: 'mlp', 'resnet18' or 'autoencoder'",
    ),
)  # fmt: skip

ECRT_RULES = (
    *ENCODER_RULES,
    Rule("encode_on", lambda clf, _: trains_encoder(clf), "an encoder that is trained"),
    Rule("encoder_loss", lambda clf, _: _supervised(clf), "an encoder that is trained to tell classes"),
    Rule(
        "label_marginal critic critic_width likelihood_weight n_restarts flow_blocks flow_hidden",
        lambda clf, _: _flow(clf),
        "demixing='flow' or 'auto'",
    ),
    Rule(
        "objective",
        lambda clf, _: _flow(clf) and (clf.objective != "infonce" or clf.label_marginal == "batch"),
        "demixing='flow' or 'auto', and 'infonce' also label_marginal='batch': with exact marginals it is 'fdv'",
    ),
    Rule("n_sources", lambda clf, _: clf.demixing != "none", "demixing other than 'none'"),
    Rule(
        "rotation",
        lambda clf, _: clf.demixing in ("auto", "linear") and (clf.n_sources is None or clf.rotation == "discriminant"),
        "demixing='linear' or 'auto' (a flow has axes of its own), and 'joint' also n_sources=None (fewer sources than "
        "features are discriminant axes)",
    ),
)
"""Of the options that every ECRT estimator has."""

RULES: dict[str, tuple[Rule, ...]] = {
    "ECRTClassifier": (
        *ECRT_RULES,
        Rule("batch_size", lambda clf, _: _flow(clf) or trains_encoder(clf), "a flow or an encoder that is trained"),
        Rule(
            "learning_rate", lambda clf, _: _flow(clf) or _by_steps(clf), "a flow, or a head that is trained by steps"
        ),
        Rule(
            "mixup",
            lambda clf, _: _supervised(clf) if trains_encoder(clf) else _learns_weights(clf),
            "an encoder that is trained to tell classes or, without an encoder to train, a linear or MLP head",
        ),
        Rule(
            "augmentation",
            lambda clf, several: not (several and clf.augmentation == "borrowed"),
            "one label a row: it is the residuals of other classes that are borrowed",
        ),
        Rule(
            "augmentation_weight",
            lambda clf, _: clf.augmentation_weight == 0 or _learns_weights(clf),
            "a linear or MLP head: the Gaussian one learns from real rows alone",
        ),
        Rule(
            "n_synthetic",
            lambda clf, _: clf.augmentation_weight > 0 and _learns_weights(clf),
            "augmentation_weight above 0, and a linear or MLP head",
        ),
        Rule(
            "mean_shrinkage",
            lambda clf, several: clf.augmentation != "permutation" and not several,
            "one label a row, and augmentation='parametric' or 'borrowed', which draw around a mean",
        ),
        Rule(
            "class_mass head_loss head_loss_options weight_decay",
            lambda clf, _: _learns_weights(clf),
            "a linear or MLP head",
        ),
        Rule("head_hidden head_dropout", lambda clf, _: "mlp" in _heads(clf), "head='mlp' or 'auto'"),
        Rule("thresholds", lambda clf, several: several is not False, "rows with several labels"),
        Rule("selection_trials", lambda clf, _: clf.selection is not None, "selection"),
        Rule(
            "selection_budget",
            lambda clf, _: clf.selection is not None and clf.selection_trials is None,
            "selection, and no selection_trials, which take its place",
        ),
    ),
    "ECRTRegressor": (
        *ECRT_RULES,
        Rule("batch_size", lambda clf, _: _flow(clf) or trains_encoder(clf), "a flow or an encoder that is trained"),
        Rule("learning_rate", lambda clf, _: _flow(clf) or "mlp" in _heads(clf), "a flow or an MLP head"),
        Rule("mixup", lambda clf, _: _supervised(clf), "an encoder that is trained to tell bins"),
        Rule(
            "pseudo_samples",
            lambda clf, _: clf.source_prior == "per-class" or (_flow(clf) and clf.critic == "gaussian"),
            "source_prior='per-class', or a flow with critic='gaussian'",
        ),
        Rule("huber_delta", lambda clf, _: clf.loss == "huber", "loss='huber'"),
        Rule("head_hidden", lambda clf, _: "mlp" in _heads(clf), "head='mlp' or 'auto'"),
        Rule("weight_decay", lambda clf, _: "linear" in _heads(clf), "head='linear' or 'auto'"),
        Rule(
            "weighted", lambda clf, _: clf.demixing != "none" or clf.weighted is False, "demixing other than 'none'"
        ),
        Rule(
            "augmentation_weight n_synthetic", lambda clf, _: clf.augmentation == "donors", "augmentation='donors'"
        ),
    ),
    "ECRTTransformer": (
        *ECRT_RULES,
        Rule("batch_size", lambda clf, _: _flow(clf) or trains_encoder(clf), "a flow or an encoder that is trained"),
        Rule("learning_rate validation_fraction", lambda clf, _: _flow(clf), "demixing='flow'"),
        Rule("mixup", lambda clf, _: _supervised(clf), "an encoder that is trained to tell classes"),
        Rule(
            "pseudo_samples",
            lambda clf, _: clf.source_prior == "per-class" or (_flow(clf) and clf.critic == "gaussian"),
            "source_prior='per-class', or a flow with critic='gaussian'",
        ),
    ),
    "BaselineClassifier": (
        *ENCODER_RULES,
        Rule("batch_size", lambda clf, _: trains_encoder(clf), "an encoder that is trained"),
        Rule("head", lambda clf, _: _has_own_head(clf), "a method that is no model of its own, and no trained encoder"),
        Rule("weight_decay validation_fraction", lambda clf, _: _has_own_head(clf), "a method that fits a head"),
        Rule("head_hidden head_dropout", lambda clf, _: _has_own_head(clf) and clf.head == "mlp", "head='mlp'"),
        Rule(
            "learning_rate",
            lambda clf, _: _rival_by_steps(clf),
            "head='mlp', or a method that trains a linear head by steps",
        ),
        Rule(
            "scaling",
            lambda clf, _: not (is_end_to_end(clf) or _tree(clf)),
            "a method that depends on it: neither trees nor an encoder's own head do",
        ),
    ),
}  # fmt: skip
"""By the name of the estimator; options that are not named always act."""


def idle_options(estimator: Any, several: bool | None = None) -> dict[str, str]:
    """Options that were set away from their defaults and have no effect, with what they need.

    ``several`` : whether rows have several labels; ``None`` if that is not known.
    """
    given = set_by_user(estimator)
    rules = next(RULES[kind.__name__] for kind in type(estimator).__mro__ if kind.__name__ in RULES)
    return {
        name: rule.needs
        for rule in rules
        for name in rule.options.split()
        if name in given and not rule.acts(estimator, several)
    }


def refuse_idle(estimator: Any, several: bool | None = None) -> None:
    """Raise an error if an option was set that has no effect with the others."""
    for name, needs in idle_options(estimator, several).items():
        value, default = getattr(estimator, name), getattr(type(estimator)(), name)
        raise InputError(
            f"{name}={value!r} would have no effect: it needs {needs}. Leave {name} at its default, {default!r}."
        )


def refuse_borrowing(clf: Any, lenders: NDArray[np.int64]) -> None:
    """Raise an error if residuals are to be borrowed and no class can lend any; ``lenders`` are counts of such classes.

    The one rule that depends on the data: who is minority is known in the fit alone.
    """
    if clf.augmentation == "borrowed" and lenders.max(initial=0) < 2:
        raise InputError(
            "augmentation='borrowed' would have no effect: all classes are augmented, so that none has residuals to "
            "lend. Use augmentation='parametric', or name fewer classes in minority."
        )


def set_options(estimator: Any, **options: Any) -> Any:
    """Set options, and put those that then have no effect back to their defaults: for choices made by program."""
    estimator.set_params(**options)
    defaults = type(estimator)()
    return estimator.set_params(**{name: getattr(defaults, name) for name in idle_options(estimator)})
