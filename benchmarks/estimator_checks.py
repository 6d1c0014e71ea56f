"""scikit-learn's own checks on every public estimator, in at least three configurations each; nothing is exempted.

The sampler also has to pass those of imbalanced-learn.

    python benchmarks/estimator_checks.py [part of a configuration's name]

Writes results/estimator_checks.json, where configurations that were not asked for keep their lines. Ends with status
1 if a check failed.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import sklearn
import torch
from imblearn.utils.estimator_checks import estimator_checks_generator
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    ECRTSampler,
    ECRTTransformer,
    Encoder,
    Flow,
    Linear,
    LinearHead,
    MLPHead,
)
from ecrt.rivals import known_rivals

RESULT = Path(__file__).parent.parent / "results" / "estimator_checks.json"
FLOW = {"epochs": 5, "hidden": (16, 16), "critic_width": 8, "n_restarts": 1}
METHOD_OPTIONS = {
    "cgan": {"n_steps": 20, "width": 8},
    "flow-augmentation": {"demixing": "linear"},
    "gradient-boosting": {"max_iter": 5, "min_samples_leaf": 5},
    "balanced-forest": {"n_estimators": 5},
}


def configurations() -> dict[str, BaseEstimator]:
    """Estimators by name."""
    head = LinearHead(weight_decay=1e-3)
    linear = {"demixing": "linear", "head": head}
    gaussian = {"demixing": "linear", "head": "gaussian"}
    mlp, autoencoder = (Encoder(name, n_features=8, epochs=3) for name in ("mlp", "autoencoder"))
    found = {
        "classifier, linear": ECRTClassifier(**linear),
        "classifier, linear, float32": ECRTClassifier(**linear, precision="float32"),
        "classifier, Gaussian head": ECRTClassifier(**gaussian),
        "classifier, Gaussian head, float32": ECRTClassifier(**gaussian, precision="float32"),
        "classifier, MLP encoder": ECRTClassifier(**linear, encoder=mlp),
        "classifier, MLP encoder, float32": ECRTClassifier(**linear, encoder=mlp, precision="float32"),
        "classifier, autoencoder": ECRTClassifier(**linear, encoder=autoencoder),
        "classifier, MLP head, float32": ECRTClassifier(
            demixing="linear", head=MLPHead(weight_decay=1e-3, epochs=5), precision="float32"
        ),
        "classifier, flow, float32": ECRTClassifier(demixing=Flow(**FLOW), head=head, precision="float32"),
        "classifier, no de-mixing": ECRTClassifier(demixing="none", head=head),
        "regressor, linear": ECRTRegressor(**linear),
        "regressor, linear, float32": ECRTRegressor(**linear, precision="float32"),
        "regressor, MLP encoder": ECRTRegressor(**linear, encoder=Encoder("mlp", n_features=8)),
        "regressor, MLP head, float32": ECRTRegressor(
            demixing="linear", head=MLPHead(hidden=(32,), epochs=60), precision="float32"
        ),
        "transformer, linear": ECRTTransformer(),
        "transformer, float32": ECRTTransformer(precision="float32"),
        "transformer, flow, float32": ECRTTransformer(demixing=Flow(**FLOW), precision="float32"),
        "transformer, MLP encoder": ECRTTransformer(encoder=mlp),
        "sampler": ECRTSampler(random_state=0),
        "sampler, one source, permutation": ECRTSampler(
            demixing=Linear(n_sources=1), augmentation="permutation", random_state=0
        ),
        "sampler, flow, parametric": ECRTSampler(demixing=Flow(**FLOW), augmentation="parametric", random_state=0),
    }
    for name, kind in known_rivals().items():
        rival = kind(**METHOD_OPTIONS.get(name, {}))
        own_head = {} if rival.overrides("fit_model") else {"head": LinearHead(epochs=5, weight_decay=1e-3)}
        found[f"baseline, {name}"] = BaselineClassifier(method=rival, **own_head)
    found["baseline, logit-adjusted, MLP encoder"] = BaselineClassifier(
        encoder=Encoder("mlp", n_features=8, epochs=12), method="logit-adjusted"
    )
    found["baseline, feature-smote, autoencoder"] = BaselineClassifier(
        encoder=autoencoder, method="feature-smote", head=LinearHead(weight_decay=1e-3)
    )
    return found


def sampler_checks(sampler: ECRTSampler) -> list[dict[str, Any]]:
    """What imbalanced-learn's checks say, in the form of scikit-learn's."""
    logs = []
    for estimator, check in estimator_checks_generator(sampler):
        log = {"check_name": check.func.__name__, "status": "passed", "exception": None}
        try:
            check(estimator)
        except Exception as error:
            log |= {"status": "failed", "exception": error}
        logs.append(log)
    return logs


def _total(table: dict[str, dict[str, int]]) -> dict[str, int]:
    return {state: sum(counts.get(state, 0) for counts in table.values()) for state in ("passed", "skipped", "failed")}


def _write(name: str, counts: dict[str, int], failed: dict[str, str], skipped: set[str]) -> None:
    """Put the line of a configuration among those of the others."""
    document = json.loads(RESULT.read_text()) if RESULT.exists() else {"configurations": {}, "failures": {}}
    found = {**document["configurations"], name: counts}
    table = {known: found[known] for known in configurations() if known in found}
    failures = {known: document["failures"].get(known) for known in table if known != name} | {name: failed}
    document = {
        "command": "python benchmarks/estimator_checks.py",
        "scikit-learn": sklearn.__version__,
        "total": _total(table),
        "configurations": table,
        "failures": {known: problems for known, problems in failures.items() if problems},
        "skipped by scikit-learn": sorted(skipped),
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")


def main(wanted: str = "") -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table: dict[str, dict[str, int]] = {}
    for name, estimator in configurations().items():
        if wanted not in name:
            continue
        began = time.process_time()
        logs = check_estimator(estimator, on_skip=None, on_fail=None)
        if isinstance(estimator, ECRTSampler):
            logs += sampler_checks(estimator)
        states = [log["status"] for log in logs]
        table[name] = {state: states.count(state) for state in sorted(set(states))}
        print(f"{name}: {table[name]}, {time.process_time() - began:.0f} s", flush=True)
        failed = {log["check_name"]: str(log["exception"])[:300] for log in logs if log["status"] == "failed"}
        for check, problem in failed.items():
            print(f"    {check}: {problem}", flush=True)
        skipped = {f"{log['check_name']}: {log['exception']}" for log in logs if log["status"] == "skipped"}
        _write(name, table[name], failed, skipped)
    print(_total(table))
    return int(_total(table)["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
