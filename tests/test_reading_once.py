"""What a column is, is decided once on the whole table, before any split."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ecrt
from ecrt.data import TableEncoder
from ecrt.errors import ECRTWarning


def sorted_noise(n_rows=120):
    """Columns that say nothing, rows sorted by class: a row counter that is learned from tells the class."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=["a", "b", "c"])
    table.insert(0, "Unnamed: 0", np.arange(n_rows))
    return table, np.repeat(["no", "or", "yes"], n_rows // 3)


def test_a_row_counter_does_not_help_in_a_comparison():
    X, y = sorted_noise()
    with pytest.warns(ECRTWarning, match=r"\['Unnamed: 0'\] are left out"):
        found = ecrt.compare(X, y, methods=["weighted-logistic", "balanced-forest"], seeds=2, trials=1)
    assert found.data["columns"] == 3
    for method in found.methods.values():
        assert np.mean(method.metrics["balanced"]["balanced_accuracy"]) < 0.6


def test_a_row_counter_is_in_no_refit_of_a_diagnosis(monkeypatch):
    read = []

    def learn(table):
        read.append((len(table), original(table)))
        return read[-1][1]

    original = TableEncoder.learn
    monkeypatch.setattr(TableEncoder, "learn", learn)
    X, y = sorted_noise()
    model = ecrt.ECRTClassifier(head="gaussian", demixing="linear")
    with pytest.warns(ECRTWarning, match=r"\['Unnamed: 0'\] are left out"):
        found = ecrt.diagnose(X, y, estimator=model, trials=6, refits=2)
    assert found.features == ("a", "b", "c")
    assert len({rows for rows, _ in read}) > 1
    assert {len(encoder.names_out) for _, encoder in read} == {3}
