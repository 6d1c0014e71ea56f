"""Measures only: do sources behave as the theory asks, and do features allow for transfer?

Every fit measures independence, likelihood and the theorem's conditions, class by class. A diagnosis also tests
independence before and after de-mixing, the Gaussian shape, and whether other seeds find the same sources; and of the
features, whether they are memorised, vary in the minority where the majority does not, and beat the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist, squareform
from scipy.stats import jarque_bera, kurtosis, norm, rankdata, skew

from ecrt.arrays import Array, Labels
from ecrt.data import thin_out
from ecrt.flows import ClassPrior, Demixer
from ecrt.metrics import LEVEL, half_width, holm
from ecrt.moments import within_class_residuals
from ecrt.nn import column_spread

FEWEST_ROWS = 6
"""With fewer, centred kernels have nothing left to compare."""

ROUND_TRIPS = 256
"""Rows that are sent through the de-mixing and back."""

FEWEST_TESTED = 12
"""With fewer rows of a class only a very strong dependence would be significant."""

MOST_TESTED, MOST_COLUMNS, MOST_CLASSES = 100, 6, 20
"""What is tested of a class, and how many classes are: the work grows with the square of the rows."""

FEWEST_SHAPED = 20
"""Rows of a class from which its residuals can be standardised without much change of their shape."""

MOST_SHAPED, MOST_SOURCES, DRAWS = 5000, 64, 999

STRONG = 0.5
"""Skewness or excess kurtosis (over two) from which the departure matters."""

MOST_COMPARED = 2000
"""Rows that the sources of several fits are compared on."""

PERMUTATIONS = 199

MARKED = 1.2
"""Ratio of squared residuals, held-out rows over seen ones, from which it matters."""

FEWEST_SEEN = 3
"""Rows of a class that its mean is taken from."""

MOST_CELLS = 5_000_000
"""Rows times columns: every permutation goes over all of them."""

LARGE = 2.0
"""Minority variance, in units of the majority's along the same direction, from which a feature is called unique."""

FEWEST_VARIED = 4
"""Rows of a class: two for each half."""

GROUPS_DRAWN, SPLITS, MOST_VARIED = 199, 5, 200
POWER_STEPS = 30

RIDGE = 1e-2
"""Added to the majority's covariance, as a share of its mean variance; less variance counts as none."""

FEWEST_CLASSES = 3
"""With fewer, classes cannot show how much they differ: rows have to."""


# --- how independent are sources, and are they the true ones? ---------------------------------------------------------


def max_abs_correlation(s: Array) -> float:
    """Largest absolute Pearson correlation between two coordinates; NaN with fewer than three rows or one column."""
    s = _varying(s)
    if s.shape[0] < 3 or s.shape[1] < 2:
        return float("nan")
    correlation = np.abs(np.asarray(np.corrcoef(s, rowvar=False)))
    np.fill_diagonal(correlation, 0.0)
    return float(correlation.max())


def hsic(s: Array, max_rows: int = 300, max_columns: int = 16) -> float:
    """Largest normalised HSIC between two coordinates: 0 for independent ones, 1 for one a copy of the other.

    Centred Gaussian kernels with the median distance as bandwidth, on the first ``max_rows`` rows and ``max_columns``
    columns (the diagonal of each kernel is left out of the products, which removes most of the small-sample bias).
    """
    kernels = _unit_kernels(s[:max_rows, :max_columns])
    return float("nan") if kernels is None else max(_largest_product(kernels), 0.0)


def hsic_test(
    s: Array, rng: np.random.Generator, *, n_permutations: int = 499, exceedances: int = 10
) -> tuple[float, float]:
    """Largest normalised HSIC between two coordinates, and the chance that independent ones reach it.

    Each permutation shuffles every coordinate separately, so that nothing but independence is assumed. Permutations
    stop as soon as ``exceedances`` of them have reached the value, which then is clearly not large. The p-value stays
    valid.

    Parameters
    ----------
    s : rows of one class.
    n_permutations : at most; the least p-value is one over one more.
    exceedances : permutations as large as the value after which to stop.

    References
    ----------
    Gretton et al. (2007), A kernel statistical test of independence. Besag and Clifford (1991), Sequential Monte Carlo
    p-values.
    """
    kernels = _unit_kernels(s)
    if kernels is None:
        return float("nan"), float("nan")
    value, reached = _largest_product(kernels), 0
    shuffled = kernels.copy()
    for drawn in range(1, n_permutations + 1):
        for column in range(1, len(kernels)):
            order = rng.permutation(len(s))
            shuffled[column] = kernels[column][np.ix_(order, order)]
        reached += _largest_product(shuffled) >= value
        if reached == exceedances:
            return max(value, 0.0), reached / drawn
    return max(value, 0.0), (reached + 1) / (n_permutations + 1)


