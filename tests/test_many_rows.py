"""Prediction on many rows: a block at a time, from mapped files, by several threads, always with the same answer."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification, make_regression

from ecrt import ECRTClassifier, ECRTRegressor, ECRTTransformer, Flow, MLPHead
from ecrt.errors import InputError
from ecrt.estimators import base

ROWS = 64


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(400, n_features=6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)


@pytest.fixture(scope="module")
def classifier(rows) -> ECRTClassifier:
    return ECRTClassifier(
        demixing=Flow(n_restarts=1, epochs=2), head=["linear", "gaussian", MLPHead(epochs=2)], random_state=0
    ).fit(*rows)


@pytest.fixture
def small_blocks(monkeypatch) -> list[int]:
    """Blocks of 64 rows; the sizes that the first step of every method sees."""
    seen: list[int] = []
    read = ECRTClassifier._read_rows
    monkeypatch.setattr(base, "ROWS_AT_ONCE", ROWS)
    monkeypatch.setattr(ECRTClassifier, "_read_rows", lambda self, X: (seen.append(len(X)), read(self, X))[1])
    return seen


METHODS = ["predict", "predict_proba", "predict_log_proba", "decision_function", "transform"]


@pytest.mark.parametrize("method", METHODS)
def test_blocks_give_what_the_whole_gives(method, rows, classifier, small_blocks, monkeypatch):
    X = rows[0]
    found = getattr(classifier, method)(X)
    assert small_blocks == [ROWS] * 6 + [400 - 6 * ROWS]
    monkeypatch.setattr(base, "ROWS_AT_ONCE", 10**9)
    expected = getattr(classifier, method)(X)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if method == "predict":
        assert (found == expected).all()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["float32", "float64", "int64"])
def test_a_mapped_file_is_never_read_whole(kind, rows, classifier, small_blocks, tmp_path):
    path = tmp_path / "rows"
    mapped = np.memmap(path, dtype=kind, mode="w+", shape=rows[0].shape)
    mapped[:] = 10 * rows[0] if kind == "int64" else rows[0]
    mapped.flush()
    found = classifier.predict_proba(np.memmap(path, dtype=kind, mode="r", shape=rows[0].shape))
    assert max(small_blocks) == ROWS
    expected = np.concatenate([classifier.predict_proba(np.array(part)) for part in np.array_split(mapped, 10)])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_tables_lists_and_few_rows_go_through_whole(rows, classifier, small_blocks):
    X = rows[0]
    expected = classifier.predict_proba(X[:ROWS])
    assert small_blocks == [ROWS]
    np.testing.assert_allclose(classifier.predict_proba(pd.DataFrame(X))[:ROWS], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(classifier.predict_proba(X.tolist())[:ROWS], expected, rtol=1e-12, atol=1e-12)
    assert small_blocks[1:] == [400, 400]


def test_errors_are_the_same(rows, classifier, small_blocks):
    with pytest.raises(ValueError, match="features"):
        classifier.predict(rows[0][:, :3])
    late = rows[0].copy()
    late[-1, 0] = np.inf
    with pytest.raises((InputError, ValueError), match="infinit"):
        classifier.predict(late)


def test_output_format_is_kept(rows, small_blocks):
    transformer = ECRTTransformer(demixing="linear", random_state=0).fit(*rows).set_output(transform="pandas")
    found = transformer.transform(rows[0])
    assert isinstance(found, pd.DataFrame)
    assert found.shape == (400, 6)


def test_a_regressor_in_blocks(small_blocks, monkeypatch):
    X, y = make_regression(300, n_features=4, random_state=0)
    regressor = ECRTRegressor(demixing="linear", head=["linear", MLPHead(epochs=2)], random_state=0).fit(X, y)
    found = regressor.predict(X)
    monkeypatch.setattr(base, "ROWS_AT_ONCE", 10**9)
    np.testing.assert_allclose(found, regressor.predict(X), rtol=1e-10)


def test_threads_share_one_model(rows, classifier):
    X = rows[0]
    pieces = [X[k : k + 40] for k in range(0, 360, 5)]
    expected = [classifier.predict_proba(piece) for piece in pieces]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(classifier.predict_proba, pieces))
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
    assert found[0].dtype == np.float64
