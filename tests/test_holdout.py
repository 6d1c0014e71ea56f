"""Rows that judge have no part in what they judge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from ecrt import BaselineClassifier, ECRTClassifier, Encoder, LinearHead
from ecrt.data import ClassRoles, stratified_holdout
from ecrt.nn import AutoEncoder, MLPEncoder
from ecrt.rivals import synthetic_rows
from ecrt.rivals.heads import TwoStepFitter
from ecrt.stages import Flow, Linear, NoDemixing, demix, encode
from ecrt.stages.holdout import Watched, across_halves, halves, head_folds
from ecrt.training import TrainingConfig

CPU = torch.device("cpu")
QUICK = TrainingConfig(epochs=2, batch_size=64)


@pytest.fixture
def rows():
    X, y = make_classification(
        200, 6, n_classes=4, n_informative=5, n_redundant=1, weights=[0.4, 0.3, 0.2, 0.1], random_state=0
    )
    return X, y.astype(np.int64)


def everyone(y):
    all_of_them = np.ones(y.max() + 1, dtype=bool)
    return ClassRoles(
        counts=np.bincount(y), minority=~all_of_them, augmented=~all_of_them, encoded_on=all_of_them,
        demixed_on=all_of_them,
    )  # fmt: skip


@pytest.mark.parametrize(
    "config", [Linear(), Linear(rotation="discriminant"), Linear(n_sources=2), NoDemixing()], ids=str
)
def test_linear_demixing_of_some_rows_does_not_depend_on_the_others(rows, config):
    X, y = rows
    learn, others = stratified_holdout(y, 0.2, np.random.default_rng(0))
    changed = X.copy()
    changed[others] = 5 * X[others[::-1]] + 1
    found = []
    for z, labels in ((X, y), (changed, np.where(np.isin(np.arange(len(y)), others), 0, y))):
        whole = demix(
            z, labels, train_rows=learn, held_out_rows=others, demixed_on=np.ones(4, dtype=bool),
            config=config, rng=np.random.default_rng(0), device=CPU,
        )  # fmt: skip
        part = whole.refit(learn)
        assert not np.allclose(whole.learned[learn], part.learned[learn])
        found.append((part.learned[learn], part.within_variance, part.head_scale))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_one_half_of_the_held_out_rows_stops_a_flow_and_the_other_stays_fresh(rows):
    X, y = rows
    train, held_out = stratified_holdout(y, 0.3, np.random.default_rng(0))
    demixed_on = np.array([True, True, True, False])
    result = demix(
        X, y, train_rows=train, held_out_rows=held_out, demixed_on=demixed_on, rng=np.random.default_rng(0), device=CPU,
        config=Flow(hidden=(8,), n_restarts=1, epochs=2, batch_size=64),
    )  # fmt: skip
    assert result.refit is None
    assert not result.fresh[train[demixed_on[y[train]]]].any()
    assert result.fresh[y == 3].all()
    judges = held_out[demixed_on[y[held_out]]]
    np.testing.assert_allclose(np.bincount(y[judges[result.fresh[judges]]]), np.bincount(y[judges]) / 2, atol=1)
    for learn, check in head_folds(y, train, held_out, np.random.default_rng(0), result.fresh):
        assert result.fresh[check].all()
        assert len(np.intersect1d(learn, check)) == 0
        assert set(y[check]) == {0, 1, 2, 3}


def test_folds_check_on_different_rows_where_all_are_fresh(rows):
    _, y = rows
    folds = head_folds(y, *stratified_holdout(y, 0.2, np.random.default_rng(0)), np.random.default_rng(0))
    checked = np.concatenate([check for _, check in folds])
    assert len(folds) == 5
    assert len(np.unique(checked)) == len(checked) >= len(y) - 4
    assert all(len(learn) + len(check) == len(y) for learn, check in folds)


@pytest.mark.parametrize(("encoder", "stopped_by_labels"), [(MLPEncoder, True), (AutoEncoder, False)])
def test_labels_that_stop_an_encoder_do_not_judge_what_follows(rows, encoder, stopped_by_labels):
    X, y = rows
    items = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    seen: list[np.ndarray] = []

    def oversample(fitted):
        seen.append(fitted)
        more = torch.cat([items.tensors[0], items.tensors[0][fitted[:3]]])
        labels = np.concatenate([y, y[fitted[:3]]])
        return torch.utils.data.TensorDataset(more, torch.from_numpy(labels)), labels

    result = encode(
        items, y, everyone(y), Encoder(encoder(6, (8,), 3), holdout=0.4, epochs=2, batch_size=64),
        rng=np.random.default_rng(0), device=CPU, oversample=oversample,
    )  # fmt: skip
    unseen = np.setdiff1d(np.arange(len(y)), seen[0])
    np.testing.assert_array_equal(result.unseen, unseen)
    assert len(result.features) == len(y)
    assert result.head_counts.sum() == len(seen[0]) + 3
    share = result.fresh[unseen].mean()
    assert not result.fresh[seen[0]].any()
    assert share == pytest.approx(0.5, abs=0.05) if stopped_by_labels else share == 1


def test_smote_makes_rows_of_what_the_encoder_learns_from_alone(rows, monkeypatch):
    X, y = rows
    given = []

    def smote(x, labels, rng, k_neighbors):
        given.append(len(labels))
        return x[:1], labels[:1]

    monkeypatch.setattr(synthetic_rows, "smote", smote)
    clf = BaselineClassifier(encoder=Encoder("mlp", holdout=0.4, epochs=1), method="smote", random_state=0)
    clf.fit(X, y)
    assert given[0] == pytest.approx(0.6 * len(y), abs=4)


def test_halves_share_strata_and_choose_for_each_other():
    strata = np.array([1, 0, 1, 0, 1, 0, 1, 0])
    half = halves(strata)
    assert np.bincount(strata[half]).tolist() == np.bincount(strata[~half]).tolist() == [2, 2]
    # Each setting is right for the rows of one half alone: what the other half chooses is wrong.
    losses = {True: np.where(half, 0.0, 1.0), False: np.where(half, 1.0, 0.0)}
    chosen = across_halves(half, lambda mine: min(losses.values(), key=lambda one: one[mine].mean()))
    np.testing.assert_array_equal(chosen, np.ones(8))
    assert across_halves(halves(np.zeros(1)), lambda mine: mine * 2.0).tolist() == [2.0]


def test_an_epoch_is_judged_by_the_half_that_did_not_stop_it():
    epochs = iter(torch.tensor([[0.0, 3.0], [3.0, 0.0], [2.0, 2.0]]))
    half = np.array([True, False])
    watched = Watched(lambda head, part: next(epochs), lambda logits, part: logits.numpy(), np.array([0.5, 0.5]), half)
    assert [watched(torch.nn.Identity()) for _ in range(3)] == [1.5, 1.5, 2.0]
    np.testing.assert_array_equal(watched.kept, [3.0, 3.0])


class GivenHeads:
    """Heads that are there already, in place of a fitter."""

    chooses_on_path = False

    def __init__(self, heads):
        self.heads = heads

    def path(self, sample, watched):
        return enumerate(self.heads)


def test_a_second_step_is_judged_by_rows_that_did_not_choose_the_first():
    rng = np.random.default_rng(0)
    heads = [torch.nn.Identity() for _ in range(40)]
    losses = {id(head): torch.from_numpy(rng.normal(1, 1, size=30)) for head in heads}
    kinds = {}

    def logits_of(head, part=None):
        """Logits that are losses at once."""
        return losses[kinds.get(id(head), id(head))]

    def copied(head):
        kinds[id(found := torch.nn.Identity())] = id(head)
        made.append(found)
        return found

    made = []
    weight, half = np.full(30, 1 / 30), halves(np.arange(30) // 10)
    watched = Watched(logits_of, lambda logits, part: logits.numpy(), weight, half)
    fitter = TwoStepFitter(GivenHeads(heads), lambda sample, setting, head: head, (0.0,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ecrt.rivals.heads.copy.deepcopy", copied)
        ((_, head),) = fitter.path(None, watched)
    best = [
        min(losses.values(), key=lambda one: one[side].mean()) for side in (~watched.sides[0][0], watched.sides[0][0])
    ]
    np.testing.assert_array_equal(watched.kept, np.where(watched.sides[0][0], *best))
    assert logits_of(head).mean() == min(one.mean() for one in losses.values())
    assert watched.kept.mean() > logits_of(head).mean() + 0.1  # what was chosen on these rows would flatter itself


def test_new_classes_are_learned_under_the_setting_of_the_fit(rows):
    X, y = rows
    clf = ECRTClassifier(demixing="linear", head=LinearHead(loss="focal"), random_state=0)
    clf.fit(X[y < 3], y[y < 3])
    before, temperature = dict(clf.history_), clf.members_[0].temperature
    clf.add_classes(X[y == 3], y[y == 3])
    assert clf.history_ == before
    assert clf.members_[0].temperature == temperature != 1


@pytest.mark.parametrize(("counts", "n_folds"), [
    ((60, 60, 8), 5), ((100, 100, 60), 4), ((500, 400, 250), 2), ((600, 600, 600), 1), ((6000, 6000, 20), 5),
    ((6000, 6000, 30), 4), ((15_000, 15_000, 20), 1),
])  # fmt: skip
def test_there_are_as_many_folds_as_judges_are_needed(counts, n_folds):
    rng, y = np.random.default_rng(0), np.repeat(np.arange(3), counts)
    train, held_out = stratified_holdout(y, 0.2, rng)
    assert len(head_folds(y, train, held_out, rng)) == n_folds
