"""SMOTE, distribution calibration and the conditional GAN: what each promises of its synthetic rows."""

from functools import partial

import numpy as np
import pytest
import torch

from ecrt.errors import InputError
from ecrt.rivals import DistributionCalibration
from ecrt.rivals.synthetic_rows import smote


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 3, 4], [60, 40, 7, 3, 1])
    return rng.standard_normal((len(y), 3)) + 4 * y[:, None], y


def test_smote_makes_classes_equally_large_whatever_their_size(rows):
    x, y = rows
    drawn, labels = smote(x, y, np.random.default_rng(1), 5)
    assert np.bincount(np.concatenate([y, labels])).tolist() == [60] * 5
    assert (drawn[labels == 4] == x[y == 4]).all()


def test_smote_draws_between_rows_of_the_class(rows):
    x, y = rows
    drawn, labels = smote(x, y, np.random.default_rng(1), 5)
    own = x[y == 3]
    for point in drawn[labels == 3]:
        gaps = []
        for i in range(3):
            for j in range(3):
                if i != j:
                    along = np.clip((point - own[i]) @ (own[j] - own[i]) / ((own[j] - own[i]) ** 2).sum(), 0, 1)
                    gaps.append(np.abs(own[i] + along * (own[j] - own[i]) - point).max())
        assert min(gaps) < 1e-9


def calibrated(x, y, rng):
    return DistributionCalibration().rows(x, y, np.array([True, True, False, False, False]), rng)


@pytest.mark.parametrize("draw", [partial(smote, k_neighbors=5), calibrated])
def test_draws_depend_on_the_seed_alone(rows, draw):
    first, again, other = (draw(*rows, np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_calibration_borrows_mean_and_covariance_from_the_nearest_classes():
    rng = np.random.default_rng(0)
    root = np.array([[1.0, 0.8], [0.0, 0.6]])
    near, nearer = rng.standard_normal((4000, 2)) @ root, rng.standard_normal((4000, 2)) @ root + [2.0, 0.0]
    far, few = rng.standard_normal((4000, 2)) * 9 + 90, np.array([[1.0, 3.0]])
    z, y = np.concatenate([near, nearer, far, few]), np.repeat([0, 1, 2, 3], [4000, 4000, 4000, 1])
    drawn, labels = DistributionCalibration(spread=0.25).rows(z, y, np.array([True, True, True, False]), rng)
    assert len(drawn) == 3999
    assert (labels == 3).all()
    assert drawn.mean(axis=0) == pytest.approx([1.0, 1.0], abs=0.1)  # (z + both means) / 3
    assert np.cov(drawn.T) == pytest.approx(root.T @ root + 0.25 * np.eye(2), abs=0.12)


def test_calibration_divides_draws_among_the_rows_of_a_class(rows):
    x, y = rows
    _, labels = calibrated(x, y, np.random.default_rng(0))
    assert np.bincount(np.concatenate([y, labels])).tolist() == [60, 40, 60, 60, 60]
    with pytest.raises(InputError, match="majority class"):
        DistributionCalibration().rows(x, y, np.zeros(5, dtype=bool), np.random.default_rng(0))


def test_the_tukey_transform_leaves_columns_that_were_negative_in_the_fit():
    z, nonnegative = torch.tensor([[4.0, -4.0], [9.0, 9.0], [-1.0, 1.0]]), torch.tensor([True, False])
    rooted = DistributionCalibration().transform(z, nonnegative)
    assert rooted.tolist() == [[2.0, -4.0], [3.0, 9.0], [0.0, 1.0]]
    logged = DistributionCalibration(power=0.0).transform(z, nonnegative)
    assert logged[:, 0].numpy() == pytest.approx(np.log1p([4.0, 9.0, 0.0]))
