"""Do the sources behave as the theory asks, and as augmentation takes them to?

Every fit measures the first: independence, likelihood and the theorem's conditions, class by class. A diagnosis also
tests independence before and after de-mixing, the Gaussian shape, what permutation could draw, and whether other seeds
find the same sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist, squareform
from scipy.stats import jarque_bera, kurtosis, norm, rankdata, skew

from ecrt.data import thin_out
from ecrt.flows import ClassPrior, Demixer, within_class_residuals
from ecrt.metrics import LEVEL, holm

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

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

COARSE = 0.5
"""A gap between neighbouring values, in standard deviations, from which a grid is plain to see."""

MOST_COMPARED = 2000
"""Rows that the sources of several fits are compared on."""


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
    def tested(self) -> bool:
        """Whether there were enough rows."""
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
    def tested(self) -> list[ClassDependence]:
        """Classes with enough rows."""
        return [one for one in self.classes if one.tested]


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
    for label in chosen:
        rows = rng.permutation(np.flatnonzero(y == label))[:MOST_TESTED]
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
                label=labels[label], n_rows=n_rows, minority=bool(minority[label]), hsic_z=tests[0][0],
                hsic_s=tests[1][0], p_z=p_z, p_s=p_s,
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


# --- Gaussian shape --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SourceShape:
    """Standardised residuals of one source, pooled over classes.

    Attributes
    ----------
    source : its place among the sources.
    skewness, excess_kurtosis : 0 for a Gaussian.
    p_value : of the Jarque-Bera statistic, Holm-corrected over sources.
    """

    source: int
    skewness: float
    excess_kurtosis: float
    p_value: float

    @property
    def strong(self) -> bool:
        """Whether the departure is beyond chance, and large."""
        return self.p_value < LEVEL and max(abs(self.skewness), abs(self.excess_kurtosis) / 2) > STRONG


@dataclass(frozen=True, kw_only=True, eq=False)
class Gaussianity:
    """All sources that were tested; none where no class has rows enough.

    Attributes
    ----------
    sources : the furthest from Gaussian first.
    n_rows, n_classes : residuals of each source, and classes that they come from.
    quantiles : Gaussian quantiles, and those of the residuals of the three worst sources, column by column.
    """

    sources: tuple[SourceShape, ...]
    n_rows: int
    n_classes: int
    quantiles: Array

    @property
    def strong(self) -> list[SourceShape]:
        """Sources that depart from the Gaussian beyond chance, and by much."""
        return [one for one in self.sources if one.strong]


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
    if len(rows) == 0:
        return Gaussianity(sources=(), n_rows=0, n_classes=0, quantiles=np.empty((0, 0)))
    y, s = y[rows], s[rows, :MOST_SOURCES]
    residuals = _standardised(s, y)
    statistic = jarque_bera(residuals, axis=0).statistic
    null = np.concatenate([
        jarque_bera(_standardised(rng.standard_normal((len(y), 27)), y), axis=0).statistic
        for _ in range(DRAWS // 27)
    ])  # fmt: skip
    p_values = holm(((null[:, None] >= statistic).sum(axis=0) + 1) / (len(null) + 1))
    order = np.argsort(-statistic, kind="stable")
    skewness, excess = np.asarray(skew(residuals, axis=0)), np.asarray(kurtosis(residuals, axis=0))
    share = np.linspace(0.005, 0.995, 100)
    return Gaussianity(
        sources=tuple(
            SourceShape(
                source=int(at), skewness=float(skewness[at]), excess_kurtosis=float(excess[at]), p_value=p_values[at]
            )
            for at in order
        ),
        n_rows=len(y),
        n_classes=len(np.unique(y)),
        quantiles=np.column_stack([norm.ppf(share), np.quantile(residuals[:, order[:3]], share, axis=0)]),
    )


def _standardised(s: Array, y: Labels) -> Array:
    """Every class to mean zero and variance one, column by column."""
    of_class = pd.DataFrame(s).groupby(y)
    spread = np.sqrt(np.maximum(of_class.transform("var").to_numpy(), 1e-300))
    return np.asarray((s - of_class.transform("mean").to_numpy()) / spread)


# --- the grid that permutation draws from ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClassGrid:
    """What permutation could draw for one minority class.

    Attributes
    ----------
    n_rows : samples of the class.
    distinct : different values of a source, in the median source.
    gap : distance between neighbouring values, averaged over the range, in units of the spread within classes; median
        over sources. Infinite with a single sample.
    """

    label: Any
    n_rows: int
    distinct: float
    gap: float

    @property
    def coarse(self) -> bool:
        """Whether a grid would be plain to see."""
        return self.gap > COARSE


def class_grids(
    s: Array, y: Labels, classes: NDArray[Any], minority: NDArray[np.bool_], within_variance: Array
) -> tuple[ClassGrid, ...]:
    """Distinct values and gaps of each minority class's sources, the rarest class first.

    Permutation draws each coordinate from the class's own values: n samples give a grid of n values an axis.

    Parameters
    ----------
    within_variance : variance of each source within the de-mixing classes: what a cloud should look like.
    """
    counts, labels = np.bincount(y, minlength=len(classes)), classes.tolist()
    spread = np.sqrt(np.maximum(within_variance, 1e-300))
    grids = []
    for label in np.flatnonzero(minority & (counts > 0)):
        values = np.sort(s[y == label], axis=0)
        distinct = 1 + (np.diff(values, axis=0) > 1e-9 * spread).sum(axis=0)
        width = (values[-1] - values[0]) / spread
        gap = np.where(distinct > 1, width / np.maximum(distinct - 1, 1), np.inf)
        grids.append(
            ClassGrid(
                label=labels[label], n_rows=int(counts[label]),
                distinct=float(np.median(distinct)), gap=float(np.median(gap)),
            )
        )  # fmt: skip
    return tuple(sorted(grids, key=lambda grid: grid.n_rows))


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
