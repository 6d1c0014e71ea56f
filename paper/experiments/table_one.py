"""Table 1's methods where features are frozen: linear heads on them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import ECRTWarning
from ecrt.rivals import BaselineClassifier
from ecrt.stages import LinearHead

__all__ = ["ECRT_PARTS", "RIVALS", "fit_rival"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]

ECRT_PARTS: Row = {"demixing": "linear", "head": "linear"}
"""ECRT on hundreds of features. The stored results were made when held-out rows chose one of several heads: there they
always chose the linear one, and linear de-mixing was the only one tried."""

RIVALS: dict[str, Row] = {
    "ERM": {"method": "erm", "class_prior": "training"},
    "IW": {"method": "weighted"},
    "GAN": {"method": "cgan"},
    "VAT": {"method": "vat", "head": LinearHead(learning_rate=4e-3)},
    "FOCAL": {"method": "focal"},
    "LDAM": {"method": "ldam"},
    "SMOTE": {"method": "smote"},
    "LA": {"method": "logit-adjusted"},
}
"""Table 1's methods, and two more that any table of today should have."""

TRIED: dict[str, list[Row]] = {
    "GAN": [{"width": 256, "n_steps": steps} for steps in (500, 4000)],
    "VAT": [{"epsilon": radius} for radius in (0.02, 0.1)],
}
"""Options of a method to choose from; units of the GAN are the supplement's."""


def fit_rival(
    method: str, X: Array, y: Labels, seed: int, device: str = "auto", *, n_noise: int, **options: Any
) -> BaselineClassifier:
    """The method with the weight decay (VAT: epochs) and the options that a held-out fifth of the rows chooses.

    Parameters
    ----------
    n_noise : values of noise that the GAN draws from; the supplement has a number for every data set.
    options : those of ``BaselineClassifier`` that are other than the method's own.
    """
    shared: Row = {"random_state": seed, "device": device} | RIVALS[method] | options
    own: Row = {"n_noise": n_noise} if method == "GAN" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        fitted = [
            BaselineClassifier(**shared)
            .set_params(**{f"method__{name}": value for name, value in (tried | own).items()})
            .fit(X, y)
            for tried in TRIED.get(method, [{}])
        ]
    return min(fitted, key=lambda clf: float(min(clf.history_["head_candidates"].values())))
