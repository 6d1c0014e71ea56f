"""Synthetic rows of a class in the space of the features, through the inverse of the de-mixing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from ecrt.arrays import Array, Labels, Mask
from ecrt.augmentation import MOST_ROWS, NEIGHBOURS, ClassSources
from ecrt.data import ClassRoles, assign_roles, stratified_holdout
from ecrt.data.minority import MinorityRule
from ecrt.data.tables import row_hashes
from ecrt.errors import InputError
from ecrt.estimators.base import FLOW_ROWS, FLOW_SOURCES, Session
from ecrt.flows import ClassPrior, class_moments
from ecrt.stages import (
    Augmentation,
    Borrowed,
    ByFunction,
    Demixing,
    DemixResult,
    Flow,
    Kernel,
    Linear,
    NoAugmentation,
    NoDemixing,
    Pairs,
    Parametric,
    Permutation,
    Role,
    demix,
)
from ecrt.stages.augmenting import class_sources
from ecrt.stages.demixing import Incidences
from ecrt.stages.parts import Rule, changed_options
from ecrt.training import torch_generator

DEMIXING = Role((NoDemixing, Linear, Flow), others=("auto",))
AUGMENTATION = Role(
    (Kernel, Pairs, Parametric, Permutation, Borrowed), others=("auto",), open_to=Augmentation, function_as=ByFunction
)

ROUND_TRIP = 1e-4
"""Largest error of f(f^-1(s)) of a row that is used, in units of the spread within classes."""

FEWEST_CLASSES = 3
"""``demixing="auto"`` tries a flow with at least this many classes to learn from."""

ROUNDS = 20
"""How often rows are drawn in place of those that were refused."""

ROWS_AT_ONCE = 2048


def idle_options(
    demixing: Demixing | None, augmentation: Augmentation | None, *, weighs: bool = False
) -> Iterator[Rule]:
    """Options of the parts without an effect; ``weighs``: whether the weight of an augmentation has one."""
    if demixing is not None:
        needs = "a head for its signal_weights: rows are drawn from sources as they are"
        yield "demixing", "signal_weights" not in changed_options(demixing), needs
    if augmentation is None:
        return
    needs = "a part that draws: use augmentation='auto', 'kernel' or 'pairs', for example"
    yield "augmentation", not isinstance(augmentation, NoAugmentation), needs
    idle = changed_options(augmentation) & {"weighting", "n_synthetic", *(() if weighs else ("weight",))}
    needs = f"ECRTClassifier for its {' and '.join(sorted(idle))}: rows are counted and weighed elsewhere here"
    yield "augmentation", not idle, needs


def roles_of(y: Labels, classes: NDArray[Any], demixing: Demixing | None, minority: MinorityRule) -> ClassRoles:
    """Who is minority, and what de-mixing learns from."""
    learn_from = "auto" if demixing is None else demixing.learn_from
    counts = np.bincount(y, minlength=len(classes))
    return assign_roles(
        counts, classes, minority=minority, encode_on="all", demix_on="majority" if learn_from == "auto" else learn_from
    )


def usual_augmentation(roles: ClassRoles) -> Augmentation:
    """A kernel where other classes have taught the sources; where that could not be, rows stay between near ones."""
    return Pairs() if roles.demixed_on.all() else Kernel()


def different_rows(values: Array | Labels, labels: Labels) -> tuple[Labels, Array | None]:
    """Rows of which none is like another of its class, and how often each of all occurs, ``None`` for once.

    A row is learned from once, with what it counts for: a copy must not judge what was learned from another, nor be the
    nearest row to draw towards.
    """
    hashes = row_hashes(np.column_stack([values, labels]))
    first, times = np.unique(hashes, return_index=True, return_counts=True)[1:]
    if len(first) == len(labels):
        return np.arange(len(labels)), None
    each = np.zeros(len(labels))
    each[first] = times
    return np.sort(first), each


def find_mechanism(
    z: Array, y: Labels, demixing: Demixing | None, roles: ClassRoles, validation: float, session: Session,
    times: Array | None = None,
) -> tuple[DemixResult, Demixing]:  # fmt: skip
    """The de-mixing, and the part that it was made by; without one, the more likely of a linear map and a flow.

    They are compared on held-out rows of the classes with data. A flow is tried on up to 64 columns, with 500 rows and
    three classes to learn from. ``times``: how often each row occurs, ``None`` for once.
    """
    train_rows, held_out_rows = stratified_holdout(y, validation, session.rng)
    given: dict[str, Any] = {"train_rows": train_rows, "held_out_rows": held_out_rows, "demixed_on": roles.demixed_on}
    if times is not None:
        given["incidences"] = Incidences(np.arange(len(z)), times, counted=True)
    if demixing is not None:
        return demix(z, y, config=demixing, **given, **vars(session)), demixing
    linear = demix(z, y, config=Linear(), **given, **vars(session))
    learned = roles.demixed_on[y]
    if (
        z.shape[1] > FLOW_SOURCES
        or learned.sum() < FLOW_ROWS
        or len(np.unique(y[learned])) < FEWEST_CLASSES
        or linear.refit is None
    ):
        return linear, Linear()
    flow = demix(z, y, config=Flow(), **given, **vars(session))
    judging = np.flatnonzero(learned & flow.fresh) if flow.fresh is not None else held_out_rows
    if len(judging) == 0:
        return linear, Linear()
    refitted = linear.refit(np.setdiff1d(np.arange(len(z)), judging))
    gain = _log_likelihood(flow, z, y, judging, times) - _log_likelihood(refitted, z, y, judging, times)
    return (flow, Flow()) if gain > 0 else (linear, Linear())


@torch.no_grad()
def _log_likelihood(found: DemixResult, z: Array, y: Labels, judging: Labels, times: Array | None) -> float:
    """Mean log-likelihood of some rows, under Gaussians of the classes that the other rows give."""
    others = np.setdiff1d(np.arange(len(z)), judging)
    s, variance = torch.from_numpy(found.learned[others]), torch.from_numpy(found.within_variance)
    prior = ClassPrior(int(y.max()) + 1, s.shape[1]).double()
    each = None if times is None else torch.from_numpy(times[others])
    prior.set_class(*class_moments(s, torch.from_numpy(y[others]), variance, Linear().pseudo_samples, each))
    sources, volume = found.demixer.sources_and_volume(torch.from_numpy(z[judging]))
    found_n = (prior(sources, torch.from_numpy(y[judging])) + volume).numpy()
    return float(np.average(found_n, weights=None if times is None else times[judging]))


@dataclass(frozen=True)
class Drawn:
    """Synthetic rows of one class.

    Attributes
    ----------
    z : features.
    donors : rows of all rows that each was made from; ``None`` for every row of the class.
    parent : the first of them, or one of the class at random.
    near : rows of the class that are nearest, the nearest first.
    good : whether the round trip brought the sources back, and a row of the class is near.
    """

    z: Array
    donors: Labels | None
    parent: Labels
    near: Labels
    good: Mask


class ClassRows:
    """The rows of one class, to draw from.

    Parameters
    ----------
    mechanism : the de-mixing, with the sources of all rows.
    z : features of all rows.
    sources : those of all rows, by classes.
    label : the class.
    """

    def __init__(
        self, mechanism: DemixResult, z: Array, sources: ClassSources, label: int, augmentation: Augmentation
    ) -> None:
        self.mechanism = replace(mechanism, refit=None)  # a function, which cannot be copied to other processes
        self.sources, self.label, self.augmentation = sources, label, augmentation
        mine = sources.label_k == label
        self.rows = rows = sources.row_k[mine].numpy()
        times = None if sources.weight_k is None else sources.weight_k[mine].numpy()
        self.share = None if times is None else times / times.sum()
        self.unit = np.sqrt(mechanism.within_variance)
        with torch.no_grad():
            self.rest = mechanism.demixer.linear(torch.from_numpy(z[rows]))[1]
        some = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(np.int64))
        self.known, self.compared = rows[some], mechanism.learned[rows[some]] / self.unit

    @cached_property
    def _search(self) -> NearestNeighbors:
        return NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(self.compared))).fit(self.compared)

    @cached_property
    def reach(self) -> float:
        """How far rows of the class are from the nearest that differs, at most; of a single row, from one like it."""
        different = np.unique(np.round(self.compared, 9), axis=0)
        if len(different) == 1:
            return float(np.sqrt(2 * len(self.unit)))
        search = NearestNeighbors(n_neighbors=1).fit(different)
        return float(search.kneighbors()[0].max()) + 1e-8

    def draw(self, size: int, rng: np.random.Generator) -> Drawn:
        """``size`` synthetic rows, good or not."""
        generator, demixer = torch_generator(rng), self.mechanism.demixer
        with torch.no_grad():
            s, donors = self.augmentation.draw_from(self.sources, torch.full((size,), self.label), generator)
            parent = rng.choice(self.rows, size, p=self.share) if donors is None else donors[:, 0].numpy()
            z = demixer.inverse(s, self.rest[np.searchsorted(self.rows, parent)])
            error = (demixer(z) - s).abs() / torch.from_numpy(self.unit)
        exact = (error.amax(1) < ROUND_TRIP).numpy()  # NaN is not
        distances, places = self.nearest(np.where(np.isfinite(s.numpy()), s.numpy(), 0.0))
        return Drawn(
            z=z.numpy(), donors=None if donors is None else donors.numpy(), parent=parent, near=self.known[places],
            good=exact & (distances[:, 0] <= self.reach),
        )  # fmt: skip

    def nearest(self, s: Array) -> tuple[Array, Labels]:
        """Distances to the nearest rows of the class among those looked at, and which of these they are."""
        found = [
            self._search.kneighbors(s[at : at + ROWS_AT_ONCE] / self.unit) for at in range(0, len(s), ROWS_AT_ONCE)
        ]
        distances, places = zip(*found, strict=True)
        return np.concatenate(distances), np.concatenate(places)

    def supported(self, z: Array) -> Mask:
        """Whether rows lie no farther from a row of the class than rows of the class lie from each other."""
        near = np.zeros(len(z), dtype=bool)
        finite = np.isfinite(z).all(axis=1)
        if finite.any():
            near[finite] = self.nearest(self.mechanism.sources(z[finite]))[0][:, 0] <= self.reach
        return near


def rows_of_classes(
    mechanism: DemixResult, z: Array, y: Labels, augmented: Mask, augmentation: Augmentation, trained: Mask,
    rows: Labels | None = None, times: Array | None = None,
) -> dict[int, ClassRows]:  # fmt: skip
    """The rows of the ``augmented`` classes, to draw from; the others lend their residuals.

    ``trained`` : classes that de-mixing learned from; ``rows``, ``times`` : those to draw from, ``None`` for all, and
    how often each of all rows occurs.
    """
    sources = class_sources(
        mechanism.learned, y, augmented, mechanism.within_variance, augmentation,
        prior=mechanism.trained_prior, trained=trained, rows=rows, weight=times,
    )  # fmt: skip
    if sources.residuals_rd is not None and len(sources.residuals_rd) == 0:
        raise InputError(
            "augmentation='borrowed' would have no effect: no class has residuals to lend, since all others are "
            "augmented too. Use augmentation='auto'."
        )
    labels = np.flatnonzero(augmented).tolist()
    return {label: ClassRows(mechanism, z, sources, label, augmentation) for label in labels}
