"""Frames of other libraries, torch tensors with and without scikit-learn's array-API dispatch, and notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import ecrt
from ecrt import BaselineClassifier, ECRTClassifier, ECRTRegressor, ECRTTransformer
from ecrt.cli import app
from pages import Outline

pytestmark = pytest.mark.filterwarnings("ignore::ecrt.ECRTWarning")

QUICK = {"demixing": "linear", "head": "linear", "random_state": 0}
MODELS = {
    "classifier": ECRTClassifier(**QUICK),
    "several labels": ECRTClassifier(**QUICK),
    "rival": BaselineClassifier(method="lda"),
    "transformer": ECRTTransformer(random_state=0),
    "regressor": ECRTRegressor(random_state=0, demixing="linear", head="linear"),
}
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")


def rows(name="classifier"):
    X, y = make_classification(
        200, n_classes=3, n_informative=4, n_redundant=0, n_features=5, weights=[0.6, 0.3, 0.1], random_state=0
    )
    targets = {"several labels": np.column_stack([y == 0, y == 1, X[:, 0] > 1]).astype(int), "regressor": X[:, 0] * 2}
    return X, targets.get(name, y)


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    X, y = rows(request.param)
    return request.param, clone(MODELS[request.param]).fit(X, y)


# --- frames ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    X, y = rows()
    frame = pd.DataFrame(X, columns=list("abcde")).assign(colour=np.where(y == 1, "red", "blue"))
    frame.loc[::9, "b"] = np.nan
    return frame, y


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("name", ["classifier", "rival", "transformer", "regressor"])
def test_frames_and_columns_of_other_libraries_are_read_as_those_of_pandas(table, library, name):
    frame, y = table
    other = pytest.importorskip(library)
    pytest.importorskip("pyarrow")
    if library == "polars":
        given, target = other.from_pandas(frame), other.Series("y", y)
    else:
        given, target = other.Table.from_pandas(frame, preserve_index=False), other.chunked_array([y])
    wanted, found = clone(MODELS[name]).fit(frame, y), clone(MODELS[name]).fit(given, target)
    assert found.feature_names_in_.tolist() == list(frame)
    for method in METHODS:
        if hasattr(wanted, method):
            assert np.array_equal(getattr(found, method)(given), getattr(wanted, method)(frame)), method


@pytest.mark.parametrize("name", ["classifier", "transformer", "regressor"])
def test_sources_come_as_a_frame_of_polars_if_asked_for(table, name):
    polars = pytest.importorskip("polars")
    frame, y = table
    model = clone(MODELS[name]).fit(frame, y).set_output(transform="polars")
    found = model.transform(polars.from_pandas(frame))
    assert isinstance(found, polars.DataFrame)
    assert found.columns == model.get_feature_names_out().tolist()
    assert np.array_equal(found.to_numpy(), model.set_output(transform="default").transform(frame))
    chained = make_pipeline(clone(MODELS["transformer"]), clone(MODELS["rival"])).set_output(transform="polars")
    assert chained.fit(polars.from_pandas(frame), y).score(polars.from_pandas(frame), y) > 0.5


# --- tensors -----------------------------------------------------------------------------------------------------


def test_tensors_are_read_as_arrays(fitted):
    name, model = fitted
    X, y = rows(name)
    tensors = torch.from_numpy(X).requires_grad_(), torch.from_numpy(y)
    again = clone(MODELS[name]).fit(*tensors)
    for method in METHODS:
        if hasattr(model, method):
            found = getattr(again, method)(tensors[0])
            assert isinstance(found, np.ndarray)
            assert np.array_equal(found, getattr(model, method)(X)), method
    if hasattr(model, "score"):
        assert again.score(*tensors) == model.score(X, y)


def test_half_precision_tensors_are_read():
    X, y = rows()
    given = torch.from_numpy(X).bfloat16()
    model = clone(MODELS["classifier"]).fit(given, torch.from_numpy(y))
    assert np.array_equal(model.predict_proba(given), model.predict_proba(given.float().numpy()))


DISPATCH = '''
import numpy as np, sys, torch, warnings
sys.path.insert(0, {tests!r})
warnings.simplefilter("ignore")
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_array_api_input
from test_arrays import METHODS, MODELS, rows

for name, model in MODELS.items():
    X, y = rows(name)
    fitted = clone(model).fit(X, y)
    with config_context(array_api_dispatch=True):
        given = torch.from_numpy(X)
        again = clone(model).fit(given, torch.from_numpy(y))
        for method in METHODS:
            if hasattr(model, method):
                found, wanted = getattr(again, method)(given), getattr(fitted, method)(X)
                assert isinstance(found, torch.Tensor) and found.device == given.device, (name, method)
                assert found.numpy().dtype == wanted.dtype and np.array_equal(found.numpy(), wanted), (name, method)
        if hasattr(fitted, "score"):
            assert again.score(given, torch.from_numpy(y)) == fitted.score(X, y)
        if hasattr(fitted, "inverse_transform"):
            back = again.inverse_transform(again.transform(given))
            assert isinstance(back, torch.Tensor)
            assert np.array_equal(back.numpy(), fitted.inverse_transform(fitted.transform(X)))

X, y = rows()
with config_context(array_api_dispatch=True):
    chain = make_pipeline(StandardScaler(), clone(MODELS["classifier"]))
    chain.fit(torch.from_numpy(X), torch.from_numpy(y))
    assert isinstance(chain.predict_proba(torch.from_numpy(X)), torch.Tensor)
    words = clone(MODELS["classifier"]).fit(torch.from_numpy(X), np.array(["a", "b", "c"])[y])
    assert words.predict(torch.from_numpy(X)).dtype.kind == "U"


class Held(BaseEstimator):
    """A model whose own attributes scikit-learn's check does not see: they stay arrays of numpy."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y):
        self.model_ = clone(self.model).fit(X, y)
        return self

    def __getattr__(self, method):
        if method in METHODS or method in ("score", "inverse_transform"):
            return getattr(self.__dict__.get("model_", self.__dict__["model"]), method)
        raise AttributeError(method)

    def __sklearn_tags__(self):
        return self.model.__sklearn_tags__()


