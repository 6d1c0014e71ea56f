"""The demonstration: a comparison on a table that needs no download, and points for a picture of the toy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ecrt.comparison import Comparison, compare
from ecrt.data import step_imbalance, toy_sources
from ecrt.estimators import ECRTClassifier
from ecrt.stages import Flow
from ecrt.training import Progress

METHODS = ("erm", "logit-adjusted", "weighted-logistic", "balanced-forest", "ecrt")
RARE_DIGITS, RARE_ROWS = (5, 6, 7, 8, 9), 30
SEED = 1000
RARE_TOY, TOY_ROWS, RARE_TOY_ROWS, POINTS, EPOCHS = 0, 1000, 50, 300, 30


def compare_digits(output: Path, *, jobs: int | None = None, progress: Progress | None = None) -> Comparison:
    """ECRT and its baselines on scikit-learn's digits, where 5 to 9 keep 30 rows each and 0 to 4 about 180.

    Parameters
    ----------
    output, jobs, progress : of ``ecrt.compare``.
    """
    from sklearn.datasets import load_digits  # slow to import

    X, y = load_digits(return_X_y=True)
    rows = step_imbalance(y, RARE_DIGITS, RARE_ROWS, np.random.default_rng(SEED))
    return compare(
        X[rows], y[rows], methods=METHODS, trials=2, test_size=1 / 3, output=output, jobs=jobs, progress=progress,
        title="Handwritten digits, 5 to 9 rare",
    )  # fmt: skip


def toy_points() -> dict[str, Any]:
    """Fit the toy of the paper, whose class 0 has 50 training samples and the others 1,000; what ``toy_png`` draws."""
    sources, rng = toy_sources(), np.random.default_rng(SEED)
    sizes = np.full(len(sources.means), TOY_ROWS)
    sizes[RARE_TOY] = RARE_TOY_ROWS
    train = sources.draw(sizes, rng)
    test = sources.draw(np.full(len(sizes), POINTS), rng)
    clf = ECRTClassifier(demixing=Flow(epochs=EPOCHS), head="linear", random_state=SEED, device="cpu")
    clf.fit(train.z, train.y)
    synthetic, _ = clf.sample(POINTS, [RARE_TOY], space="source", random_state=0)
    return {
        "z": test.z, "s": clf.transform(test.z), "y": test.y, "rare": RARE_TOY,
        "train": clf.transform(train.z[train.y == RARE_TOY]), "synthetic": synthetic,
    }  # fmt: skip
