"""What a fitted model leaves on disk for its report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_classification
from torch.utils.data import TensorDataset

from ecrt import ECRTClassifier, Encoder, Flow, InputError
from ecrt.disk import plain, read_arrays, read_json
from ecrt.runs import evaluation as evaluation_module
from ecrt.runs.evaluation import Evaluation, beside_plain, evaluate

# --- a fitted model -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(
        700, n_features=6, n_informative=5, n_redundant=0, n_classes=4, n_clusters_per_class=1,
        weights=[0.4, 0.3, 0.25, 0.05], random_state=0,
    )  # fmt: skip
    return X, np.array(["a", "b", "c", "rare"])[y]


@pytest.fixture(scope="module")
def fitted(table: tuple[np.ndarray, np.ndarray]) -> ECRTClassifier:
    X, y = table
    return ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X[:400], y[:400])


@pytest.fixture(scope="module")
def evaluated(fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray]) -> Evaluation:
    X, y = table
    return evaluate(fitted, X[400:], y[400:], title="A table")


def test_both_priors_agree_with_the_classifier(
    fitted: ECRTClassifier, evaluated: Evaluation, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table[0][400:], table[1][400:]
    for prior in ("balanced", "training"):
        fitted.set_params(class_prior=prior)
        try:
            assert evaluated.metrics[prior]["top1"] == pytest.approx(fitted.score(X, y))
            np.testing.assert_allclose(
                evaluated.arrays[f"log_proba.{prior}"], fitted.predict_log_proba(X), rtol=1e-5, atol=1e-5
            )
            assert (fitted.classes_[evaluated.arrays[f"predicted.{prior}"]] == fitted.predict(X)).all()
            np.testing.assert_allclose(evaluated.arrays[f"confidence.{prior}"], fitted.predict_proba(X).max(axis=1))
            again = evaluate(fitted, X, y)  # the numbers do not depend on the prior that predict assumes
            assert again.metrics["training"] == pytest.approx(evaluated.metrics["training"])
            assert again.facts["class_prior"] == prior
        finally:
            fitted.set_params(class_prior="balanced")


def test_a_prior_of_ones_own_changes_nothing(
    fitted: ECRTClassifier, evaluated: Evaluation, table: tuple[np.ndarray, np.ndarray]
) -> None:
    fitted.set_params(class_prior=[0.1, 0.2, 0.3, 0.4])
    try:
        again = evaluate(fitted, table[0][400:], table[1][400:])
    finally:
        fitted.set_params(class_prior="balanced")
    assert again.facts["class_prior"] == "given"
    for prior in ("balanced", "training"):
        assert again.metrics[prior] == pytest.approx(evaluated.metrics[prior])


def test_guessing_is_the_training_frequencies(evaluated: Evaluation) -> None:
    shares = evaluated.arrays["counts"] / evaluated.arrays["counts"].sum()
    guessing = evaluated.metrics["guessing"]
    assert guessing["balanced_accuracy"] == pytest.approx(1 / 4)
    assert guessing["nll"] == pytest.approx(-np.log(shares[evaluated.y]).mean())


def test_facts_of_model_and_classes(fitted: ECRTClassifier, evaluated: Evaluation) -> None:
    classes, model = evaluated.arrays, evaluated.facts
    assert classes["labels"].tolist() == ["a", "b", "c", "rare"]
    assert classes["counts"].tolist() == fitted.class_counts_.tolist()
    assert classes["minority"].tolist() == [False, False, False, True]
    assert classes["demixed_on"].tolist() == [True, True, True, False]
    assert classes["max_correlation"][0] == fitted.diagnostics_.classes[0].max_correlation
    assert (model["demixing"], model["head"], model["n_sources"]) == ("linear", "linear", 6)
    (member,) = fitted.members_
    assert model["tried"] == {"linear, linear": {"loss": member.held_out, "weight": 1.0}}
    assert evaluated.verdict == fitted.verdict_
    assert evaluated.plain == {}
    assert evaluated.training["encoder"] is None
    assert len(evaluated.training["restarts"]) == 0


def test_beside_plain_is_a_mean_over_classes_with_an_interval_over_rows(
    evaluated: Evaluation, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table
    plain = ECRTClassifier(demixing="none", augmentation="none", head="linear", random_state=0).fit(X[:400], y[:400])
    other = evaluate(plain, X[400:], y[400:])
    found = beside_plain(evaluated, other)
    assert found.keys() == {"balanced_accuracy", "balanced_nll"}
    truth, rows = evaluated.y, np.arange(len(evaluated.y))
    losses = [-one.arrays["log_proba.balanced"][rows, truth].astype(np.float64) for one in (evaluated, other)]
    hits = [(one.arrays["predicted.balanced"] == truth).astype(np.float64) for one in (evaluated, other)]
    for name, (mine, theirs), sign in (("balanced_accuracy", hits, 1), ("balanced_nll", losses, -1)):
        means, variances = [], []
        for label in range(4):
            gains = sign * (mine - theirs)[truth == label]
            means.append(gains.mean())
            variances.append(gains.var(ddof=1) / len(gains))
        figures = found[name]
        assert figures["gain"] == pytest.approx(np.mean(means))
        assert figures["model"] == pytest.approx(np.mean([mine[truth == label].mean() for label in range(4)]))
        assert sign * (figures["model"] - figures["plain"]) == pytest.approx(figures["gain"])
        width = 1.968 * np.sqrt(np.sum(variances)) / 4  # Student's t, 299 degrees of freedom
        assert (figures["low"], figures["high"]) == pytest.approx(
            (figures["gain"] - width, figures["gain"] + width), abs=1e-4
        )
    same = beside_plain(evaluated, evaluated)
    assert all((one["gain"], one["low"], one["high"]) == (0, 0, 0) for one in same.values())


def test_points_are_few_and_of_the_right_classes(fitted: ECRTClassifier, evaluated: Evaluation) -> None:
    points = evaluated.arrays
    assert points["sources"].tolist() == np.argsort(-fitted.signal_weight_)[:2].tolist()
    assert points["real"].shape == (300, 2)
    assert set(points["synthetic_y"]) == {3}
    assert len(points["synthetic"]) == 500


def test_unknown_labels_are_counted_and_said(fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table[0][400:], table[1][400:].astype(object)
    y[:3], y[3] = "new", "other"
    found = evaluate(fitted, X, y)
    assert found.unknown_labels == {"new": 3, "other": 1}
    assert (found.y[:4] == -1).all()
    rest = evaluate(fitted, X[4:], y[4:])
    assert found.metrics["balanced"]["nll"] == pytest.approx(rest.metrics["balanced"]["nll"])
    assert found.metrics["balanced"]["top1"] == pytest.approx(rest.metrics["balanced"]["top1"] * 296 / 300)
    assert (found.arrays["real_y"] >= 0).all()
    names = found.metrics["balanced"]
    counting, left_out = found.unknown_in
    for name in names:
        changed = names[name] != pytest.approx(rest.metrics["balanced"][name])
        assert (name in counting, name in left_out) == (changed, not changed)


def test_labels_none_of_which_is_known_are_refused(
    fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.raises(InputError, match="None of the 2 labels"):
        evaluate(fitted, table[0][:2], [0, 1])
    with pytest.raises(InputError, match="X has 3 rows"):
        evaluate(fitted, table[0][:3], ["a", "b"])


def test_frames_and_datasets_are_taken(
    fitted: ECRTClassifier, evaluated: Evaluation, table: tuple[np.ndarray, np.ndarray]
) -> None:
    X, y = table[0][400:], table[1][400:]
    dataset = TensorDataset(torch.from_numpy(X), torch.zeros(len(X)))
    assert evaluate(fitted, dataset, y).metrics["balanced"] == pytest.approx(evaluated.metrics["balanced"])
    frame = pd.DataFrame(X, index=np.arange(len(X))[::-1])
    assert evaluate(fitted, frame, pd.Series(y)).metrics["balanced"] == pytest.approx(evaluated.metrics["balanced"])


def test_files_hold_everything(evaluated: Evaluation, tmp_path: Path) -> None:
    evaluated.write(tmp_path / "new")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"metrics.json", "evaluation.npz"}
    again, arrays = read_json(tmp_path / "new" / "metrics.json"), read_arrays(tmp_path / "new" / "evaluation.npz")
    assert again["title"] == "A table"
    assert again["unknown_labels"] == {}
    for name in ("facts", "metrics", "groups"):
        assert again[name] == plain(getattr(evaluated, name))
    assert arrays.keys() == evaluated.arrays.keys() >= {"y", "counts", "predicted.balanced", "log_proba.training"}
    for name, values in evaluated.arrays.items():
        np.testing.assert_array_equal(arrays[name], values)


def test_json_is_strict_and_small(evaluated: Evaluation, tmp_path: Path) -> None:
    evaluated.write(tmp_path)
    text = (tmp_path / "metrics.json").read_text(encoding="utf-8")
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(text) < 6000
    assert document["groups"]["balanced"]["few"]["n_classes"] >= 0
    assert document["rows"] == 300


def test_trained_parts_leave_curves(table: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    X, y = table
    clf = ECRTClassifier(
        encoder=Encoder("mlp", epochs=2, n_features=3),
        demixing=Flow(critic_width=4, n_restarts=2, hidden=(8,), epochs=2),
        head="gaussian",
        random_state=0,
    ).fit(X[:400], y[:400])
    found = evaluate(clf, X[400:], y[400:])
    found.write(tmp_path)
    kept = clf.history_["restarts"][0]
    assert found.training["encoder"].held_out_loss == clf.history_["encoder"].held_out_loss
    assert found.training["restarts"][0].n_blocks == kept.n_blocks
    written = json.loads((tmp_path / "metrics.json").read_text())["training"]
    assert written["restarts"][0]["history"]["held_out_loss"] == kept.history.held_out_loss
    assert len(written["restarts"]) == 2


def test_too_many_log_probabilities_are_left_out(
    fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_module, "MOST_LOG_PROBABILITIES", 10)
    evaluate(fitted, table[0][400:], table[1][400:]).write(tmp_path)
    assert not any(name.startswith("log_proba") for name in read_arrays(tmp_path / "evaluation.npz"))
