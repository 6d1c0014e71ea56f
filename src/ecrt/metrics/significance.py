"""Is a difference more than noise? Means with intervals, paired differences, and many tests at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student_t

Array = NDArray[np.float64]

CONFIDENCE = 0.95
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean with the half-width of its 95 % interval and its p-value against zero; one value alone has neither."""

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

    def size(self) -> str:
        """Size of a difference with its interval, without its sign.

        >>> Estimate(mean=-0.02, half_width=0.01, p_value=0.01).size()
        '0.020 [0.010, 0.030]'
        """
        mean = abs(self.mean)
        if self.half_width is None:
            return f"{mean:.3f}"
        return f"{mean:.3f} [{mean - self.half_width:.3f}, {mean + self.half_width:.3f}]"


def half_width(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the width of the Student interval of a mean with this standard error."""
    return float(student_t.ppf((1 + confidence) / 2, freedom)) * error


def corrected_estimate(values: ArrayLike, test_to_train: float = 0.0) -> Estimate:
    r"""Mean, interval and two-sided p-value against zero, by the corrected resampled t-test.

    Random splits of one table share most of their training rows. Their results are not independent, and
    :math:`\sigma^2 / J` is far too small. The corrected variance of the mean over J splits is

    .. math:: \left(\frac{1}{J} + \frac{n_\text{test}}{n_\text{train}}\right) \hat\sigma^2

    with J - 1 degrees of freedom. With a ratio of 0 this is the usual t-test of independent values.

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
    if error <= 1e-12 * max(abs(mean), 1e-300):  # the same on every split
        p_value = 1.0 if mean == 0 else 0.0
    else:
        p_value = float(2 * student_t.sf(abs(mean) / error, n - 1))
    return Estimate(mean=mean, half_width=half_width(error, n - 1), p_value=p_value)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """How much better ``first`` is than ``second`` (positive: better, whatever the metric's direction).

    Attributes
    ----------
    gain : mean over splits, with the interval that this pair would have alone.
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
    values: Mapping[str, Sequence[float]],
    *,
    higher_is_better: bool,
    test_to_train: float = 0.0,
) -> list[Pair]:
    """Test pairs of methods on the same splits, together."""
    sign = 1.0 if higher_is_better else -1.0
    gains = [
        corrected_estimate(sign * (np.asarray(values[first]) - np.asarray(values[second])), test_to_train)
        for first, second in pairs
    ]
    known = [gain.p_value for gain in gains if gain.p_value is not None]
    adjusted: list[float | None] = list(holm(known)) if len(known) == len(gains) else [None] * len(gains)
    return [
        Pair(first=first, second=second, gain=gain, adjusted=p)
        for (first, second), gain, p in zip(pairs, gains, adjusted, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: all that fall below a level are significant together at that level.

    A NaN stands for a test that was not made: it stays, and does not count.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted = np.array(p_values, dtype=np.float64)
    order = [at for at in np.argsort(adjusted, kind="stable") if np.isfinite(adjusted[at])]
    largest = 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - place) * adjusted[at]))
        adjusted[at] = largest
    return adjusted.tolist()
