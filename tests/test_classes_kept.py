"""No class is lost on the way: each reaches the head with rows of its own, however few there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn

from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, Encoder, LinearHead
from ecrt.data import ClassRoles, assign_roles, indicator_of, stratified_holdout, with_lost_groups
from ecrt.estimators.inputs import read_labels
from ecrt.stages import LabelTarget, NoAugmentation, encode

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")

COUNTS = (30, 30, 30, 1, 2, 3, 4, 5)
EVERYONE = np.ones(len(COUNTS), dtype=bool)
HEAD = LinearHead(weight_decay=1e-3)


def separable(seed: int, counts: tuple[int, ...] = COUNTS) -> tuple[np.ndarray, np.ndarray]:
    """Classes that lie far apart, each on an axis of its own."""
    y = np.repeat(np.arange(len(counts)), counts)
    rng = np.random.default_rng(seed)
    return 8 * np.eye(len(counts))[y] + 0.5 * rng.normal(size=(len(y), len(counts))), y


@pytest.mark.parametrize("fraction", [0.05, 0.2, 0.5, 0.9])
def test_classes_of_two_rows_are_on_both_sides_of_the_encoders_split(fraction):
    y = np.repeat(np.arange(6), [1, 2, 3, 4, 5, 40])
    for seed in range(50):
        first, second = stratified_holdout(y, fraction, np.random.default_rng(seed), both_sides=True)
        assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(y)))
        assert set(y[first]) == set(range(6))
        assert set(y[second]) == set(range(1, 6))


def test_rows_of_lost_groups_are_shared_and_no_others():
    y = np.array([0, 0, 1, 1, 2, 2, 2])
    assert with_lost_groups(np.array([0, 4]), indicator_of(y)).tolist() == [0, 2, 3, 4]
    several = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 0]]))
    assert with_lost_groups(np.array([1, 3]), several).tolist() == [0, 1, 2, 3]
    assert with_lost_groups(np.array([0, 2]), several).tolist() == [0, 2]


def test_no_class_is_lost_between_encoder_and_head_over_many_seeds():
    X, y = separable(0)
    items = torch.utils.data.TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(y))
    roles = ClassRoles(
        counts=np.bincount(y), minority=~EVERYONE, augmented=~EVERYONE, encoded_on=EVERYONE, demixed_on=EVERYONE
    )
    config = Encoder(nn.Linear(len(COUNTS), 4), epochs=1, batch_size=64, weight_decay=0.0)
    for seed in range(10):
        result = encode(
            items, y, roles, config, rng=np.random.default_rng(seed), device=torch.device("cpu")
        )  # fmt: skip
        assert set(y[result.learn_rows]) == set(range(len(COUNTS)))
        assert result.head_classes.tolist() == list(range(len(COUNTS)))
        shared = np.setdiff1d(result.learn_rows, result.unseen)
        assert set(y[shared]) == {3}  # the class of one row; no other row was seen by the encoder


@pytest.mark.parametrize(
    ("encoder", "options"),
    [
        ("identity", {}),
        ("mlp", {"epochs": 15}),
        ("mlp", {"epochs": 15, "learn_from": "all"}),
        ("autoencoder", {"epochs": 15, "learn_from": "all"}),
        ("module", {"epochs": 15, "learn_from": "all"}),
        ("module", {"train": False}),
    ],
)
def test_every_class_is_found_again(encoder, options):
    for seed in range(2):
        torch.manual_seed(seed)
        X, y = separable(seed)
        model = ECRTClassifier(
            encoder=Encoder(nn.Linear(len(COUNTS), 12) if encoder == "module" else encoder, **options),
            demixing="linear", head=HEAD, random_state=seed,
        ).fit(X, y)  # fmt: skip
        kept = np.bincount(model._examples[1], minlength=len(COUNTS))
        assert (kept > 0).all()
        new_X, new_y = separable(seed + 100, (10,) * len(COUNTS))
        assert np.isfinite(model.decision_function(new_X)).all()
        found = model.predict(new_X) == new_y
        assert all(found[new_y == label].any() for label in range(len(COUNTS)))


@pytest.mark.parametrize("method", ["erm", "smote", "feature-smote", "crt", "tau-norm", "qda"])
def test_every_class_is_found_again_by_rivals_with_an_encoder(method):
    X, y = separable(0)
    model = BaselineClassifier(encoder=Encoder("mlp", epochs=30), method=method, random_state=0).fit(X, y)
    assert np.isfinite(model.decision_function(separable(100)[0])).all()
    assert set(model.predict(X)) == set(range(len(COUNTS)))


def label_matrix(seed: int) -> np.ndarray:
    """Labels 0 to 2 are common; 3 and 4 only ever accompany 5 to 7, none rarer; 8 is missing from one row alone."""
    rng = np.random.default_rng(seed)
    Y = np.zeros((60, 9), dtype=int)
    Y[np.arange(60), rng.integers(3, size=60)] = 1
    Y[[0, 1], 3] = Y[[2, 3], 4] = 1
    Y[[0, 2], 5] = Y[[1, 4], 6] = Y[[3, 5], 7] = 1
    Y[:, 8] = 1
    Y[59, 8] = 0
    return Y


def test_every_label_keeps_rows_with_and_without_it():
    labelled, _ = read_labels(label_matrix(0))
    roles = assign_roles(labelled.counts, np.arange(9))
    for seed in range(40):
        target = LabelTarget(labelled, roles, NoAugmentation(), np.random.default_rng(seed), torch.device("cpu"))
        train, held_out = target.split(0.3, None)
        assert len(held_out)
        counts = labelled[train].counts
        assert (counts > 0).all()
        assert counts[8] < len(train)


def test_no_label_is_lost_to_the_encoder():
    for seed in range(2):
        Y = label_matrix(seed)
        X = 6 * Y + 0.3 * np.random.default_rng(seed).normal(size=Y.shape)
        model = ECRTClassifier(
            encoder=Encoder("mlp", epochs=3, learn_from="all"), demixing="linear", head=HEAD, random_state=seed
        ).fit(X, Y)
        assert (np.bincount(model._examples[1], minlength=9) > 0).all()
        assert np.isfinite(model.predict_proba(X)).all()


def test_rare_targets_are_left_to_the_head():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        y = np.concatenate([rng.uniform(0, 0.8, size=120), [9.0, 11.0]])
        X = np.column_stack([y, rng.normal(size=(122, 2))])
        model = ECRTRegressor(encoder=Encoder("mlp", epochs=1), demixing="linear", head=HEAD, random_state=seed)
        targets = model.fit(X, y)._examples[1]
        assert targets.max() >= 9
