"""Small fits of every estimator and option that matters, whose predictions are stored in ``golden_fits.json``.

    python tests/golden_fits.py

writes them anew. Do so only where predictions change on purpose, and say why in the commit.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from ecrt import (
    BaselineClassifier,
    Borrowed,
    ECRTClassifier,
    ECRTRegressor,
    ECRTTransformer,
    Encoder,
    Flow,
    GaussianHead,
    Linear,
    LinearHead,
    MLPHead,
    PseudoMinority,
)
from ecrt.rivals import VAT, ConditionalGAN

FILE = Path(__file__).with_suffix(".json")
SIZES = [60, 55, 50, 45, 14, 9]


def classes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(6), SIZES)
    return rng.normal(size=(len(y), 4)) @ rng.normal(size=(4, 4)) + 1.5 * rng.normal(size=(6, 4))[y], y


def labels() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(220, 4))
    scores = X @ rng.normal(size=(4, 5)) + rng.normal(size=(220, 5)) - [0, 0.5, 1, 2, 3]
    return X, (scores > 0).astype(int)


def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(240, 3))
    return X, np.exp(X[:, 0]) + 0.2 * X[:, 1] + 0.1 * rng.normal(size=240)


def table() -> tuple[pd.DataFrame, np.ndarray]:
    X, y = classes(3)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["kind"] = np.array(["red", "green", "blue"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1)]
    frame.loc[::7, "b"] = np.nan
    return frame, np.array(["u", "v", "w", "x", "y", "z"])[y]


def a_module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def told_by(estimator: Any, X: Any) -> np.ndarray:
    """What a fitted estimator says of the first rows."""
    few = X[:12]
    if isinstance(estimator, ECRTTransformer):
        return np.asarray(estimator.transform(few))
    if isinstance(estimator, ECRTRegressor):
        return np.asarray(estimator.predict(few))
    return np.asarray(estimator.predict_log_proba(few))


def with_new_class() -> np.ndarray:
    X, y = classes()
    known = y != 5
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X[known], y[known])
    return told_by(clf.add_classes(X[~known], y[~known]), X)


def drawn() -> np.ndarray:
    X, y = classes()
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, y)
    return clf.sample(2, random_state=0)[0]


def fitted(estimator: Any, data: Callable[[], tuple[Any, Any]]) -> Callable[[], np.ndarray]:
    def fit() -> np.ndarray:
        X, y = data()
        return told_by(estimator().fit(X, y), X)

    return fit


def fits() -> dict[str, Callable[[], np.ndarray]]:
    """By name, what makes the predictions."""
    fast = {"demixing": "linear", "head": "linear", "random_state": 0}
    quick = {"head": LinearHead(epochs=4), "random_state": 0}

    def mlp(network: str = "mlp", **options: Any) -> Encoder:
        return Encoder(network, epochs=4, n_features=3, **options)

    return {
        "default": fitted(
            lambda: ECRTClassifier(head=[LinearHead(), GaussianHead(), MLPHead(epochs=4)], random_state=0), classes
        ),
        "linear": fitted(lambda: ECRTClassifier(**fast), classes),
        "flow, FDV": fitted(
            lambda: ECRTClassifier(demixing=Flow(epochs=4), head="linear", random_state=0), classes
        ),
        "flow, GCL": fitted(
            lambda: ECRTClassifier(
                demixing=Flow(
                    objective="gcl", critic="cosine", source_prior="shared", label_marginal="batch",
                    likelihood_weight=0.1, blocks=[2, 3], hidden=[16], n_restarts=2, epochs=4,
                ),
                head="linear", random_state=0,
            ), classes,
        ),
        "MLP head, permutation": fitted(
            lambda: ECRTClassifier(
                demixing="linear", head=MLPHead(hidden=(16,), dropout=0.2, epochs=4), augmentation="permutation",
                random_state=0,
            ), classes,
        ),
        "Gaussian head, two sources": fitted(
            lambda: ECRTClassifier(demixing=Linear(n_sources=2), head="gaussian", random_state=0), classes
        ),
        "borrowed, LDAM": fitted(
            lambda: ECRTClassifier(
                demixing=Linear(learn_from="all", pseudo_samples=5.0), minority=[3, 4, 5],
                augmentation=Borrowed(weight=0.3, pseudo_samples=5.0),
                head=LinearHead(loss="ldam", class_mass="tempered"), random_state=0,
            ), classes,
        ),
        "encoder, mixup": fitted(
            lambda: ECRTClassifier(encoder=mlp(mixup=0.4, learn_from="all"), **fast), classes
        ),
        "encoder, cosine head": fitted(
            lambda: ECRTClassifier(encoder=mlp(head="cosine", loss="ldam"), **fast), classes
        ),
        "autoencoder": fitted(lambda: ECRTClassifier(encoder=mlp("autoencoder"), **fast), classes),
        "own module": fitted(lambda: ECRTClassifier(encoder=Encoder(a_module(), epochs=3), **fast), classes),
        "table": fitted(lambda: ECRTClassifier(class_prior="training", **fast), table),
        "several labels": fitted(
            lambda: ECRTClassifier(
                thresholds="validation", demixing="linear", head=[LinearHead(), MLPHead(epochs=4)], random_state=0
            ), labels,
        ),
        "selection": fitted(
            lambda: ECRTClassifier(
                selection=PseudoMinority(trials=6), head=[LinearHead(), GaussianHead(), MLPHead(epochs=4)],
                random_state=0,
            ), classes,
        ),
        "new class": with_new_class,
        "drawn": drawn,
        "transformer": fitted(lambda: ECRTTransformer(demixing=Flow(epochs=4), random_state=0), classes),
        "regressor": fitted(lambda: ECRTRegressor(head=[LinearHead(), MLPHead(epochs=4)], random_state=0), numbers),
        "regressor, donors": fitted(
            lambda: ECRTRegressor(
                demixing="linear", augmentation="donors", head=MLPHead(loss="huber", hidden=(16,), epochs=4),
                random_state=0,
            ), numbers,
        ),
        "LDAM-DRW": fitted(
            lambda: BaselineClassifier(method="ldam-drw", head=MLPHead(epochs=4), random_state=0), classes
        ),
        "SMOTE": fitted(lambda: BaselineClassifier(method="smote", random_state=0), classes),
        "VAT": fitted(lambda: BaselineClassifier(method=VAT(epsilon=0.1), **quick), classes),
        "cRT, encoder": fitted(lambda: BaselineClassifier(method="crt", encoder=mlp(), **quick), classes),
        "cGAN": fitted(lambda: BaselineClassifier(method=ConditionalGAN(n_steps=60), **quick), classes),
        "flow augmentation": fitted(lambda: BaselineClassifier(method="flow-augmentation", **quick), classes),
        "QDA": fitted(lambda: BaselineClassifier(method="qda", random_state=0), classes),
    }  # fmt: skip


def main() -> None:
    warnings.simplefilter("ignore")
    found = {}
    for name, fit in fits().items():
        found[name] = fit().tolist()
        print(name, flush=True)
    document = {"capability": torch.backends.cpu.get_cpu_capability(), "predictions": found}
    FILE.write_text(json.dumps(document, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