def _unit_kernels(s: Array) -> Array | None:
    """A centred Gaussian kernel of each column that varies, without its diagonal, scaled to unit norm.

    ``None`` where there are too few rows or columns to compare.
    """
    s = _varying(s)
    n, d = s.shape
    if n < FEWEST_ROWS or d < 2:
        return None
    kernels = np.empty((d, n, n))
    for column in range(d):
        squares = pdist(s[:, column, None], "sqeuclidean")  # every pair once
        bandwidth = np.median(squares)
        kernel = squareform(np.exp(-squares / (bandwidth if bandwidth > 0 else 1.0)), checks=False)
        # U-centring (Szekely and Rizzo, 2014): rows and columns of the off-diagonal part sum to zero.
        rows = kernel.sum(axis=1) / (n - 2)
        kernel = kernel - rows[:, None] - rows[None, :] + kernel.sum() / ((n - 1) * (n - 2))
        np.fill_diagonal(kernel, 0.0)
        kernels[column] = kernel / np.sqrt(max((kernel**2).sum(), 1e-300))
    return kernels


def _largest_product(kernels: Array) -> float:
    flat = kernels.reshape(len(kernels), -1)
    products = flat @ flat.T
    return float(products[~np.eye(len(kernels), dtype=bool)].max())


def _varying(s: Array) -> Array:
    """Columns that vary by more than rounding."""
    return s[:, s.std(axis=0) > 1e-9 * (1e-300 + np.abs(s).max(axis=0, initial=0.0))]


def mean_correlation_coefficient(true: Array, found: Array) -> float:
    """MCC: mean absolute rank correlation of true and found sources under the best matching of coordinates.

    >>> s = np.random.default_rng(0).normal(size=(100, 2))
    >>> round(mean_correlation_coefficient(s, -np.exp(s[:, ::-1])), 6)
    1.0
    """
    ranks = np.hstack([rankdata(true, axis=0), rankdata(found, axis=0)])
    correlation = np.abs(np.asarray(np.corrcoef(ranks, rowvar=False))[: true.shape[1], true.shape[1] :])
    correlation = np.nan_to_num(correlation)  # a constant coordinate corresponds to nothing
    rows, columns = linear_sum_assignment(-correlation)
    return float(correlation[rows, columns].mean())


# --- every fit: the conditions of the theory -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SourceRows:
    """What has to be kept of some rows to diagnose their sources, now or later.

    Attributes
    ----------
    s, y : sources and class indices.
    log_volume : what is left of the log-likelihood of each row without that of its sources.
    first, spread : features of the first rows, for the round trip, and the standard deviation of all.
    """

    s: Array
    y: Labels
    log_volume: Array
    first: Array
    spread: Array

    @classmethod
    @torch.no_grad()
    def of(cls, demixer: Demixer, z: Array, y: Labels) -> SourceRows:
        """Rows of features z and classes y, in one pass through the de-mixing."""
        # torch cannot mark memory as read-only, nor walk it backwards; nothing here writes to z.
        rows = torch.from_numpy(np.require(z, requirements=["C", "W"]))
        parts = [demixer.sources_and_volume(part) for part in rows.split(8192)]
        s, log_volume = (torch.cat(values).numpy() for values in zip(*parts, strict=True))
        return cls(s, y, log_volume, z[:ROUND_TRIPS].copy(), z.std(axis=0))


@dataclass(frozen=True)
class ClassDiagnosis:
    """Dependence left between the sources of one class; NaN where it has too few samples to tell."""

    label: Any
    n_samples: int
    demixed: bool
    max_correlation: float
    hsic: float
    log_likelihood: float


@dataclass(frozen=True, kw_only=True)
class SourceDiagnostics:
    """What was measured after a fit.

    Attributes
    ----------
    classes : one entry for each class.
    round_trip_error : largest difference between z and f^-1(f(z)), rest coordinates at their mean aside, relative to
        the spread of z.
    enough_classes : at least 2 q + 1 de-mixing classes for q sources, as the theorem asks of Gaussian sources.
    smallest_singular_value : of the theorem's matrix L from the fitted class priors; 0 where there are too few classes.
    """

    classes: tuple[ClassDiagnosis, ...]
    round_trip_error: float
    enough_classes: bool
    smallest_singular_value: float

    @property
    def theory_met(self) -> bool:
        """Whether the theorem's conditions on the classes hold."""
        return self.enough_classes and self.smallest_singular_value > 0


