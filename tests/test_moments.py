"""Moments of parts add up to those of all rows."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecrt.moments import Moments
from ecrt.nn import column_spread


def _plain(z, y, n_classes, pooled):
    """The definitions, word for word."""
    shifted = z - z[0]
    means = np.zeros((n_classes, z.shape[1]))
    squares, scatter = np.zeros_like(means), np.zeros((z.shape[1], z.shape[1]))
    for m in range(n_classes):
        rows = shifted[y == m]
        if len(rows):
            means[m] = z[0] + rows.mean(axis=0)
            away = rows - rows.mean(axis=0)
            squares[m] = (away**2).sum(axis=0)
            scatter += away.T @ away if pooled[m] else 0.0
    return np.bincount(y, minlength=n_classes), means, squares, scatter


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(sum),
    n_classes=st.integers(1, 5),
    offset=st.sampled_from([0.0, -3.0, 1e10]),
    ordered=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_parts_add_up(seed, sizes, n_classes, offset, ordered):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    z, y = rng.normal(size=(n, 3)) * [1.0, 5.0, 1e-2] + offset, rng.integers(n_classes, size=n)
    if ordered:  # each part then has some of the classes only
        y = np.sort(y)
    z[:, :2] += y[:, None]
    pooled = rng.random(n_classes) < 0.7
    cuts = np.cumsum(sizes)[:-1]
    parts = [Moments.of(*part, n_classes, pooled) for part in zip(np.split(z, cuts), np.split(y, cuts), strict=True)]
    found = reduce(add, parts)
    count, means, squares, scatter = _plain(z, y, n_classes, pooled)
    # Means of values near 1e10 are known to within 2e-6; sums of squares are of deviations of up to 5.
    precise = 1e-9 if offset < 1e9 else 1e-4
    assert np.array_equal(found.count_m, count)
    np.testing.assert_allclose(found.mean_md, means, rtol=1e-14, atol=1e-12)
    np.testing.assert_allclose(found.squares_md, squares, rtol=precise, atol=precise)
    np.testing.assert_allclose(found.scatter_dd, scatter, rtol=precise, atol=precise)
    np.testing.assert_allclose(found.spread_d, column_spread(z), rtol=precise, atol=1e-6 if offset > 1e9 else 1e-12)
    np.testing.assert_allclose(found.center_d, z[0] + (z - z[0]).mean(axis=0), rtol=1e-14, atol=1e-12)
    assert np.array_equal(found.low_d, z.min(axis=0))
    assert np.array_equal(found.high_d, z.max(axis=0))


def test_the_order_of_parts_does_not_matter():
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(1000, 4)) + 1e6, rng.integers(3, size=1000)
    parts = [Moments.of(z[part], y[part], 3) for part in np.array_split(np.arange(1000), 7)]
    one, other = reduce(add, parts), reduce(add, parts[::-1])
    np.testing.assert_allclose(one.scatter_dd, other.scatter_dd, rtol=1e-9)
    np.testing.assert_allclose(one.mean_md, other.mean_md, rtol=1e-14)


def test_a_plain_sum_of_squares_would_not_do():
    z = np.random.default_rng(0).normal(size=(500, 1)) + 1e10
    y = np.zeros(500, dtype=np.int64)
    found = reduce(add, (Moments.of(part, y[: len(part)], 1) for part in np.array_split(z, 10)))
    true = (z - z[0]).var() * 500
    assert found.scatter_dd[0, 0] == pytest.approx(true, rel=1e-6)
    assert abs((z**2).sum() - 500 * z.mean() ** 2 - true) > 1e3


def test_a_constant_column_has_no_spread():
    z, y = np.full((60, 2), 0.1), np.arange(60) % 3
    z[:, 1] += 1e-17 * y
    found = reduce(add, (Moments.of(z[part], y[part], 3) for part in np.array_split(np.arange(60), 5)))
    assert found.spread_d.tolist() == [0.0, 0.0]
    assert found.squares_md[:, 0].tolist() == [0.0, 0.0, 0.0]
