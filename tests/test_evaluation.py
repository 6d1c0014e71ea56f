"""Metrics by class and by frequency, and what a fitted model leaves on disk for its report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from torch.utils.data import TensorDataset

from ecrt import ECRTClassifier, InputError
from ecrt.metrics.groups import (
    class_scores,
    confused_pairs,
    confusion,
    expected_calibration_error,
    frequency_group,
    group_recalls,
    prediction_metrics,
    reliability_bins,
)
from ecrt.runs import evaluation as evaluation_module
from ecrt.runs.evaluation import evaluate
from ecrt.runs.records import Evaluation

Y = np.array([0, 0, 0, 1, 1, 2, -1])
PREDICTED = np.array([0, 0, 1, 1, 0, 0, 1])


# --- metrics ------------------------------------------------------------------------------------------------------


def test_groups_have_the_usual_borders() -> None:
    counts = np.array([1000, 101, 100, 20, 19, 1])
    assert frequency_group(counts).tolist() == ["many", "many", "medium", "medium", "few", "few"]


def test_class_scores_by_hand() -> None:
    scores = class_scores(Y, PREDICTED, 4)
    assert scores["recall"][:3] == pytest.approx([2 / 3, 1 / 2, 0])
    assert scores["precision"][:2] == pytest.approx([2 / 4, 1 / 3])  # a row of an unknown class costs precision
    assert scores["f1"][:3] == pytest.approx([2 * 2 / 7, 2 * 1 / 5, 0])
    assert scores["support"].tolist() == [3, 2, 1, 0]
    assert scores["predicted"].tolist() == [4, 3, 0, 0]
    assert np.isnan([scores["precision"][2], scores["recall"][3], scores["f1"][3]]).all()


def test_group_recalls_by_hand() -> None:
    found = group_recalls(Y, PREDICTED, np.array([500, 120, 5, 3]))
    assert found["many"] == {"recall": pytest.approx((2 / 3 + 1 / 2) / 2), "n_classes": 2, "n_tested": 2}
    assert np.isnan(found["medium"]["recall"])
    assert found["medium"]["n_classes"] == 0
    assert found["few"] == {"recall": 0, "n_classes": 2, "n_tested": 1}


def test_confusion_leaves_unknown_labels_out() -> None:
    assert confusion(Y, PREDICTED, 3).tolist() == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert confusion(np.array([-1]), np.array([0]), 2).tolist() == [[0, 0], [0, 0]]


def test_confused_pairs_agree_with_a_loop() -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(-1, 5, 300), rng.integers(0, 5, 300)
    naive: dict[tuple[int, int], int] = {}
    for true, wrong in zip(y.tolist(), predicted.tolist(), strict=True):
        if true >= 0 and true != wrong:
            naive[true, wrong] = naive.get((true, wrong), 0) + 1
    found = confused_pairs(y, predicted)
    pairs = zip(found["true"].tolist(), found["predicted"].tolist(), strict=True)
    assert dict(zip(pairs, found["rows"].tolist(), strict=True)) == naive
    assert (np.diff(found["rows"]) <= 0).all()
    assert len(confused_pairs(np.array([0, 1]), np.array([0, 1]))["rows"]) == 0


def test_of_equal_pairs_the_larger_share_comes_first() -> None:
    found = confused_pairs(np.array([0, 0, 0, 0, 1, 1]), np.array([1, 0, 0, 0, 0, 1]))
    assert found["true"].tolist() == [1, 0]


def test_reliability_and_calibration_error_by_hand() -> None:
    confidence = np.array([0.05, 0.15, 0.95, 1.0])
    hit = np.array([True, False, True, True])
    bins = reliability_bins(confidence, hit, n_bins=10)
    assert bins["count"].tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert bins["accuracy"][[0, 1, 9]].tolist() == [1, 0, 1]
    assert bins["confidence"][9] == pytest.approx(0.975)
    assert np.isnan(bins["accuracy"][5])
    error = (0.95 + 0.15 + 2 * 0.025) / 4
    assert expected_calibration_error(confidence, hit, n_bins=10) == pytest.approx(error)
    assert np.isnan(expected_calibration_error(np.empty(0), np.empty(0, dtype=bool)))


def test_calibrated_predictions_have_almost_no_error() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=200_000)
    assert expected_calibration_error(confidence, rng.uniform(size=len(confidence)) < confidence) < 0.01


def test_prediction_metrics_count_unknown_labels_as_wrong() -> None:
    log_proba = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.5, 0.25, 0.25], [0.6, 0.3, 0.1]]))
    y, counts = np.array([0, 1, 1, -1]), np.array([10, 10, 10])
    found = prediction_metrics(log_proba, y, counts)
    assert found["accuracy"] == pytest.approx(2 / 4)
    assert found["balanced_accuracy"] == pytest.approx((1 + 1 / 2) / 2)
    assert found["macro_f1"] == pytest.approx((2 / 4 + 2 / 3) / 2)
    assert found["nll"] == pytest.approx(-np.log([0.7, 0.8, 0.25]).mean())
    assert found["balanced_nll"] == pytest.approx(-(np.log(0.7) + np.log([0.8, 0.25]).mean()) / 2)
    assert not {"top5", "roc_auc", "average_precision"} & set(found)


def test_top_five_for_many_classes_and_ranking_for_two() -> None:
    rng = np.random.default_rng(0)
    six = log_softmax(rng.normal(size=(50, 6)), axis=1)
    y = rng.integers(0, 6, 50)
    y[0] = -1
    hits = [label in np.argsort(-row)[:5] for row, label in zip(six, y, strict=True)]
    assert prediction_metrics(six, y, np.ones(6, dtype=np.int64))["top5"] == pytest.approx(np.mean(hits))

    two = np.log(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]]))
    rare_second = prediction_metrics(two, np.array([0, 0, 1, 1]), np.array([9, 2]))
    assert rare_second["roc_auc"] == pytest.approx(3 / 4)
    assert rare_second["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    rare_first = prediction_metrics(two, np.array([0, 0, 1, 1]), np.array([2, 9]))
    assert rare_first["average_precision"] == pytest.approx((1 + 2 / 3) / 2)  # 0.9 right, then 0.7 wrong, 0.6 right
    assert np.isnan(prediction_metrics(two, np.zeros(4, dtype=np.int64), np.array([9, 2]))["roc_auc"])


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
            assert evaluated.metrics[prior]["accuracy"] == pytest.approx(fitted.score(X, y))
            np.testing.assert_allclose(evaluated.log_proba[prior], fitted.predict_log_proba(X), rtol=1e-5, atol=1e-5)
            assert (fitted.classes_[evaluated.predicted[prior]] == fitted.predict(X)).all()
            np.testing.assert_allclose(evaluated.confidence[prior], fitted.predict_proba(X).max(axis=1))
            again = evaluate(fitted, X, y)  # the numbers do not depend on the prior that predict assumes
            assert again.metrics["training"] == pytest.approx(evaluated.metrics["training"])
            assert again.model.class_prior == prior
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
    assert again.model.class_prior == "given"
    for prior in ("balanced", "training"):
        assert again.metrics[prior] == pytest.approx(evaluated.metrics[prior])


def test_guessing_is_the_training_frequencies(evaluated: Evaluation) -> None:
    shares = evaluated.classes.counts / evaluated.classes.counts.sum()
    guessing = evaluated.metrics["guessing"]
    assert guessing["balanced_accuracy"] == pytest.approx(1 / 4)
    assert guessing["nll"] == pytest.approx(-np.log(shares[evaluated.y]).mean())


def test_facts_of_model_and_classes(fitted: ECRTClassifier, evaluated: Evaluation) -> None:
    classes, model = evaluated.classes, evaluated.model
    assert classes.labels.tolist() == ["a", "b", "c", "rare"]
    assert classes.counts.tolist() == fitted.class_counts_.tolist()
    assert classes.minority.tolist() == [False, False, False, True]
    assert classes.demixed_on.tolist() == [True, True, True, False]
    assert classes.max_correlation[0] == fitted.diagnostics_.classes[0].max_correlation
    assert (model.demixing, model.head, model.n_sources) == ("linear", "linear", 6)
    assert f"linear {model.head_setting:g}" in model.head_candidates
    assert evaluated.curves == ()


def test_points_are_few_and_of_the_right_classes(fitted: ECRTClassifier, evaluated: Evaluation) -> None:
    points = evaluated.points
    assert points.columns.tolist() == np.argsort(-fitted.signal_weight_)[:2].tolist()
    assert points.real.shape == (300, 2)
    assert set(points.synthetic_y) == {3}
    assert len(points.synthetic) == 500


def test_unknown_labels_are_counted_and_said(fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = table[0][400:], table[1][400:].astype(object)
    y[:3], y[3] = "new", "other"
    found = evaluate(fitted, X, y)
    assert found.unknown_labels == {"new": 3, "other": 1}
    assert (found.y[:4] == -1).all()
    rest = evaluate(fitted, X[4:], y[4:])
    assert found.metrics["balanced"]["nll"] == pytest.approx(rest.metrics["balanced"]["nll"])
    assert found.metrics["balanced"]["accuracy"] == pytest.approx(rest.metrics["balanced"]["accuracy"] * 296 / 300)
    assert (found.points.real_y >= 0).all()


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
    again = Evaluation.read(tmp_path / "new")
    assert again.title == "A table"
    assert again.model == evaluated.model
    assert again.metrics == evaluated.metrics
    assert str(again.groups) == str(evaluated.groups)  # NaN is not equal to itself
    assert again.unknown_labels == {}
    for part in ("classes", "points"):
        for name, values in vars(getattr(evaluated, part)).items():
            np.testing.assert_array_equal(getattr(getattr(again, part), name), values)
    for name in ("predicted", "confidence", "log_proba"):
        for prior in ("balanced", "training"):
            np.testing.assert_array_equal(getattr(again, name)[prior], getattr(evaluated, name)[prior])
    np.testing.assert_array_equal(again.y, evaluated.y)


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
        encoder="mlp", n_features=3, encoder_epochs=2, demixing="flow", flow_hidden=(8,), critic_width=4, epochs=2,
        n_restarts=2, head="gaussian", random_state=0,
    ).fit(X[:400], y[:400])  # fmt: skip
    evaluate(clf, X[400:], y[400:]).write(tmp_path)
    curves = Evaluation.read(tmp_path).curves
    assert [curve.stage for curve in curves] == ["encoder", "flow", "flow"]
    kept = clf.history_["restarts"][0]
    assert curves[1].held_out_loss.tolist() == kept.history.held_out_loss
    assert (curves[1].n_blocks, curves[1].best_epoch) == (kept.n_blocks, kept.history.best_epoch)


def test_too_many_log_probabilities_are_left_out(
    fitted: ECRTClassifier, table: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_module, "MOST_LOG_PROBABILITIES", 10)
    evaluate(fitted, table[0][400:], table[1][400:]).write(tmp_path)
    assert Evaluation.read(tmp_path).log_proba == {}


def test_missing_and_foreign_files_are_refused(evaluated: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no metrics\.json"):
        Evaluation.read(tmp_path)
    evaluated.write(tmp_path)
    document = json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))
    (tmp_path / "metrics.json").write_text(json.dumps(document | {"format": 99}), encoding="utf-8")
    with pytest.raises(InputError, match="format 99"):
        Evaluation.read(tmp_path)
