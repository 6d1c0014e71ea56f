"""Numbers of several seeds to a mean, an interval and a plain sentence."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

__all__ = [
    "METRICS",
    "Estimate",
    "Metric",
    "best_methods",
    "bootstrap_texts",
    "paired_bootstrap",
    "t_interval",
    "verdict",
]

CONFIDENCE = 0.95
N_RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A column of a table of results.

    Attributes
    ----------
    key : name in ``ecrt.metrics.prediction_metrics``, or ``"minority_recall"``.
    label : name for readers.
    higher_is_better : direction.
    decimals : digits shown.
    """

    key: str
    label: str
    higher_is_better: bool = True
    decimals: int = 3


METRICS = (
    Metric(key="top1", label="Accuracy"),
    Metric(key="nll", label="NLL", higher_is_better=False),
    Metric(key="macro_f1", label="Macro F1"),
    Metric(key="minority_recall", label="Minority recall"),
)
"""What tables show; the files hold more."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the half-width of its 95 % t-interval; a single seed has no interval."""

    mean: float
    half_width: float | None
    n: int

    def excludes_zero(self) -> bool:
        """Whether the interval lies on one side of zero."""
        return self.half_width is not None and abs(self.mean) > self.half_width

    def text(self, decimals: int = 3) -> str:
        """Mean ± half-width, rounded.

        >>> Estimate(0.91, 0.0213, 5).text()
        '0.910 ± 0.021'
        """
        mean = f"{self.mean:.{decimals}f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.{decimals}f}"


def t_interval(values: ArrayLike) -> Estimate:
    """Mean and 95 % Student interval of independent repetitions.

    >>> t_interval([0.90, 0.92, 0.91]).text()
    '0.910 ± 0.025'
    """
    numbers = np.asarray(values, dtype=np.float64)
    n = len(numbers)
    if n < 2:
        return Estimate(float(numbers.mean()), None, n)
    half_width = student_t.ppf((1 + CONFIDENCE) / 2, n - 1) * numbers.std(ddof=1) / math.sqrt(n)
    return Estimate(float(numbers.mean()), float(half_width), n)


def paired_bootstrap(differences_nk: NDArray[np.float64], n_resamples: int = N_RESAMPLES) -> NDArray[np.float64]:
    """Mean, lower and upper end of the 95 % percentile interval of each column's mean, rows drawn anew together."""
    rng, n = np.random.default_rng(0), len(differences_nk)
    means = np.concatenate([
        rng.multinomial(n, np.full(n, 1 / n), size=100) @ differences_nk / n for _ in range(0, n_resamples, 100)
    ])  # fmt: skip
    ends = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return np.vstack([differences_nk.mean(axis=0), ends])


def bootstrap_texts(differences_nk: NDArray[np.float64]) -> list[str]:
    """The same for readers, a text for each column.

    >>> bootstrap_texts(np.array([[0.01], [0.01]]))
    ['+0.0100 [+0.0100, +0.0100]']
    """
    return [f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]" for mean, low, high in paired_bootstrap(differences_nk).T]


def best_methods(means: Mapping[str, float], metric: Metric) -> list[str]:
    """Methods with the best mean; more than one when they agree in the digits shown."""
    shown = {method: round(mean, metric.decimals) for method, mean in means.items()}
    best = max(shown.values()) if metric.higher_is_better else min(shown.values())
    return [method for method, value in shown.items() if value == best]


def verdict(values: Mapping[str, Sequence[float]], metric: Metric, subject: str, variants: Collection[str] = ()) -> str:
    """Say which method is best, and whether ``subject`` differs from the best other one beyond noise.

    Parameters
    ----------
    values : for each method, its values, in the same order of seeds.
    metric : what the values are.
    subject : the method under test.
    variants : methods akin to it; when one of these is the best other, a sentence on the best of the rest follows.

    >>> verdict({"A": [0.80, 0.82, 0.81], "B": [0.70, 0.73, 0.71]}, METRICS[0], "A")
    'Accuracy: A is best with 0.810, ahead of B by 0.097 ± 0.014, beyond noise.'
    >>> verdict({"A": [0.80, 0.82, 0.81], "B": [0.70, 0.73, 0.71]}, METRICS[0], "B")
    'Accuracy: A is best with 0.810; B loses to it by 0.097 ± 0.014, beyond noise.'
    """
    sign = 1.0 if metric.higher_is_better else -1.0
    ranked = sorted(values, key=lambda method: -sign * float(np.mean(values[method])))
    others = [method for method in ranked if method != subject]
    gain, size = _paired_gain(values, metric, subject, others[0])
    best = f"{subject if gain.mean >= 0 else others[0]} is best with"
    mean = f"{np.mean(values[ranked[0]]):.{metric.decimals}f}"
    if round(gain.mean, metric.decimals) == 0:
        sentence = f"{metric.label}: {subject} and {others[0]} are level at {mean}."
    elif gain.mean > 0:
        sentence = f"{metric.label}: {best} {mean}, ahead of {others[0]} by {size}."
    else:
        sentence = f"{metric.label}: {best} {mean}; {subject} loses to it by {size}."
    rest = [method for method in others if method not in variants]
    if others[0] in variants and rest:
        gain, size = _paired_gain(values, metric, subject, rest[0])
        sentence += (
            f" The best baseline, {rest[0]}, is {'behind' if gain.mean >= 0 else 'ahead of'} {subject} by {size}."
        )
    return sentence


def _paired_gain(
    values: Mapping[str, Sequence[float]], metric: Metric, subject: str, rival: str
) -> tuple[Estimate, str]:
    """How much better ``subject`` is, paired by seed, and the size of that in words."""
    sign = 1.0 if metric.higher_is_better else -1.0
    gain = t_interval(sign * (np.asarray(values[subject]) - np.asarray(values[rival])))
    size = Estimate(abs(gain.mean), gain.half_width, gain.n).text(metric.decimals)
    if gain.n < 2:
        return gain, f"{size}, and one seed cannot tell this from noise"
    return gain, f"{size}, {'beyond' if gain.excludes_zero() else 'within'} noise"
