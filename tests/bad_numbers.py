"""Tables of bad numbers, and estimators that must bear them: a finite answer or an ``InputError``, and nothing else."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    ECRTWarning,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    MLPHead,
)
from ecrt.rivals import known_rivals

QUICK = {"head": ["linear", "gaussian", MLPHead(epochs=2)], "random_state": 0}
LINEAR = {"demixing": "linear", "head": LinearHead(weight_decay=1e-3), "random_state": 0}
FLOW = {"demixing": Flow(critic_width=4, n_restarts=1, hidden=(8,))}
METHOD_OPTIONS = {
    "cgan": {"n_steps": 5, "width": 4},
    "flow-augmentation": {"demixing": "linear"},
    "gradient-boosting": {"max_iter": 3, "min_samples_leaf": 2},
    "balanced-forest": {"n_estimators": 3},
}

Maker = Callable[[], Any]


def makers() -> dict[str, Maker]:
    """Estimators by name, each with little to do."""
    found: dict[str, Maker] = {
        "linear": lambda: ECRTClassifier(**LINEAR),
        "linear, float32": lambda: ECRTClassifier(
            demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0, precision="float32"
        ),
        "default": lambda: ECRTClassifier(**QUICK),
        "none": lambda: ECRTClassifier(demixing="none", head=LinearHead(weight_decay=1e-3), random_state=0),
        "two sources": lambda: ECRTClassifier(
            demixing=Linear(n_sources=2), head=LinearHead(weight_decay=1e-3), random_state=0
        ),
        "discriminant": lambda: ECRTClassifier(
            demixing=Linear(rotation="discriminant"), head=LinearHead(weight_decay=1e-3), random_state=0
        ),
        "Gaussian head": lambda: ECRTClassifier(demixing="linear", head="gaussian", random_state=0),
        "Gaussian head, float32": lambda: ECRTClassifier(
            demixing="linear", head="gaussian", random_state=0, precision="float32"
        ),
        "MLP head": lambda: ECRTClassifier(
            demixing="linear", head=MLPHead(hidden=(8,), weight_decay=1e-3, epochs=2), random_state=0
        ),
        "flow": lambda: ECRTClassifier(**LINEAR | FLOW),
        "flow, float32": lambda: ECRTClassifier(
            demixing=Flow(critic_width=4, n_restarts=1, hidden=(8,), epochs=2),
            head=LinearHead(weight_decay=1e-3),
            random_state=0,
            precision="float32",
        ),
        "MLP encoder": lambda: ECRTClassifier(
            encoder=Encoder("mlp", epochs=2, n_features=3, batch_size=16),
            demixing="linear",
            head=LinearHead(weight_decay=1e-3),
            random_state=0,
        ),
        "MLP encoder, float32": lambda: ECRTClassifier(
            encoder=Encoder("mlp", epochs=2, n_features=3, batch_size=16),
            demixing="linear",
            head=LinearHead(weight_decay=1e-3),
            random_state=0,
            precision="float32",
        ),
        "autoencoder": lambda: ECRTClassifier(
            encoder=Encoder("autoencoder", epochs=2, n_features=3, batch_size=16),
            demixing="linear",
            head=LinearHead(weight_decay=1e-3),
            random_state=0,
        ),
        "regressor": lambda: ECRTRegressor(demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0),
        "regressor, default, float32": lambda: ECRTRegressor(
            head=["linear", MLPHead(hidden=(8,), epochs=2)], precision="float32", random_state=0
        ),
        "transformer": lambda: ECRTTransformer(random_state=0),
        "transformer, flow": lambda: ECRTTransformer(
            demixing=Flow(critic_width=4, n_restarts=1, hidden=(8,), epochs=2), random_state=0
        ),
        "rival, MLP encoder": lambda: BaselineClassifier(
            encoder=Encoder("mlp", epochs=2, n_features=3, batch_size=16), random_state=0
        ),
        "rival, one spread": lambda: BaselineClassifier(
            head=LinearHead(weight_decay=1e-3), scaling="one", random_state=0
        ),
    }
    for name, kind in known_rivals().items():
        rival = kind(**METHOD_OPTIONS.get(name, {}))
        own = {} if rival.overrides("fit_model") else {"head": LinearHead(epochs=2, weight_decay=1e-3)}
        found[f"rival, {name}"] = lambda rival=rival, own=own: BaselineClassifier(method=rival, **own, random_state=0)
    return found


def _one(X: np.ndarray, rng: np.random.Generator, value: float) -> np.ndarray:
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
    return X


def _column(X: np.ndarray, value: Any) -> np.ndarray:
    X[:, 0] = value
    return X


def _border(X: np.ndarray, rng: np.random.Generator, base: float, other: float) -> np.ndarray:
    X[:, 1] = base
    X[rng.integers(len(X)), 1] = other
    return X


KINDS: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "times 1e150": lambda X, rng: X * 1e150,
    "times 1e154": lambda X, rng: X * 1e154,
    "times 1e99": lambda X, rng: X * 1e99,
    "times 1e36": lambda X, rng: X * 1e36,
    "times 1e-8": lambda X, rng: X * 1e-8,
    "times 1e-160": lambda X, rng: X * 1e-160,
    "times 1e-300": lambda X, rng: X * 1e-300,
    "denormal": lambda X, rng: X * 1e-320,
    "mixed scales": lambda X, rng: X * 10.0 ** rng.integers(-300, 99, X.shape[1]),
    "mixed scales of rows": lambda X, rng: X * 10.0 ** rng.integers(-90, 90, (len(X), 1)),
    "mixed scales of cells": lambda X, rng: X * 10.0 ** rng.integers(-90, 90, X.shape),
    "plus 1e10": lambda X, rng: X + 1e10,
    "plus 1e16": lambda X, rng: X + 1e16,
    "constant": lambda X, rng: np.full_like(X, 0.1),
    "zero": lambda X, rng: np.zeros_like(X),
    "one constant column": lambda X, rng: _column(X, 1e30),
    "nearly constant": lambda X, rng: 1 + X * 1e-15,
    "border pixel": lambda X, rng: _border(X, rng, 0.0, 1e-9),
    "border pixel of 255": lambda X, rng: _border(X, rng, 255.0, 254.0),
    "border pixel, huge": lambda X, rng: _border(X, rng, 0.0, 1e90),
    "copies of columns": lambda X, rng: np.repeat(X[:, :1], X.shape[1], axis=1),
    "copies in other units": lambda X, rng: X[:, :1] * 10.0 ** np.arange(X.shape[1]),
    "copies of rows": lambda X, rng: np.repeat(X[:1], len(X), axis=0) + (np.arange(len(X)) < 2)[:, None],
    "rank one": lambda X, rng: np.outer(X[:, 0], X[0]),
    "infinity": lambda X, rng: _one(X, rng, np.inf),
    "minus infinity": lambda X, rng: _one(X, rng, -np.inf),
    "one gap": lambda X, rng: _one(X, rng, np.nan),
    "column of gaps": lambda X, rng: _column(X, np.nan),
    "all gaps": lambda X, rng: np.full_like(X, np.nan),
    "one cell of 1e200": lambda X, rng: _one(X, rng, 1e200),
    "one cell of 1e308": lambda X, rng: _one(X, rng, -1.7e308),
    "one cell of 1e99": lambda X, rng: _one(X, rng, 1e99),
    "one cell of 1e20": lambda X, rng: _one(X, rng, 1e20),
    "one cell of 1e-300": lambda X, rng: _one(X, rng, 1e-300),
    "float16 extremes": lambda X, rng: rng.choice([-65504, 6e-8, 0, 65504], X.shape).astype(np.float16),
    "float32 extremes": lambda X, rng: rng.choice([-3.4e38, 1.4e-45, 0, 3.4e38], X.shape).astype(np.float32),
    "float64 extremes": lambda X, rng: rng.choice([-1.7e308, 5e-324, 0, 1.7e308], X.shape),
    "float32, times 1e36": lambda X, rng: (X * 1e36).astype(np.float32),
    "whole numbers beyond 2**53": lambda X, rng: (2**60 + 1000 * X).astype(np.int64),
    "unsigned extremes": lambda X, rng: rng.choice(np.array([0, 2**64 - 1], np.uint64), X.shape),
    "truth values": lambda X, rng: X > 0,
    "sparse counts": lambda X, rng: (rng.random(X.shape) < 0.05) * rng.integers(1, 1000, X.shape),
    "Cauchy": lambda X, rng: rng.standard_cauchy(X.shape),
    "exponential of Cauchy": lambda X, rng: np.exp(np.clip(rng.standard_cauchy(X.shape), -700, 200)),
    "plain": lambda X, rng: X,
}  # fmt: skip


def table(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Bad numbers of a kind with labels; sizes differ, from two rows to many columns, with classes of one row."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    n = int(rng.choice([2, 6, 12, 20, 30, 30, 30, 30]))
    d = int(rng.choice([2, 3, 3, 4, 3 * n]))
    y = rng.integers(0, 2 if n < 6 else 3, n)
    y[:2] = 0, 1
    if n > 5 and rng.random() < 0.3:
        y[y == 2] = 1
        y[-1] = 2
    X = rng.normal(size=(n, d)) + y[:, None]
    with np.errstate(all="ignore"):
        return KINDS[kind](X, rng), y


@dataclass
class Found:
    """How often each outcome came, and what came that should not."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def try_one(name: str, make: Maker, kind: str, seed: int, good: dict[int, Any], found: Found) -> None:
    """Fit and predict on a table of a kind, and predict on it by a model that was fitted on good numbers.

    Parameters
    ----------
    good : such models by their number of columns.
    """
    X, y = table(kind, seed)
    d = X.shape[1]
    attempts: dict[str, Callable[[], Any]] = {"fit": lambda: make().fit(X, y)}
    if d < 5:
        if d not in good:
            labels = np.arange(24) % 3
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ECRTWarning)
                good[d] = make().fit(np.random.default_rng(d).normal(size=(24, d)) + labels[:, None], labels)
        attempts["predict"] = lambda: good[d]
    for attempt, fitted in attempts.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", ECRTWarning)
            try:
                problem = _answer(fitted(), X)
            except InputError:
                found.outcomes[f"{attempt}: InputError"] += 1
                continue
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:200]}"
        if problem:
            found.faults.append(f"{name}, {kind}, seed {seed}, {attempt}: {problem}")
        found.outcomes[f"{attempt}: {'fault' if problem else 'finite'}"] += 1


def _answer(model: Any, X: np.ndarray) -> str | None:
    """What is wrong with a model's answer, if anything."""
    if hasattr(model, "predict_proba"):
        proba = model.predict_proba(X)
        if not np.isfinite(proba).all() or not np.allclose(proba.sum(axis=1), 1, atol=1e-4):
            return f"probabilities {proba[~np.isfinite(proba).all(axis=1)][:1]}"
    else:
        values = model.predict(X) if hasattr(model, "predict") else model.transform(X)
        if not np.isfinite(values).all():
            return "values that are not finite"
    return None


def try_many(names: Iterable[str], kinds: Iterable[str], seeds: Iterable[int]) -> Found:
    """Every estimator on every kind with every seed."""
    found, every = Found(), makers()
    seeds, kinds = list(seeds), list(kinds)
    for name in names:
        good: dict[int, Any] = {}
        for kind in kinds:
            for seed in seeds:
                try_one(name, every[name], kind, seed, good, found)
    return found