def theory_matrix(prior: ClassPrior, labels: Labels) -> Array:
    r"""Natural parameters of the classes, :math:`(\mu / v, -1 / 2v)` per source, less those of the first class.

    The identification theorem asks 2 q of these columns to be linearly independent. Rows are divided by their root mean
    square, so that the singular values do not depend on the units of the sources.
    """
    with torch.no_grad():
        precision = 1 / prior.variance_md[labels].double()
        natural = torch.cat([prior.mean_md[labels].double() * precision, -0.5 * precision], dim=1).cpu().numpy()
    differences = (natural[1:] - natural[0]).T
    scale = np.linalg.norm(differences, axis=1, keepdims=True) / np.sqrt(max(differences.shape[1], 1))
    return np.asarray(differences / np.where(scale > 0, scale, 1.0))


def diagnose_sources(
    demixer: Demixer, measured: SourceRows, classes: NDArray[Any], demixed_on: NDArray[np.bool_]
) -> SourceDiagnostics:
    """Measure independence, likelihood, invertibility and the theorem's conditions.

    Parameters
    ----------
    measured : the rows to measure on.
    classes : labels of the classes.
    """
    s, y = measured.s, measured.y
    n_sources = s.shape[1]
    n_demixed = int(demixed_on.sum())
    enough = n_demixed >= 2 * n_sources + 1
    smallest = 0.0
    if enough and isinstance(demixer.prior, ClassPrior):
        smallest = float(np.linalg.svd(theory_matrix(demixer.prior, np.flatnonzero(demixed_on)), compute_uv=False)[-1])
    with torch.no_grad():
        log_likelihood = np.concatenate([
            demixer.prior(s_part, y_part).numpy()
            for s_part, y_part in zip(torch.from_numpy(s).split(8192), torch.from_numpy(y).split(8192), strict=True)
        ]) + measured.log_volume  # fmt: skip
    found = []
    for index, label in enumerate(classes.tolist()):
        rows = np.flatnonzero(y == index)
        found.append(
            ClassDiagnosis(
                label=label,
                n_samples=len(rows),
                demixed=bool(demixed_on[index]),
                max_correlation=max_abs_correlation(s[rows]) if len(rows) else float("nan"),
                hsic=hsic(s[rows]) if len(rows) else float("nan"),
                log_likelihood=float(log_likelihood[rows].mean()) if len(rows) else float("nan"),
            )
        )
    return SourceDiagnostics(
        classes=tuple(found),
        round_trip_error=_round_trip_error(demixer, measured),
        enough_classes=enough,
        smallest_singular_value=smallest,
    )


@torch.no_grad()
def _round_trip_error(demixer: Demixer, measured: SourceRows) -> float:
    """With the rest at its mean z itself cannot come back, but its sources must: compare after a second trip."""
    s = measured.s[:ROUND_TRIPS]
    restored = demixer.inverse(torch.from_numpy(s))
    if demixer.linear.n_rest == 0:
        spread = np.maximum(measured.spread, 1e-12)
        return float((np.abs(restored.numpy() - measured.first) / spread).max(initial=0.0))
    return float(np.abs(demixer(restored).numpy() - s).max(initial=0.0))


# --- independence before and after de-mixing -------------------------------------------------------------------------


