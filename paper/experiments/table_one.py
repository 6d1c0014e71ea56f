"""Table 1's methods where features are frozen: linear heads on them, and the supplement's networks for ECRT."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import nn
from torch.utils.data import TensorDataset

from ecrt.data import assign_roles
from ecrt.errors import ECRTWarning
from ecrt.estimators import ECRTClassifier
from ecrt.estimators.inputs import resolve_device
from ecrt.nn import MLP
from ecrt.randomness import seeded
from ecrt.rivals import BaselineClassifier
from ecrt.stages import Encoder, Flow, Labelled, LinearHead, MLPHead, Permutation, encode
from paper.experiments.one_flow import paper_share

__all__ = ["ECRT_PARTS", "PAPER_EPOCHS", "PAPER_PRIORS", "RIVALS", "fit_paper", "fit_rival"]

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

PAPER_PRIORS: dict[str, Literal["shared", "per-class"]] = {
    "ECRT-1P, paper preset": "shared",
    "ECRT-MP, paper preset": "per-class",
}
PAPER_EPOCHS = 20
ADAM_RATE = 1e-3


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
    """The supplement's encoder, flow and decoder, learned with Adam.

    The encoder learns from majority rows with the decoder's hidden layers on top, and the 8/2 split chooses its epoch;
    flow and decoder then learn from all rows, as the paper has it, those that the encoder has seen among them. Lambda
    is turned into the share of a minority class of median size.

    Parameters
    ----------
    y : classes, or an indicator of labels; the encoder learns to tell the rarest label of a row.
    minority : classes with fewer rows are minority classes.
    likelihood, decoder, n_sources, strength : what the supplement gives for the data: weight of the likelihood, hidden
        units of the decoder, sources, and lambda.
    """
    labels = y if y.ndim == 1 else Labelled(sparse.csr_array(y)).rarest
    counts = np.bincount(y) if y.ndim == 1 else y.sum(axis=0, dtype=np.int64)
    share = paper_share(strength, len(y), int(np.median(counts[counts < minority])))
    with seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore", ECRTWarning)
        encoder = MLP(X.shape[1], (1024, 512), n_sources, dropout=0.1)
        whole = nn.Sequential(
            encoder, MLP(n_sources, decoder[:-1], decoder[-1], dropout=0.1), nn.ReLU(), nn.Dropout(0.1)
        )
        encoded = encode(
            TensorDataset(torch.from_numpy(X), torch.from_numpy(labels)), labels,
            assign_roles(counts, np.arange(len(counts)), minority=minority),
            Encoder(whole, epochs=epochs, learning_rate=ADAM_RATE, weight_decay=0.0),
            rng=np.random.default_rng(seed), device=resolve_device(device),
        )  # fmt: skip
        return ECRTClassifier(
            encoder=Encoder(encoded.encoder[0].cpu(), train=False),  # type: ignore[index]
            demixing=Flow(
                source_prior=PAPER_PRIORS[method], label_marginal="batch", critic="cosine",
                likelihood_weight=likelihood * n_sources, n_restarts=1, blocks=4, epochs=epochs,
                learning_rate=ADAM_RATE,
            ),
            augmentation=Permutation(weight=share),
            head=MLPHead(
                hidden=decoder, dropout=0.1, weight_decay=0.0, epochs=epochs, learning_rate=4 * ADAM_RATE
            ),
            minority=minority, random_state=seed, device=device,
        ).fit(X, y)  # fmt: skip
