"""Table 1's methods where features are frozen: linear heads on them, and the supplement's networks for ECRT."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import ECRTWarning
from ecrt.estimators import BaselineClassifier, ECRTClassifier
from ecrt.experiments.one_flow import paper_share
from ecrt.nn import MLP

__all__ = ["PAPER_PRIORS", "RIVALS", "fit_paper", "fit_rival"]

Row = dict[str, Any]
Array = NDArray[np.float64]
Labels = NDArray[np.int64]

RIVALS: dict[str, Row] = {
    "ERM": {"method": "erm", "class_prior": "training"},
    "IW": {"method": "weighted"},
    "GAN": {"method": "cgan"},
    "VAT": {"method": "vat", "learning_rate": 1e-4},
    "FOCAL": {"method": "focal"},
    "LDAM": {"method": "ldam"},
    "SMOTE": {"method": "smote"},
    "LA": {"method": "logit-adjusted"},
}
"""Table 1's methods, and two more that any table of today should have."""

TRIED: dict[str, list[Row]] = {
    "GAN": [{"width": 256, "n_noise": 128, "n_steps": steps} for steps in (500, 4000)],
    "VAT": [{"epsilon": radius} for radius in (0.02, 0.1)],
}
"""Options of a method to choose from; units and noise of the GAN are the supplement's."""

PAPER_PRIORS: dict[str, Literal["shared", "per-class"]] = {
    "ECRT-1P, paper preset": "shared",
    "ECRT-MP, paper preset": "per-class",
}
PAPER_STRENGTH, PAPER_SOURCES, PAPER_EPOCHS = 1e-3, 32, 20


def fit_rival(
    method: str, X: Array, y: Labels, seed: int, device: str = "auto", **options: Any
) -> BaselineClassifier:  # fmt: skip
    """The method with the weight decay (VAT: epochs) and the options that a held-out fifth of the rows chooses.

    ``options`` : those of ``BaselineClassifier`` that are other than the method's own.
    """
    shared: Row = {"random_state": seed, "device": device} | RIVALS[method] | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        fitted = [
            BaselineClassifier(method_options=tried, **shared).fit(X, y) for tried in TRIED.get(method, [None])
        ]
    return min(fitted, key=lambda clf: float(min(clf.history_["head_candidates"].values())))


def fit_paper(
    method: str,
    X: Array,
    y: Labels,
    *,
    minority: int,
    likelihood: float,
    decoder: tuple[int, ...],
    seed: int,
    device: str = "auto",
) -> ECRTClassifier:
    """The supplement's encoder, flow and decoder; lambda is turned into the share of a minority class of median size.

    Parameters
    ----------
    minority : classes with fewer rows are minority classes.
    likelihood, decoder : the weight and the hidden units that the supplement gives for the data.
    """
    counts = np.bincount(y)
    share = paper_share(PAPER_STRENGTH, len(y), int(np.median(counts[counts < minority])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return ECRTClassifier(
            encoder=MLP(X.shape[1], (1024, 512), PAPER_SOURCES, dropout=0.1), encoder_epochs=PAPER_EPOCHS,
            demixing="flow", n_restarts=1, flow_blocks=4, critic="cosine", label_marginal="batch",
            likelihood_weight=likelihood * PAPER_SOURCES, source_prior=PAPER_PRIORS[method], minority=minority,
            augmentation="permutation", augmentation_weight=share, head="mlp", head_hidden=decoder, head_dropout=0.1,
            epochs=PAPER_EPOCHS, batch_size=256, random_state=seed, device=device,
        ).fit(X, y)  # fmt: skip
