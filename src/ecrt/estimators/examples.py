"""Sources that a fitted classifier keeps of each class: to measure independence on, and to draw synthetic ones from."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ecrt.data import thin_out
from ecrt.diagnostics import SourceRows, diagnose_sources
from ecrt.errors import InputError
from ecrt.stages import AugmentConfig, augment_classes

__all__ = ["draw_samples", "keep_examples"]

Array = NDArray[np.float64]

EXAMPLES_PER_CLASS = 500


def keep_examples(
    clf: Any, z: Array, y: NDArray[np.int64], demixed_on: NDArray[np.bool_], rng: np.random.Generator
) -> None:
    """Keep some sources of each class; independence is measured on them when it is asked for."""
    keep = thin_out(y, dict.fromkeys(range(len(clf.classes_)), EXAMPLES_PER_CLASS), rng)
    rows = SourceRows.of(clf.demixer_, z[keep], y[keep])
    clf._examples = rows.s, rows.y
    clf._diagnosis = partial(diagnose_sources, clf.demixer_, rows, clf.classes_, demixed_on)


def draw_samples(
    clf: Any,
    n_per_class: int,
    classes: Iterable[Any] | None,
    space: Literal["source", "feature"],
    random_state: int | np.random.RandomState | None,
) -> tuple[Array, NDArray[Any]]:
    """Synthetic samples by the augmentation of the fit, from the examples kept, with their labels."""
    wanted = clf.classes_ if classes is None else np.asarray(list(classes))
    unknown = np.setdiff1d(wanted, clf.classes_)
    if len(unknown):
        raise InputError(f"No such class: {unknown.tolist()}. Known: {clf.classes_.tolist()}.")
    s, y = clf._examples
    config = AugmentConfig(
        kind=clf._chosen("augmentation"), weight=1.0, n_synthetic=n_per_class,
        pseudo_samples=clf._chosen("pseudo_samples"), mean_shrinkage=clf._chosen("mean_shrinkage"),
    )  # fmt: skip
    rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    majority = ~np.isin(clf.classes_, clf.minority_classes_)
    drawn = augment_classes(
        s, y, np.isin(clf.classes_, wanted), clf.within_variance_, config, rng, lenders=majority
    )  # fmt: skip
    values = drawn.s if space == "source" else clf.demixer_.inverse(torch.from_numpy(drawn.s)).numpy()
    return values, clf.classes_[drawn.y]
