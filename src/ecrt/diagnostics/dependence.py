"""Are coordinates independent within classes, before and after de-mixing?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecrt.flows import within_class_residuals
from ecrt.metrics import holm, hsic_test

__all__ = ["ClassDependence", "Dependence", "class_dependence"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

FEWEST_TESTED = 12
"""With fewer rows of a class only a gross dependence could be told from chance."""

MOST_ROWS, MOST_COLUMNS, MOST_CLASSES = 100, 6, 20
"""What is tested of a class, and how many classes are: the work grows with the square of the rows."""

LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class ClassDependence:
    """One class.

    Attributes
    ----------
    n_rows : rows it was measured on.
    minority : whether the class is called minority.
    hsic_z, hsic_s : largest normalised HSIC of two features, and of two sources.
    p_z, p_s : permutation p-values, Holm-corrected over the classes; NaN where there are too few rows to tell.
    """

    label: Any
    n_rows: int
    minority: bool
    hsic_z: float
    hsic_s: float
    p_z: float
    p_s: float

    @property
    def told(self) -> bool:
        """Whether there were rows enough."""
        return bool(np.isfinite(self.p_s))


@dataclass(frozen=True)
class Dependence:
    """All classes that were tested: every minority class first, as far as there is room."""

    classes: tuple[ClassDependence, ...]
    n_columns: int

    def dependent(self, *, after: bool = True) -> list[ClassDependence]:
        """Classes whose coordinates are dependent beyond chance."""
        return [one for one in self.classes if (one.p_s if after else one.p_z) < LEVEL]

    @property
    def told(self) -> list[ClassDependence]:
        """Classes with rows enough."""
        return [one for one in self.classes if one.told]


def class_dependence(
    z: Array, s: Array, y: Labels, classes: NDArray[Any], minority: NDArray[np.bool_], rng: np.random.Generator
) -> Dependence:
    """Test features and sources for independence in each class: HSIC, with permutations for its chance.

    Parameters
    ----------
    z, s : features and sources of the same rows; those columns are tested along which classes differ most.
    y : class indices.
    classes, minority : labels, and which of them are minority.
    """
    counts = np.bincount(y, minlength=len(classes))
    order = np.lexsort((-counts, ~minority))
    order = order[counts[order] > 0]
    rare, others = order[minority[order]], order[~minority[order]]
    taken_rare = rare[: max(MOST_CLASSES // 2, MOST_CLASSES - len(others))]
    chosen = np.concatenate([taken_rare, others[: MOST_CLASSES - len(taken_rare)]])
    columns_z, columns_s = _telling_columns(z, y), _telling_columns(s, y)
    # Holm asks the smallest p-value to lie below the level over the number of classes.
    n_permutations = max(199, int(np.ceil(2 * len(chosen) / LEVEL)) - 1)
    found = []
    for label in chosen:
        rows = rng.permutation(np.flatnonzero(y == label))[:MOST_ROWS]
        tests = [(float("nan"), float("nan"))] * 2
        if len(rows) >= FEWEST_TESTED:
            tests = [
                hsic_test(values[np.ix_(rows, columns)], rng, n_permutations=n_permutations)
                for values, columns in ((z, columns_z), (s, columns_s))
            ]
        found.append((int(label), len(rows), tests))
    adjusted = [holm([tests[side][1] for _, _, tests in found]) for side in (0, 1)]
    return Dependence(
        tuple(
            ClassDependence(
                label=classes[label].item() if isinstance(classes[label], np.generic) else classes[label],
                n_rows=n_rows, minority=bool(minority[label]), hsic_z=tests[0][0], hsic_s=tests[1][0], p_z=p_z, p_s=p_s,
            )
            for (label, n_rows, tests), p_z, p_s in zip(found, *adjusted, strict=True)
        ),
        n_columns=len(columns_s),
    )  # fmt: skip


def _telling_columns(values: Array, y: Labels) -> Labels:
    """Columns with the largest ratio of between-class to within-class variance."""
    residuals, means, _ = within_class_residuals(values, y)
    within = residuals.var(axis=0)
    ratio = means.var(axis=0) / np.where(within > 0, within, np.inf)
    return np.sort(np.argsort(-ratio, kind="stable")[:MOST_COLUMNS])
