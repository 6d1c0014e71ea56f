"""Rows without labels: what they are thought to be, who may say so, and whether they are used."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import softmax
from sklearn.model_selection import GridSearchCV

import ecrt
from ecrt import ECRTClassifier
from ecrt.errors import InputError, ModelFileError
from ecrt.stages import blending
from ecrt.stages.unlabelled import (
    DOUBT,
    FREQUENCY_ROUNDS,
    LEAST_SHARE,
    NEIGHBOURS,
    Unlabelled,
    _of_frequencies,
    _prior,
    estimated_prior,
)

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")

CPU = torch.device("cpu")
QUICK = {"demixing": ["none", "linear"], "head": "linear", "random_state": 0}


def clusters(n_features=60):
    """Four classes in many columns, two of them with twenty labels; unlabelled rows of each; test rows."""
    rng = np.random.default_rng(0)
    means = 0.4 * np.random.default_rng(1).normal(size=(4, n_features))

    def draw(sizes):
        y = np.repeat(np.arange(4), sizes)
        return means[y] + rng.normal(size=(len(y), n_features)), y

    X, y = draw([60, 60, 20, 20])
    return X, y, draw([150] * 4)[0], *draw([200] * 4)


def noise(seed=0):
    """Labels that the columns know nothing of."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(150, 5)), np.repeat([0, 1, 2], [70, 60, 20]), rng.normal(size=(120, 5))


@pytest.fixture(scope="module")
def used():
    X, y, unlabelled, X_test, y_test = clusters()
    return ECRTClassifier(**QUICK).fit(X, y, X_unlabelled=unlabelled), X, y, unlabelled, X_test, y_test


# --- what rows are thought to be ----------------------------------------------------------------------


def naive_frequencies(odds, prior):
    """Class by class: each is scaled by how often it is and how often it should be, again and again."""
    n, k = len(odds), len(prior)
    factor = [1.0] * k
    for _ in range(FREQUENCY_ROUNDS):
        sums = [sum(odds[i][m] * factor[m] for m in range(k)) for i in range(n)]
        often = [sum(odds[i][m] * factor[m] / sums[i] for i in range(n)) / n for m in range(k)]
        factor = [factor[m] * prior[m] / often[m] for m in range(k)]
    scaled = [[odds[i][m] * factor[m] for m in range(k)] for i in range(n)]
    return [[value / sum(row) for value in row] for row in scaled]


def naive_soft(z, logits, counts):
    """Row by row and class by class: weights of every pair, 0 for those that are left out."""
    n, k = logits.shape
    like = [[np.exp(value) for value in row] for row in logits]
    prior = _prior(np.array(like), counts)
    first = naive_frequencies([[like[i][m] * prior[m] for m in range(k)] for i in range(n)], prior)
    standard = np.column_stack([(z - z.mean(0)) / z.std(0), np.ones(n)])
    second = []
    for i in range(n):
        angle = [
            standard[i] @ standard[j] / np.linalg.norm(standard[i]) / np.linalg.norm(standard[j]) for j in range(n)
        ]
        near = sorted((j for j in range(n) if j != i), key=lambda j: -angle[j])[:NEIGHBOURS]
        second.append([first[i][m] * (np.mean([first[j][m] for j in near]) + DOUBT) for m in range(k)])
    second = naive_frequencies(second, prior)
    weights = np.array([[value * max(row) if value > LEAST_SHARE else 0 for value in row] for row in second])
    for m in range(k):
        weights[:, m] *= min(1, counts[m] / weights[:, m].sum())
    return weights


def test_soft_rows_are_those_of_a_plain_loop():
    rng = np.random.default_rng(0)
    z, logits, counts = rng.normal(size=(40, 3)), 2 * rng.normal(size=(40, 3)), np.array([50, 20, 4])
    soft = Unlabelled(z, CPU).soft_rows(logits, counts)
    weights = np.zeros((40, 3))
    weights[soft.row, soft.y] = soft.weight
    np.testing.assert_allclose(weights, naive_soft(z, logits, counts), rtol=1e-6)


