"""Classes that are added to a fitted classifier."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import ecrt
from ecrt import ECRTClassifier, MLPHead
from ecrt.errors import InputError

D, N_CLASSES, NEW = 6, 12, (9, 10, 11)


@pytest.fixture(scope="module")
def data():
    """Gaussian classes that share one covariance: the mechanism that is to be transferred."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(D, D))
    means = 3.0 * rng.normal(size=(N_CLASSES, D))

    def draw(n):
        y = np.repeat(np.arange(N_CLASSES), n)
        return (means[y] + rng.normal(size=(len(y), D))) @ mixing.T, y

    return draw(80), draw(100)


def fitted(data, **options):
    (X, y), _ = data
    known = ~np.isin(y, NEW)
    options = {"demixing": "linear", "head": ["linear", "gaussian", MLPHead(epochs=5)], "random_state": 0} | options
    return ECRTClassifier(**options).fit(X[known], y[known])


@pytest.mark.parametrize("n", [1, 5, 20])
@pytest.mark.parametrize("head", ["linear", "gaussian"])
def test_new_classes_are_told_from_a_few_samples(data, n, head):
    (X, y), (X_test, y_test) = data
    clf = fitted(data, head=head)
    before = clf.transform(X_test)
    some = np.concatenate([np.flatnonzero(y == label)[:n] for label in NEW])
    assert clf.add_classes(X[some], y[some]) is clf
    np.testing.assert_array_equal(clf.transform(X_test), before)  # encoder and de-mixing are frozen
    assert clf.classes_.tolist() == list(range(N_CLASSES))
    assert set(NEW) <= set(clf.minority_classes_)
    assert clf.class_counts_.tolist() == [80] * 9 + [n] * 3
    assert [one.label for one in clf.diagnostics_.classes] == list(range(N_CLASSES))
    recall = [(clf.predict(X_test)[y_test == label] == label).mean() for label in range(N_CLASSES)]
    assert np.mean(recall[9:]) > {1: 0.5, 5: 0.75, 20: 0.8}[n]
    assert np.mean(recall[:9]) > 0.8


def test_more_samples_serve_better(data):
    (X, y), (X_test, y_test) = data
    of_new = np.isin(y_test, NEW)
    losses = []
    for n in (1, 20):
        some = np.concatenate([np.flatnonzero(y == label)[:n] for label in NEW])
        log_proba = fitted(data).add_classes(X[some], y[some]).predict_log_proba(X_test)
        losses.append(-log_proba[np.arange(len(y_test)), y_test][of_new].mean())
    assert losses[1] < losses[0]


def test_labels_keep_their_order_and_models_their_files(data, tmp_path):
    (X, y), _ = data
    names = np.array([f"{'zyxwvutsrqpo'[label]}" for label in y])
    known = ~np.isin(y, (0, 5))
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(D)])
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(frame[known], names[known])
    clf.add_classes(frame[~known], names[~known])
    assert clf.classes_.tolist() == sorted(set(names))
    assert (clf.predict(frame) == names).mean() > 0.85
    clf.save(tmp_path / "model")
    np.testing.assert_array_equal(ecrt.load(tmp_path / "model").predict_proba(frame), clf.predict_proba(frame))


def test_a_flow_and_a_dataset(data):
    (X, y), _ = data
    clf = fitted(data, demixing="flow", head="gaussian")
    some = np.isin(y, NEW)
    items = TensorDataset(torch.from_numpy(X[some]), torch.from_numpy(y[some]))
    clf.add_classes(items)
    assert clf.predict_proba(X).shape == (len(X), N_CLASSES)
    assert clf.demixer_.prior.mean_md.shape == (N_CLASSES, D)
    drawn, of = clf.sample(4, classes=[11])
    assert drawn.shape == (4, D)
    assert set(of) == {11}


def test_what_cannot_be_added_is_refused(data):
    (X, y), _ = data
    clf = fitted(data, head="linear")
    with pytest.raises(InputError, match=r"Known already: \[0\]"):
        clf.add_classes(X[:3], y[:3])
    with pytest.raises(InputError, match="of one kind"):
        clf.add_classes(X[:3], np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match="class_prior"):
        fitted(data, head="linear", class_prior=np.full(9, 1 / 9)).add_classes(X[-3:], y[-3:])
    indicator = np.eye(3, dtype=int)[y[:240] % 3] | np.eye(3, dtype=int)[0]
    labels = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X[:240], indicator)
    with pytest.raises(InputError, match="multi-label"):
        labels.add_classes(X[-3:], y[-3:])
