"""Fit again on other rows, with the parts that the last fit chose: what was tested is what is then used."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from ecrt.estimators.effects import set_options
from ecrt.estimators.options import fits_linear_head_at_once
from ecrt.io import head_shape

__all__ = ["fitted_choices", "refit"]


def fitted_choices(estimator: Any) -> dict[str, Any]:
    """Options that leave nothing to choose: de-mixing, head and the rest are as the last fit chose them.

    How long a network is trained, and how much a Gaussian head shares variances, is found anew from the rows.
    """
    check_is_fitted(estimator)
    head = head_shape(estimator.head_)
    chosen: dict[str, Any] = {"demixing": estimator.demixing_, "head": estimator.head_name_}
    if estimator.demixer_.flow is not None:
        chosen["flow_blocks"] = len(estimator.demixer_.flow.blocks)
    if head.kind == "mlp":
        chosen["head_hidden"] = head.hidden
    if hasattr(estimator, "weighted_"):
        chosen |= {
            "region_mass": float(estimator.region_mass_),
            "augmentation": estimator.augmentation_,
            "weighted": bool(estimator.weighted_),
        }
        if head.kind == "linear":
            chosen["weight_decay"] = float(estimator.history_["head_setting"])
        return chosen
    chosen = {**getattr(estimator, "selection_", {"options": {}})["options"], "selection": None, **chosen}
    if head.kind == "mlp":
        chosen["head_dropout"] = head.dropout
    if head.kind == "linear" and fits_linear_head_at_once(estimator):
        chosen["weight_decay"] = float(estimator.history_["head_setting"])
    if len(estimator.minority_classes_) and estimator.minority != "all":
        chosen["minority"] = estimator.minority_classes_.tolist()
    return chosen


def refit(estimator: Any, X: Any, y: Any = None) -> None:
    """Fit an estimator on other rows with what its last fit chose; its options stay what they are.

    Parameters
    ----------
    X, y : as ``fit`` takes them; y is not used with a Dataset.
    """
    asked = estimator.get_params(deep=False)
    selection = getattr(estimator, "selection_", None)
    set_options(estimator, **fitted_choices(estimator))
    try:
        estimator.fit(X) if isinstance(X, Dataset) else estimator.fit(X, y)
    finally:
        estimator.set_params(**asked)
        if selection is not None:
            estimator.selection_ = selection