def test_classes_have_the_frequencies_that_are_asked_for():
    rng = np.random.default_rng(0)
    prior = np.array([0.9, 0.08, 0.02, 0.0])
    odds = softmax(2 * rng.normal(size=(500, 4)), axis=1) * [1, 0.1, 0.001, 1]  # too few of all but the first
    found = _of_frequencies(odds, prior)
    np.testing.assert_allclose(found.mean(axis=0), prior, atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    ratio = found[:, 1:3] / odds[:, 1:3] / (found[:, :1] / odds[:, :1])
    np.testing.assert_allclose(ratio, np.tile(ratio[:1], (500, 1)))  # classes are scaled, and nothing else
    nothing = _of_frequencies(np.zeros((3, 2)), np.array([0.5, 0.5]))
    np.testing.assert_array_equal(nothing, np.zeros((3, 2)))


def test_frequent_neighbours_do_not_outvote_a_rare_class():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 4))
    z[190:, 0] += 1.5
    soft = Unlabelled(z, CPU).soft_rows(np.column_stack([np.zeros(200), 2 * (z[:, 0] - 0.75)]), np.array([95, 5]))
    assert soft.weight[soft.y == 1].sum() > 3


def test_every_class_keeps_its_mass():
    rng = np.random.default_rng(0)
    soft = Unlabelled(rng.normal(size=(30, 2)), CPU).soft_rows(rng.normal(size=(30, 3)), np.array([9, 4, 2]))
    y, weight = np.repeat([0, 1, 2, 2], [9, 4, 2, 5]), rng.uniform(size=20)  # the last five are synthetic
    labelled, unlabelled = soft.shared_mass(y, weight, np.array([9, 4, 2]))
    mass = np.bincount(y, labelled) + np.bincount(soft.y, unlabelled, minlength=3)
    np.testing.assert_allclose(mass, np.bincount(y, weight))
    assert (unlabelled > 0).all()


def test_frequencies_are_those_of_the_labelled_rows_unless_the_others_speak_against_it():
    rng = np.random.default_rng(0)
    counts = np.array([80, 20])
    same, other = (
        softmax(2 * np.eye(2)[np.repeat([0, 1], sizes)] + rng.normal(size=(500, 2)), axis=1)
        for sizes in ([400, 100], [100, 400])
    )
    np.testing.assert_array_equal(_prior(same, counts), [0.8, 0.2])
    np.testing.assert_array_equal(_prior(other, counts), estimated_prior(other, counts.astype(float)))
    assert _prior(other, counts)[1] > 0.5


def test_rows_are_alike_where_a_mixture_of_the_classes_has_their_means():
    X, y, *_ = clusters(n_features=8)
    rng = np.random.default_rng(0)
    others = X[y == 3][rng.integers(20, size=300)]
    assert Unlabelled(others, CPU).alike(X, y)  # other frequencies are no objection
    assert not Unlabelled(others + 1, CPU).alike(X, y)
    assert not Unlabelled(np.roll(others, 1, axis=1) * 2, CPU).alike(X, y)
    assert Unlabelled(others[:2] + 1, CPU).alike(X, y)  # two rows prove little
    assert Unlabelled(np.ones((4, 2)), CPU).alike(np.ones((3, 2)), np.array([0, 0, 1]))
    assert Unlabelled(np.full((4, 2), 1e300), CPU).alike(np.eye(3, 2), np.array([0, 0, 1]))  # no spread to measure by


@pytest.mark.parametrize(
    "z", [np.zeros((5, 2)), np.ones((1, 3)), np.full((4, 1), 1e300)], ids=["constant", "one", "far"]
)
def test_odd_rows_have_finite_weights(z):
    soft = Unlabelled(z, CPU).soft_rows(np.zeros((len(z), 2)), np.array([3, 1]))
    assert np.isfinite(soft.weight).all()
    assert len(np.unique(soft.row)) == len(z)


# --- who may say so -----------------------------------------------------------------------------------


