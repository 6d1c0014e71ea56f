"""Rivals that are models of scikit-learn and imbalanced-learn, on scaled features, with balanced scores."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.utils._param_validation import Interval
from torch import nn

from ecrt.arrays import Array, Labels
from ecrt.nn import Forest
from ecrt.rivals.base import Choice, Number, Rival, Space
from ecrt.stages.heads import tree_arrays
from ecrt.stages.parts import Count, NonNegative, Positive, Share

MOST_BORROWED = 500
"""Residuals of other classes that a class of one row borrows in QDA."""

_filters = threading.Lock()
"""Filters of warnings belong to the process: two threads that change and restore them would mix them up."""


class LDA(Rival):
    """Linear discriminant analysis (scikit-learn's) with a pooled covariance that is shrunk; priors as in training.

    Parameters
    ----------
    shrinkage : "auto" or float, default="auto"
        How far the covariance is shrunk; ``"auto"`` is Ledoit and Wolf's rule.

    References
    ----------
    Ledoit, Wolf: Honey, I shrunk the sample covariance matrix, Journal of Portfolio Management 2004.
    """

    kind = "lda"
    label = "Shrinkage LDA"
    tuned: ClassVar[Space | None] = {"shrinkage": Choice(("auto", 0.01, 0.1, 0.3, 0.6, 0.9))}

    shrinkage: Literal["auto"] | Share = "auto"

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> nn.Module:
        """The fitted model as a linear layer, without the priors."""
        with _filters, warnings.catch_warnings():
            # A class of one row has no covariance of its own to add to the pooled one.
            warnings.filterwarnings("ignore", message="Only one sample available", category=UserWarning)
            model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=self.shrinkage).fit(s, y)
        weight, bias = (np.atleast_2d(part.T).T for part in (model.coef_, model.intercept_))
        if len(weight) == 1:  # two classes: the first has the logit 0
            weight, bias = (np.concatenate([np.zeros_like(part), part]) for part in (weight, bias))
        head = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
        head.load_state_dict({
            "weight": torch.from_numpy(weight), "bias": torch.from_numpy(bias[:, 0] - np.log(np.bincount(y)))
        })  # fmt: skip
        return head


class QDA(Rival):
    """Quadratic discriminant analysis (scikit-learn's): a covariance for each class, shrunk; priors as in training.

    A class of one row borrows the residuals of the others.

    Parameters
    ----------
    ridge : float, default=1e-3
        Added to the diagonal of the covariances.

    References
    ----------
    Ledoit, Wolf: Honey, I shrunk the sample covariance matrix, Journal of Portfolio Management 2004.
    """

    kind = "qda"
    label = "Shrinkage QDA"
    tuned: ClassVar[Space | None] = {"ridge": Number(1e-4, 1.0, log=True)}
    kept = False

    ridge: NonNegative = 1e-3

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> Any:
        """The fitted model."""
        model = QuadraticDiscriminantAnalysis(
            solver="eigen", priors=np.bincount(y) / len(y), covariance_estimator=FlooredCovariance(self.ridge)
        )
        return model.fit(*_borrow_residuals(s, y, rng))


class GradientBoosting(Rival):
    """Histogram gradient boosting (scikit-learn's) with balanced class weights and no early stopping.

    Parameters
    ----------
    learning_rate, max_iter, max_leaf_nodes, min_samples_leaf, l2_regularization : default=0.1, 100, 31, 20 and 0
        As in scikit-learn's ``HistGradientBoostingClassifier``.

    References
    ----------
    Ke et al.: LightGBM: a highly efficient gradient boosting decision tree, NeurIPS 2017.
    """

    kind = "gradient-boosting"
    label = "Weighted gradient boosting"
    tuned: ClassVar[Space | None] = {
        "learning_rate": Number(0.02, 0.3, log=True),
        "max_iter": Number(50, 300, log=True),
        "max_leaf_nodes": Number(4, 63, first=15, log=True),
        "min_samples_leaf": Number(2, 50, log=True),
        "l2_regularization": Number(1e-3, 10.0, first=1e-3, log=True),
    }
    scale_free = True

    learning_rate: Positive = 0.1
    max_iter: Count = 100
    max_leaf_nodes: Annotated[int, Interval(Integral, 2, None, closed="left")] | None = 31
    min_samples_leaf: Count = 20
    l2_regularization: NonNegative = 0.0

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> nn.Module:
        """The fitted model as arrays; the weighted trees assume no prior."""
        from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

        model = HistGradientBoostingClassifier(class_weight="balanced", early_stopping=False, random_state=seed)
        model.set_params(**self.get_params(deep=False)).fit(s, y)
        return tree_arrays(model, model.n_iter_)


class BalancedForest(Rival):
    """Balanced random forest (imbalanced-learn's): every tree sees as many rows of each class as the rarest has.

    Rows are drawn with replacement. No class has a probability of zero: one more tree is imagined that votes for all
    classes equally.

    Parameters
    ----------
    n_estimators, max_features, min_samples_leaf : default=100, "sqrt" and 1
        As in imbalanced-learn's ``BalancedRandomForestClassifier``.

    References
    ----------
    Chen, Liaw, Breiman: Using random forest to learn imbalanced data, 2004.
    """

    kind = "balanced-forest"
    label = "Balanced random forest"
    tuned: ClassVar[Space | None] = {
        "n_estimators": Number(50, 400, log=True),
        "max_features": Choice(("sqrt", 0.3, 0.6)),
        "min_samples_leaf": Number(1, 20, log=True),
    }
    scale_free = True

    n_estimators: Count = 100
    max_features: Literal["sqrt", "log2"] | Positive | None = "sqrt"
    min_samples_leaf: Positive = 1

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> nn.Module:
        """The fitted model as arrays; the balanced trees assume no prior."""
        from imblearn.ensemble import BalancedRandomForestClassifier  # slow to import

        model = BalancedRandomForestClassifier(
            sampling_strategy="all", replacement=True, bootstrap=False, random_state=seed
        )
        model.set_params(**self.get_params(deep=False)).fit(s, y)
        return forest_arrays([tree.tree_ for tree in model.estimators_])


def forest_arrays(trees: Sequence[Any]) -> Forest:
    """Trees of a forest of scikit-learn that have seen all classes, and no missing values."""
    sizes = [tree.node_count for tree in trees]
    first = np.cumsum([0, *sizes])
    offset = np.repeat(first[:-1], sizes)

    def all_nodes(name: str) -> Any:
        return np.concatenate([getattr(tree, name) for tree in trees])

    left, right, own = all_nodes("children_left"), all_nodes("children_right"), np.arange(first[-1])
    is_leaf = left < 0
    return Forest(
        torch.from_numpy(all_nodes("threshold")),
        torch.from_numpy(np.where(is_leaf, 0, all_nodes("feature"))),
        torch.from_numpy(np.where(is_leaf, own, left + offset)),
        torch.from_numpy(np.where(is_leaf, own, right + offset)),
        torch.from_numpy(all_nodes("value")[:, 0]),
        torch.from_numpy(first[:-1]),
        torch.tensor(max(tree.max_depth for tree in trees)),
    )


class FlooredCovariance(BaseEstimator):
    """Ledoit and Wolf's covariance plus a small ridge: a class whose rows are all equal has a density, too."""

    def __init__(self, ridge: float = 1e-3) -> None:
        self.ridge = ridge

    def fit(self, X: Array, y: Any = None) -> FlooredCovariance:
        """Learn ``covariance_``."""
        self.covariance_ = np.atleast_2d(ledoit_wolf(X)[0]) + self.ridge * np.eye(X.shape[1])
        return self


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