for name in ("classifier", "rival", "transformer", "regressor"):
    for values in (False, True):
        for dtype in ("float32", "float64"):
            check_array_api_input(name, Held(MODELS[name]), "torch", "cpu", dtype, check_values=values)
print("all is well")
'''  # fmt: skip


def test_under_array_api_dispatch_tensors_come_out_and_the_check_of_scikit_learn_passes():
    """In another process: SciPy reads its setting when it is imported."""
    code = DISPATCH.format(tests=str(Path(__file__).parent))
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"SCIPY_ARRAY_API": "1"}
    )
    assert result.stdout.endswith("all is well\n"), result.stderr[-3000:]


# --- notebooks ---------------------------------------------------------------------------------------------------


START = '<div class="ecrt-summary"'


def summary(model):
    """What we add to the view of scikit-learn, taken apart."""
    theirs, start, ours = model._repr_html_().partition(START)
    assert "sk-top-container" in theirs
    return Outline(start + ours)


def test_a_notebook_shows_what_a_fitted_model_is(fitted):
    name, model = fitted
    page = summary(model)
    assert type(model).__name__ in page.text
    assert page.loads == []
    if name in ("classifier", "several labels"):
        assert model.verdict_ in page.text
        assert "Held-out loss" in page.text
        assert f"{model.members_[0].held_out:.3f}" in page.text
    if name == "classifier":
        assert "fitted on 200 samples in 3 classes; rare: 2 (" in page.text
    assert summary(clone(model)).text == ""


def test_names_of_classes_are_shown_and_not_obeyed():
    X, y = rows()
    clf = ECRTClassifier(**QUICK).fit(X, np.array(["a", "b", "<script>alert(1)</script>"])[y])
    page = summary(clf)
    assert "script" not in page.count
    assert "<script>alert(1)</script> (" in page.text


def test_the_model_of_a_run_links_its_report(tmp_path, monkeypatch):
    X, y = rows()
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X, columns=list("abcde")).assign(kind=y).to_csv("rows.csv", index=False)
    words = ["fit", "rows.csv", "--target", "kind", "-o", "run", "--method", "lda"]
    assert CliRunner().invoke(app, words).exit_code == 0
    model = ecrt.load("run/model")
    assert summary(model).loads == ["run/report.html"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert summary(model).loads == [(tmp_path / "run" / "report.html").as_uri()]
    assert summary(clone(model).fit(X, y)).loads == summary(model.fit(X, y)).loads == []
    (tmp_path / "run" / "report.html").unlink()
    assert summary(ecrt.load(tmp_path / "run" / "model")).loads == []
