"""Rivals that are models of scikit-learn and imbalanced-learn, on standardised features, with balanced scores."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from ecrt.errors import InputError
from ecrt.metrics.priors import shift_prior

__all__ = ["balanced_scores", "fit_model"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_BORROWED = 500
"""Residuals of other classes that a class of one row borrows in QDA."""


_filters = threading.Lock()
"""Filters of warnings belong to the process: two threads that change and restore them would mix them up."""


class FlooredCovariance(BaseEstimator):
    """Ledoit and Wolf's covariance plus a small ridge: a class whose rows are all alike has a density as well."""

    def __init__(self, ridge: float = 1e-3) -> None:
        self.ridge = ridge

    def fit(self, X: Array, y: Any = None) -> FlooredCovariance:
        """Learn ``covariance_``."""
        self.covariance_ = np.atleast_2d(ledoit_wolf(X)[0]) + self.ridge * np.eye(X.shape[1])
        return self


def fit_model(name: str, s: Array, y: Labels, options: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """Fit a model; class indices must all occur in ``y``.

    - ``"lda"``: pooled covariance, shrunk by Ledoit and Wolf's rule; priors as in training.
    - ``"qda"``: a covariance for each class, shrunk likewise, plus ``ridge``; a class of one row borrows the residuals
      of the others. Priors as in training.
    - ``"gradient-boosting"``: histogram trees with balanced class weights, and no early stopping.
    - ``"balanced-forest"``: every tree learns from as many rows of each class as the rarest has, with replacement.
    """
    seed = int(rng.integers(2**31))
    if name == "qda":
        rest = {key: value for key, value in options.items() if key != "ridge"}
        priors = np.bincount(y) / len(y)
        model: Any = QuadraticDiscriminantAnalysis(
            solver="eigen", priors=priors, covariance_estimator=FlooredCovariance(options["ridge"])
        )
        return _with_options(name, model, rest).fit(*_borrow_residuals(s, y, rng))
    if name == "lda":
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    elif name == "gradient-boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

        model = HistGradientBoostingClassifier(class_weight="balanced", early_stopping=False, random_state=seed)
    elif name == "balanced-forest":
        from imblearn.ensemble import BalancedRandomForestClassifier  # slow to import

        model = BalancedRandomForestClassifier(
            sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed
        )
    else:
        raise InputError(f"There is no model {name!r}.")
    with _filters, warnings.catch_warnings():
        # A class of one row has no covariance of its own to add to the pooled one.
        warnings.filterwarnings("ignore", message="Only one sample available", category=UserWarning)
        return _with_options(name, model, options).fit(s, y)


def balanced_scores(name: str, model: Any, s: Array, counts: Labels) -> Array:
    """Log-probabilities with all classes alike: those of the model, freed from the prior that they assume.

    LDA and QDA assume the frequencies of training, the weighted and balanced trees none. A forest gives no class a
    probability of zero: one more tree is imagined that votes for all classes alike.
    """
    even = np.ones(len(counts))
    if name == "balanced-forest":
        n_trees = len(model.estimators_)
        log_proba = np.log((n_trees * model.predict_proba(s) + 1 / len(counts)) / (n_trees + 1))
        return shift_prior(log_proba, even, even)
    scores = np.asarray(model.decision_function(s), dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros_like(scores), scores])
    return shift_prior(scores, counts if name in ("lda", "qda") else even, even)


def _with_options(name: str, model: Any, options: Mapping[str, Any]) -> Any:
    unknown = sorted(set(options) - set(model.get_params(deep=False)))
    if unknown:
        raise InputError(f"method={name!r}: {type(model).__name__} has no option {unknown[0]!r}.")
    return model.set_params(**options)


def _borrow_residuals(s: Array, y: Labels, rng: np.random.Generator) -> tuple[Array, Labels]:
    """Rows, and for each class of one row more of it, at the residuals of the other classes."""
    counts = np.bincount(y)
    means = np.stack([s[y == m].mean(axis=0) for m in range(len(counts))])
    residuals = (s - means[y])[counts[y] > 1]
    residuals = rng.permutation(residuals)[:MOST_BORROWED]
    single = np.flatnonzero(counts[y] == 1)
    borrowed = [s[row] + residuals for row in single]
    labels = np.repeat(y[single], len(residuals))
    return np.concatenate([s, *borrowed]), np.concatenate([y, labels])
