"""Numbers of any size, mean and spread: finite answers, or an error that names column and row."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from bad_numbers import KINDS, try_many
from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    Encoder,
    Flow,
    InputError,
    Linear,
    LinearHead,
    MLPHead,
    flows,
    load,
)
from ecrt.errors import ECRTWarning
from ecrt.flows import LowRank, fit_linear_demixing
from ecrt.nn import column_spread

QUICK = {"head": [LinearHead(weight_decay=1e-3), "gaussian", MLPHead(weight_decay=1e-3, epochs=3)], "random_state": 0}
LINEAR = {"demixing": "linear", "head": LinearHead(weight_decay=1e-3), "random_state": 0}
MEMBERS = {
    "linear": ECRTClassifier(**LINEAR),
    "linear, float32": ECRTClassifier(
        demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0, precision="float32"
    ),
    "none": ECRTClassifier(demixing="none", head=LinearHead(weight_decay=1e-3), random_state=0),
    "flow": ECRTClassifier(
        demixing=Flow(critic_width=8, n_restarts=1, hidden=(8,), epochs=3),
        head=LinearHead(weight_decay=1e-3),
        random_state=0,
    ),
    "MLP encoder": ECRTClassifier(
        encoder=Encoder("mlp", n_features=4, learn_from="all", batch_size=16, epochs=12),
        demixing="linear",
        head=LinearHead(weight_decay=1e-3),
        random_state=0,
    ),
    "autoencoder": ECRTClassifier(
        encoder=Encoder("autoencoder", n_features=4, batch_size=16, epochs=12),
        demixing="linear",
        head=LinearHead(weight_decay=1e-3),
        random_state=0,
    ),
    "rival": BaselineClassifier(head=LinearHead(weight_decay=1e-3), random_state=0, method="logit-adjusted"),
    "rival, one spread": BaselineClassifier(
        head=LinearHead(weight_decay=1e-3), random_state=0, method="logit-adjusted", scaling="one"
    ),
    "rival, end to end": BaselineClassifier(
        encoder=Encoder("mlp", n_features=4, batch_size=16, epochs=12), method="weighted", random_state=0
    ),
    "lda": BaselineClassifier(method="lda", random_state=0),
}
pytestmark = pytest.mark.filterwarnings("ignore:No class is clearly a minority")
every_member = pytest.mark.parametrize("member", MEMBERS)


@pytest.fixture(scope="module")
def blobs():
    X, y = make_blobs(120, n_features=4, centers=3, cluster_std=1.0, random_state=3)
    return X, y


@every_member
def test_neither_unit_nor_mean_of_columns_matters(blobs, member):
    X, y = blobs
    proba = MEMBERS[member].fit(X, y).predict_proba(X)
    assert (proba.argmax(axis=1) == y).mean() > 0.9
    for shifted, tolerance in ((X * 1e-200, 1e-4), (X * 1e60, 1e-4), (X + 1e10, 0.02)):
        same = MEMBERS[member].fit(shifted, y).predict_proba(shifted)
        np.testing.assert_allclose(same, proba, atol=tolerance)


@every_member
def test_a_pixel_at_the_border_does_not_decide_everything(blobs, member):
    X, y = blobs
    X = np.column_stack([X, np.zeros(len(X))])
    X[7, 4] = 1e-3
    model = MEMBERS[member].fit(X, y)
    before = model.predict_proba(X)
    for value in (1.0, 1e90):
        later = X.copy()
        later[10, 4] = value
        loss = -np.log(model.predict_proba(later)[np.arange(len(y)), y])
        assert loss.mean() < 0.6
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("value", [1e154, 1e200, -1e300, np.inf])
@pytest.mark.parametrize(
    "estimator",
    [
        MEMBERS["linear"],
        MEMBERS["rival"],
        ECRTRegressor(demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0),
    ],
)
def test_a_value_too_large_is_named_with_its_row_and_column(blobs, estimator, value):
    X, y = blobs
    bad = X.copy()
    bad[11, 2] = value
    with pytest.raises(InputError, match=r"row 11.*x2"):
        estimator.fit(bad, y)
    estimator.fit(X, y)
    with pytest.raises(InputError, match=r"row 11.*x2"):
        estimator.predict(bad)


def test_a_target_too_large_is_named_with_its_row(blobs):
    X, y = blobs
    y = y.astype(float)
    y[5] = 1e200
    with pytest.raises(InputError, match="row 5"):
        ECRTRegressor(demixing="linear", head=LinearHead(weight_decay=1e-3), random_state=0).fit(X, y)


def test_a_column_whose_differences_are_lost_in_rounding_is_named(blobs):
    X, y = blobs
    model = MEMBERS["linear"]
    with pytest.warns(ECRTWarning, match=r"\['x1'\] are left out: .* rounding"):
        model.fit(X + np.where(np.arange(X.shape[1]) == 1, 1e17, 0), y)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(np.column_stack([X, np.full(len(X), 1e17)]), y)  # a constant has no differences to lose
    assert not [one for one in said if "rounding" in str(one.message)]


def test_spread_of_columns():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1000, 1))
    columns = np.hstack([z, z + 1e10, z * 1e-8, z * 1e-200, z * 1e-322, z * 1e90, np.full((1000, 1), 0.1), z * 0])
    spread = column_spread(columns)
    np.testing.assert_allclose(spread[:4], z.std() * np.array([1, 1, 1e-8, 1e-200]), rtol=1e-6)
    assert spread[4] > 0
    np.testing.assert_allclose(spread[5], z.std() * 1e90)
    np.testing.assert_array_equal(spread[6:], 0)
    assert column_spread(1e10 + 1e-6 * z)[0] == 0  # of such a column nothing but rounding is left


@pytest.mark.parametrize("rotation", ["none", "symmetric", "discriminant"])
def test_with_few_rows_the_map_is_kept_in_short_form(rotation, monkeypatch):
    """It is the map that the long form gives; where axes are arbitrary, up to a rotation."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 8)
    z = rng.normal(size=(24, 80)) @ rng.normal(size=(80, 80)) + 3 * y[:, None]
    z[:, 5] = 2.0
    short = fit_linear_demixing(z, y, rotation=rotation)
    assert isinstance(short.weight, LowRank)
    rows = torch.from_numpy(rng.normal(size=(10, 80)) + z[:10])
    s, _ = short(rows)
    back = short.inverse(s)
    np.testing.assert_allclose(back[:, :5], rows[:, :5], atol=1e-9)
    np.testing.assert_allclose(short(back)[0], s, atol=1e-9)
    if rotation == "none":
        return
    monkeypatch.setattr(flows, "_low_rank", _dense(rotation))
    long = fit_linear_demixing(z, y, rotation=rotation)
    torch.testing.assert_close(short.log_det, long.log_det)
    there = long(rows)[0]
    settled = 79 if rotation == "symmetric" else 2  # axes along which means differ
    torch.testing.assert_close(s[:, :settled], there[:, :settled])
    torch.testing.assert_close(s.norm(dim=1), there.norm(dim=1))


