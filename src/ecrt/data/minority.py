"""Which classes are minority, and which classes each stage learns from: the only place for these rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ecrt.errors import InputError, warn_user

MinorityRule = str | int | Iterable[Any] | Callable[[NDArray[np.int64]], NDArray[np.bool_]]
LearnOn = Literal["majority", "all"]

SMALL_CLASS = 200
"""Without any minority, classes no larger than this are all augmented: 1,000 classes of 5, say."""

FEWEST_DEMIXING_CLASSES = 3
"""Fewer majority classes than this say too little about the mechanism: de-mix on all classes."""


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
    augmented = is_minority
    if not is_minority.any() and isinstance(minority, str) and counts.max() <= SMALL_CLASS:
        augmented = ~is_minority

    too_few = n_majority < FEWEST_DEMIXING_CLASSES and "majority" in (encode_on, demix_on)
    if not is_minority.any():
        _warn_of_all("No class is clearly a minority class")
    elif too_few and not (isinstance(minority, str) and minority == "all"):
        _warn_of_all(f"There are too few majority classes to learn from ({n_majority} of {len(counts)})")

    transfer = bool(is_minority.any()) and not too_few
    return ClassRoles.of(counts, is_minority, augmented, encode_on=encode_on, demix_on=demix_on, transfer=transfer)


def _warn_of_all(reason: str) -> None:
    warn_user(f"{reason}: encoder and de-mixing learn from all classes.")