def class_dependence(
    z: Array, s: Array, y: Labels, classes: NDArray[Any], minority: NDArray[np.bool_], rng: np.random.Generator
) -> pd.DataFrame:
    """Test features and sources for independence in each class: HSIC, with permutations for its chance.

    Parameters
    ----------
    z, s : features and sources of the same rows; those columns are tested along which classes differ most.
    y : class indices.
    classes, minority : labels, and which of them are minority.

    Returns
    -------
    A line for each class, every minority class first, as far as there is room: ``label``, ``n_rows`` it was measured
    on, ``minority``, the largest normalised HSIC of two features and of two sources (``hsic_z``, ``hsic_s``), and their
    p-values, Holm-corrected over the classes (``p_z``, ``p_s``); NaN where there are too few rows to tell.
    """
    counts, labels = np.bincount(y, minlength=len(classes)), classes.tolist()
    order = np.lexsort((-counts, ~minority))
    order = order[counts[order] > 0]
    rare, others = order[minority[order]], order[~minority[order]]
    taken_rare = rare[: max(MOST_CLASSES // 2, MOST_CLASSES - len(others))]
    chosen = np.concatenate([taken_rare, others[: MOST_CLASSES - len(taken_rare)]])
    columns_z, columns_s = _telling_columns(z, y), _telling_columns(s, y)
    # Holm asks the smallest p-value to lie below the level over the number of classes.
    n_permutations = max(199, int(np.ceil(2 * len(chosen) / LEVEL)) - 1)
    found = []
    for label in chosen.tolist():
        rows = rng.permutation(np.flatnonzero(y == label))[:MOST_TESTED]
        line: dict[str, Any] = {"label": labels[label], "n_rows": len(rows), "minority": bool(minority[label])}
        for side, values, columns in (("z", z, columns_z), ("s", s, columns_s)):
            line[f"hsic_{side}"] = line[f"p_{side}"] = np.nan
            if len(rows) >= FEWEST_TESTED:
                test = hsic_test(values[np.ix_(rows, columns)], rng, n_permutations=n_permutations)
                line[f"hsic_{side}"], line[f"p_{side}"] = test
        found.append(line)
    tested = pd.DataFrame(found)
    return tested.assign(p_z=holm(tested["p_z"].tolist()), p_s=holm(tested["p_s"].tolist()))


def _telling_columns(values: Array, y: Labels) -> Labels:
    """Columns with the largest ratio of between-class to within-class variance."""
    residuals, means, _ = within_class_residuals(values, y)
    within = residuals.var(axis=0)
    ratio = means.var(axis=0) / np.where(within > 0, within, np.inf)
    return np.sort(np.argsort(-ratio, kind="stable")[:MOST_COLUMNS])


# --- Gaussian shape --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussianity:
    """Standardised residuals of every source, pooled over classes; no sources where no class has rows enough.

    Attributes
    ----------
    sources : the furthest from Gaussian first: its place among the ``source`` s, ``skewness`` and ``excess_kurtosis``
        (0 for a Gaussian), and the ``p_value`` of the Jarque-Bera statistic, Holm-corrected over sources.
    n_rows, n_classes : residuals of each source, and classes that they come from.
    quantiles : Gaussian quantiles, and those of the residuals of the three worst sources, column by column.
    """

    sources: pd.DataFrame
    n_rows: int
    n_classes: int
    quantiles: Array

    @property
    def strong(self) -> pd.DataFrame:
        """Sources that depart from the Gaussian beyond chance, and by much."""
        of = self.sources
        large = np.maximum(of["skewness"].abs(), of["excess_kurtosis"].abs() / 2) > STRONG
        return of[(of["p_value"] < LEVEL) & large]


def source_gaussianity(s: Array, y: Labels, rng: np.random.Generator) -> Gaussianity:
    """Test each source's standardised residuals for the Gaussian shape.

    Residuals divided by the standard deviation of few rows are less spread out than Gaussian ones. The null
    distribution is therefore drawn: Gaussian numbers in classes of the same sizes, treated in the same way. It
    is the same for every source.

    References
    ----------
    Jarque and Bera (1987), A test for normality of observations and regression residuals.
    """
    rows = np.flatnonzero(np.bincount(y)[y] >= FEWEST_SHAPED)
    if len(rows) > MOST_SHAPED:  # fewer rows of each class, then fewer classes
        some = rng.permutation(np.unique(y[rows]))[: MOST_SHAPED // FEWEST_SHAPED]
        rows = rows[np.isin(y[rows], some)]
        rows = rows[thin_out(y[rows], dict.fromkeys(some.tolist(), MOST_SHAPED // len(some)), rng)]
    columns = ["source", "skewness", "excess_kurtosis", "p_value"]
    y, residuals = y[rows], _standardised(s[rows, :MOST_SOURCES], y[rows])
    shaped = np.flatnonzero(residuals.any(axis=0))  # others are the same in all rows of a class
    if len(shaped) == 0:
        return Gaussianity(sources=pd.DataFrame(columns=columns), n_rows=0, n_classes=0, quantiles=np.empty((0, 0)))
    residuals = residuals[:, shaped]
    statistic = jarque_bera(residuals, axis=0).statistic
    null = np.concatenate([
        jarque_bera(_standardised(rng.standard_normal((len(y), 27)), y), axis=0).statistic
        for _ in range(DRAWS // 27)
    ])  # fmt: skip
    p_values = holm(((null[:, None] >= statistic).sum(axis=0) + 1) / (len(null) + 1))
    order = np.argsort(-statistic, kind="stable")
    shapes = (shaped, skew(residuals, axis=0), kurtosis(residuals, axis=0), p_values)
    share = np.linspace(0.005, 0.995, 100)
    return Gaussianity(
        sources=pd.DataFrame(dict(zip(columns, shapes, strict=True))).iloc[order],
        n_rows=len(y),
        n_classes=len(np.unique(y)),
        quantiles=np.column_stack([norm.ppf(share), np.quantile(residuals[:, order[:3]], share, axis=0)]),
    )


def _standardised(s: Array, y: Labels) -> Array:
    """Every class to mean zero and variance one, column by column; to zero where it varies by rounding alone."""
    of_class = pd.DataFrame(s).groupby(y)
    spread = np.sqrt(np.nan_to_num(of_class.transform("var").to_numpy()))
    spread[spread <= 1e-9 * np.abs(s).max(axis=0, initial=0.0)] = np.inf
    return np.asarray((s - of_class.transform("mean").to_numpy()) / spread)


# --- other seeds -----------------------------------------------------------------------------------------------------


def source_stability(sources: Sequence[Array]) -> tuple[float, ...]:
    """Mean correlation coefficient (MCC) of the sources that every two of several fits give to the same rows.

    It is 1 for the same sources, up to order, sign and stretching of each.

    >>> s = np.random.default_rng(0).normal(size=(50, 2))
    >>> source_stability([s, -s[:, ::-1]])
    (1.0,)
    """
    shown = [s[:MOST_COMPARED] for s in sources]
    return tuple(round(mean_correlation_coefficient(*pair), 12) for pair in combinations(shown, 2))


# --- memorised features ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Memorisation:
    """Squared distances from class means.

    Attributes
    ----------
    ratio : mean over held-out rows, over that of rows seen in training; 1 where nothing is memorised.
    p_value : chance of such a ratio if it made no difference whether a row was seen.
    n_seen, n_held_out : rows of classes that have both.
    seen, held_out : the distances, in units of the mean over seen rows, at most 1,000 of each.
    """

    ratio: float
    p_value: float
    n_seen: int
    n_held_out: int
    seen: Array
    held_out: Array

    @property
    def memorised(self) -> bool:
        """Whether it is beyond chance, and matters."""
        return self.p_value < LEVEL and self.ratio > MARKED


def feature_memorisation(z: Array, y: Labels, seen: NDArray[np.bool_], rng: np.random.Generator) -> Memorisation | None:
    """Compare distances from class means of rows seen and not seen; ``None`` where no class has both.

    The means are those of the seen rows, without the row itself, so that both kinds are treated in the same way. The
    chance comes from giving the mark "seen" to other rows of the same class.

    Parameters
    ----------
    z : features, measured in units of their spread over all rows.
    seen : whether the encoder was trained on a row.
    """
    most = max(MOST_CELLS // max(z.shape[1], 1), 2000)
    if len(z) > most:
        some = np.sort(rng.permutation(len(z))[:most])
        z, y, seen = z[some], y[some], seen[some]
    scale = z.std(axis=0)
    z = z[:, scale > 0] / scale[scale > 0]
    usable = (np.bincount(y, weights=seen) >= FEWEST_SEEN) & (np.bincount(y, weights=~seen) >= 1)
    rows = usable[y]
    if not rows.any() or z.shape[1] == 0:
        return None
    z, y, seen = z[rows], y[rows], seen[rows]
    distance, ratio = _distances(z, y, seen)
    by_class, reached = np.argsort(y, kind="stable"), 0
    for _ in range(PERMUTATIONS):
        shuffled = np.empty_like(seen)
        shuffled[by_class] = seen[np.lexsort((rng.random(len(y)), y))]
        reached += _distances(z, y, shuffled)[1] >= ratio
    distance = distance / max(float(distance[seen].mean()), 1e-300)
    return Memorisation(
        ratio=ratio,
        p_value=(reached + 1) / (PERMUTATIONS + 1),
        n_seen=int(seen.sum()),
        n_held_out=int((~seen).sum()),
        seen=distance[seen][:1000],
        held_out=distance[~seen][:1000],
    )


def _distances(z: Array, y: Labels, seen: NDArray[np.bool_]) -> tuple[Array, float]:
    """Squared distance from the mean of the other seen rows of the class, per column; that of unseen over seen rows."""
    n = np.bincount(y, weights=seen)
    sums = np.zeros((len(n), z.shape[1]))
    np.add.at(sums, y[seen], z[seen])
    squares = ((z - sums[y] / np.maximum(n, 1)[y, None]) ** 2).mean(axis=1)
    # Leaving a row out of its own mean stretches its deviation by n / (n - 1); the mean of n - 1 rows is also a little
    # further off than that of n, which both kinds are corrected for.
    stretch = np.where(seen, (n / np.maximum(n - 1, 1))[y], 1.0) ** 2
    expected = np.where(seen, (1 + 1 / np.maximum(n - 1, 1))[y], (1 + 1 / np.maximum(n, 1))[y])
    distance = np.asarray(squares * stretch / expected)
    return distance, float(distance[~seen].mean() / max(distance[seen].mean(), 1e-300))


# --- features of the minority alone ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class UniqueFeature:
    """Minority variance outside of what the majority shows.

    Attributes
    ----------
    ratio : variance of the minority along its direction of largest variance, over that of the majority. The direction
        is found on one half of the rows and measured on the other; the mean over several halvings.
    p_value : chance of such a ratio if minority classes were like majority ones.
    by : ``"classes"``: the same was done to groups of majority classes cut down to minority size. ``"rows"``, where
        there are too few majority classes for that: to random rows of the majority, which assumes that all its
        classes vary in the same way.
    null : ratios of those.
    n_classes : minority classes in it: those with at least four rows.
    weights : the direction, one weight for each feature in units of its spread; the largest is positive.
    projections, minority : up to 2,000 rows along that direction, class means taken off, in units of the majority's
        spread, and whether a row is of the minority.
    """

    ratio: float
    p_value: float
    by: Literal["classes", "rows"]
    null: Array
    n_classes: int
    weights: Array
    projections: Array
    minority: NDArray[np.bool_]

    @property
    def found(self) -> bool:
        """Whether it is beyond chance, and large."""
        return self.p_value < LEVEL and self.ratio > LARGE


def unique_feature(z: Array, y: Labels, minority: NDArray[np.bool_], rng: np.random.Generator) -> UniqueFeature | None:
    """Look for the direction in which the minority varies and the majority does not.

    A mechanism learned from the majority says nothing about such a direction. If rare classes vary there, and differ by
    it, transfer takes from them what they had.

    The test holds its level whatever the classes' distributions, as long as minority classes are no different in kind:
    what chance alone finds is measured on majority classes treated the same way.

    Parameters
    ----------
    z, y : features and class indices.
    minority : mask over classes; the mechanism is learned from the others.

    Returns
    -------
    ``None`` where no minority class has four rows, or the majority fewer than two classes' worth of rows.
    """
    counts = np.bincount(y, minlength=len(minority))
    rare = np.flatnonzero(minority & (counts >= FEWEST_VARIED))
    majority = np.flatnonzero(~minority & (counts >= 2 * FEWEST_VARIED))
    if len(rare) == 0 or len(majority) == 0:
        return None
    z = (z - z.mean(axis=0)) / np.where((spread := column_spread(z)) > 0, spread, 1.0)
    some_rows = {int(m): rng.permutation(np.flatnonzero(y == m))[:MOST_VARIED] for m in [*rare, *majority]}

    def rows_of(labels: Labels) -> list[Labels]:
        return [some_rows[int(label)] for label in labels]

    sizes = np.minimum(counts[rare], MOST_VARIED)
    group = min(len(rare), max(len(majority) // 3, 1))
    by_classes = comb(len(majority), group) >= 2 / LEVEL and len(majority) - group >= 2
    group = group if by_classes else len(rare)

    frequent = _Scatter.of(z, rows_of(majority))
    real = []
    for _ in range(1 if group == len(rare) else SPLITS):
        real.append(_split_ratio(z, rows_of(rng.permutation(rare)[:group]), frequent, rng))
    null = []
    for _ in range(GROUPS_DRAWN):
        if by_classes:
            reduced = rng.permutation(majority)[:group]
            kept = np.minimum(rng.permutation(sizes)[:group], counts[reduced])
            groups = [rng.permutation(rows)[:n] for rows, n in zip(rows_of(reduced), kept, strict=True)]
            left = frequent.plus(_Scatter.of(z, rows_of(reduced)), -1)
        else:
            groups, before, after = _random_rows(rows_of(majority), sizes, rng)
            left = frequent.plus(_Scatter.of(z, before), -1).plus(_Scatter.of(z, after))
        null.append(_split_ratio(z, groups, left, rng))
    ratio = float(np.median(real))
    direction = _largest_direction(frequent.whiten(_centred(z, rows_of(rare))), rng)
    direction = solve_triangular(frequent.factor, direction, lower=True, trans="T")  # weights of the features
    direction = direction * np.sign(direction[np.abs(direction).argmax()]) / np.abs(direction).max()
    projected = [_centred(z @ direction[:, None], rows_of(labels))[:, 0] for labels in (rare, majority)]
    shown = [values[:1000] for values in projected]
    return UniqueFeature(
        ratio=ratio,
        p_value=float(((np.array(null) >= ratio).sum() + 1) / (GROUPS_DRAWN + 1)),
        by="classes" if by_classes else "rows",
        null=np.array(null),
        n_classes=len(rare),
        weights=direction,
        projections=np.concatenate(shown) / max(float(projected[1].std()), 1e-300),
        minority=np.repeat([True, False], [len(values) for values in shown]),
    )


def _centred(z: Array, parts: list[Labels]) -> Array:
    """Rows of classes less the mean of their class."""
    return np.concatenate([z[rows] - z[rows].mean(axis=0) for rows in parts])


@dataclass(frozen=True)
class _Scatter:
    """Squares and products of features, summed within classes, and their degrees of freedom."""

    matrix: Array
    freedom: int

    @classmethod
    def of(cls, z: Array, parts: list[Labels]) -> _Scatter:
        """That of some classes, given by their rows."""
        parts = [rows for rows in parts if len(rows) > 1]  # a single row does not vary
        residuals = _centred(z, parts) if parts else z[:0]
        return cls(residuals.T @ residuals, sum(len(rows) - 1 for rows in parts))

    def plus(self, other: _Scatter, sign: int = 1) -> _Scatter:
        """With other classes, or without them."""
        return _Scatter(self.matrix + sign * other.matrix, self.freedom + sign * other.freedom)

    @cached_property
    def factor(self) -> Array:
        """Cholesky factor of the covariance, with a ridge."""
        covariance = self.matrix / max(self.freedom, 1)
        ridge = RIDGE * max(float(np.trace(covariance)) / len(covariance), 1e-12)
        return np.asarray(np.linalg.cholesky(covariance + ridge * np.eye(len(covariance))), dtype=np.float64)

    def whiten(self, residuals: Array) -> Array:
        """In coordinates where these classes have the same variance in every direction."""
        return np.asarray(solve_triangular(self.factor, residuals.T, lower=True).T)


def _random_rows(
    parts: list[Labels], sizes: Labels, rng: np.random.Generator
) -> tuple[list[Labels], list[Labels], list[Labels]]:
    """Groups of rows drawn from classes, the classes they come from, and what is left of these."""
    left = [rng.permutation(rows) for rows in parts]
    groups = []
    for size in sizes:
        roomy = [at for at, rows in enumerate(left) if len(rows) > size]
        at = int(rng.choice(roomy)) if roomy else int(np.argmax([len(rows) for rows in left]))
        size = min(int(size), max(len(left[at]) - 1, 1))
        groups.append(left[at][:size])
        left[at] = left[at][size:]
    touched = [at for at, rows in enumerate(left) if len(rows) < len(parts[at])]
    # A group of one row has no variance; it only comes up where rare classes have nearly all rows.
    groups = [rows for rows in groups if len(rows) >= FEWEST_VARIED] or [parts[0]]
    return groups, [parts[at] for at in touched], [left[at] for at in touched]


def _split_ratio(z: Array, groups: list[Labels], majority: _Scatter, rng: np.random.Generator) -> float:
    """Variance along the direction that one half finds, measured on the other, in units of the majority's there."""
    ratios = []
    for _ in range(SPLITS):
        mixed = [rng.permutation(rows) for rows in groups]
        halves = [rows[: len(rows) // 2] for rows in mixed], [rows[len(rows) // 2 :] for rows in mixed]
        whitened = [majority.whiten(_centred(z, half)) for half in halves]
        for find, measure in ((0, 1), (1, 0)):
            along = whitened[measure] @ _largest_direction(whitened[find], rng)
            ratios.append(float(along @ along) / max(len(along) - len(groups), 1))
    return float(np.mean(ratios))


def _largest_direction(residuals: Array, rng: np.random.Generator) -> Array:
    """The unit vector along which these vary most, by power iteration."""
    direction: Array = rng.standard_normal((residuals.shape[1],))
    for _ in range(POWER_STEPS):
        direction = np.asarray(residuals.T @ (residuals @ direction))
        direction = direction / max(float(np.linalg.norm(direction)), 1e-300)
    return direction


# --- features against sources ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MinorityGap:
    """What h(s) saves on h(z), in nats of balanced log-loss on held-out rows of the minority.

    Attributes
    ----------
    gain, low, high : mean with its 95 % interval; positive where sources are better.
    loss_z, loss_s : mean log-loss by features and by sources, every class with the same weight.
    n_classes, n_rows : measured on.
    over : whether the interval is over classes, whose rows share a few training samples, or over rows.
    """

    gain: float
    low: float
    high: float
    loss_z: float
    loss_s: float
    n_classes: int
    n_rows: int
    over: Literal["classes", "rows"]


def minority_gap(loss_z: Array, loss_s: Array, y: Labels) -> MinorityGap | None:
    """Compare losses of the same held-out rows, all of minority classes; ``None`` with fewer than two rows.

    >>> gap = minority_gap(np.array([1.0, 1.2, 2.0, 2.2]), np.array([0.5, 0.7, 1.6, 1.6]), np.array([0, 0, 1, 1]))
    >>> round(gap.gain, 3), gap.over
    (0.5, 'rows')
    """
    _, member, counts = np.unique(y, return_inverse=True, return_counts=True)
    if len(y) < 2:
        return None
    by_class = [np.bincount(member, weights=losses) / counts for losses in (loss_z, loss_s)]
    saved = by_class[0] - by_class[1]
    gain, n = float(saved.mean()), len(saved)
    if n >= FEWEST_CLASSES:
        over: Literal["classes", "rows"] = "classes"
        error, freedom = float(saved.std(ddof=1)) / np.sqrt(n), n - 1
    else:
        over = "rows"
        centred = (loss_z - loss_s) - saved[member]
        freedom = max(len(y) - n, 1)
        variance = float((centred**2).sum()) / freedom
        error = np.sqrt(variance * float((1 / counts).sum())) / n
    width = half_width(float(error), freedom)
    return MinorityGap(
        gain=gain, low=gain - width, high=gain + width, loss_z=float(by_class[0].mean()),
        loss_s=float(by_class[1].mean()), n_classes=n, n_rows=len(y), over=over,
    )  # fmt: skip


# --- all sources in two dimensions ------------------------------------------------------------------------------------


class SourceMap(NamedTuple):
    """Rows and synthetic samples in two dimensions, their classes, and what the two dimensions are."""

    real: Array
    real_y: NDArray[np.int64]
    synthetic: Array
    synthetic_y: NDArray[np.int64]
    names: tuple[str, str]


def map_sources(real: Array, synthetic: Array, method: str, seed: int) -> tuple[Array, Array, tuple[str, str]]:
    """Sources in two dimensions: the first two where there are no more, else principal components, or t-SNE.

    Of fewer than three rows the first two sources are shown, too.

    t-SNE lays out both kinds together, from their principal components on; these are of the real ones.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if real.shape[1] == 1:
        spread = np.random.default_rng(seed).uniform(size=(len(real) + len(synthetic), 1))
        both = np.hstack([np.concatenate([real, synthetic]), spread])
        return both[: len(real)], both[len(real) :], ("source 1", "spread at random, no meaning")
    if real.shape[1] == 2 or len(real) < 3:
        return real[:, :2], synthetic[:, :2], ("source 1", "source 2")
    components = PCA(2, random_state=seed).fit(real)
    if method == "pca":
        drawn = components.transform(synthetic) if len(synthetic) else np.empty((0, 2))
        return components.transform(real), drawn, ("first principal component", "second principal component")
    both = np.concatenate([real, synthetic])
    start = components.transform(both)
    start *= 1e-4 / max(start[:, 0].std(), 1e-12)
    perplexity = min(30.0, max((len(both) - 1) / 3, 1.0))
    places = TSNE(init=start, perplexity=perplexity, random_state=seed).fit_transform(both).astype(np.float64)
    return places[: len(real)], places[len(real) :], ("t-SNE 1", "t-SNE 2")