def _dense(rotation):
    def whitener(residuals, means, freedom, _):
        found = flows._whitener(flows._shrunk_covariance(residuals, freedom), symmetric=True)
        if rotation == "discriminant":
            found = flows._discriminant_axes(means @ found.T) @ found
        return torch.from_numpy(found)

    return whitener


def test_many_columns_take_little_room(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2000)), np.repeat([0, 1], 20)
    X[:, :50] += 3 * y[:, None]
    for n_sources in (None, 3):
        model = ECRTClassifier(demixing=Linear(n_sources=n_sources), head="linear", random_state=0).fit(X, y)
        model.save(tmp_path / f"model {n_sources}")
        size = sum(file.stat().st_size for file in (tmp_path / f"model {n_sources}").rglob("*"))
        assert size < 5e6  # 64 MB as two matrices
        again = load(tmp_path / f"model {n_sources}")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert model.score(X, y) > 0.9


@pytest.mark.parametrize("name", ["linear, float32", "MLP encoder", "regressor", "transformer, flow", "rival, qda"])
def test_bad_numbers_give_finite_answers_or_an_input_error(name):
    """A part of ``benchmarks/bad_numbers.py``."""
    found = try_many([name], KINDS, [7])
    assert not found.faults
    assert found.outcomes["fit: finite"] > 15
    assert found.outcomes["predict: finite"] > 15


LABELS = [
    "[/b]",
    "[red]x",
    "None",
    "NA",
    "nan",
    "",
    "\u985e",
    "long " * 60,
    "two\nlines",
    'quo"te',
    "it's",
    "<b>&",
    "a,b;c",
]


@pytest.mark.parametrize("kind", [ECRTClassifier, BaselineClassifier])
@pytest.mark.parametrize("dtype", [object, str])
def test_any_text_is_a_label(tmp_path, capsys, kind, dtype):
    y = np.repeat(np.array(LABELS, dtype=object), 6).astype(dtype)
    X = np.random.default_rng(0).normal(size=(len(y), 2))
    X[:, 0] += 5 * np.repeat(np.arange(len(LABELS)), 6)
    options = {"demixing": "linear"} if kind is ECRTClassifier else {}
    model = kind(head=MLPHead(epochs=2), random_state=0, verbose=1, **options).fit(X, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.classes_.tolist() == model.classes_.tolist() == sorted(LABELS)
    assert set(again.predict(X)) <= set(LABELS)
    assert "MLP head" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", None, "b"], "row 1 has no label"),
        (["a", "b", np.nan], "row 2 has no label"),
        (["a", 1, "b"], r"types \['int', 'str'\]"),
    ],
)
def test_labels_that_are_missing_or_mixed_are_named(blobs, labels, message):
    y = np.array(labels * 40, dtype=object)
    with pytest.raises(InputError, match=message):
        ECRTClassifier().fit(blobs[0], y)
