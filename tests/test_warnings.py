"""Warnings point at the line of the user's own code."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import ecrt
from ecrt import ECRTClassifier, ECRTTransformer, ECRTWarning

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"row": np.arange(60), "a": RNG.normal(size=60), "b": RNG.normal(size=60)})
Y = np.repeat(["x", "y", "z"], [30, 24, 6])
QUICK = {"demixing": "linear", "head": "linear", "random_state": 0}


CALLS = {
    "fit": lambda: ECRTClassifier(**QUICK).fit(TABLE, Y),
    "fit_transform": lambda: ECRTTransformer(demixing="linear").fit_transform(TABLE, Y),
    "pipeline": lambda: make_pipeline(FunctionTransformer(), ECRTClassifier(**QUICK)).fit(TABLE, Y),
    "cross validation": lambda: cross_val_score(ECRTClassifier(**QUICK), TABLE, Y, cv=2),
    "several labels": lambda: ECRTClassifier(**QUICK).fit(TABLE, np.tile([[1, 0, 0], [0, 1, 0]], (30, 1))),
    "score": lambda: ECRTClassifier(**QUICK).fit(TABLE, Y).score(TABLE, np.repeat("w", 60)),
    "compare": lambda: ecrt.compare(TABLE, Y, methods=["lda", "weighted-logistic"], seeds=2, trials=1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_warnings_point_at_the_users_line(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    ours = [warning for warning in caught if issubclass(warning.category, ECRTWarning)]
    assert ours
    assert {warning.filename for warning in ours} == {__file__}
