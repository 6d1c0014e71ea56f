"""Sources as features: in pipelines, back again, and under scikit-learn's checks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from ecrt import ECRTTransformer, Encoder, Flow, Linear, load
from ecrt.errors import InputError

QUICK_FLOW = {"demixing": Flow(n_restarts=1, hidden=(16,), epochs=3), "random_state": 0}


@parametrize_with_checks([
    ECRTTransformer(random_state=0),
    ECRTTransformer(demixing=Flow(n_restarts=1, hidden=(16,), epochs=3), random_state=0, precision="float32"),
    ECRTTransformer(encoder=Encoder("mlp", epochs=3, n_features=8), random_state=0),
])  # fmt: skip
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"demixing": Linear(n_sources=2)},
        QUICK_FLOW,
        {"demixing": Flow(n_sources=3, n_restarts=1, hidden=(16,), epochs=3), "random_state": 0},
    ],
)
def test_sources_come_back(options):
    X, y = load_wine(return_X_y=True)
    transformer = ECRTTransformer(**({"random_state": 0} | options)).fit(X, y)
    s = transformer.transform(X)
    back = transformer.inverse_transform(s)
    np.testing.assert_allclose(transformer.transform(back), s, atol=1e-8)
    if "n_sources" in repr(options):
        assert transformer.reconstruction_error_ > 0.1
    else:
        np.testing.assert_allclose(back, X, atol=1e-6)
        assert transformer.reconstruction_error_ < 1e-8


def test_pipeline_grid_search_clone_and_names():
    X, y = load_iris(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(ECRTTransformer(random_state=0), LogisticRegression()).set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"ecrttransformer__demixing__n_sources": [1, 3]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    sources = clone(search.best_estimator_[0]).fit_transform(X, y)
    assert isinstance(sources, pd.DataFrame)
    assert list(sources) == [f"ecrttransformer{place}" for place in range(sources.shape[1])]
    assert sources.index.equals(X.index)


def test_wrong_sources_and_options():
    X, y = load_iris(return_X_y=True)
    transformer = ECRTTransformer(random_state=0).fit(X, y)
    with pytest.raises(InputError, match="3 columns; there are 4 sources"):
        transformer.inverse_transform(np.zeros((2, 3)))
    with pytest.raises(InputError, match="S contains NaN"):
        transformer.inverse_transform(np.full((2, 2), np.nan))
    with pytest.raises(ValueError, match="demixing"):
        ECRTTransformer(demixing="auto").fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        ECRTTransformer().fit(X)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"demixing": Linear(n_sources=2), "minority": lambda counts: counts < counts.max()},
        {"demixing": Flow(source_prior="shared", n_restarts=1, hidden=(16,), epochs=3), "random_state": 0},
        {"encoder": Encoder("autoencoder", epochs=1, n_features=3), "demixing": "none"},
    ],
)
def test_saved_and_loaded_to_the_last_bit(options, tmp_path):
    X, y = load_wine(return_X_y=True, as_frame=True)
    transformer = ECRTTransformer(**({"random_state": 0} | options)).fit(X, y)
    transformer.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    s = transformer.transform(X)
    assert type(loaded) is ECRTTransformer
    assert loaded.transform(X).tobytes() == s.tobytes()
    assert loaded.inverse_transform(s).tobytes() == transformer.inverse_transform(s).tobytes()
    assert vars(loaded).keys() == vars(transformer).keys()
    assert loaded.history_ == transformer.history_
    assert loaded.reconstruction_error_ == transformer.reconstruction_error_
    assert loaded.demixed_on_.tolist() == transformer.demixed_on_.tolist()
    assert loaded.get_feature_names_out().tolist() == transformer.get_feature_names_out().tolist()
    assert "model.transform(X)" in (tmp_path / "model" / "MODEL_CARD.md").read_text()
