"""Numbers, labels and options of unusual types are taken for what they are, or refused in words."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ecrt import (
    BaselineClassifier,
    ECRTClassifier,
    ECRTRegressor,
    Encoder,
    Flow,
    InputError,
    LinearHead,
    MLPHead,
    diagnose,
)

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.errors.ECRTWarning")
N = 90
Y = np.repeat([0, 1, 2], 30)
X = np.random.default_rng(0).normal(size=(N, 3)) + Y[:, None] * [2, 0, -2]
QUICK = {"demixing": "linear", "head": LinearHead(weight_decay=1e-2), "random_state": 0}


def fitted(X, y=Y, **options):
    return ECRTClassifier(**{**QUICK, **options}).fit(X, y)


@pytest.mark.parametrize("frame", [True, False])
def test_decimals_are_numbers(frame):
    decimals = np.array([[Decimal(repr(float(value))) for value in row] for row in X], dtype=object)
    given = pd.DataFrame(decimals, columns=list("abc")) if frame else decimals
    np.testing.assert_array_equal(fitted(given).predict_proba(given), fitted(X).predict_proba(X))


def test_durations_are_seconds_and_periods_are_dates():
    table = pd.DataFrame(X, columns=list("abc"))
    table["a"] = pd.to_timedelta(np.round(1000 * X[:, 0]), unit="s")
    table["b"] = pd.period_range("2020-01", periods=N, freq="D")
    clf = fitted(table)
    assert [column.kind for column in clf.table_.columns] == ["number", "date", "number"]
    np.testing.assert_array_equal(clf.table_.encode(table)[:, 0], np.round(1000 * X[:, 0]))
    gap = table.copy()
    gap.loc[3, ["a", "b"]] = pd.NaT
    assert np.isfinite(clf.predict_proba(gap)).all()
    assert np.isfinite(fitted(gap).predict_proba(table)).all()


@pytest.mark.parametrize("kind", ["Int64", "UInt8", "int64[pyarrow]"])
def test_whole_numbers_with_gaps_allowed_stay_whole_numbers_as_labels(kind):
    if "pyarrow" in kind:
        pytest.importorskip("pyarrow")
    y = pd.Series(Y, dtype=kind)
    for table in (X, pd.DataFrame(X, columns=list("abc"))):
        clf = fitted(table, y)
        assert clf.classes_.dtype.kind in "iu"
        assert clf.score(table, y) == clf.score(table, Y)
    assert BaselineClassifier(method="erm", random_state=0).fit(X, y).classes_.dtype.kind in "iu"


def test_truth_values_with_gaps_allowed_stay_truth_values_as_labels():
    assert fitted(X, pd.Series(Y == 2, dtype="boolean")).classes_.tolist() == [False, True]


@pytest.mark.parametrize("labels", [[1, "1", "a"], ["a", 1, "1"], [True, 1, "x"]])
def test_labels_of_several_kinds_are_named_whichever_comes_first(labels):
    with pytest.raises(InputError, match="mixes labels of types"):
        fitted(X, np.array(labels, dtype=object)[Y])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"demixing": Flow(blocks=[])}, "blocks"),
        ({"demixing": Flow(hidden=(8, 0))}, "hidden"),
        ({"head": MLPHead(hidden=(0,))}, "hidden"),
        ({"head": MLPHead(hidden=(2.5,))}, "hidden"),
        ({"head": LinearHead(loss_options={"tau": float("nan")})}, "tau"),
        ({"head": LinearHead(loss="focal", loss_options={"gamma": "a"})}, "gamma"),
        ({"head": LinearHead(loss="focal", loss_options={"gamma": -1})}, "gamma"),
        ({"encoder": Encoder("mlp", learning_rate="a")}, "learning_rate"),
        ({"encoder": Encoder("mlp", gradient_norm=0)}, "gradient_norm"),
        ({"encoder": Encoder("mlp", patience=-1)}, "patience"),
        ({"device": "meta"}, "meta"),
    ],
    ids=str,
)
def test_values_that_no_option_can_have_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        fitted(X, **options)


def test_layers_of_a_regressor_have_units():
    with pytest.raises(InputError, match="hidden"):
        ECRTRegressor(head=MLPHead(epochs=1, hidden=(0,))).fit(X, X[:, 0])


@pytest.mark.parametrize("option", ["class_prior", "precision"])
def test_options_set_after_the_fit_are_checked_when_they_are_used(option):
    clf = fitted(X).set_params(**{option: "bogus"})
    with pytest.raises(InputError, match=option):
        clf.predict_proba(X)


class OtherFrame:
    """A data frame of another library: it can be made one of pandas, and knows nothing of numpy."""

    def __init__(self, table):
        self.table = table

    def to_pandas(self):
        return self.table

    def __len__(self):
        return len(self.table)

    @property
    def shape(self):
        return self.table.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.table, dtype=dtype)


@pytest.mark.parametrize(
    "other", [OtherFrame, lambda table: pytest.importorskip("polars").from_pandas(table)], ids=["stand-in", "polars"]
)
def test_frames_of_other_libraries_are_read_as_those_of_pandas(other):
    table = pd.DataFrame(X, columns=list("abc")).assign(colour=np.where(Y == 1, "red", "blue"))
    clf = fitted(other(table))
    assert [column.kind for column in clf.table_.columns] == ["number"] * 3 + ["category"]
    np.testing.assert_array_equal(clf.predict_proba(other(table)), fitted(table).predict_proba(table))
    labels = pd.DataFrame({"low": (X[:, 0] < 1).astype(int), "high": (X[:, 2] > 0).astype(int)})
    assert fitted(other(table), other(labels)).classes_.tolist() == ["low", "high"]
    options = {"estimator": ECRTClassifier(head="gaussian"), "trials": 6, "refits": 2}
    found, same = (diagnose(given, Y, random_state=0, **options) for given in (other(table), table))
    assert found.columns == same.columns
    assert [one["loss"] for one in found.selection.tried] == [one["loss"] for one in same.selection.tried]


def test_a_lazy_frame_is_refused():
    with pytest.raises(InputError, match=r"call its collect\(\)"):
        fitted(SimpleNamespace(collect=lambda: X))


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, (1, 2), {1}, np.ones(2)], ids=str)
def test_a_cell_with_several_values_is_refused(cell):
    table = pd.DataFrame(X, columns=list("abc")).assign(several=pd.Series([cell] * N))
    with pytest.raises(InputError, match="'several' holds lists or objects"):
        fitted(table)
