"""Who is minority: which classes are, where a continuous target is rare, what each stage learns from, and splits.

This is the only place for these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ecrt.arrays import Array, Labels
from ecrt.errors import InputError, warn_user

MinorityRule = str | int | Iterable[Any] | Callable[[NDArray[np.int64]], NDArray[np.bool_]]
LearnOn = Literal["majority", "all"]

SMALL_CLASS = 200
"""Without any minority, classes no larger than this are all augmented: 1,000 classes of 5, say."""

FEWEST_DEMIXING_CLASSES = 3
"""Fewer majority classes than this say too little about the mechanism: de-mix on all classes."""

N_REGIONS = 50
"""Equal-width regions that the range of a target is cut into."""


@dataclass(frozen=True, kw_only=True)
class ClassRoles:
    """What each class is used for; every mask has one entry for each class.

    Attributes
    ----------
    counts : number of training samples of each class.
    minority : classes that are called minority.
    augmented : classes that get synthetic samples.
    encoded_on : classes that the encoder learns from.
    demixed_on : classes that the de-mixing flow learns from.
    """

    counts: NDArray[np.int64]
    minority: NDArray[np.bool_]
    augmented: NDArray[np.bool_]
    encoded_on: NDArray[np.bool_]
    demixed_on: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        counts: NDArray[np.int64],
        minority: NDArray[np.bool_],
        augmented: NDArray[np.bool_],
        *,
        encode_on: LearnOn,
        demix_on: LearnOn,
        transfer: bool,
    ) -> ClassRoles:
        """Roles by the classes that stages learn from; without ``transfer`` all stages learn from all classes."""
        everyone = np.ones(len(counts), dtype=bool)
        learners: dict[LearnOn, NDArray[np.bool_]] = {"all": everyone, "majority": ~minority if transfer else everyone}
        encoded_on, demixed_on = learners[encode_on], learners[demix_on]
        return cls(counts=counts, minority=minority, augmented=augmented, encoded_on=encoded_on, demixed_on=demixed_on)


def minority_mask(
    counts: NDArray[np.int64], classes: NDArray[Any], minority: MinorityRule = "auto"
) -> NDArray[np.bool_]:
    """Say for each class whether it is minority.

    Parameters
    ----------
    counts : samples of each class.
    classes : the labels, in the order of ``counts``.
    minority : ``"auto"``: fewer samples than half the median of the classes that hold at least a uniform share;
        an integer: fewer samples than that; ``"all"``; a collection of labels; or a function from counts to a mask.

    >>> minority_mask(np.array([500, 480, 30]), np.array(["a", "b", "c"])).tolist()
    [False, False, True]
    """
    if isinstance(minority, str):
        if minority == "all":
            return np.ones(len(counts), dtype=bool)
        if minority == "auto":
            large = counts[counts >= counts.mean()]
            return np.asarray(counts < np.median(large) / 2)
        raise InputError(f"minority={minority!r}: use 'auto', 'all', a count, a list of labels or a function.")
    if isinstance(minority, (int, np.integer)):
        return np.asarray(counts < minority)
    if callable(minority):
        mask = np.asarray(minority(counts))
        if mask.shape != counts.shape or mask.dtype != bool:
            raise InputError(
                f"The minority function must return one boolean for each of the {len(counts)} classes, "
                f"it returned dtype {mask.dtype} with shape {mask.shape}."
            )
        return mask
    wanted = np.asarray(list(minority))
    unknown = wanted[~np.isin(wanted, classes)]
    if len(unknown):
        raise InputError(f"minority names labels that are not in y: {unknown.tolist()}. Known: {classes.tolist()}.")
    return np.isin(classes, wanted)


def augmented_mask(
    counts: NDArray[np.int64], is_minority: NDArray[np.bool_], minority: MinorityRule
) -> NDArray[np.bool_]:
    """Classes that get synthetic samples: minority ones; where no class is, and no rule says so, all small ones."""
    if not is_minority.any() and isinstance(minority, str) and counts.max() <= SMALL_CLASS:
        return ~is_minority
    return is_minority


def assign_roles(
    counts: NDArray[np.int64],
    classes: NDArray[Any],
    *,
    minority: MinorityRule = "auto",
    encode_on: LearnOn = "majority",
    demix_on: LearnOn = "majority",
) -> ClassRoles:
    """Decide what every class is used for, and warn where a stage cannot have the classes it was meant to have."""
    is_minority = minority_mask(counts, classes, minority)
    n_majority = int((~is_minority).sum())
    augmented = augmented_mask(counts, is_minority, minority)

    too_few = n_majority < FEWEST_DEMIXING_CLASSES and "majority" in (encode_on, demix_on)
    reason = ""
    if not is_minority.any():
        reason = "No class is clearly a minority class"
    elif too_few and not (isinstance(minority, str) and minority == "all"):
        reason = f"There are too few majority classes to learn from ({n_majority} of {len(counts)})"
    if reason:
        stages = "encoder and de-mixing learn" if encode_on == "majority" else "de-mixing learns"
        warn_user(f"{reason}: {stages} from all classes.")

    transfer = bool(is_minority.any()) and not too_few
    return ClassRoles.of(counts, is_minority, augmented, encode_on=encode_on, demix_on=demix_on, transfer=transfer)


# --- continuous targets: regions, and bins in place of classes -------------------------------------------------------


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
        width = (self.edges[-1] - self.edges[0]) / len(self.counts)
        index = np.floor((self.position(y) - self.edges[0]) / width)
        return np.clip(index, 0, len(self.counts) - 1).astype(np.int64)

    def is_rare(self, y: Array) -> NDArray[np.bool_]:
        """Whether each target lies in a rare region."""
        return np.asarray(self.rare[self.region_of(y)])


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


# --- splits, in which no class is lost --------------------------------------------------------------------------------


def thin_out(y: NDArray[Any], keep: dict[Any, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows that remain, in order, when every class in ``keep`` is cut to the number given there."""
    rows = [rng.permutation(np.flatnonzero(y == label))[: keep.get(label)] for label in np.unique(y).tolist()]
    return np.sort(np.concatenate(rows))


