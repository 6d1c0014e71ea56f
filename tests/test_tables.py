"""Tables as people have them: what each column becomes, at fit and at predict."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.pipeline import make_pipeline

from ecrt import ECRTClassifier
from ecrt.data import TableEncoder
from ecrt.disk import typed
from ecrt.errors import BadContentError, ECRTWarning, InputError, NotEnoughMemoryError
from ecrt.io.attributes import to_plain

N = 60


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.normal(40, 10, N),
        "city": rng.choice(["Bonn", "Oslo", "Rome"], N),
        "member": rng.random(N) > 0.5,
        "grade": pd.Categorical(rng.integers(1, 4, N)),
        "since": pd.date_range("2020-01-31", periods=N, freq="36h"),
    })  # fmt: skip
    frame.loc[4, "age"] = np.nan
    frame.loc[7, "city"] = None
    return frame


def kinds(encoder):
    return {column.name: column.kind for column in encoder.columns}


def test_each_column_by_its_kind(table):
    encoder = TableEncoder.learn(table)
    assert kinds(encoder) == {
        "age": "number", "city": "category", "member": "number", "grade": "category", "since": "date"
    }  # fmt: skip
    values = pd.DataFrame(encoder.encode(table), columns=encoder.names_out)
    assert not values.isna().any().any()
    assert values["age"][4] == np.nanmedian(table["age"])
    assert values["age is missing"].tolist() == table["age"].isna().tolist()
    assert values["city=Oslo"].tolist() == (table["city"] == "Oslo").tolist()
    assert values["city=(missing)"].sum() == 1
    assert values["grade=2"].tolist() == (table["grade"] == 2).tolist()
    assert values["since year"].tolist() == table["since"].dt.year.tolist()
    assert values["since hour"].tolist() == table["since"].dt.hour.tolist()
    assert values["since seconds since 1970"][1] - values["since seconds since 1970"][0] == 36 * 3600


def test_dates_written_as_text():
    days = pd.DataFrame({"day": [f"2021-03-{1 + row % 28:02d}" for row in range(N)]})
    encoder = TableEncoder.learn(days)
    assert kinds(encoder) == {"day": "date"}
    assert encoder.encode(days)[:3, 2].tolist() == [1, 2, 3]
    with pytest.warns(ECRTWarning, match="'day': 50% no dates"):
        assert np.isfinite(encoder.encode(pd.DataFrame({"day": ["no date", None]}))).all()


def test_gaps_and_unseen_levels_at_predict_only(table):
    encoder = TableEncoder.learn(table)
    later = table.assign(member=None, grade=pd.Categorical([9] * N), since=pd.NaT, city="Paris")
    with pytest.warns(ECRTWarning, match=r"'city': 100% new levels such as 'Paris'; 'grade': 100% new levels"):
        values = pd.DataFrame(encoder.encode(later), columns=encoder.names_out)
    assert not values.isna().any().any()
    assert values[[name for name in values if name.startswith(("city=", "grade="))]].to_numpy().sum() == 0


def test_whole_numbers_as_levels_survive_a_gap():
    encoder = TableEncoder.learn(pd.DataFrame({"code": pd.Categorical([1, 2, 3] * 10)}))
    with_gap = pd.DataFrame({"code": pd.Categorical([1.0, np.nan, 3.0])})
    assert encoder.encode(with_gap).tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_many_levels_keep_the_frequent_ones():
    rng = np.random.default_rng(0)
    values = pd.Series(np.minimum(rng.geometric(0.02, 5000), 400)).map("level {}".format)
    encoder = TableEncoder.learn(pd.DataFrame({"code": values}))
    assert len(encoder.names_out) == 40
    kept = {name.removeprefix("code=") for name in encoder.names_out}
    assert set(values.value_counts().index[:30]) <= kept


def test_identifiers_are_left_out_aloud():
    frame = pd.DataFrame({"row": np.arange(100, 100 + N), "name": [f"u{i}" for i in range(N)], "x": np.arange(N) / 7})
    with pytest.warns(ECRTWarning, match=r"\['row', 'name'\] are left out"):
        encoder = TableEncoder.learn(frame)
    assert encoder.names_out == ["x"]
    with pytest.raises(InputError, match="No column to learn from"):
        TableEncoder.learn(frame[["name"]])


def test_levels_without_a_column_are_known_all_the_same():
    words = [f"word {i % 60}" for i in range(300)] + ["once"]
    encoder = TableEncoder.learn(pd.DataFrame({"word": words}))
    assert len(encoder.columns[0].levels) == 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.encode(pd.DataFrame({"word": [*words, None]}))
    with pytest.warns(ECRTWarning, match="'word': 50% new levels such as 'never'"):
        encoder.encode(pd.DataFrame({"word": ["never", "once"]}))
    many = TableEncoder.learn(pd.DataFrame({"word": pd.Categorical([f"w{i // 2}" for i in range(4000)])}))
    assert many.columns[0].many
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # new ones cannot be told
        many.encode(pd.DataFrame({"word": ["never"]}))


def test_dtypes_are_not_doubted():
    """Of some rows of a table a category may look like an identifier, and whole numbers like a row counter."""
    some = pd.DataFrame({
        "code": pd.Categorical([f"c{i}" for i in range(N)]),
        "told": pd.Categorical([f"the {i}. of many words in a row" for i in range(N)]),
        "day": pd.Categorical(["2021-05-30"] * N),
        "digits": pd.Categorical(["1", "2"] * (N // 2)),
        "count": np.arange(N, dtype=float),
        "gone": np.full(N, np.nan),
        "since": pd.date_range("2020-01-31", periods=N),
    })  # fmt: skip
    with pytest.warns(ECRTWarning, match=r"\['gone'\] are left out"):
        encoder = TableEncoder.learn(some)
    expected = {"count": "number", "gone": "left out", "since": "date"}
    assert (
        kinds(encoder) == {"code": "category", "told": "category", "day": "category", "digits": "category"} | expected
    )
    assert np.isfinite(encoder.encode(some.assign(gone=1.0))).all()


def test_a_table_is_read_once_for_all_its_parts(table):
    frame = table.assign(row=np.arange(N), name=[f"u{i}" for i in range(N)], day=table["since"].astype(str))
    with pytest.warns(ECRTWarning, match="left out"):
        encoder = TableEncoder.learn(frame)
    typed = encoder.typed(frame)
    assert list(typed) == ["age", "city", "member", "grade", "since", "day"]
    whole = TableEncoder.learn(typed)
    np.testing.assert_array_equal(whole.encode(typed), encoder.encode(frame))
    for part in (typed.iloc[::7], typed.iloc[:3]):
        assert kinds(TableEncoder.learn(part)) == kinds(whole)


def test_text_is_refused_with_a_hint():
    frame = pd.DataFrame({"review": [f"the film number {i} was rather dull to me" for i in range(N)]})
    with pytest.raises(InputError, match=r"Column 'review' holds text.*sentence encoder"):
        TableEncoder.learn(frame)


def test_a_column_that_changes_its_kind_is_named(table):
    encoder = TableEncoder.learn(table)
    with pytest.raises(InputError, match=r"Column 'age' held numbers .* now 'old'"):
        encoder.encode(table.assign(age="old"))
    with pytest.raises(InputError, match=r"Column 'age' held numbers .* now dates"):
        encoder.encode(table.assign(age=table["since"]))


@pytest.mark.parametrize("written", [
    lambda days: days.astype("int64"), lambda days: days.astype("int64") / 1e9,
    lambda days: days.dt.strftime("%Y%m%d").astype(int), lambda days: days.dt.strftime("%d.%m.%Y"),
    lambda days: days.dt.strftime("%m/%d/%Y"),
])  # fmt: skip
def test_what_is_no_plain_date_is_not_taken_for_one(table, written):
    encoder = TableEncoder.learn(table)
    same = table.assign(since=table["since"].dt.strftime("%Y-%m-%d %H:%M:%S"))
    np.testing.assert_array_equal(encoder.encode(same), encoder.encode(table))
    np.testing.assert_array_equal(
        encoder.encode(table.assign(since=table["since"].dt.date)),
        encoder.encode(table.assign(since=table["since"].dt.normalize())),
    )
    with pytest.warns(ECRTWarning, match="'since': 100% no dates"):
        encoder.encode(table.assign(since=written(table["since"])))


@pytest.mark.parametrize("form", ["{:.1f}", "{:.1e}", "{:.1f}%", "decimal comma", "day"])
def test_numbers_and_dates_that_are_text_are_said(form):
    amounts = np.random.default_rng(0).normal(size=N)
    words = [form.format(value) for value in amounts]
    if form == "decimal comma":
        words = [f"{value:.1f}".replace(".", ",") for value in amounts]
    if form == "day":
        words = [f"{row % 20 + 1:02d}.05.2021" for row in range(N)]
    frame = pd.DataFrame({"x": words})
    with pytest.warns(ECRTWarning, match=r"Columns \['x'\] hold numbers or dates as text"):
        assert kinds(TableEncoder.learn(frame)) == {"x": "category"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder.learn(frame.astype("category"))
        TableEncoder.learn(pd.DataFrame({"x": [f"{row % 25:05d}" for row in range(N)]}))


def test_masked_values_are_refused():
    X, y = np.random.default_rng(0).normal(size=(N, 2)), np.array([0, 1] * (N // 2))
    hidden = np.ma.masked_array(X, mask=X > 1)
    clf = ECRTClassifier(demixing="none", head="linear").fit(X, y)
    for ask in (
        clf.predict,
        lambda rows: clf.fit(rows, y),
        lambda rows: clf.fit(X, np.ma.masked_array(y, X[:, 0] > 1)),
    ):
        with pytest.raises(InputError, match="Masked arrays"):
            ask(hidden)


def test_state_restores_the_encoder(table):
    encoder = TableEncoder.learn(table)
    again = typed(json.loads(json.dumps(to_plain(encoder, "table"))), TableEncoder, "table")
    assert again == encoder
    np.testing.assert_array_equal(again.encode(table), encoder.encode(table))


@given(
    key=st.sampled_from(["name", "kind", "fill", "flagged", "levels", "rare", "many"]),
    value=st.none() | st.integers() | st.text() | st.lists(st.integers() | st.text() | st.floats()),
)
def test_a_state_that_is_rubbish_is_refused(key, value):
    state = {"name": "a", "kind": "number", "fill": [0.0], "flagged": False, "levels": [], "rare": [], "many": False}
    try:
        column = typed({"columns": [state | {key: value}]}, TableEncoder, "table").columns[0]
    except BadContentError:
        return
    assert len(column.names_out) == 1


def test_classifier_on_a_mixed_table(table):
    y = np.where(table["city"] == "Oslo", "north", "south")
    clf = ECRTClassifier(head="linear", random_state=0).fit(table, y)
    assert clf.feature_names_in_.tolist() == list(table.columns)
    assert clf.score(table, y) > 0.9
    with pytest.warns(ECRTWarning, match="'city': 100% new levels") as found:
        assert clf.predict(table.assign(city="Paris", since=pd.NaT)).shape == (N,)
    assert [warning.filename for warning in found] == [__file__]
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(table.drop(columns="age"))


def test_missing_numbers_at_fit_or_only_at_predict():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] > 0).astype(int)
    gaps = X.copy()
    gaps[rng.random(X.shape) < 0.1] = np.nan
    for rows in (X, gaps):
        clf = ECRTClassifier(head="linear", random_state=0).fit(rows, y)
        assert clf.score(X, y) > 0.9
        assert np.isfinite(clf.predict_proba(gaps)).all()


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_input_is_as_good_as_dense(kind):
    X = np.random.default_rng(0).poisson(0.5, (100, 5)).astype(float)
    y = (X[:, 0] > 0).astype(int)
    clf = ECRTClassifier(head="linear", demixing="linear", random_state=0)
    np.testing.assert_array_equal(clf.fit(kind(X), y).predict_proba(kind(X)), clf.fit(X, y).predict_proba(X))


def test_sparse_input_too_large_to_be_made_dense():
    with pytest.raises(NotEnoughMemoryError, match="TruncatedSVD"):
        ECRTClassifier().fit(sparse.csr_array((100_000, 100_000)), np.arange(100_000) % 2)


def test_strings_in_an_array_are_categories():
    X = np.array([["a", "x"], ["b", "y"]] * 30, dtype=object)
    clf = ECRTClassifier(head="linear", random_state=0).fit(X, ["p", "q"] * 30)
    assert clf.score(X, ["p", "q"] * 30) == 1.0


def test_warnings_name_the_line_of_the_user():
    frame = pd.DataFrame({"row": np.arange(N), "x": np.random.default_rng(0).normal(size=N)})
    clf = ECRTClassifier(demixing="linear", head="linear", random_state=0)
    for model in (clf, make_pipeline("passthrough", clf)):
        with pytest.warns(ECRTWarning) as found:
            model.fit(frame, ["a", "b"] * (N // 2))
        assert len(found) >= 2
        assert {warning.filename for warning in found} == {__file__}


@pytest.mark.parametrize("columns", [[np.zeros(3)], [np.float64(1)], [7], ["a"], 7, [{}]])
def test_columns_that_are_none_are_refused(columns):
    with pytest.raises(BadContentError, match="table: "):
        typed({"columns": columns}, TableEncoder, "table")
