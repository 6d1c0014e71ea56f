"""Where a continuous target is rare, and the bins that are used in place of classes: the only place for these rules."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from ecrt.data.minority import FEWEST_DEMIXING_CLASSES, ClassRoles, LearnOn, minority_mask

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

N_REGIONS = 50
"""Equal-width regions that the range of a target is cut into."""


@dataclass(frozen=True)
class TargetRegions:
    """Equal-width regions of the training targets, with the training rows of each.

    Of several outputs the first principal direction of the standardised outputs is cut into regions.

    Attributes
    ----------
    center, scale, axis : of the outputs; a position is ``(y - center) / scale @ axis``.
    edges : one more than regions.
    counts : training rows of each region.
    """

    center: Array
    scale: Array
    axis: Array
    edges: Array
    counts: Labels

    @classmethod
    def learn(cls, y: Array, n_regions: int = N_REGIONS) -> TargetRegions:
        """Cut the range of training targets (n, outputs) into regions.

        >>> regions = TargetRegions.learn(np.array([[0.0], [1.0], [1.5], [10.0]]), 5)
        >>> regions.counts.tolist()
        [3, 0, 0, 0, 1]
        """
        largest = np.abs(y).max(axis=0, initial=0.0)
        unit = np.ldexp(1.0, np.frexp(largest)[1])  # a power of two: no digit changes, and no square is lost
        center, scale = y.mean(axis=0), (y / unit).std(axis=0) * unit
        scale = np.where(scale > 1e-12 * largest, scale, 1.0)
        standard = (y - center) / scale
        axis = np.ones(1)
        if y.shape[1] > 1:
            axis = np.linalg.eigh(standard.T @ standard)[1][:, -1]
            axis = axis * np.sign(axis[np.abs(axis).argmax()])
        position = standard @ axis
        low, high = float(position.min()), float(position.max())
        edges = np.linspace(low, high if high > low else low + 1.0, n_regions + 1)
        empty = cls(center, scale, axis, edges, np.zeros(n_regions, dtype=np.int64))
        return cls(center, scale, axis, edges, np.bincount(empty.region_of(y), minlength=n_regions))

    @property
    def rare(self) -> NDArray[np.bool_]:
        """Regions with fewer rows than half the median of those that hold a uniform share: the rule for classes."""
        return minority_mask(self.counts, np.arange(len(self.counts)))

    def standardise(self, y: Array) -> Array:
        """Targets of mean zero and variance one."""
        return np.asarray((y - self.center) / self.scale)

    def restore(self, standard: Array) -> Array:
        """Standardised targets back in the units of y."""
        return np.asarray(standard * self.scale + self.center)

    def position(self, y: Array) -> Array:
        """Where targets lie on the line that is cut into regions."""
        return np.asarray(self.standardise(y) @ self.axis)

    def region_of(self, y: Array) -> Labels:
        """Region of each target; beyond the training range, the nearest one."""
        return self._at(self.position(y))

    def is_rare(self, y: Array) -> NDArray[np.bool_]:
        """Whether each target lies in a rare region."""
        return np.asarray(self.rare[self.region_of(y)])

    def density(self, y: Array, smoothing: float = 0.0) -> Array:
        """Training rows in the region of each target, at least one; smoothed over regions by a Gaussian kernel."""
        counts = self.counts.astype(np.float64)
        if smoothing > 0:
            counts = gaussian_filter1d(counts, smoothing, mode="constant")
        return np.asarray(np.maximum(counts, 1.0)[self.region_of(y)])

    def _at(self, position: Array) -> Labels:
        width = (self.edges[-1] - self.edges[0]) / len(self.counts)
        index = np.floor((position - self.edges[0]) / width)
        return np.clip(index, 0, len(self.counts) - 1).astype(np.int64)


def quantile_bins(position: Array, n_bins: int) -> Labels:
    """Bins of about equally many rows, numbered without gaps; equal values share a bin.

    >>> quantile_bins(np.array([5.0, 1.0, 2.0, 9.0]), 2).tolist()
    [1, 0, 0, 1]
    """
    inner = np.quantile(position, np.linspace(0, 1, n_bins + 1)[1:-1]) if n_bins > 1 else np.empty(0)
    lowest = position.min()
    above = position[position > lowest]
    if len(above):  # where many rows share the lowest value, as counts do zero, the next value ends their bin
        inner = np.where(inner == lowest, above.min(), inner)
    inner = np.unique(inner)
    bins = np.searchsorted(inner, position, side="right")
    return np.unique(bins, return_inverse=True)[1].astype(np.int64)


def target_roles(
    bins: Labels, rare: NDArray[np.bool_], *, encode_on: LearnOn = "all", demix_on: LearnOn = "all"
) -> ClassRoles:
    """Bins most of whose rows are rare are minority; with three others at least these alone may teach the mechanism."""
    counts = np.bincount(bins)
    minority = np.bincount(bins, weights=rare) > counts / 2
    enough = bool((~minority).sum() >= FEWEST_DEMIXING_CLASSES)
    return ClassRoles.of(counts, minority, minority, encode_on=encode_on, demix_on=demix_on, transfer=enough)
