"""Fit again on other rows, with the parts that the last fit chose: what was tested is what is then used."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from ecrt.estimators.classifier import ECRTClassifier
from ecrt.estimators.regressor import ECRTRegressor
from ecrt.io import head_shape
from ecrt.stages import GaussianHead, LinearHead

__all__ = ["fitted_choices", "refit"]


def fitted_choices(estimator: ECRTClassifier | ECRTRegressor) -> dict[str, Any]:
    """Options that leave nothing to choose: de-mixing, head and the rest are as the last fit chose them.

    How long a network is trained, and how much a Gaussian head shares variances, is found anew from the rows.
    """
    check_is_fitted(estimator)
    chosen: dict[str, Any] = {name: clone(part) for name, part in estimator.parts_.items()}
    if estimator.demixer_.flow is not None:
        chosen["demixing"].blocks = len(estimator.demixer_.flow.blocks)
    head, part = head_shape(estimator.head_), chosen["head"]
    if head.kind == "mlp":
        part.set_params(hidden=head.hidden, dropout=head.dropout)
    elif isinstance(part, LinearHead) and not part.by_steps:
        part.weight_decay = float(estimator.history_["head_setting"])
    elif isinstance(part, GaussianHead):  # learns from real rows alone
        usual = type(chosen["augmentation"])().get_params()
        chosen["augmentation"].set_params(**{name: usual[name] for name in ("weight", "n_synthetic") if name in usual})
    if isinstance(estimator, ECRTRegressor):
        return chosen | {"region_mass": float(estimator.region_mass_), "weighted": bool(estimator.weighted_)}
    if len(estimator.minority_classes_) and estimator.minority != "all":
        chosen["minority"] = estimator.minority_classes_.tolist()
    return chosen | {"selection": None}


def refit(estimator: ECRTClassifier | ECRTRegressor, X: Any, y: Any = None) -> None:
    """Fit an estimator on other rows with what its last fit chose; its options stay what they are.

    Parameters
    ----------
    X, y : as ``fit`` takes them; y is not used with a Dataset.
    """
    asked = estimator.get_params(deep=False)
    selection = getattr(estimator, "selection_", None)
    estimator.set_params(**fitted_choices(estimator))
    try:
        estimator.fit(X) if isinstance(X, Dataset) else estimator.fit(X, y)
    finally:
        estimator.set_params(**asked)
        if selection is not None:
            estimator.selection_ = selection
