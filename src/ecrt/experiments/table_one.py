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

__all__ = ["PAPER_EPOCHS", "PAPER_PRIORS", "RIVALS", "fit_paper", "fit_rival"]

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
    "GAN": [{"width": 256, "n_steps": steps} for steps in (500, 4000)],
    "VAT": [{"epsilon": radius} for radius in (0.02, 0.1)],
}
"""Options of a method to choose from; units of the GAN are the supplement's."""

PAPER_PRIORS: dict[str, Literal["shared", "per-class"]] = {
    "ECRT-1P, paper preset": "shared",
    "ECRT-MP, paper preset": "per-class",
}
PAPER_EPOCHS = 20


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
            BaselineClassifier(method_options=tried | own, **shared).fit(X, y) for tried in TRIED.get(method, [{}])
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
    n_sources: int = 32,
    strength: float = 1e-3,
    epochs: int = PAPER_EPOCHS,
) -> ECRTClassifier:
    """The supplement's encoder, flow and decoder; lambda is turned into the share of a minority class of median size.

    One thing is not the paper's: flow and decoder learn from rows that the encoder has not seen, a fifth of the
    majority and all others, as they always do here. The paper has them learn from all rows.

    Parameters
    ----------
    y : classes, or an indicator of labels.
    minority : classes with fewer rows are minority classes.
    likelihood, decoder, n_sources, strength : what the supplement gives for the data: weight of the likelihood, hidden
        units of the decoder, sources, and lambda.
    """
    counts = np.bincount(y) if y.ndim == 1 else y.sum(axis=0, dtype=np.int64)
    share = paper_share(strength, len(y), int(np.median(counts[counts < minority])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        return ECRTClassifier(
            encoder=MLP(X.shape[1], (1024, 512), n_sources, dropout=0.1), encoder_epochs=epochs,
            demixing="flow", n_restarts=1, flow_blocks=4, critic="cosine", label_marginal="batch",
            likelihood_weight=likelihood * n_sources, source_prior=PAPER_PRIORS[method], minority=minority,
            augmentation="permutation", augmentation_weight=share, head="mlp", head_hidden=decoder, head_dropout=0.1,
            epochs=epochs, batch_size=256, random_state=seed, device=device,
        ).fit(X, y)  # fmt: skip
