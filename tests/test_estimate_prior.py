"""Class frequencies from rows without labels."""

from __future__ import annotations

import numpy as np
import pytest

from ecrt import BaselineClassifier, ECRTClassifier, InputError

MEANS = np.array([[0.0, 0.0], [2.5, 0.0], [0.0, 2.5]])


def rows(counts, seed):
    y = np.repeat(np.arange(3), counts)
    return MEANS[y] + np.random.default_rng(seed).normal(size=(len(y), 2)), y


@pytest.fixture(scope="module", params=["ecrt", "rival"])
def fitted(request):
    X, y = rows([600, 300, 60], 0)
    if request.param == "rival":
        return BaselineClassifier(method="logit-adjusted", random_state=0).fit(X, y)
    return ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, y)


@pytest.mark.parametrize("counts", [[100, 100, 1800], [1500, 400, 100], [0, 700, 700]])
def test_shifted_frequencies_are_found(fitted, counts):
    X, _ = rows(counts, 1)
    found = fitted.estimate_prior(X)
    assert found.sum() == pytest.approx(1)
    assert (found > 0).all()
    np.testing.assert_allclose(found, np.array(counts) / sum(counts), atol=0.04)


def test_frequencies_serve_predictions(fitted):
    X, y = rows([100, 100, 1800], 2)
    plain = -fitted.predict_log_proba(X)[np.arange(len(y)), y].mean()
    assumed = fitted.class_prior
    try:
        fitted.set_params(class_prior=fitted.estimate_prior(X))
        assert -fitted.predict_log_proba(X)[np.arange(len(y)), y].mean() < plain - 0.05
    finally:
        fitted.set_params(class_prior=assumed)


def test_the_answer_is_a_fixed_point_and_does_not_depend_on_the_prior_of_predictions(fitted):
    X, _ = rows([300, 500, 700], 3)
    found = fitted.estimate_prior(X)
    logits = fitted.predict_log_proba(X) - fitted.log_class_prior_
    total = np.zeros(3)
    for row in logits:  # one more round, row by row
        posterior = np.exp(row - row.max()) * found
        total += posterior / posterior.sum()
    np.testing.assert_allclose(total / len(X), found, atol=1e-6)
    assumed = fitted.class_prior
    try:
        np.testing.assert_allclose(fitted.set_params(class_prior="training").estimate_prior(X), found, atol=1e-9)
    finally:
        fitted.set_params(class_prior=assumed)


def test_several_labels_are_refused():
    X, y = rows([60, 60, 60], 0)
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0).fit(X, np.eye(3, dtype=int)[y])
    with pytest.raises(InputError, match="one class each"):
        clf.estimate_prior(X)
