"""What a diagnosis measures: each measure finds what it is for, and stays silent where there is nothing."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from ecrt.data import rare_feature_data
from ecrt.diagnostics import (
    class_dependence,
    feature_memorisation,
    hsic,
    hsic_test,
    minority_gap,
    source_gaussianity,
    source_stability,
    unique_feature,
)
from ecrt.metrics import holm

LEVEL = 0.05


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """A fifth of the draws will do to tell 0.025 from 0.05."""
    monkeypatch.setattr(importlib.import_module("ecrt.diagnostics"), "GROUPS_DRAWN", 39)


def too_many(n_tests: int) -> int:
    """Rejections that a test of level 0.05 exceeds in one of a thousand series."""
    from scipy.stats import binom

    return int(binom.ppf(0.999, n_tests, LEVEL))


# --- independence -------------------------------------------------------------------------------------------------


def test_hsic_test_holds_its_level_and_finds_dependence_without_correlation():
    p_values = []
    for seed in range(60):
        rng = rng_of(seed)
        p_values.append(hsic_test(rng.standard_normal((40, 3)), rng, n_permutations=99)[1])
    assert sum(p < LEVEL for p in p_values) <= too_many(60)
    assert np.mean(np.array(p_values) < 0.5) == pytest.approx(0.5, abs=0.2)
    rng = rng_of(0)
    x = rng.standard_normal(80)
    value, p = hsic_test(np.column_stack([x, x**2, rng.standard_normal(80)]), rng, n_permutations=199)
    assert p == 1 / 200
    assert value > 0.3


def test_hsic_test_gives_the_same_value_as_hsic():
    s = rng_of(3).standard_normal((50, 4)) @ rng_of(4).standard_normal((4, 4))
    assert hsic_test(s, rng_of(0), n_permutations=19)[0] == pytest.approx(hsic(s), abs=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (50, 1)])
def test_hsic_test_cannot_tell_from_nothing(shape):
    assert np.isnan(hsic_test(rng_of(0).standard_normal(shape), rng_of(1))).all()


def test_dependence_shows_mixed_features_and_independent_sources():
    rng = rng_of(0)
    y = np.repeat(np.arange(5), [80, 80, 80, 40, 5])
    s = rng.standard_normal((len(y), 3)) + 2 * rng.standard_normal((5, 3))[y]
    z = s @ np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1.0]])
    found = class_dependence(z, s, y, np.array(list("abcde")), np.arange(5) >= 3, rng)
    assert found["label"][found["p_z"] < LEVEL].tolist() == ["d", "a", "b", "c"]  # rare classes first
    assert not (found["p_s"] < LEVEL).any()
    assert found["label"][found["p_s"].isna()].tolist() == ["e"]  # five rows
    assert set(found["label"][found["minority"]]) == {"d", "e"}


def test_dependence_corrects_for_the_number_of_classes():
    rng = rng_of(1)
    y = np.repeat(np.arange(30), 15)
    s = rng.standard_normal((len(y), 3))
    found = class_dependence(s, s, y, np.arange(30), np.zeros(30, dtype=bool), rng)
    assert len(found) == 20  # the most that are tested
    assert not (found["p_s"] < LEVEL).any()
    assert holm([0.01] * 20) == [0.2] * 20


# --- the shape of sources -----------------------------------------------------------------------------------------


def test_gaussianity_holds_its_level_in_small_classes():
    """Residuals over the deviation of 20 rows are no Gaussian sample: a plain test would reject too often."""
    y = np.repeat(np.arange(40), 20)
    rejected = 0
    for seed in range(15):
        rng = rng_of(seed)
        scale = rng.uniform(0.5, 2, (40, 2))[y]
        found = source_gaussianity(scale * rng.standard_normal((len(y), 2)), y, rng)
        rejected += (found.sources["p_value"] < LEVEL).any()
    assert rejected <= too_many(15)


def test_gaussianity_names_the_skewed_source():
    rng = rng_of(0)
    y = np.repeat(np.arange(4), 60)
    s = np.column_stack([rng.standard_normal(240), rng.exponential(size=240), rng.standard_normal(240)])
    found = source_gaussianity(s, y, rng)
    assert found.strong["source"].tolist() == [1]
    assert found.sources["skewness"].iloc[0] > 1
    assert found.n_classes == 4
    assert found.quantiles.shape == (100, 4)


def test_gaussianity_leaves_out_sources_that_are_the_same_in_all_rows_of_a_class():
    rng, y = rng_of(2), np.repeat([0, 1, 2], 60)
    same = np.where(y == 1, 8.8, -4.4) * (1 + 1e-16 * rng.standard_normal(len(y)))  # a category that a class has
    some = np.where(y == 1, 3.0, rng.standard_normal(len(y)))
    found = source_gaussianity(np.column_stack([same, rng.standard_normal(len(y)), some]), y, rng)
    assert sorted(found.sources["source"]) == [1, 2]
    assert np.isfinite(found.sources.to_numpy(dtype=float)).all()
    assert np.isfinite(found.quantiles).all()
    assert source_gaussianity(same[:, None], y, rng).sources.empty


def test_gaussianity_cannot_tell_from_tiny_classes():
    y = np.repeat(np.arange(10), 5)
    assert source_gaussianity(rng_of(0).standard_normal((50, 2)), y, rng_of(0)).sources.empty


def test_stability_knows_order_sign_and_stretching():
    s = rng_of(0).standard_normal((200, 3))
    same = source_stability([s, -3 * s[:, [2, 0, 1]], np.exp(s)])
    assert same == (1.0, 1.0, 1.0)
    other = source_stability([s, rng_of(1).standard_normal((200, 3))])
    assert min(other) < 0.3
    assert source_stability([s]) == ()


# --- memorised rows -----------------------------------------------------------------------------------------------


def test_memorised_rows_sit_on_their_class_means():
    rng = rng_of(0)
    y = np.repeat(np.arange(6), 40)
    seen = np.arange(240) % 4 > 0
    means = 3 * rng.standard_normal((6, 8))[y]
    noise = rng.standard_normal((240, 8))
    found = feature_memorisation(means + noise * np.where(seen, 0.6, 1.0)[:, None], y, seen, rng)
    assert found is not None
    assert found.memorised
    assert found.ratio == pytest.approx(1 / 0.36, rel=0.25)
    assert (found.n_seen, found.n_held_out) == (180, 60)


@pytest.mark.parametrize("rows", [4, 40])
def test_nothing_memorised_is_found_where_nothing_is(rows):
    """A class mean lies closer to the rows that it was made of: the more so, the fewer they are."""
    ratios, rejected = [], 0
    y = np.repeat(np.arange(12), rows)
    for seed in range(30):
        rng = rng_of(seed)
        seen = np.tile(np.arange(rows) < max(3, rows // 2), 12)
        z = rng.standard_normal((12, 6))[y] + rng.standard_normal((len(y), 6))
        found = feature_memorisation(z, y, seen, rng)
        assert found is not None
        ratios.append(found.ratio)
        rejected += found.p_value < LEVEL
    assert np.mean(ratios) == pytest.approx(1, abs=0.12)
    assert rejected <= too_many(30)


def test_memorisation_needs_both_kinds_of_rows():
    y = np.repeat([0, 1], 10)
    assert feature_memorisation(rng_of(0).standard_normal((20, 2)), y, y == 0, rng_of(0)) is None


# --- a feature unique to the minority -----------------------------------------------------------------------------


def heterogeneous(seed: int, n_majority: int, n_rare: int, extra: float) -> tuple[np.ndarray, np.ndarray]:
    """Classes whose variances differ a lot; rare ones vary ``extra`` times as much along one direction."""
    rng = rng_of(seed)
    y = np.repeat(np.arange(n_majority + n_rare), [30] * n_majority + [10] * n_rare)
    spread = np.sqrt(rng.gamma(3.0, 1 / 3, (n_majority + n_rare, 5)))
    spread[n_majority:, 0] *= extra
    z = rng.standard_normal((n_majority + n_rare, 5))[y] + spread[y] * rng.standard_normal((len(y), 5))
    return z @ rng.standard_normal((5, 5)), y


@pytest.mark.parametrize(("n_majority", "by"), [(12, "classes"), (2, "rows")])
def test_unique_feature_is_found(n_majority, by):
    z, y = heterogeneous(0, n_majority, 3, extra=8.0)
    found = unique_feature(z, y, np.arange(n_majority + 3) >= n_majority, rng_of(0))
    assert found is not None
    assert found.by == by
    assert found.found
    assert found.ratio > 10
    assert np.abs(found.weights).max() == 1
    assert found.projections[found.minority].std() > 3 * found.projections[~found.minority].std()


def test_unique_feature_test_holds_its_level_though_classes_differ():
    p_values = []
    for seed in range(20):
        z, y = heterogeneous(seed, 12, 3, extra=1.0)
        found = unique_feature(z, y, np.arange(15) >= 12, rng_of(seed))
        assert found is not None
        p_values.append(found.p_value)
    assert sum(p < LEVEL for p in p_values) <= too_many(20)


def test_few_rows_and_many_columns_are_no_unique_feature():
    """Rows that the covariance was made of vary less in its units than new ones, which chance must be measured on."""
    y = np.repeat(np.arange(6), [20, 20, 20, 20, 6, 6])
    p_values = []
    for seed in range(20):
        found = unique_feature(rng_of(seed).standard_normal((len(y), 60)), y, np.arange(6) >= 4, rng_of(seed))
        assert found is not None
        assert found.by == "rows"
        p_values.append(found.p_value)
    assert sum(p < LEVEL for p in p_values) <= too_many(20)


def test_unique_feature_cannot_be_told_from_three_rows():
    y = np.repeat(np.arange(5), [30, 30, 30, 3, 3])
    z = rng_of(0).standard_normal((len(y), 4))
    assert unique_feature(z, y, np.arange(5) >= 3, rng_of(0)) is None
    assert unique_feature(z, y, np.zeros(5, dtype=bool), rng_of(0)) is None


def test_unique_feature_is_the_same_in_any_units():
    z, y = heterogeneous(1, 12, 3, extra=6.0)
    minority = np.arange(15) >= 12
    first = unique_feature(z, y, minority, rng_of(0))
    second = unique_feature(z * np.array([1, 1e3, 1e-3, 5, 1]) + 7, y, minority, rng_of(0))
    assert first is not None
    assert second is not None
    assert first.ratio == pytest.approx(second.ratio, rel=1e-6)


def test_constant_columns_do_no_harm():
    z, y = heterogeneous(2, 12, 3, extra=6.0)
    found = unique_feature(np.column_stack([z, np.full(len(y), 3.0)]), y, np.arange(15) >= 12, rng_of(0))
    assert found is not None
    assert found.found
    assert np.isfinite(found.weights).all()


# --- features against sources -------------------------------------------------------------------------------------


def test_minority_gap_counts_classes_alike():
    y = np.repeat(np.arange(4), [1, 10, 10, 10])
    loss_z = np.full(31, 2.0)
    loss_s = np.where(y == 0, 0.0, 2.0)
    gap = minority_gap(loss_z, loss_s, y)
    assert gap is not None
    assert gap.gain == pytest.approx(0.5)
    assert gap.over == "classes"
    assert gap.low < 0 < gap.high  # one class of four says little
    sure = minority_gap(loss_z, loss_z + 1 + 0.1 * rng_of(0).standard_normal(31), y)
    assert sure is not None
    assert sure.high < 0
    assert minority_gap(loss_z[:1], loss_s[:1], y[:1]) is None


# --- the twins ----------------------------------------------------------------------------------------------------


def test_twins_differ_only_in_what_frequent_classes_do():
    data = {unique: rare_feature_data(unique=unique, rng=rng_of(0)) for unique in (True, False)}
    frequent = data[True].y < 18
    assert data[True].s[frequent, -1].std() == pytest.approx(0.2, rel=0.1)
    assert data[False].s[frequent, -1].std() > 3
    for one in data.values():
        rare = one.s[~frequent]
        means = np.stack([rare[one.y[~frequent] == label].mean(axis=0) for label in range(18, 26)])
        assert means[:, -1].std() > 3  # what tells rare classes apart
        assert means[:, :7].std(axis=0).max() < 0.6
