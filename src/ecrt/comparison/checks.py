"""What stands in the way of a fair answer, in words with figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.comparison.splits import Splitter

__all__ = ["warnings_of"]

Labels = NDArray[np.int64]

HARDLY_IMBALANCED = 2.0
"""Below this ratio of the largest class to the smallest there is little imbalance to speak of."""

FEW_TEST_ROWS = 10
"""With fewer test rows of a class a single one moves its recall by more than a tenth."""

NAMED = 5


def warnings_of(X: pd.DataFrame, splitter: Splitter, labels: list[str]) -> list[str]:
    """Sentences for the user; none if all is well."""
    y = splitter.y
    splits = [splitter.outer(seed) for seed in range(splitter.n_seeds)]
    found = [
        _balance(y, labels),
        _duplicates(X, y, splits),
        _few_test_rows(y, splits, labels),
        _unseen(y, splits, labels),
    ]
    if splitter.n_seeds < 3:
        seeds = "1 seed is" if splitter.n_seeds == 1 else f"{splitter.n_seeds} seeds are"
        found.append(f"{seeds} too few to tell a difference from noise; 5 or more serve.")
    return [sentence for sentence in found if sentence]


def _balance(y: Labels, labels: list[str]) -> str:
    counts = np.bincount(y)
    least, most = int(counts.argmin()), int(counts.argmax())
    if counts[most] >= HARDLY_IMBALANCED * counts[least]:
        return ""
    return (
        f"The table is hardly imbalanced: {counts[most]} rows of {labels[most]!r}, the largest class, and "
        f"{counts[least]} of {labels[least]!r}, the smallest. Methods for imbalance have little to correct."
    )


def _duplicates(X: pd.DataFrame, y: Labels, splits: list[tuple[Labels, Labels]]) -> str:
    codes = pd.factorize(pd.util.hash_pandas_object(X, index=False))[0]
    if codes.max() + 1 == len(codes):
        return ""
    shared, with_label, tested = 0, 0, 0
    for train, test in splits:
        twin = np.isin(codes[test], codes[train])
        shared, tested = shared + int(twin.sum()), tested + len(test)
        pairs = codes * (y.max() + 1) + y
        with_label += int(np.isin(pairs[test], pairs[train]).sum())
    if shared == 0:
        return ""
    return (
        f"{shared / tested:.1%} of the test rows also stand among the training rows of their split, cell by cell "
        f"({with_label / tested:.1%} with the same label): methods that memorise are flattered. Drop the duplicates, "
        "or name a column with --group that keeps them on one side."
    )


def _few_test_rows(y: Labels, splits: list[tuple[Labels, Labels]], labels: list[str]) -> str:
    rows = np.mean([np.bincount(y[test], minlength=len(labels)) for _, test in splits], axis=0)
    few = np.flatnonzero(rows < FEW_TEST_ROWS)
    if len(few) == 0:
        return ""
    order = few[np.argsort(rows[few], kind="stable")]
    named = ", ".join(f"{labels[at]!r} ({rows[at]:.3g})" for at in order[:NAMED])
    tested = order[rows[order] > 0]
    end = "Classes without test rows count for nothing in the figures."
    if len(tested):
        step = 1 / (max(rows[tested[0]], 1) * (rows > 0).sum())
        end = (
            f"One row of {labels[tested[0]]!r} moves balanced accuracy by {step:.3f}: small differences cannot be told."
        )
    have = "has" if len(few) == 1 else "have"
    return (
        f"{len(few)} of {len(labels)} classes {have} fewer than {FEW_TEST_ROWS} test rows a split, on average: {named}"
        f"{' and others' if len(few) > NAMED else ''}. {end}"
    )


def _unseen(y: Labels, splits: list[tuple[Labels, Labels]], labels: list[str]) -> str:
    absent = sorted({label for train, test in splits for label in np.setdiff1d(y[test], y[train]).tolist()})
    if not absent:
        return ""
    named = ", ".join(repr(labels[at]) for at in absent[:NAMED])
    return f"Classes {named} occur in the test rows of a split that has none of them in training: always wrong there."