def test_rows_that_judge_have_no_part_in_what_the_unlabelled_rows_are_thought_to_be(monkeypatch):
    X, y, unlabelled, *_ = clusters()
    teachers, folds = [], []
    taught, tried = blending._taught, blending.try_heads
    monkeypatch.setattr(blending, "_taught", lambda *args, **more: teachers.append(args[3]) or taught(*args, **more))

    def spy(*args, **more):
        folds.extend(more["before"][0].folds if more.get("soft") else ())
        return tried(*args, **more)

    monkeypatch.setattr(blending, "try_heads", spy)
    ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, y, X_unlabelled=unlabelled)
    judged = [set(check.tolist()) for _, check in folds]
    assert len(judged) >= 4
    kept = [set(range(len(y))) - set(rows.tolist()) for rows in teachers[: len(judged)]]
    assert kept == judged  # then all rows, if used


# --- whether they are used ----------------------------------------------------------------------------


def test_rows_that_help_are_used_and_it_is_said(used):
    clf, X, y, _, X_test, y_test = used
    without = ECRTClassifier(**QUICK).fit(X, y)
    assert clf.unlabelled_used_
    assert "are used" in clf.unlabelled_verdict_
    assert "600" in clf.unlabelled_verdict_
    assert {one.taught for one in clf.members_} >= {True}
    assert all(one.name.endswith("unlabelled rows") == one.taught for one in clf.members_)
    assert clf.score(X_test, y_test) > without.score(X_test, y_test) + 0.01
    assert not without.unlabelled_used_
    assert without.unlabelled_verdict_ == ""


def test_rows_whose_pupils_have_no_weight_are_not_called_used(used):
    clf = copy.copy(used[0])
    clf.members_ = tuple(replace(one, weight=0.0 if one.taught else one.weight) for one in clf.members_)
    assert not clf.unlabelled_used_
    assert "are not used, since no model that learned from them has a weight" in clf.unlabelled_verdict_


@pytest.mark.parametrize("seed", range(3))
def test_on_noise_nothing_changes_by_a_bit(seed):
    X, y, unlabelled = noise(seed)
    clf = ECRTClassifier(**QUICK).fit(X, y, X_unlabelled=unlabelled)
    assert not clf.unlabelled_used_
    assert "not used" in clf.unlabelled_verdict_
    np.testing.assert_array_equal(clf.predict_proba(X), ECRTClassifier(**QUICK).fit(X, y).predict_proba(X))


def test_rows_of_other_columns_change_nothing_by_a_bit_and_it_is_said():
    X, y, unlabelled, *_ = clusters()
    clf = ECRTClassifier(**QUICK).fit(X, y, X_unlabelled=unlabelled + 2)
    assert not clf.unlabelled_used_
    assert "no mixture of the classes" in clf.unlabelled_verdict_
    np.testing.assert_array_equal(clf.predict_proba(X), ECRTClassifier(**QUICK).fit(X, y).predict_proba(X))


def test_they_are_used_where_some_of_many_rows_choose(used, monkeypatch):
    """The members that are then fitted on all rows learn from them as well."""
    _, X, y, unlabelled, *_ = used
    monkeypatch.setattr(blending, "MOST_ROWS", len(X) - 10)
    given = []
    again = blending.transfer_again
    monkeypatch.setattr(
        blending,
        "transfer_again",
        lambda *rows, **options: given.append(options["unlabelled"]) or again(*rows, **options),
    )
    clf = ECRTClassifier(**QUICK).fit(X, y, X_unlabelled=unlabelled)
    assert clf.unlabelled_used_
    assert [len(one) for one in given] == [len(unlabelled)]


def test_without_time_they_are_not_used():
    X, y, unlabelled, *_ = clusters()
    clf = ECRTClassifier(**QUICK, time_budget=1e-6).fit(X, y, X_unlabelled=unlabelled)
    assert not clf.unlabelled_used_
    assert "no time" in clf.unlabelled_verdict_


def test_the_same_seed_gives_the_same_bits_however_rows_are_given(used):
    clf, X, y, unlabelled, X_test, _ = used
    again = ECRTClassifier(**QUICK).fit(X, y, X_unlabelled=sparse.csr_matrix(unlabelled))
    np.testing.assert_array_equal(clf.predict_proba(X_test), again.predict_proba(X_test))


