"""Options of the estimators: what they may be, and which settings of the stages they stand for."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn
from torch.utils.data import Dataset

from ecrt.errors import InputError
from ecrt.losses import LOSS_OPTIONS, LossName
from ecrt.nn import AutoEncoder, make_encoder
from ecrt.stages import AugmentConfig, DemixConfig, EncodeConfig, HeadConfig
from ecrt.training import TrainingConfig

__all__ = [
    "BASE_CONSTRAINTS",
    "CLASSIFIER_CONSTRAINTS",
    "ESTIMATOR_CONSTRAINTS",
    "LOSSES",
    "MINORITY_CONSTRAINT",
    "demix_configs",
    "encode_config",
    "fits_linear_head_at_once",
    "head_config",
    "head_network",
    "log_class_prior",
    "new_encoder",
    "set_by_user",
    "trains_encoder",
    "whole_numbers",
]

Array = NDArray[np.float64]

FLOW_SOURCES = 64
"""``demixing="auto"`` tries a flow on at most this many sources: beyond, linear de-mixing has always been ahead."""

FLOW_ROWS = 500
"""... and on at least this many rows."""

FEW_SOURCES = 8
"""Up to this many sources a second restart and a wider critic cost little and pay."""

MLP_SOURCES = 128
"""``head="auto"`` tries an MLP on at most this many sources: longer vectors are embeddings, to be read linearly."""

MANY_ROWS = 50_000
"""With more rows than this a head for several labels is a wide MLP: a linear one cannot use them."""

LOSSES = StrOptions(set(LOSS_OPTIONS))

ESTIMATOR_CONSTRAINTS: dict[str, list[Any]] = {
    "encoder": [StrOptions({"identity", "mlp", "resnet18", "autoencoder"}), nn.Module],
    "train_encoder": ["boolean"],
    "encoder_holdout": [Interval(Real, 0, 1, closed="neither")],
    "encoder_epochs": [Interval(Integral, 1, None, closed="left")],
    "encoder_options": [None, dict],
    "n_features": [Interval(Integral, 1, None, closed="left")],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "epochs": [Interval(Integral, 1, None, closed="left")],
    "batch_size": [Interval(Integral, 2, None, closed="left")],
    "learning_rate": [Interval(Real, 0, None, closed="neither")],
    "device": [str],
    "verbose": ["verbose"],
    "random_state": ["random_state"],
}
"""What the options of ``EstimatorBase`` may be."""

BASE_CONSTRAINTS: dict[str, list[Any]] = ESTIMATOR_CONSTRAINTS | {
    "encode_on": [StrOptions({"majority", "all"})],
    "demix_on": [StrOptions({"majority", "all"})],
    "encoder_loss": [LOSSES],
    "mixup": [Interval(Real, 0, 1e6, closed="both")],
    "demixing": [StrOptions({"auto", "none", "linear", "flow"})],
    "n_sources": [None, Interval(Integral, 1, None, closed="left")],
    "rotation": [StrOptions({"symmetric", "discriminant", "joint"})],
    "objective": [StrOptions({"fdv", "gcl", "infonce"})],
    "label_marginal": [StrOptions({"auto", "exact", "batch"})],
    "critic": [StrOptions({"additive", "cosine", "gaussian", "label-network"})],
    "critic_width": [None, Interval(Integral, 1, None, closed="left")],
    "likelihood_weight": [Interval(Real, 0, None, closed="left")],
    "source_prior": [StrOptions({"per-class", "shared"})],
    "n_restarts": [None, Interval(Integral, 1, None, closed="left")],
    "flow_blocks": [Interval(Integral, 1, None, closed="left"), "array-like"],
    "flow_hidden": ["array-like"],
    "pseudo_samples": [Interval(Real, 0, None, closed="neither")],
    "precision": [StrOptions({"float64", "float32"})],
}
"""What the options of ``ECRTBase`` may be."""

MINORITY_CONSTRAINT: dict[str, list[Any]] = {
    "minority": [StrOptions({"auto", "all"}), Interval(Integral, 1, None, closed="left"), "array-like", callable],
}

CLASSIFIER_CONSTRAINTS: dict[str, list[Any]] = (
    BASE_CONSTRAINTS
    | MINORITY_CONSTRAINT
    | {
        "augmentation": [StrOptions({"parametric", "permutation", "borrowed"})],
        "augmentation_weight": [Interval(Real, 0, 1, closed="both")],
        "n_synthetic": [None, Interval(Integral, 1, 10**7, closed="both")],
        "mean_shrinkage": [Interval(Real, 0, None, closed="left")],
        "head": [StrOptions({"auto", "linear", "mlp", "gaussian"}), "array-like"],
        "class_mass": [StrOptions({"training", "tempered", "balanced"})],
        "head_loss": [LOSSES],
        "head_loss_options": [None, dict],
        "head_hidden": [None, "array-like"],
        "head_dropout": [None, Interval(Real, 0, 1, closed="left")],
        "weight_decay": [None, Interval(Real, 0, None, closed="left")],
        "class_prior": [StrOptions({"balanced", "training"}), "array-like"],
        "thresholds": [StrOptions({"half", "validation"})],
        "selection": [StrOptions({"pseudo-minority"}), None],
        "selection_trials": [None, Interval(Integral, 4, None, closed="left")],
        "selection_budget": [Interval(Real, 0, None, closed="neither")],
    }
)


def set_by_user(estimator: Any) -> set[str]:
    """Options that are not at their defaults."""
    defaults = type(estimator)().get_params(deep=False)
    given = estimator.get_params(deep=False)
    return {name for name, value in given.items() if _differs(value, defaults[name])}


def _differs(value: Any, default: Any) -> bool:
    try:
        return bool(value != default)
    except ValueError:  # arrays
        return True


def new_encoder(clf: Any, items: Dataset[Any]) -> nn.Module:
    """The encoder to train or use: a copy of the module given, or one made by name for such items."""
    if isinstance(clf.encoder, nn.Module):
        return copy.deepcopy(clf.encoder)
    return make_encoder(clf.encoder, tuple(items[0][0].shape), n_features=clf.n_features)


ENCODER_OPTIONS = ("crop_padding", "flip", "head", "loss_options", "mixup_off", "precision")
ENCODER_TRAINING_OPTIONS = ("gradient_norm", "learning_rate", "momentum", "optimizer", "patience", "weight_decay")


def encode_config(
    clf: Any, *, loss: LossName, loss_options: Mapping[str, float] | None = None, **more: float
) -> EncodeConfig:
    """How the encoder is trained; ``more`` goes before what ``encoder_options`` says."""
    given = dict(clf.encoder_options or {})
    unknown = sorted(set(given) - {*ENCODER_OPTIONS, *ENCODER_TRAINING_OPTIONS})
    if unknown:
        known = ", ".join((*ENCODER_OPTIONS, *ENCODER_TRAINING_OPTIONS))
        raise InputError(f"encoder_options has no {unknown[0]!r}: it may have {known}.")
    _refuse_idle_encoder_options(clf, given, mixup=bool(more.get("mixup")))
    _check_encoder_numbers(given)
    training = {name: given.pop(name) for name in ENCODER_TRAINING_OPTIONS if name in given}
    if loss_options:
        given["loss_options"] = {**given.get("loss_options", {}), **loss_options}
    if given.get("head") == "cosine" and loss in ("ldam", "ldam-drw"):
        given["loss_options"] = {"scale": 30.0, **given.get("loss_options", {})}  # margins in the head's own units
    return EncodeConfig(
        trained=clf.train_encoder,
        loss=loss,
        holdout=clf.encoder_holdout,
        training=TrainingConfig(
            **{
                "epochs": clf.encoder_epochs,
                "batch_size": clf.batch_size,
                "learning_rate": 1e-3,
                "weight_decay": 1e-4,
                **training,
            }
        ),
        **{**more, **given},
    )


def _refuse_idle_encoder_options(clf: Any, given: Mapping[str, Any], *, mixup: bool) -> None:
    """Raise an error if one of ``encoder_options`` has no effect with the others."""
    reconstructs = clf.encoder == "autoencoder" or isinstance(clf.encoder, AutoEncoder)
    idle = {
        "head": reconstructs and "an encoder that learns to tell classes",
        "loss_options": reconstructs and "an encoder that learns to tell classes",
        "mixup_off": not mixup and "mixup",
        "momentum": given.get("optimizer", "adamw") != "sgd" and "optimizer='sgd'",
        "patience": clf.encoder_holdout == 0 and "rows that the encoder does not see: encoder_holdout above 0",
    }
    for name, needs in idle.items():
        if name in given and needs:
            raise InputError(f"encoder_options: {name}={given[name]!r} would have no effect: it needs {needs}.")


def _check_encoder_numbers(given: Mapping[str, Any]) -> None:
    """Raise an error if a number among ``encoder_options`` is none, or one that nothing could be trained with."""
    bounds = {
        "gradient_norm": Interval(Real, 0, None, closed="neither"),
        "learning_rate": Interval(Real, 0, None, closed="neither"),
        "momentum": Interval(Real, 0, 1, closed="left"),
        "patience": Interval(Integral, 1, None, closed="left"),
        "weight_decay": Interval(Real, 0, None, closed="left"),
    }
    for name, allowed in bounds.items():
        if name in given and not allowed.is_satisfied_by(given[name]):
            raise InputError(f"encoder_options: {name} must be {allowed}, got {given[name]!r}.")


def whole_numbers(name: str, given: Any, *, least: int = 0) -> tuple[int, ...]:
    """Whole numbers from 1 on, at least so many of them, of an option that takes one or several."""
    found = np.atleast_1d(np.asarray(given)).tolist()
    if len(found) < least or not all(isinstance(one, int) and one >= 1 for one in found):
        wanted = "whole numbers from 1 on" + (", one at least" if least else "")
        raise InputError(f"{name} must hold {wanted}; got {given!r}.")
    return tuple(found)


def trains_encoder(clf: Any) -> bool:
    """Whether there is an encoder with anything to learn."""
    if isinstance(clf.encoder, nn.Module):
        return bool(clf.train_encoder and any(p.requires_grad for p in clf.encoder.parameters()))
    return bool(clf.train_encoder and clf.encoder != "identity")


def _head_risk(clf: Any) -> dict[str, Any]:
    """Mixup acts on the encoder's input where one is trained, else on the head's."""
    if clf.mixup == 0 or trains_encoder(clf):
        return {}
    return {"risk": "mixup", "risk_options": {"alpha": clf.mixup}}


def fits_linear_head_at_once(clf: Any) -> bool:
    """Whether a linear head is fitted by L-BFGS, under a weight decay to choose, and not by steps."""
    return not _head_risk(clf) and clf.head_loss != "hinge"


def demix_configs(clf: Any, n_rows: int, n_features: int) -> list[DemixConfig]:
    """Ways of de-mixing to try, the simplest first."""
    n_sources = n_features if clf.n_sources is None else min(clf.n_sources, n_features)
    methods: list[Literal["none", "linear", "flow"]] = ["linear", "flow"] if clf.demixing == "auto" else [clf.demixing]
    if clf.demixing == "auto" and (n_sources > FLOW_SOURCES or n_rows < FLOW_ROWS):
        methods = ["linear"]
    return [
        DemixConfig(
            method=method,
            n_sources=clf.n_sources,
            rotation=clf.rotation,
            objective=clf.objective,
            label_marginal=clf.label_marginal,
            critic=clf.critic,
            critic_width=clf.critic_width or (64 if n_sources <= FEW_SOURCES else 32),
            likelihood_weight=clf.likelihood_weight,
            source_prior=clf.source_prior,
            pseudo_samples=clf.pseudo_samples,
            n_restarts=clf.n_restarts or (2 if n_sources <= FEW_SOURCES else 1),
            n_blocks=whole_numbers("flow_blocks", clf.flow_blocks, least=1),
            hidden=whole_numbers("flow_hidden", clf.flow_hidden),
            training=TrainingConfig(epochs=clf.epochs, batch_size=clf.batch_size, learning_rate=clf.learning_rate),
        )
        for method in methods
    ]


def head_config(clf: Any, n_rows: int, n_features: int) -> HeadConfig:
    """Heads to try, under which risk."""
    n_sources = n_features if clf.n_sources is None else min(clf.n_sources, n_features)
    if isinstance(clf.head, str) and clf.head == "auto":
        heads: tuple[Any, ...] = ("linear", "gaussian", "mlp") if n_sources <= MLP_SOURCES else ("linear", "gaussian")
    else:
        heads = (clf.head,) if isinstance(clf.head, str) else tuple(clf.head)
    return HeadConfig(
        heads=heads,
        mass=clf.class_mass,
        loss=clf.head_loss,
        loss_options=clf.head_loss_options or {},
        **_head_risk(clf),
        weight_decay=clf.weight_decay,
        augmentation=AugmentConfig(
            kind=clf.augmentation,
            weight=clf.augmentation_weight,
            n_synthetic=clf.n_synthetic,
            pseudo_samples=clf.pseudo_samples,
            mean_shrinkage=clf.mean_shrinkage,
        ),
        **head_network(clf, n_rows),
    )


def head_network(clf: Any, n_rows: int) -> dict[str, Any]:
    """Layers of a head that is trained by steps, and its training."""
    return {
        "hidden": (256,) if clf.head_hidden is None else whole_numbers("head_hidden", clf.head_hidden),
        "dropout": 0.1 if clf.head_dropout is None else clf.head_dropout,
        "training": TrainingConfig(
            epochs=clf.epochs,
            batch_size=256 if n_rows <= 8192 else 512,  # few rows need the steps, many make them costly
            learning_rate=4 * clf.learning_rate,  # held-out loss is lower than at the flow's rate, and sooner
            weight_decay=1e-2 if clf.weight_decay is None else clf.weight_decay,
        ),
    }


def label_head_config(clf: Any, n_rows: int, n_features: int) -> HeadConfig:
    """Heads to try where a row may have several labels; with many rows a wide network, well regularised."""
    config = head_config(clf, n_rows, n_features)
    many = n_rows > MANY_ROWS
    if isinstance(clf.head, str) and clf.head == "auto":
        config = replace(config, heads=("mlp",) if many else ("linear", "mlp"))
    if many:
        training = replace(config.training, batch_size=1024)
        config = replace(
            config,
            hidden=(1024,) if clf.head_hidden is None else config.hidden,
            dropout=0.5 if clf.head_dropout is None else config.dropout,
            training=training,
        )
    return config


def log_class_prior(clf: Any) -> Array:
    """Log of the prior that predictions assume, one entry for each class; log-odds where rows have several labels."""
    if isinstance(clf.class_prior, str) and clf.class_prior not in ("balanced", "training"):  # set after fit
        raise InputError(f"class_prior={clf.class_prior!r}: use 'balanced', 'training' or a number for each class.")
    if clf.multilabel_:
        return _label_log_odds(clf)
    if isinstance(clf.class_prior, str):
        balanced = clf.class_prior == "balanced"
        return np.zeros(len(clf.classes_)) if balanced else np.log(clf.class_counts_ / clf.class_counts_.sum())
    prior = np.asarray(clf.class_prior, dtype=np.float64)
    if prior.shape != clf.classes_.shape or not (np.isfinite(prior).all() and (prior > 0).all()):
        raise InputError(
            f"class_prior must hold one positive number for each of the {len(clf.classes_)} classes "
            f"{clf.classes_.tolist()}; got {clf.class_prior!r}."
        )
    return np.asarray(np.log(prior / prior.sum()))


def _label_log_odds(clf: Any) -> Array:
    """Log-odds of each label's frequency where predictions are made."""
    if isinstance(clf.class_prior, str):
        return np.asarray(clf.label_log_odds_[1 if clf.class_prior == "balanced" else 0])
    prior = np.asarray(clf.class_prior, dtype=np.float64)
    if prior.shape != clf.classes_.shape or not ((prior > 0) & (prior < 1)).all():
        raise InputError(
            f"class_prior must hold a frequency between 0 and 1 for each of the {len(clf.classes_)} labels; got "
            f"{clf.class_prior!r}."
        )
    return np.asarray(np.log(prior) - np.log1p(-prior))
