"""Is a difference more than noise? Means over splits whose training rows overlap, and tests of many pairs at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student_t

from ecrt.metrics.significance import holm

__all__ = ["Estimate", "Pair", "corrected_estimate", "holm", "paired"]

CONFIDENCE = 0.95
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Mean over splits with a 95 % interval; one split alone has none."""

    mean: float
    half_width: float | None
    p_value: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Lower and upper end."""
        return None if self.half_width is None else (self.mean - self.half_width, self.mean + self.half_width)

    def text(self, decimals: int = 3) -> str:
        """Mean ± half-width, rounded."""
        mean = f"{self.mean:.{decimals}f}"
        return mean if self.half_width is None else f"{mean} ± {self.half_width:.{decimals}f}"


def corrected_estimate(values: ArrayLike, test_to_train: float) -> Estimate:
    r"""Mean, interval and two-sided p-value against zero, by the corrected resampled t-test.

    Random splits of one table share most of their training rows, so that their results are not independent and
    :math:`\sigma^2 / J` is far too small. The corrected variance of the mean over J splits is

    .. math:: \left(\frac{1}{J} + \frac{n_\text{test}}{n_\text{train}}\right) \hat\sigma^2

    with J - 1 degrees of freedom.

    References
    ----------
    Nadeau and Bengio (2003), Inference for the generalization error, Machine Learning 52.

    >>> found = corrected_estimate([0.02, 0.03, 0.01, 0.02, 0.02], 0.25)
    >>> round(found.mean, 3), round(found.half_width, 4)
    (0.02, 0.0132)
    """
    numbers = np.asarray(values, dtype=np.float64)
    mean, n = float(numbers.mean()), len(numbers)
    if n < 2:
        return Estimate(mean=mean, half_width=None, p_value=None)
    error = float(numbers.std(ddof=1)) * math.sqrt(1 / n + test_to_train)
    half_width = float(student_t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    if error <= 1e-12 * max(abs(mean), 1e-300):  # the same on every split
        return Estimate(mean=mean, half_width=half_width, p_value=1.0 if mean == 0 else 0.0)
    return Estimate(mean=mean, half_width=half_width, p_value=float(2 * student_t.sf(abs(mean) / error, n - 1)))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How much better ``first`` is than ``second`` (positive: better, whatever the metric's direction).

    Attributes
    ----------
    gain : mean over splits, and its interval by itself.
    adjusted : p-value after Holm's correction for all pairs tested together; None with one split.
    """

    first: str
    second: str
    gain: Estimate
    adjusted: float | None

    @property
    def beyond_noise(self) -> bool:
        """Whether the difference is significant at 5 % among all that were tested together."""
        return self.adjusted is not None and self.adjusted < LEVEL


def paired(
    pairs: Sequence[tuple[str, str]],
    values: dict[str, Sequence[float]],
    *,
    higher_is_better: bool,
    test_to_train: float,
) -> list[Pair]:
    """Test pairs of methods on the same splits, together."""
    sign = 1.0 if higher_is_better else -1.0
    gains = [
        corrected_estimate(sign * (np.asarray(values[first]) - np.asarray(values[second])), test_to_train)
        for first, second in pairs
    ]
    raw = [gain.p_value for gain in gains]
    known = [p for p in raw if p is not None]
    adjusted: list[float | None] = list(holm(known)) if len(known) == len(raw) else [None] * len(raw)
    return [
        Pair(first=first, second=second, gain=gain, adjusted=p)
        for (first, second), gain, p in zip(pairs, gains, adjusted, strict=True)
    ]
