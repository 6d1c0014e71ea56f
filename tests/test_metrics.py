"""Metrics against scikit-learn and loops; independence measures on data whose dependence is known."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, log_loss, top_k_accuracy_score

from ecrt.diagnostics import hsic, max_abs_correlation, mean_correlation_coefficient
from ecrt.metrics import mean_over_classes, nll_per_sample, top_k_hits
from ecrt.stages.holdout import better_under_weights


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def predictions(rng) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of eight classes that are better than chance, and the true labels."""
    y = np.arange(200) % 8
    scores = rng.normal(size=(200, 8)) + 1.5 * np.eye(8)[y]
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)), y


# --- classification --------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 5, 7])
def test_top_k_is_that_of_scikit_learn(predictions, k):
    scores, y = predictions
    assert 0 < top_k_hits(scores, y, k).mean() < 1
    assert top_k_hits(scores, y, k).mean() == pytest.approx(top_k_accuracy_score(y, scores, k=k))


@pytest.mark.parametrize("k", [8, 9])
def test_no_more_than_k_classes_always_hit(predictions, k):
    assert top_k_hits(*predictions, k).all()


def test_equal_scores_are_no_gift():
    """A constant prediction hits as often as argmax would, not always."""
    y = np.arange(8)
    for k in (1, 5):
        assert top_k_hits(np.zeros((8, 8)), y, k).sum() == k
    assert top_k_hits(np.zeros((8, 8)), y, 1).tolist() == (y == 0).tolist()


def test_nan_is_no_hit():
    assert not top_k_hits(np.full((3, 8), np.nan), np.array([0, 3, 7]), 5).any()


def test_nll_is_log_loss(predictions):
    log_proba, y = predictions
    assert nll_per_sample(log_proba, y).mean() == pytest.approx(log_loss(y, np.exp(log_proba)))


def test_every_class_counts_the_same_in_the_mean_over_classes(rng):
    y = np.array([0] * 90 + [1] * 9 + [4])  # classes 2 and 3 are absent
    values = rng.normal(size=100)
    expected = (values[:90].mean() + values[90:99].mean() + values[99]) / 3
    assert mean_over_classes(values, y) == pytest.approx(expected)


def test_mean_hit_over_classes_is_balanced_accuracy(predictions):
    scores, y = predictions
    assert mean_over_classes(top_k_hits(scores, y, 1), y) == pytest.approx(
        balanced_accuracy_score(y, scores.argmax(axis=1))
    )


def test_better_by_more_than_a_standard_error(rng):
    weight = np.ones(100)
    champion = rng.normal(size=100)
    noise = rng.normal(size=100)
    noise -= noise.mean()
    assert better_under_weights(champion - 0.2 + noise, champion, weight)  # two standard errors
    assert not better_under_weights(champion - 0.05 + noise, champion, weight)  # half of one
    assert not better_under_weights(champion + 0.2 + noise, champion, weight)
    assert not better_under_weights(champion, champion, weight)


def test_better_under_weights_that_count_every_class_the_same():
    """Nine tenths of the rows gain a little, the rare class loses much."""
    y = np.array([0] * 90 + [1] * 10)
    challenger = np.where(y == 0, -1.0, 3.0)
    assert challenger.mean() < 0
    assert not better_under_weights(challenger, np.zeros(100), (1 / np.bincount(y))[y])


# --- independence ----------------------------------------------------------------------------------


def uncorrelated_but_dependent(rng: np.random.Generator) -> np.ndarray:
    x = rng.uniform(-1, 1, 300)
    return np.column_stack([x, x**2])


def test_hsic_is_its_loop(rng):
    """U-centred kernels, the diagonal left out of every sum."""
    n = 8
    s = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]])
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    centred = []
    for x in s.T:
        bandwidth = np.median([(x[i] - x[j]) ** 2 for i, j in pairs])
        k = {(i, j): np.exp(-((x[i] - x[j]) ** 2) / bandwidth) for i, j in pairs}
        row = [sum(k[i, j] for j in range(n) if j != i) / (n - 2) for i in range(n)]
        total = sum(k.values()) / ((n - 1) * (n - 2))
        centred.append([k[i, j] - row[i] - row[j] + total for i, j in pairs])
    a, b = np.array(centred)
    assert a @ b > 0  # hsic gives zero for what is below it
    assert hsic(s) == pytest.approx(a @ b / np.sqrt(a @ a * (b @ b)))


def test_hsic_is_near_zero_for_independent_coordinates():
    for seed in range(5):
        assert 0 <= hsic(np.random.default_rng(seed).normal(size=(300, 2))) < 0.05


def test_hsic_sees_dependence_without_correlation(rng):
    s = uncorrelated_but_dependent(rng)
    assert max_abs_correlation(s) < 0.15
    assert hsic(s) > 0.25


def test_hsic_of_a_copy_is_one(rng):
    x = rng.normal(size=100)
    assert hsic(np.column_stack([x, -3 * x + 5])) == pytest.approx(1.0)


def test_hsic_finds_the_worst_pair(rng):
    independent = rng.normal(size=(300, 3))
    assert hsic(np.column_stack([independent, uncorrelated_but_dependent(rng)])) > 0.25


@pytest.mark.parametrize("shape", [(5, 2), (100, 1)])
def test_hsic_needs_six_rows_and_two_columns(rng, shape):
    assert np.isnan(hsic(rng.normal(size=shape)))


def test_max_abs_correlation_is_its_loop(rng):
    s = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4))
    expected = max(abs(np.corrcoef(s[:, a], s[:, b])[0, 1]) for a in range(4) for b in range(a))
    assert max_abs_correlation(s) == pytest.approx(expected)


@pytest.mark.parametrize("measure", [hsic, max_abs_correlation])
def test_constant_columns_are_left_out(rng, measure):
    s = rng.normal(size=(50, 2))
    assert measure(np.insert(s, 1, 4.2, axis=1)) == measure(s)
    assert np.isnan(measure(np.column_stack([s[:, 0], np.full(50, 4.2)])))


def test_mcc_ignores_order_sign_and_monotone_maps(rng):
    s = rng.normal(size=(200, 3))
    found = np.column_stack([np.exp(s[:, 2]), -(s[:, 0] ** 3), s[:, 1]])
    assert mean_correlation_coefficient(s, found) == pytest.approx(1.0)


def test_mcc_uses_every_coordinate_once(rng):
    """Two copies of one source are not two sources."""
    s = rng.normal(size=(2000, 2))
    assert mean_correlation_coefficient(s, s[:, [0, 0]]) == pytest.approx(0.5, abs=0.05)


def test_mcc_of_unrelated_sources_is_low(rng):
    assert mean_correlation_coefficient(*rng.normal(size=(2, 2000, 2))) < 0.1
