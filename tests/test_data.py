"""Class roles, imbalance protocols, splits, synthetic data with a known Bayes classifier, digits."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecrt.data import (
    assign_roles,
    exponential_imbalance,
    imbalanced_digits,
    minority_mask,
    step_imbalance,
    stratified_holdout,
    thin_out,
    toy_sources,
)
from ecrt.errors import ECRTWarning, InputError

LETTERS = np.array(list("abcdef"))

# --- who is minority -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "rule", "expected"),
    [
        ([500, 480, 460, 30], "auto", "d"),
        ([500, 500, 500, 250], "auto", ""),  # half the median itself is not below it
        ([500, 500, 500, 249], "auto", "d"),
        ([1000, 100, 90, 80, 10], "auto", "bcde"),  # only one class is above uniform share
        ([7, 7, 7], "auto", ""),
        ([50, 120, 119], 120, "ac"),
        ([50, 120, 119], np.int64(120), "ac"),
        ([50, 120, 119], 1, ""),
        ([5, 500, 500], ["b", "c"], "bc"),
        ([5, 500, 500], {"a"}, "a"),
        ([5, 500, 500], [], ""),
        ([5, 500, 500], np.array(["a"]), "a"),
        ([5, 500, 500], lambda counts: counts > 100, "bc"),
        ([5, 500, 500], "all", "abc"),
    ],
)
def test_minority_rules(counts, rule, expected):
    mask = minority_mask(np.array(counts), LETTERS[: len(counts)], rule)
    assert mask.dtype == bool
    assert "".join(LETTERS[: len(counts)][mask]) == expected


def test_labels_may_be_numbers():
    assert minority_mask(np.array([9, 9, 9]), np.array([10, 20, 30]), [30, 10]).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (["a", "z"], r"\['z'\].*Known: \['a', 'b', 'c'\]"),
        ("rare", "minority='rare': use 'auto', 'all', a count"),
        (lambda counts: counts, "one boolean for each of the 3 classes"),
        (lambda counts: np.array([True]), r"shape \(1,\)"),
    ],
)
def test_unusable_minority_rules_are_refused(rule, message):
    with pytest.raises(InputError, match=message):
        minority_mask(np.array([5, 500, 500]), LETTERS[:3], rule)


# --- what every class is used for ------------------------------------------------------------------


def letters(mask: np.ndarray) -> str:
    return "".join(LETTERS[: len(mask)][mask])


def test_majority_classes_teach_and_minority_classes_are_augmented():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        roles = assign_roles(np.array([500, 5, 500, 400, 20]), LETTERS[:5])
    assert letters(roles.minority) == letters(roles.augmented) == "be"
    assert letters(roles.encoded_on) == letters(roles.demixed_on) == "acd"
    assert roles.counts.tolist() == [500, 5, 500, 400, 20]


@pytest.mark.parametrize(("stage", "other"), [("encode_on", "demix_on"), ("demix_on", "encode_on")])
def test_each_stage_may_learn_from_all_classes(stage, other):
    roles = assign_roles(np.array([500, 5, 500, 400, 20]), LETTERS[:5], **{stage: "all"})
    used = {"encode_on": letters(roles.encoded_on), "demix_on": letters(roles.demixed_on)}
    assert used[stage] == "abcde"
    assert used[other] == "acd"


@pytest.mark.parametrize("counts", [[500, 5], [500, 400, 5, 6]], ids=["two classes", "two majority classes"])
def test_too_few_majority_classes_learn_from_all_and_say_so(counts):
    with pytest.warns(ECRTWarning) as said:
        roles = assign_roles(np.array(counts), LETTERS[: len(counts)])
    assert len(said) == 1
    assert "encoder and de-mixing learn from all classes" in str(said[0].message)
    assert roles.encoded_on.all()
    assert roles.demixed_on.all()
    assert np.array_equal(roles.augmented, roles.minority)
    assert roles.minority.sum() == len(counts) - len(counts) // 2
    with pytest.warns(ECRTWarning, match=": de-mixing learns from all classes"):  # a sampler has no encoder
        assign_roles(np.array(counts), LETTERS[: len(counts)], encode_on="all")


@pytest.mark.parametrize(
    ("counts", "rule", "augmented"),
    [
        ([5] * 6, "auto", "abcdef"),  # equal and small
        ([200] * 6, "auto", "abcdef"),
        ([201] * 6, "auto", ""),  # equal and big
        ([5] * 6, 3, ""),  # a count that nobody is below was meant so
        ([5] * 6, [], ""),
        ([5000] * 6, "all", "abcdef"),
    ],
)
def test_without_minority_all_small_classes_are_augmented(counts, rule, augmented):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        roles = assign_roles(np.array(counts), LETTERS, minority=rule)
    assert [str(warning.message).split(":")[0] for warning in said] == (
        [] if rule == "all" else ["No class is clearly a minority class"]
    )
    assert letters(roles.augmented) == augmented
    assert roles.encoded_on.all()
    assert roles.demixed_on.all()


# --- imbalance -------------------------------------------------------------------------------------


def test_step_imbalance_cuts_the_minority_alone():
    y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], 20))
    rows = step_imbalance(y, minority=["a", "c"], n_minority=3, rng=np.random.default_rng(1))
    assert dict(zip(*np.unique(y[rows], return_counts=True), strict=True)) == {"a": 3, "b": 20, "c": 3}
    assert np.all(np.diff(rows) > 0)


def test_thin_out_cannot_make_samples():
    y = np.repeat([0, 1], [4, 2])
    assert thin_out(y, {0: 100}, np.random.default_rng(0)).tolist() == [0, 1, 2, 3, 4, 5]


def test_thin_out_draws_at_random():
    y = np.zeros(100, dtype=int)
    draws = [thin_out(y, {0: 10}, np.random.default_rng(seed)).tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_exponential_imbalance_is_a_geometric_tail():
    y = np.repeat(np.arange(5), 10_000)
    rows = exponential_imbalance(y, ratio=100, rng=np.random.default_rng(0))
    assert np.bincount(y[rows]).tolist() == [10_000, 3162, 1000, 316, 100]


@given(n_minority=st.integers(1, 20), ratio=st.integers(1, 200))
def test_ends_of_the_tail_differ_by_the_ratio(n_minority, ratio):
    y = np.repeat([0, 1, 2], n_minority * ratio)
    counts = np.bincount(y[exponential_imbalance(y, ratio, np.random.default_rng(0))])
    assert counts[0] == n_minority * ratio
    assert counts[2] == n_minority


def test_exponential_imbalance_keeps_every_class():
    y = np.repeat(np.arange(4), 10)
    assert np.bincount(y[exponential_imbalance(y, 1e6, np.random.default_rng(0))]).min() == 1
    assert len(exponential_imbalance(np.zeros(7, dtype=int), 10, np.random.default_rng(0))) == 7


# --- hold-out --------------------------------------------------------------------------------------

label_lists = st.lists(st.integers(0, 5), min_size=1, max_size=60).map(np.array)
fractions = st.floats(0, 0.95)


@given(y=label_lists, fraction=fractions, seed=st.integers(0, 1000))
def test_holdout_is_a_split_in_which_every_class_keeps_a_row(y, fraction, seed):
    kept, held_out = stratified_holdout(y, fraction, np.random.default_rng(seed))
    assert sorted([*kept, *held_out]) == list(range(len(y)))
    assert set(y[kept]) == set(y)
    for label in np.unique(y):
        expected = fraction * (y == label).sum()
        assert expected - 2 < (y[held_out] == label).sum() <= expected + 1
    if fraction > 0 and np.bincount(y).max() > 1:
        assert len(held_out)


@given(y=label_lists, fraction=fractions, seed=st.integers(0, 1000))
def test_holdout_repeats_with_its_seed(y, fraction, seed):
    first, second = (stratified_holdout(y, fraction, np.random.default_rng(seed)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_holdout_of_many_small_classes_has_the_right_size():
    y = np.repeat(np.arange(2000), 3)
    _, held_out = stratified_holdout(y, 0.2, np.random.default_rng(0))
    assert len(held_out) == pytest.approx(0.2 * len(y), rel=0.06)


# --- synthetic data --------------------------------------------------------------------------------


def henon_inverse(z):
    first = z[:, 1] / 0.3
    return np.column_stack([first, z[:, 0] - 1 + 1.4 * first**2])


def test_draws_carry_their_truth():
    toy = toy_sources()
    data = toy.draw([0, 5000, 0, 3, 0, 0, 0], np.random.default_rng(0))
    assert np.bincount(data.y, minlength=7).tolist() == [0, 5000, 0, 3, 0, 0, 0]
    np.testing.assert_allclose(henon_inverse(data.z), data.s, atol=1e-12)
    np.testing.assert_allclose(data.s[data.y == 1].mean(axis=0), toy.means[1], atol=0.1)
    np.testing.assert_allclose(data.s[data.y == 1].var(axis=0), toy.variances[1], rtol=0.1)


def test_log_posterior_is_its_loop():
    toy = toy_sources()
    s = toy.draw([2] * 7, np.random.default_rng(0)).s
    for row, found in zip(s, toy.log_posterior(s), strict=True):
        density = [
            np.prod(np.exp(-((row - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance))
            for mean, variance in zip(toy.means, toy.variances, strict=True)
        ]
        np.testing.assert_allclose(np.exp(found), density / np.sum(density), rtol=1e-9, atol=1e-12)


def test_bayes_classifier_of_the_toy():
    """.874 and .318 are known values; the accuracy has a standard deviation of .003 on 14,000 points."""
    toy = toy_sources()
    data = toy.draw([2000] * 7, np.random.default_rng(0))
    log_posterior = toy.log_posterior(data.s)
    assert (log_posterior.argmax(axis=1) == data.y).mean() == pytest.approx(0.874, abs=3 * 0.003)
    assert -log_posterior[np.arange(len(data.y)), data.y].mean() == pytest.approx(0.318, abs=0.02)


# --- loaders ---------------------------------------------------------------------------------------


def test_imbalanced_digits():
    split = imbalanced_digits(n_minority=4, seed=0)
    counts = np.bincount(split.y_train)
    assert counts[5:].tolist() == [4] * 5
    assert counts[:5].min() > 80
    assert len(split.y_test) == 899
    assert split.X_train.shape == (len(split.y_train), 64)
    assert np.array_equal(split.X_train, imbalanced_digits(n_minority=4, seed=0).X_train)