def stratified_holdout(
    y: NDArray[np.int64],
    fraction: float,
    rng: np.random.Generator,
    *,
    both_sides: bool = False,
    eligible: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split rows class by class; a class always keeps at least one row on the first side.

    The held-out number of each class is rounded at random with the right expectation, so that a fifth of many classes
    of three is a fifth of all rows. If all numbers are rounded to zero, one row of the largest class is held out.
    scikit-learn's stratified split refuses classes of one sample.

    Parameters
    ----------
    both_sides : whether a class of two rows or more has at least one on the second side as well.
    eligible : rows that may be held out, ``None`` for all.
    """
    held_out = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        size = min(max(int(fraction * len(rows) + rng.random()), int(both_sides)), len(rows) - 1)
        held_out[rng.permutation(rows if eligible is None else rows[eligible[rows]])[:size]] = True
    if fraction > 0 and not held_out.any():
        counts = np.bincount(y)
        able = (counts[y] > 1) if eligible is None else (counts[y] > 1) & eligible
        held_out[np.flatnonzero(able)[np.argsort(-counts[y[able]], kind="stable")[:1]]] = True
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def indicator_of(y: NDArray[np.int64], rows: NDArray[np.bool_] | None = None) -> sparse.csr_array:
    """Rows by classes, with a one for the class of each row (of ``rows`` alone, if they are given)."""
    chosen = np.arange(len(y)) if rows is None else np.flatnonzero(rows)
    ones = np.ones(len(chosen), dtype=np.int64)
    return sparse.csr_array((ones, (chosen, y[chosen])), shape=(len(y), int(y.max(initial=-1)) + 1))


def with_lost_groups(rows: NDArray[np.int64], groups: sparse.csr_array) -> NDArray[np.int64]:
    """Rows that a stage learns from, and all rows of the groups that have none among them.

    This is the one rule by which no class, label or rare region is lost between two stages.

    Parameters
    ----------
    groups : rows by groups, an indicator of what has to be learned.

    >>> with_lost_groups(np.array([0, 1]), indicator_of(np.array([5, 6, 5, 7]))).tolist()
    [0, 1, 3]
    """
    lost = np.asarray(groups[rows].sum(axis=0)).ravel() == 0
    theirs = np.asarray(groups[:, np.flatnonzero(lost)].sum(axis=1)).ravel() > 0
    return np.union1d(rows, np.flatnonzero(theirs))
