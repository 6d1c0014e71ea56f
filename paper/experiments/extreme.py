"""Extreme classification (supplement D): 1,000 classes, a handful of samples each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ecrt.data import GaussianSources, extreme_sources
from ecrt.estimators import ECRTClassifier
from ecrt.metrics import mean_correlation_coefficient, prediction_metrics
from paper.statistics import observations, table

__all__ = ["cells", "run_cell", "summarise"]

Row = dict[str, Any]
METRICS = ("top1", "top5", "nll")


def cells(smoke: bool) -> Iterable[Row]:
    """Five draws of 1,000 classes with 5 samples each."""
    for draw in range(1, 2 if smoke else 6):
        yield {"draw": draw, "n_classes": 100 if smoke else 1000, "n_per_class": 5, "epochs": 5 if smoke else 120}


def run_cell(*, draw: int, n_classes: int, n_per_class: int, epochs: int) -> Row:
    """ECRT beside the oracle that knows the true mechanism and variance and estimates only the means."""
    rng = np.random.default_rng(draw)
    truth = extreme_sources(n_classes, rng)
    data, test = truth.draw([n_per_class] * n_classes, rng), truth.draw([20] * n_classes, rng)
    means = np.stack([data.s[data.y == label].mean(axis=0) for label in range(n_classes)])
    counts = np.bincount(data.y)
    log_posterior = GaussianSources(means, truth.variances).log_posterior(test.s)
    oracle = prediction_metrics(log_posterior, test.y, counts, prior="balanced")
    bayes = prediction_metrics(truth.log_posterior(test.s), test.y, counts, prior="balanced")
    clf = ECRTClassifier(
        demixing="flow", flow_blocks=(1, 2), n_restarts=4, head="gaussian", batch_size=64, epochs=epochs,
        random_state=draw, device="cpu",
    ).fit(data.z, data.y)  # fmt: skip
    found = prediction_metrics(clf.predict_log_proba(test.z), test.y, counts, prior="balanced")
    return {
        "ecrt": {name: found[name] for name in METRICS},
        "oracle": {name: oracle[name] for name in METRICS},
        "bayes": {name: bayes[name] for name in METRICS},
        "mcc": mean_correlation_coefficient(test.s, clf.transform(test.z)),
        "head": clf.head_name_,
        "n_blocks": clf.history_["restarts"][0].n_blocks,
    }


def summarise(rows: list[Row]) -> list[Row]:
    """Means over draws with intervals, and ECRT as a share of the oracle."""
    lines = table(observations(rows), ("what",), METRICS, count="runs")
    ecrt, oracle, _ = lines
    shares = {name: ecrt[name] / oracle[name] for name in ("top1", "top5")}
    more = {"what": "ecrt / oracle (NLL: difference)", "runs": len(rows), **shares, "nll": ecrt["nll"] - oracle["nll"]}
    return [*lines, more]
