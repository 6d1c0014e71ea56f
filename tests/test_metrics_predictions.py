"""Measures of predicted probabilities against loops, scikit-learn and cases worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss

from ecrt import InputError
from ecrt.metrics import (
    Predictions,
    class_prior_of,
    class_scores,
    confused_pairs,
    expected_calibration_error,
    fit_temperature,
    frequency_group,
    group_recalls,
    measure_predictions,
    prediction_metrics,
    read_predictions,
    reliability_bins,
    scale_by_temperature,
    shift_prior,
    single_numbers,
)

Y = np.array([0, 0, 0, 1, 1, 2, -1])
PREDICTED = np.array([0, 0, 1, 1, 0, 0, 1])
COUNTS = np.array([500, 200, 100, 60, 19, 5, 3])


def predictions(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of seven classes, better than chance; the last class has no rows, three labels are unknown."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 6, n)
    log_proba = log_softmax(1.5 * rng.normal(size=(n, 7)) + 2 * np.eye(7)[y], axis=1)
    y[:3] = -1
    return log_proba, y


# --- by class and by frequency --------------------------------------------------------------------------------------


def test_groups_have_the_usual_borders() -> None:
    counts = np.array([1000, 101, 100, 20, 19, 1])
    assert frequency_group(counts).tolist() == ["many", "many", "medium", "medium", "few", "few"]


def test_class_scores_by_hand() -> None:
    scores = class_scores(Y, PREDICTED, 4)
    assert scores["recall"][:3] == pytest.approx([2 / 3, 1 / 2, 0])
    assert scores["precision"][:2] == pytest.approx([2 / 4, 1 / 3])  # a row of an unknown class costs precision
    assert scores["f1"][:3] == pytest.approx([2 * 2 / 7, 2 * 1 / 5, 0])
    assert scores["support"].tolist() == [3, 2, 1, 0]
    assert np.isnan([scores["precision"][2], scores["recall"][3], scores["f1"][3]]).all()


def test_group_recalls_by_hand() -> None:
    found = group_recalls(class_scores(Y, PREDICTED, 4)["recall"], np.array([500, 120, 5, 3]))
    assert found["many"] == {"recall": pytest.approx((2 / 3 + 1 / 2) / 2), "n_classes": 2, "n_tested": 2}
    assert np.isnan(found["medium"]["recall"])
    assert found["medium"]["n_classes"] == 0
    assert found["few"] == {"recall": 0, "n_classes": 2, "n_tested": 1}


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


# --- every metric by a loop ---------------------------------------------------------------------------------------


def naive_average_precision(score: list[float], positive: list[bool]) -> float:
    """Sum over positives, from the best scored, of the precision there (no ties in these data), over their number."""
    order = sorted(range(len(score)), key=lambda row: -score[row])
    hits, total = 0, 0.0
    for rank, row in enumerate(order, start=1):
        if positive[row]:
            hits += 1
            total += hits / rank
    return total / sum(positive)


def naive_metrics(log_proba: np.ndarray, y: np.ndarray, n_bins: int = 15) -> dict[str, float]:
    n, n_classes = log_proba.shape
    predicted = [max(range(n_classes), key=lambda m, row=row: log_proba[row, m]) for row in range(n)]
    known = [row for row in range(n) if y[row] >= 0]
    recalls, f1s, losses, precisions = [], [], [], []
    for m in range(n_classes):
        rows = [row for row in known if y[row] == m]
        hits = sum(predicted[row] == m for row in rows)
        given = sum(label == m for label in predicted)
        if rows:
            recalls.append(hits / len(rows))
            losses.append(sum(-log_proba[row, m] for row in rows) / len(rows))
            precisions.append(naive_average_precision([log_proba[r, m] for r in known], [y[r] == m for r in known]))
        if rows or given:
            f1s.append(2 * hits / (len(rows) + given))
    error = 0.0
    for b in range(n_bins):
        mine = [r for r in known if min(int(np.exp(log_proba[r].max()) * n_bins), n_bins - 1) == b]
        right = sum(predicted[r] == y[r] for r in mine)
        error += abs(right - sum(np.exp(log_proba[r].max()) for r in mine)) / len(known)
    top5 = sum(sum(log_proba[r, m] > log_proba[r, y[r]] for m in range(n_classes)) < 5 for r in known)
    return {
        "top1": sum(predicted[r] == y[r] for r in range(n)) / n,
        "top5": top5 / n,
        "balanced_accuracy": sum(recalls) / len(recalls),
        "macro_f1": sum(f1s) / len(f1s),
        "g_mean": float(np.prod(recalls)) ** (1 / len(recalls)),
        "nll": sum(-log_proba[r, y[r]] for r in known) / len(known),
        "balanced_nll": sum(losses) / len(losses),
        "ece": error,
        "mean_average_precision": sum(precisions) / len(precisions),
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_number_is_its_loop(seed: int) -> None:
    log_proba, y = predictions(seed=seed)
    found = prediction_metrics(log_proba, y, COUNTS, prior="balanced")
    assert found["g_mean"] > 0  # not a case in which it tells nothing
    assert single_numbers(found) == pytest.approx(naive_metrics(log_proba, y))


def test_the_tables_are_those_of_each_class() -> None:
    log_proba, y = predictions()
    counts = COUNTS[::-1]
    found = prediction_metrics(log_proba, y, counts, prior="balanced")
    table, scores = found["by_class"], class_scores(y, log_proba.argmax(axis=1), 7)
    assert table["class"] == [6, 5, 4, 3, 2, 1, 0]
    assert table["frequency"] == COUNTS.tolist()
    np.testing.assert_array_equal(table["f1"], scores["f1"][::-1])
    np.testing.assert_array_equal(table["recall"], scores["recall"][::-1])
    known = y >= 0
    expected = naive_average_precision(log_proba[known, 2].tolist(), (y[known] == 2).tolist())
    assert table["average_precision"][4] == pytest.approx(expected)
    assert np.isnan([table["recall"][0], table["average_precision"][0]]).all()  # no test rows
    assert table["f1"][0] == 0  # but predicted
    assert found["by_group"] == group_recalls(scores["recall"], counts)
    assert {name: group["n_tested"] for name, group in found["by_group"].items()} == {"many": 1, "medium": 2, "few": 3}


def test_nll_is_that_of_scikit_learn_with_zeros_too() -> None:
    proba = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    y = np.array([2, 0, 1])
    with np.errstate(divide="ignore"):
        found = prediction_metrics(np.log(proba), y, np.ones(3), prior="balanced")
    assert found["nll"] == pytest.approx(log_loss(y, proba, labels=[0, 1, 2]))
    assert all(np.isfinite(value) for value in single_numbers(found).values())


def test_top_five_for_many_classes_and_ranking_for_two() -> None:
    assert "top5" not in prediction_metrics(np.zeros((2, 5)), [0, 1], np.ones(5), prior="balanced")
    two = np.log(np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]]))
    y = np.array([0, 0, 1, 1])
    rare_second = prediction_metrics(two, y, [9, 2], prior="training")
    assert rare_second["roc_auc"] == pytest.approx(3 / 4)
    assert rare_second["average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    rare_first = prediction_metrics(two, y, [2, 9], prior="training")
    assert rare_first["average_precision"] == pytest.approx((1 + 2 / 3) / 2)  # 0.9 right, then 0.7 wrong, 0.6 right
    alone = prediction_metrics(two, np.zeros(4, dtype=int), [9, 2], prior="training")
    assert np.isnan([alone["roc_auc"], alone["average_precision"]]).all()
    assert alone["mean_average_precision"] == 1


def test_of_two_classes_the_ranking_does_not_mind_the_prior() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    log_proba = log_softmax(20 * rng.normal(size=(200, 2)) + 30 * np.eye(2)[y], axis=1)  # many within 1e-16 of sure
    found = [prediction_metrics(log_proba, y, [99, 1], prior=prior, assumed="balanced") for prior in PRIOR_NAMES]
    for name in ("average_precision", "roc_auc", "mean_average_precision"):
        assert found[0][name] == pytest.approx(found[1][name], abs=1e-12)
    assert found[0]["balanced_accuracy"] != found[1]["balanced_accuracy"]


PRIOR_NAMES: tuple[Any, ...] = ("balanced", "training")


def test_labels_never_seen_and_only_those() -> None:
    log_proba, _ = predictions(4)
    found = prediction_metrics(log_proba, [-1, -1, -1, -1], COUNTS, prior="balanced")
    assert (found["top1"], found["top5"], found["macro_f1"]) == (0, 0, 0)
    assert np.isnan([found[name] for name in ("nll", "balanced_nll", "ece", "g_mean", "mean_average_precision")]).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"log_proba_nm": np.zeros((2, 3))}, "shape"),
        ({"y_n": [0, 9]}, "class indices from 0 to 6"),
        ({"y_n": [0.0, 1.5]}, "class indices"),
        ({"y_n": [0, -2]}, "class indices"),
        ({"log_proba_nm": np.full((2, 7), np.nan)}, "first in row 0"),
        ({"log_proba_nm": np.zeros((0, 7)), "y_n": np.zeros(0, dtype=int)}, "no predictions"),
        ({"prior": "uniform"}, "no class prior 'uniform'"),
        ({"assumed": [1.0, 2.0]}, "7 classes"),
        ({"assumed": [-1.0] * 7}, "at least 0"),
        ({"validation": (np.zeros((1, 7)), [-1])}, "validation rows"),
    ],
)
def test_what_cannot_be_measured_is_said(change: dict[str, Any], words: str) -> None:
    usual: dict[str, Any] = {"log_proba_nm": np.zeros((2, 7)), "y_n": [0, 1], "counts_m": COUNTS, "prior": "balanced"}
    with pytest.raises(InputError, match=words):
        prediction_metrics(**usual | change)


# --- priors -------------------------------------------------------------------------------------------------------


def test_a_shift_is_bayes_rule() -> None:
    log_proba, _ = predictions(20)
    start, end = class_prior_of("training", COUNTS), np.arange(1, 8) / 28
    shifted = shift_prior(log_proba, start, end)
    for row, before in zip(shifted, log_proba, strict=True):
        joint = [np.exp(before[m]) / start[m] * end[m] for m in range(7)]
        np.testing.assert_allclose(np.exp(row), np.array(joint) / sum(joint))
    np.testing.assert_allclose(shift_prior(shifted, 28 * end, start), log_proba)  # and back


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-50, 50), min_size=3, max_size=3),
    st.lists(st.floats(1e-6, 1), min_size=9, max_size=9),
)
def test_shifts_compose_and_normalise(scores: list[float], shares: list[float]) -> None:
    a, b, c = np.array(shares).reshape(3, 3)
    start = log_softmax(np.array([scores]), axis=1)
    direct = shift_prior(start, a, c)
    np.testing.assert_allclose(shift_prior(shift_prior(start, a, b), b, c), direct, atol=1e-9)
    assert np.exp(direct).sum() == pytest.approx(1)


def test_zeros_under_every_prior() -> None:
    with np.errstate(divide="ignore"):
        log_proba = np.log(np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))
    shifted = np.exp(shift_prior(log_proba, [0.9, 0.1, 0.0], [1, 1, 1]))  # a class that training had nothing of
    np.testing.assert_allclose(shifted, [[0.1, 0.9, 0], [0, 1, 0]])
    np.testing.assert_allclose(np.exp(shift_prior(log_proba[:1], [1, 1, 1], [0, 1, 1])), [[0, 1, 0]])
    with pytest.raises(InputError, match="Class 1 has probabilities"):
        shift_prior(log_proba, [0.9, 0.0, 0.1], [1, 1, 1])
    with pytest.raises(InputError, match="Row 1 gives no probability"):
        shift_prior(log_proba, [1, 1, 1], [1, 0, 1])


def test_predictions_are_shifted_from_the_prior_they_assume() -> None:
    log_proba, y = predictions()
    trained = shift_prior(log_proba, np.ones(7), COUNTS)
    expected = prediction_metrics(trained, y, COUNTS, prior="training")
    found = prediction_metrics(log_proba, y, COUNTS, prior="training", assumed="balanced")
    assert single_numbers(found) == pytest.approx(single_numbers(expected))
    assert found["nll"] != pytest.approx(prediction_metrics(log_proba, y, COUNTS, prior="balanced")["nll"])


# --- temperature --------------------------------------------------------------------------------------------------


class _Given(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its logits."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> _Given:
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[X.argmax(axis=1)]

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X


def test_the_temperature_is_that_of_scikit_learn() -> None:
    log_proba, y = predictions(2000)
    known = (y >= 0) & (y < 6)
    log_proba, y = 3 * log_proba[known][:, :6], y[known]
    scaled = scale_by_temperature(log_softmax(log_proba, axis=1), fit_temperature(log_softmax(log_proba, axis=1), y))
    peer = CalibratedClassifierCV(FrozenEstimator(_Given().fit(log_proba, y)), method="temperature")
    peer.fit(log_proba, y)
    assert np.exp(scaled) == pytest.approx(peer.predict_proba(log_proba), abs=1e-3)


def test_the_temperature_comes_from_validation_rows_alone() -> None:
    log_proba, y = predictions(600)
    sure = log_softmax(4 * log_proba, axis=1)
    test, held_out = (sure[:300], y[:300]), (sure[300:], y[300:])
    found = prediction_metrics(*test, COUNTS, prior="training", validation=held_out)
    temperature = fit_temperature(*held_out)
    scaled = scale_by_temperature(sure[3:300], temperature)
    assert found["temperature"] == pytest.approx(temperature, rel=1e-4)
    assert found["temperature"] == pytest.approx(4, rel=0.5)
    assert found["nll_scaled"] == pytest.approx(-scaled[np.arange(297), y[3:300]].mean(), rel=1e-4)
    assert found["nll_scaled"] < found["nll"]
    assert found["top1"] == prediction_metrics(*test, COUNTS, prior="training")["top1"]
    assert "nll_scaled" not in prediction_metrics(*test, COUNTS, prior="training")
    assert found["temperature"] != pytest.approx(fit_temperature(sure[3:300], y[3:300]), rel=1e-3)


def test_under_the_balanced_prior_classes_count_alike_for_the_temperature() -> None:
    rng = np.random.default_rng(0)
    y = np.array([0] * 900 + [1] * 100)
    scores = np.where(y == 0, 3.0, 1.0)[:, None] * np.eye(2)[np.where(rng.random(1000) < 0.9, y, 1 - y)]
    validation = (log_softmax(scores, axis=1), y)
    found = prediction_metrics(*validation, [900, 100], prior="balanced", validation=validation)
    grid = [
        np.mean([
            -scale_by_temperature(validation[0][y == m], t)[np.arange((y == m).sum()), m].mean() for m in (0, 1)
        ])
        for t in np.exp(np.linspace(-2, 2, 401))
    ]  # fmt: skip
    assert found["balanced_nll_scaled"] == pytest.approx(min(grid), abs=1e-4)


def test_a_zero_where_the_truth_is_does_not_break_the_temperature() -> None:
    with np.errstate(divide="ignore"):
        log_proba = np.log(np.array([[1.0, 0.0], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0]]))
    found = prediction_metrics(log_proba, [0, 1, 1, 0], [2, 2], prior="balanced", validation=(log_proba, [0, 1, 1, 0]))
    assert 1 < found["temperature"] < 1000
    assert found["nll_scaled"] < found["nll"]


# --- on disk ------------------------------------------------------------------------------------------------------


def test_a_file_gives_what_the_arrays_give(tmp_path: Path) -> None:
    log_proba, y = predictions()
    prior = np.array([0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    kept = Predictions(log_proba=log_proba, y=y, counts=COUNTS, prior=prior, validation=predictions(80, seed=1))
    kept.write(tmp_path / "kept.npz")
    found = measure_predictions(tmp_path / "kept.npz")
    assert set(found) == {"balanced", "training"}
    for name, figures in found.items():
        expected = prediction_metrics(
            log_proba, y, COUNTS, prior=name, assumed=prior, validation=predictions(80, seed=1)
        )
        assert str(figures) == str(expected)  # NaN is not equal to itself


def test_the_file_of_an_evaluation_is_read(tmp_path: Path) -> None:
    log_proba, y = predictions()
    shifted = shift_prior(log_proba, np.ones(7), COUNTS)
    np.savez(
        tmp_path / "evaluation.npz",
        **{"log_proba.balanced": log_proba, "log_proba.training": shifted, "y": y, "counts": COUNTS},
    )
    for name, figures in measure_predictions(tmp_path / "evaluation.npz").items():
        expected = prediction_metrics(log_proba, y, COUNTS, prior=name, assumed="balanced")
        assert single_numbers(figures) == pytest.approx(single_numbers(expected))


def test_files_that_are_no_predictions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_predictions(tmp_path / "none.npz")
    np.savez(tmp_path / "other.npz", y=[0])
    with pytest.raises(InputError, match=r"holds no \['counts', 'log_proba', 'prior'\]"):
        read_predictions(tmp_path / "other.npz")
    np.savez(tmp_path / "odd.npz", y=[0], log_proba=[[0.0]], counts=[1], prior="odd")
    with pytest.raises(InputError, match="no class prior 'odd'"):
        read_predictions(tmp_path / "odd.npz")