def test_a_model_that_learned_from_them_is_saved_and_refitted(used, tmp_path):
    clf, X, y, unlabelled, X_test, _ = used
    clf.save(tmp_path / "model")
    kept = ecrt.load(tmp_path / "model")
    np.testing.assert_array_equal(kept.predict_proba(X_test), clf.predict_proba(X_test))
    assert kept.unlabelled_verdict_ == clf.unlabelled_verdict_
    (card,) = (tmp_path / "model").glob("*.md")
    assert "unlabelled rows are used" in card.read_text()
    with pytest.raises(InputError, match="X_unlabelled"):
        kept.refit(X, y)
    assert [one.taught for one in kept.members_] == [one.taught for one in clf.members_]
    again = kept.refit(X, y, X_unlabelled=unlabelled)
    assert np.abs(again.predict_proba(X_test) - clf.predict_proba(X_test)).mean() < 0.05


def test_a_search_passes_them_on():
    X, y, unlabelled, *_ = clusters()
    search = GridSearchCV(ECRTClassifier(head="linear", random_state=0), {"demixing": ["none", "linear"]}, cv=2)
    search.fit(X, y, X_unlabelled=unlabelled)
    assert "600 unlabelled rows" in search.best_estimator_.unlabelled_verdict_


# --- what is refused ----------------------------------------------------------------------------------


def test_rows_are_read_as_those_of_x():
    X, y, unlabelled, *_ = clusters(n_features=4)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.where(y % 2, "odd", "even"))
    rows = pd.DataFrame(unlabelled, columns=list("abcd")).assign(kind="odd")
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(frame, y, X_unlabelled=rows)
    assert "600 unlabelled rows" in clf.unlabelled_verdict_
    with pytest.raises(InputError, match=r"X_unlabelled: .*feature names"):
        ECRTClassifier(head="linear").fit(frame, y, X_unlabelled=rows.rename(columns={"a": "z"}))
    with pytest.raises(InputError, match=r"X_unlabelled: .*3 features"):
        ECRTClassifier(head="linear").fit(X, y, X_unlabelled=unlabelled[:, :3])


def test_rows_with_several_labels_have_no_unlabelled_ones():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(InputError, match="X_unlabelled needs one label"):
        ECRTClassifier().fit(X, (X > 0).astype(int), X_unlabelled=X)


def test_a_forged_word_on_them_is_refused(used, tmp_path):
    clf, *_ = used
    clf.save(tmp_path)
    file = tmp_path / "model.json"
    file.write_text(file.read_text().replace('"rows":600', '"rows":"many"').replace('"rows": 600', '"rows": "many"'))
    with pytest.raises(ModelFileError):
        ecrt.load(tmp_path)


# --- from files ---------------------------------------------------------------------------------------


def test_the_command_takes_rows_with_an_empty_target(tmp_path):
    from ecrt.runs.config import read_config
    from ecrt.runs.model_folder import fit_file

    X, y, unlabelled, *_ = clusters(n_features=5)
    table = pd.DataFrame(np.concatenate([X, unlabelled]).round(3), columns=list("abcde"))
    table["label"] = [*(f"c{one}" for one in y), *[None] * len(unlabelled)]
    table.sample(frac=1, random_state=0).to_csv(tmp_path / "rows.csv", index=False)
    settings = ["demixing=linear", "head=linear"]
    said: list[str] = []
    config = read_config(None, settings, target=["label"], use_unlabelled=True)
    (tmp_path / "out").mkdir()
    found, _ = fit_file(tmp_path / "rows.csv", tmp_path / "out", config, say=said.append, verbose=False)
    assert found is not None
    assert "600 unlabelled rows" in found.unlabelled
    assert any("600 rows without a label are tried" in one for one in said)
    table.dropna().to_csv(tmp_path / "full.csv", index=False)
    with pytest.raises(InputError, match="no effect"):
        fit_file(tmp_path / "full.csv", tmp_path / "out", config, say=said.append, verbose=False)
