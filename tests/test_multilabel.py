"""Rows with several labels: measures and losses against their loops, de-mixing on pairs, and the classifier whole."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import accuracy_score, f1_score

import ecrt
from ecrt import (
    ECRTClassifier,
    ECRTWarning,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    MLPHead,
    Parametric,
)
from ecrt.data import assign_roles
from ecrt.flows import fit_linear_demixing, within_label_moments
from ecrt.losses import (
    ABSENT,
    PRESENT,
    SYNTHETIC,
    UNKNOWN,
    label_margins,
    label_odds,
    masked_bce,
    masked_focal,
    masked_ldam,
    row_mass,
)
from ecrt.metrics import (
    bce_per_row,
    best_thresholds,
    label_average_precision,
    label_f1,
    multilabel_metrics,
    top_k_accuracy,
)
from ecrt.moments import within_class_residuals
from ecrt.stages import Labelled, NoDemixing, Permutation, demix
from ecrt.stages.augmenting import draw_classes, label_sources
from ecrt.stages.targets import LabelTarget, View

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(40, 6)).round(1)  # rounded, so that some are equal
PRESENT_NM = RNG.random((40, 6)) < 0.3
PRESENT_NM[0] = False
LINEAR = {"demixing": "linear", "head": "linear", "random_state": 0}


# --- measures --------------------------------------------------------------------------------------


def test_top_k_accuracy_is_its_loop():
    expected = []
    for scores, present in zip(SCORES.tolist(), PRESENT_NM.tolist(), strict=True):
        k = sum(present)
        best = sorted(range(6), key=lambda label: (-scores[label], label))[:k]
        expected.append(sum(present[label] for label in best) / k if k else math.nan)
    np.testing.assert_allclose(top_k_accuracy(SCORES, PRESENT_NM), expected)


def test_bce_is_its_loop():
    expected = []
    for scores, present in zip(SCORES.tolist(), PRESENT_NM.tolist(), strict=True):
        total = 0.0
        for score, here in zip(scores, present, strict=True):
            p = 1 / (1 + math.exp(-score))
            total -= math.log(p if here else 1 - p)
        expected.append(total / 6)
    np.testing.assert_allclose(bce_per_row(SCORES, PRESENT_NM), expected)
    assert np.isfinite(bce_per_row(np.full((1, 2), 1e4), np.array([[True, False]]))).all()


def test_f1_is_its_loop():
    predicted = SCORES > 0.5
    hits_all, total_all = 0, 0
    for label, value in enumerate(label_f1(predicted, PRESENT_NM)):
        hits = sum(p and y for p, y in zip(predicted[:, label], PRESENT_NM[:, label], strict=True))
        total = int(predicted[:, label].sum() + PRESENT_NM[:, label].sum())
        assert value == pytest.approx(2 * hits / total)
        hits_all, total_all = hits_all + hits, total_all + total
    assert multilabel_metrics(SCORES, PRESENT_NM, predicted)["micro_f1"] == pytest.approx(2 * hits_all / total_all)
    none = np.zeros((3, 2), dtype=bool)
    assert np.isnan(label_f1(none, none)).all()
    assert math.isnan(multilabel_metrics(np.zeros((3, 2)), none, none)["micro_f1"])


def test_average_precision_is_its_loop():
    found = label_average_precision(RNG.permuted(np.arange(40.0))[:, None], PRESENT_NM[:, :1])
    assert 0 < found[0] <= 1
    scores, present = SCORES[:, 1] + np.arange(40) * 1e-6, PRESENT_NM[:, 1]
    order = np.argsort(-scores)
    precisions = [present[order[: i + 1]].mean() for i in range(40) if present[order[i]]]
    assert label_average_precision(scores[:, None], present[:, None])[0] == pytest.approx(np.mean(precisions))
    assert np.isnan(label_average_precision(SCORES[:, :1], np.zeros((40, 1), dtype=bool))).all()


def test_thresholds_have_the_highest_f1_of_all():
    cuts = best_thresholds(SCORES, PRESENT_NM, np.zeros(6))
    chosen = label_f1(cuts <= SCORES, PRESENT_NM)
    for cut in np.unique(SCORES):
        assert (chosen >= label_f1(cut <= SCORES, PRESENT_NM) - 1e-12).all()
    one = np.zeros((40, 1), dtype=bool)
    one[3] = True
    assert best_thresholds(SCORES[:, :1], one, np.array([0.7])).tolist() == [0.7]


def test_summary_of_measures():
    found = multilabel_metrics(SCORES, PRESENT_NM, SCORES > 0)
    assert found["macro_f1"] == pytest.approx(f1_score(PRESENT_NM, SCORES > 0, average="macro"))
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(PRESENT_NM, SCORES > 0))


# --- losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_masked_bce_is_its_loop(dtype):
    logits = torch.from_numpy(SCORES[:4]).to(dtype)
    target = torch.tensor(
        [[0, 1, 0, 0, 1, 1], [0] * 6, [-1, -1, 2, -1, -1, -1], [-1, -1, -1, -1, -1, 2]], dtype=torch.int8
    )
    odds, share = torch.linspace(-2, 1, 6, dtype=dtype), torch.linspace(0.5, 1, 6, dtype=dtype)
    expected = []
    for row, codes in zip(logits.tolist(), target.tolist(), strict=True):
        total = 0.0
        for m, code in enumerate(codes):
            p = 1 / (1 + math.exp(-(row[m] + odds[m].item())))
            if code == ABSENT:
                total -= math.log(1 - p)
            if code in (PRESENT, SYNTHETIC):
                total -= (share[m].item() if code == PRESENT else 1.0) * math.log(p)
        expected.append(total)
    torch.testing.assert_close(
        masked_bce(logits, target, odds, share), torch.tensor(expected, dtype=dtype), rtol=1e-4, atol=1e-5
    )


TARGET_NM = torch.tensor([[0, 1, 0, 0, 1, 1], [0] * 6, [-1, -1, 2, -1, -1, -1], [1, 0, -1, 2, 0, 1]], dtype=torch.int8)


def two_class_loop(loss_of):
    """Every label on its own: ``loss_of`` a logit, whether the label holds, and which label it is."""
    share = torch.linspace(0.5, 1, 6, dtype=torch.float64)
    expected = []
    for row, codes in zip(SCORES[:4], TARGET_NM.tolist(), strict=True):
        total = 0.0
        for m, code in enumerate(codes):
            if code != UNKNOWN:
                total += (share[m].item() if code == PRESENT else 1.0) * loss_of(row[m], code != ABSENT, m)
        expected.append(total)
    return share, torch.tensor(expected, dtype=torch.float64)


def test_focal_loss_of_labels_is_its_loop():
    def focal(logit, holds, m):
        p = 1 / (1 + math.exp(-logit if holds else logit))
        return -((1 - p) ** 1.5) * math.log(p)

    share, expected = two_class_loop(focal)
    found = masked_focal(torch.from_numpy(SCORES[:4]), TARGET_NM, share, gamma=1.5)
    torch.testing.assert_close(found, expected)


def test_margins_of_labels_are_those_of_two_classes():
    counts, n = torch.tensor([1, 16, 81, 3, 5, 7]), 97
    present, absent = label_margins(counts, n, 0.4)
    assert present[0].item() == pytest.approx(0.4)  # the rarest class of all
    np.testing.assert_allclose(absent / present[0], (n - counts.double()) ** -0.25)

    def ldam(logit, holds, m):
        moved = logit - present[m].item() if holds else -(logit + absent[m].item())
        return math.log1p(math.exp(-moved))

    share, expected = two_class_loop(ldam)
    torch.testing.assert_close(masked_ldam(torch.from_numpy(SCORES[:4]), TARGET_NM, share, present, absent), expected)


def test_a_synthetic_row_has_a_gradient_on_its_own_column_alone():
    logits = torch.zeros(1, 4, requires_grad=True)
    target = torch.tensor([[UNKNOWN, UNKNOWN, SYNTHETIC, UNKNOWN]])
    masked_bce(logits, target, torch.zeros(4), torch.ones(4)).sum().backward()
    assert logits.grad.ne(0).tolist() == [[False, False, True, False]]


def test_row_mass_with_one_label_a_row_is_the_mass_of_classes():
    y = np.repeat([0, 1, 2], [6, 3, 1])
    indicator = sparse.csr_array(np.eye(3)[y])
    for mass, expected in {"training": [0.6, 0.3, 0.1], "balanced": [1 / 3] * 3}.items():
        np.testing.assert_allclose(np.bincount(y, row_mass(indicator, mass)), expected)
    assert row_mass(indicator, "tempered").sum() == pytest.approx(1)
    assert np.isfinite(label_odds(sparse.csr_array(np.array([[1, 0], [1, 0]])))).all()


@pytest.mark.parametrize("weight", [0.3, 1.0])
@pytest.mark.parametrize("mass", ["training", "balanced"])
def test_augmentation_leaves_the_mass_of_positives_as_it_was(weight, mass):
    labelled = Labelled(sparse.csr_array(PRESENT_NM.astype(np.int8)))
    augmented = np.array([False, True, True, False, False, True])
    roles = assign_roles(labelled.counts, np.arange(6), minority=[1, 2, 5])
    assert roles.augmented.tolist() == augmented.tolist()
    config = Parametric(weight=weight, n_synthetic=7)
    target = LabelTarget(labelled, roles, config, np.random.default_rng(0), torch.device("cpu"))
    rows = np.arange(40)
    demixed = target.demix(RNG.normal(size=(40, 3)), rows, rows[:0], Linear())
    sample = View(target, demixed).sample(rows, LinearHead(class_mass=mass))
    assert len(sample.s) == 40 + 3 * 7
    share = 1 - weight * augmented
    expected = labelled.indicator.T @ row_mass(labelled.indicator, mass)
    for label in range(6):
        column = sample.y[:, label]
        found = share[label] * sample.weight[column == PRESENT].sum() + sample.weight[column == SYNTHETIC].sum()
        assert found.item() == pytest.approx(expected[label], rel=1e-5)
        assert (column[:40] != UNKNOWN).all()


# --- de-mixing on pairs ------------------------------------------------------------------------------


def test_moments_of_pairs_are_those_of_repeated_rows():
    """Rows with two labels count in both, without being repeated in memory."""
    z = RNG.normal(size=(40, 4)) @ RNG.normal(size=(4, 4)) + 3
    labelled = Labelled(sparse.csr_array(PRESENT_NM.astype(np.int8)))
    row, y = labelled.incidences.row, labelled.label
    found = within_label_moments(z, row, y, np.ones(len(y)))
    residuals, means, counts = within_class_residuals(z[row], y)
    np.testing.assert_allclose(found.means, means)
    np.testing.assert_allclose(found.mass, counts)
    np.testing.assert_allclose(found.covariance, residuals.T @ residuals / (len(y) - len(counts)))
    repeated = fit_linear_demixing(z[row], y, spread=z.std(axis=0))
    pairs = fit_linear_demixing(z, y, spread=z.std(axis=0), row=row, weight=np.ones(len(y)))
    torch.testing.assert_close(pairs.weight.weight_kk, repeated.weight.weight_kk)
    weight = labelled.incidences.weight
    weighted = within_label_moments(z, row, y, weight)
    for place, label in enumerate(np.unique(y)):
        mine = y == label
        np.testing.assert_allclose(weighted.means[place], np.average(z[row[mine]], axis=0, weights=weight[mine]))
    np.testing.assert_allclose(np.bincount(row, weight)[PRESENT_NM.any(axis=1)], 1)


@pytest.mark.parametrize("method", ["linear", "flow"])
def test_one_label_a_row_is_the_case_of_weight_one(method):
    y = np.repeat(np.arange(4), 60)
    z = RNG.normal(size=(240, 3)) + y[:, None]
    labelled = Labelled(sparse.csr_array(np.eye(4, dtype=np.int8)[y]))
    rows = np.arange(240)
    common = {
        "train_rows": rows, "held_out_rows": rows[::2], "demixed_on": np.full(4, True), "device": torch.device("cpu"),
        "config": Linear() if method == "linear" else Flow(n_restarts=1, hidden=(8,), critic_width=4),
    }  # fmt: skip
    plain = demix(z, y, rng=np.random.default_rng(0), **common)
    pairs = demix(z, labelled.label, rng=np.random.default_rng(0), incidences=labelled.incidences, **common)
    np.testing.assert_allclose(pairs.sources(z), plain.sources(z), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(pairs.signal_weight, plain.signal_weight, rtol=1e-4)


def test_minority_columns_are_masked_and_their_rows_stay():
    """Pairs of a masked label say nothing, whatever rows have it; rows with other labels besides are still used."""
    z = RNG.normal(size=(200, 3))
    indicator = (RNG.random((200, 4)) < 0.5).astype(np.int8)
    indicator[:, 0] |= ~indicator.any(axis=1)
    labelled = Labelled(sparse.csr_array(indicator))
    keep = labelled.label != 3
    expected = within_label_moments(
        z, labelled.incidences.row[keep], labelled.label[keep], labelled.incidences.weight[keep]
    )
    result = demix(
        z, labelled.label, train_rows=np.arange(0), held_out_rows=np.arange(0), incidences=labelled.incidences,
        demixed_on=np.array([True, True, True, False]), config=NoDemixing(),
        rng=np.random.default_rng(0), device=torch.device("cpu"),
    )  # fmt: skip
    np.testing.assert_allclose(result.within_variance, np.diag(expected.covariance) / z.var(axis=0), rtol=1e-6)


def test_synthetic_sources_come_from_rows_that_have_the_label():
    labelled = Labelled(sparse.csr_array(np.array([[1, 1], [1, 0], [0, 1]] * 10, dtype=np.int8)))
    s = np.tile([[1.0], [2.0], [3.0]], (10, 1))
    config = Permutation(n_synthetic=50)
    sources = label_sources(s, labelled.indicator, np.array([True, True]), np.ones(1))
    drawn = draw_classes(sources, config, np.random.default_rng(0), len(s), 20)
    assert set(drawn.s[drawn.y == 0, 0]) == {1.0, 2.0}
    assert set(drawn.s[drawn.y == 1, 0]) == {1.0, 3.0}


# --- the classifier ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    X, Y = make_multilabel_classification(600, n_features=10, n_classes=6, n_labels=2, length=60, random_state=0)
    rare = np.flatnonzero(Y[:, 5])[25:]
    Y[rare, 5] = 0
    return X, Y


@pytest.fixture(scope="module")
def fitted(table):
    return ECRTClassifier(minority=[5], **LINEAR).fit(*table)


@pytest.mark.parametrize(
    "options",
    [
        {"demixing": "linear", "head": ["linear", MLPHead(epochs=15)], "minority": [5]},
        {"demixing": Flow(critic_width=4, hidden=(8,), epochs=5), "head": "linear", "minority": 100},
        {"demixing": Flow(objective="gcl", label_marginal="batch", epochs=3), "head": "linear"},
        {"demixing": "none", "augmentation": "none", "head": MLPHead(loss="cross-entropy", epochs=20)},
        {
            "demixing": "linear",
            "augmentation": "permutation",
            "head": LinearHead(class_mass="balanced"),
            "random_state": 0,
            "thresholds": "validation",
        },
        {
            "encoder": Encoder("autoencoder", epochs=3, n_features=8),
            "demixing": "linear",
            "head": LinearHead(class_mass="tempered"),
            "random_state": 0,
        },
        {"demixing": Linear(n_sources=4), "head": "linear", "random_state": 0, "class_prior": "training"},
        {"demixing": "linear", "head": LinearHead(loss="focal", loss_options={"gamma": 1.0}), "random_state": 0},
        {"demixing": "linear", "head": LinearHead(loss="ldam"), "random_state": 0},
    ],
)
@pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")
def test_every_option_gives_a_whole_classifier_that_can_be_saved(table, options, tmp_path):
    X, Y = table
    clf = ECRTClassifier(**{"random_state": 0, **options}).fit(X, Y)
    proba, found = clf.predict_proba(X), clf.predict(X)
    assert proba.shape == found.shape == Y.shape
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(np.log(proba), clf.predict_log_proba(X))
    np.testing.assert_allclose(proba, 1 / (1 + np.exp(-clf.decision_function(X))))
    if clf.thresholds == "half":
        np.testing.assert_array_equal(found, proba >= 0.5)
    assert np.nanmean(label_f1(found > 0, Y > 0)) > 0.4
    assert clf.score(X, Y) == pytest.approx((found == Y).all(axis=1).mean())
    assert clf.transform(X).shape == (len(X), clf.get_feature_names_out().size)
    drawn, labels = clf.sample(3, classes=[0, 5], random_state=0)
    assert len(drawn) == 6
    assert set(labels) == {0, 5}
    assert len(clf.diagnostics_.classes) == 6
    clf.save(tmp_path / "model")
    loaded = ecrt.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), proba)
    np.testing.assert_array_equal(loaded.predict(X), found)
    assert loaded.score(X, Y) == clf.score(X, Y)


def test_sparse_and_dense_and_lists_are_the_same(table, fitted, tmp_path):
    X, Y = table
    proba = fitted.predict_proba(X)
    for form in (sparse.csr_matrix(Y), sparse.coo_array(Y), Y.astype(bool), Y.astype(float), Y.tolist()):
        clf = clone(fitted).fit(X, form)
        np.testing.assert_array_equal(clf.predict_proba(X), proba)
        assert sparse.issparse(clf.predict(X)) == sparse.issparse(form)
    clf = clone(fitted).fit(X, sparse.csr_matrix(Y))
    assert clf.score(X, sparse.csr_matrix(Y)) == fitted.score(X, Y)
    clf.save(tmp_path / "model")
    assert sparse.issparse(ecrt.load(tmp_path / "model").predict(X))


def test_names_of_labels_and_rows_without_any(table, tmp_path):
    X, Y = table
    names = ["zoo", "art", "sea", "sky", "law", "rare"]
    clf = ECRTClassifier(minority=["rare"], **LINEAR).fit(pd.DataFrame(X), pd.DataFrame(Y, columns=names))
    assert clf.classes_.tolist() == names
    assert clf.minority_classes_.tolist() == ["rare"]
    assert clf.demixed_on_.tolist() == names[:5]
    assert set(clf.sample(2, classes=["rare"], random_state=0)[1]) == {"rare"}
    clf.save(tmp_path / "model")
    assert ecrt.load(tmp_path / "model").classes_.tolist() == names
    empty = Y.copy()
    empty[:50] = 0
    assert np.isfinite(clone(clf).set_params(minority=[5]).fit(X, empty).predict_log_proba(X)).all()


@pytest.mark.parametrize("thresholds", ["half", "validation"])
def test_a_label_without_a_positive_is_said_aloud_and_never_predicted(table, thresholds, tmp_path):
    X, Y = table
    wide = np.column_stack([Y, np.zeros(len(Y), dtype=int)])
    with pytest.warns(ECRTWarning, match=r"label\(s\) \[6\].* never be predicted"):
        clf = ECRTClassifier(minority=[5, 6], thresholds=thresholds, **LINEAR).fit(X, wide)
    for prior in ("balanced", "training", [0.5] * 7):
        clf.set_params(class_prior=prior)
        assert clf.predict(X)[:, 6].sum() == 0
        assert clf.predict_proba(X)[:, 6].max() < 1e-3
    assert 6 not in clf.demixed_on_
    clf.save(tmp_path / "model")
    assert ecrt.load(tmp_path / "model").predict(X)[:, 6].sum() == 0


@pytest.mark.parametrize("thresholds", ["half", "validation"])
def test_a_label_of_every_row_is_said_aloud_and_always_predicted(table, thresholds):
    X, Y = table
    wide = np.column_stack([Y, np.ones(len(Y), dtype=int)])
    with pytest.warns(ECRTWarning, match=r"Every row has the label\(s\) \[6\]"):
        clf = ECRTClassifier(minority=[5], thresholds=thresholds, **LINEAR).fit(X, wide)
    for prior in ("balanced", "training", [0.5] * 7):
        assert clf.set_params(class_prior=prior).predict(X)[:, 6].all()


def test_class_prior_only_shifts_the_log_odds(table, fitted):
    X, Y = table
    scores = {}
    for prior in ("balanced", "training", [0.2] * 6):
        scores[str(prior)] = fitted.set_params(class_prior=prior).decision_function(X)
    fitted.set_params(class_prior="balanced")
    w = row_mass(sparse.csr_array(Y), "balanced")
    odds = [np.log((w @ Y) / (1 - w @ Y)), np.log(Y.mean(axis=0) / (1 - Y.mean(axis=0))), np.log(0.2 / 0.8)]
    flat = [value - shift for value, shift in zip(scores.values(), odds, strict=True)]
    np.testing.assert_allclose(flat[0], flat[2], atol=0.05)  # half a row more on either side
    np.testing.assert_allclose(flat[1], flat[2], atol=0.05)
    with pytest.raises(InputError, match="a frequency between 0 and 1 for each of the 6 labels"):
        clone(fitted).set_params(class_prior=[0.2]).fit(X, Y).predict(X)


def test_adjusted_and_unadjusted_training_agree(table):
    X, Y = table
    proba = [
        ECRTClassifier(
            demixing="linear", augmentation="none", head=LinearHead(loss=loss, weight_decay=1e-3), minority=[5],
            random_state=0,
        ).fit(X, Y).predict_proba(X)
        for loss in ("logit-adjusted", "cross-entropy")
    ]  # fmt: skip
    np.testing.assert_allclose(proba[0], proba[1], atol=5e-3)


def test_thresholds_from_held_out_rows_raise_f1(table):
    X, Y = table
    f1 = [
        np.nanmean(
            label_f1(
                ECRTClassifier(minority=[5], class_prior="training", thresholds=thresholds, **LINEAR)
                .fit(X[::2], Y[::2])
                .predict(X[1::2])
                > 0,
                Y[1::2] > 0,
            )
        )
        for thresholds in ("half", "validation")
    ]
    assert f1[1] > f1[0]


def test_no_array_of_rows_by_labels_by_sources(table):
    X, Y = make_multilabel_classification(2500, n_features=40, n_classes=80, n_labels=2, length=60, random_state=0)
    clf = ECRTClassifier(
        demixing="linear",
        augmentation=Parametric(n_synthetic=5),
        head=MLPHead(epochs=1),
        minority="all",
        random_state=0,
    )
    clf.fit(*table)  # modules that are imported when they are needed would count
    tracemalloc.start()
    clf.fit(X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.4 * 2500 * 80 * 40 * 8


@pytest.mark.parametrize(
    ("options", "y", "message"),
    [
        ({"head": "gaussian"}, None, "predicts one class for each row"),
        ({"head": MLPHead(loss="hinge")}, None, "one of the losses .* not 'hinge'"),
        ({}, np.zeros((600, 3), dtype=int), "None of the 3 labels"),
        ({}, 2 * np.eye(3, dtype=int)[np.arange(600) % 3], "zeros and ones alone"),
        ({}, sparse.csr_matrix(np.ones((600, 1))), "two columns"),
        ({}, np.arange(1800).reshape(600, 3), "y should be a 1d array"),
        ({}, np.eye(3, dtype=int)[np.arange(500) % 3], "inconsistent numbers of samples"),
        ({"minority": ["x"]}, None, "not in y"),
    ],
)
@pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")
def test_what_cannot_be_learned_from(table, options, y, message):
    X, Y = table
    with pytest.raises(ValueError, match=message):
        ECRTClassifier(**options).fit(X, Y if y is None else y)


@pytest.mark.parametrize("encoder", ["mlp", torch.nn.Sequential(torch.nn.Linear(10, 6), torch.nn.Tanh())])
def test_an_encoder_learns_all_labels_of_each_row(table, encoder):
    X, Y = table
    n_features = {"n_features": 6} if encoder == "mlp" else {}
    clf = ECRTClassifier(encoder=Encoder(encoder, epochs=3, learn_from="all", **n_features), **LINEAR).fit(X, Y)
    assert clf.history_["encoder"].train_loss
    assert clf.transform(X).shape == (600, 6)
    assert clf.predict(X).shape == Y.shape
    assert clf.set_params(class_prior="training").score(X, Y) > 0.02


def test_an_encoder_learns_majority_labels_from_every_row_that_has_one():
    """The first label is rare; rows that have it and another one teach that other one."""
    rng = np.random.default_rng(0)
    Y = (rng.random((400, 4)) < [0.05, 0.5, 0.5, 0.5]).astype(np.int8)
    Y[0] = 0
    labelled = Labelled(sparse.csr_array(Y))
    roles = assign_roles(labelled.counts, np.arange(4))
    target = LabelTarget(labelled, roles, Permutation(), rng, torch.device("cpu"))
    learned = target.encoder_target(Encoder())
    np.testing.assert_array_equal(learned.rows, Y[:, 1:].any(axis=1))
    np.testing.assert_array_equal(learned.values, Y[:, 1:])
    logits = torch.from_numpy(rng.normal(size=(400, 3)))
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(Y[:, 1:]).double(), reduction="none"
    )
    torch.testing.assert_close(learned.loss(logits, learned.values), wanted.sum(1))
    for loss in ("hinge", "squared"):
        with pytest.raises(InputError, match="learned by an encoder with one of the losses"):
            target.encoder_target(Encoder(loss=loss))


class Pairs(torch.utils.data.Dataset):
    """Items made one by one, as those of images are."""

    def __init__(self, X, Y):
        self.X, self.Y = X, Y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        return torch.tensor(self.X[index]), self.Y[index]


def test_a_dataset_of_rows_and_indicators(table):
    X, Y = table
    plain = ECRTClassifier(**LINEAR).fit(X, Y)
    for dataset in (Pairs(X, Y), torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))):
        clf = ECRTClassifier(**LINEAR).fit(dataset)
        assert clf.multilabel_
        np.testing.assert_allclose(clf.predict_proba(dataset), plain.predict_proba(X), rtol=1e-6)
    with pytest.raises(InputError, match="zeros and ones alone"):
        ECRTClassifier().fit(Pairs(X, 3 * Y))
    with pytest.raises(InputError, match="do not pass y"):
        ECRTClassifier().fit(Pairs(X, Y), Y)
    with pytest.raises(InputError, match=r"Item 1 of the dataset: y has shape \(2,\), item 0 has \(3,\)"):
        ECRTClassifier().fit(Pairs(X, [[0, 1, 1], [0, 1]] * 300))


def test_an_own_encoder_that_is_trained_already(table):
    X, Y = table
    encoder = torch.nn.Linear(10, 4)
    clf = ECRTClassifier(encoder=Encoder(encoder, train=False), minority=[5], **LINEAR).fit(X, Y)
    assert clf.transform(X).shape == (600, 4)


def test_roles_are_per_label(fitted):
    assert fitted.minority_classes_.tolist() == [5]
    assert fitted.demixed_on_.tolist() == [0, 1, 2, 3, 4]
    assert fitted.class_counts_[5] == 25
