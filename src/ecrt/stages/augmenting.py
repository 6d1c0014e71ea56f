"""Stage 3: synthetic sources for the classes, labels and targets that need them."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval
from torch import Tensor

from ecrt.augmentation import (
    JUDGED_ROWS,
    PSEUDO_SAMPLES,
    WIDTHS,
    borrowed,
    kernel,
    left_out_log_density,
    near_pairs,
    one_donor_each,
    pairs,
    parametric,
    permutation,
)
from ecrt.flows import within_class_residuals
from ecrt.stages.parts import Count, Part, Positive, Role, Share
from ecrt.training import torch_generator

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

LEAST_SYNTHETIC = 20

SyntheticCount = Annotated[int, Interval(Integral, 1, 10**7, closed="both")]


class Augmentation(Part):
    """A way to synthetic sources, with ``weight``: the share of a class's mass that its synthetic samples hold."""

    weight: Share = 0.5
    n_synthetic: SyntheticCount | None = None

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """``size`` synthetic sources of the class that ``s_nd`` comes from.

        Parameters
        ----------
        variance_d : mean variance within classes.
        residuals_rd : deviations of other classes from their means, if they are to be lent.
        """
        raise NotImplementedError

    def draw_from(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same, and for each the rows of ``s_nd`` it was made from; ``None``: all of them."""
        return self.draw(s_nd, size, generator, variance_d, residuals_rd), None


class NoAugmentation(Augmentation):
    """No synthetic samples."""

    kind = "none"

    weight: ClassVar[float] = 0.0  # type: ignore[misc]
    n_synthetic: ClassVar[int | None] = None  # type: ignore[misc]


class Parametric(Augmentation):
    """Synthetic sources of a minority class from a Gaussian.

    Parameters
    ----------
    weight : float, default=0.5
        Share of a minority class's weight that goes to its synthetic samples.
    n_synthetic : int or None, default=None
        Synthetic samples of each minority class; ``None`` makes half as many as rows in all, but no class larger than
        the largest.
    pseudo_samples : float, default=10
        How many samples the common variance counts for in the variance of a class.
    """

    kind = "parametric"

    pseudo_samples: Positive = 10.0

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """Samples of a Gaussian with the class's mean and shrunk variance."""
        return parametric(s_nd, size, generator, variance_d, self.pseudo_samples)


class Permutation(Augmentation):
    """Synthetic sources by shuffling coordinates within a minority class (Eq. 2).

    Parameters
    ----------
    weight, n_synthetic
        As in ``Parametric``.
    """

    kind = "permutation"

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """Every coordinate from another sample."""
        return permutation(s_nd, size, generator)

    def draw_from(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same, and the sample of every coordinate."""
        donors = one_donor_each(s_nd, size, generator)
        return s_nd.gather(0, donors), donors


class Borrowed(Parametric):
    """Synthetic sources around the mean of a minority class, with residuals of the majority classes.

    Parameters
    ----------
    weight, n_synthetic, pseudo_samples
        As in ``Parametric``.
    """

    kind = "borrowed"

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """The class's mean plus residuals of other classes; without any, samples are parametric."""
        if residuals_rd is None or len(residuals_rd) == 0:
            return super().draw(s_nd, size, generator, variance_d, None)
        return borrowed(s_nd, size, generator, variance_d, self.pseudo_samples, residuals_rd)


class Kernel(Augmentation):
    """Synthetic sources near those of a minority class: a kernel density whose width the class itself chooses.

    Parameters
    ----------
    weight, n_synthetic
        As in ``Parametric``.
    width : float or None, default=None
        Share of the spread of a class that is noise, above 0: with little, synthetic sources stay near single samples;
        with 1 they are those of ``Parametric``. ``None`` chooses the one under which samples that are left out, one at
        a time, are most probable. How far the variance of a class is drawn towards the common one is chosen so, too.
    """

    kind = "kernel"

    width: Annotated[float, Interval(Real, 0, 1, closed="right")] | None = None

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """Samples of the class, each moved by noise."""
        return self.draw_from(s_nd, size, generator, variance_d, residuals_rd)[0]

    def draw_from(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same, and the sample that each was moved from."""
        pseudo_samples, width = self.chosen(s_nd, variance_d)
        donors = torch.randint(len(s_nd), (size,), generator=generator).to(s_nd.device)
        return kernel(s_nd, donors, generator, variance_d, pseudo_samples, width), donors[:, None]

    def chosen(self, s_nd: Tensor, variance_d: Tensor) -> tuple[float, float]:
        """Pseudo-samples and width for a class; below three samples nothing can be left out to choose by."""
        widths = WIDTHS if self.width is None else (self.width,)
        tried = [(samples, width) for samples in PSEUDO_SAMPLES for width in widths]
        if len(s_nd) < 3:
            return tried[-1]
        step = -(-len(s_nd) // JUDGED_ROWS)
        s, variance = s_nd[::step].double().cpu().numpy(), variance_d.double().cpu().numpy()
        return max(tried, key=lambda one: left_out_log_density(s, variance, *one))


class Pairs(Augmentation):
    """Synthetic sources between two near samples of a minority class and a little beyond, every coordinate by itself.

    Little has to be true of the sources for that. A class with a single sample gets those of ``Parametric``.

    Parameters
    ----------
    weight, n_synthetic
        As in ``Parametric``.
    """

    kind = "pairs"

    def draw(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> Tensor:
        """Samples between a sample and one of its five nearest."""
        return self.draw_from(s_nd, size, generator, variance_d, residuals_rd)[0]

    def draw_from(
        self, s_nd: Tensor, size: int, generator: torch.Generator, variance_d: Tensor, residuals_rd: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same, and the two samples."""
        if len(s_nd) < 2:
            return Parametric().draw_from(s_nd, size, generator, variance_d, residuals_rd)
        chosen = near_pairs(s_nd, size, generator, variance_d)
        return pairs(s_nd, chosen, generator), chosen


class Interpolated(Part):
    """Synthetic rows between neighbours in source space, for a continuous target.

    As many rows as there are, and for each row with a rare target six more: between rare neighbours, and moved along
    the sources' local slopes. They weigh as much as the rows there are.

    Parameters
    ----------
    n_donors : int, default=20
        The kernel of the slopes has half the distance to this many nearest targets as its bandwidth.
    """

    kind = "interpolated"

    n_donors: Count = 20


class Donors(Part):
    """Synthetic rows for a continuous target with every source from another donor (supplement B).

    Parameters
    ----------
    weight : float, default=0.5
        Share of the mass of rare regions that goes to synthetic samples; that mass stays what it is.
    n_synthetic : int or None, default=None
        Synthetic samples; ``None`` for half as many as rows.
    n_donors : int, default=20
        The kernel that weighs donors has half the distance to this many nearest targets as its bandwidth.
    """

    kind = "donors"

    weight: Share = 0.5
    n_synthetic: SyntheticCount | None = None
    n_donors: Count = 20


AUGMENTATION = Role((NoAugmentation, Parametric, Permutation, Borrowed, Kernel, Pairs), open_to=Augmentation)
"""What the parameter ``augmentation`` of a classifier takes."""

TARGET_AUGMENTATION = Role((NoAugmentation, Interpolated, Donors), others=("auto",), several=True)
"""What the parameter ``augmentation`` of a regressor takes."""


@dataclass(frozen=True)
class Synthetic:
    """Synthetic sources and their classes.

    ``same_weight``: every sample of a class, real or synthetic, has the same weight, instead of an agreed share.
    """

    s: Array
    y: Labels
    same_weight: bool = False


def augment_classes(
    s: Array,
    y: Labels,
    augmented: NDArray[np.bool_],
    within_variance: Array,
    config: Augmentation,
    rng: np.random.Generator,
    rows: Labels | None = None,
    lenders: NDArray[np.bool_] | None = None,
) -> Synthetic:
    """Draw synthetic sources for every augmented class that has at least one sample.

    ``rows`` : those of ``s`` and ``y`` to draw from, ``None`` for all. ``lenders`` : classes to borrow residuals from,
    ``None`` for those that are not augmented.
    """
    rows = np.arange(len(y)) if rows is None else rows
    y = y[rows]
    counts = np.bincount(y, minlength=len(augmented))
    lenders = ~augmented if lenders is None else lenders
    residuals = class_residuals(s[rows], y, lenders) if isinstance(config, Borrowed) else None
    order, starts = rows[np.argsort(y, kind="stable")], np.concatenate([[0], np.cumsum(counts)])
    most = max(counts.max(initial=0), LEAST_SYNTHETIC)
    return _draw(s, order, starts, len(y), most, augmented, within_variance, config, rng, residuals)


def augment_labels(
    s: Array,
    indicator: sparse.csr_array,
    augmented: NDArray[np.bool_],
    within_variance: Array,
    config: Augmentation,
    rng: np.random.Generator,
) -> Synthetic:
    """Draw synthetic sources for every augmented label from the rows that have it: ``indicator`` is rows by labels."""
    columns = indicator.tocsc()
    most = np.diff(columns.indptr).max(initial=0) + LEAST_SYNTHETIC
    return _draw(s, columns.indices, columns.indptr, len(s), most, augmented, within_variance, config, rng)


def _draw(
    s: Array, order: NDArray[Any], starts: NDArray[Any], n_rows: int, most: int, augmented: NDArray[np.bool_],
    within_variance: Array, config: Augmentation, rng: np.random.Generator, residuals: Tensor | None = None,
) -> Synthetic:  # fmt: skip
    """Samples of every augmented class; the rows of class m are ``order[starts[m] : starts[m + 1]]``."""
    labels = np.flatnonzero(augmented & (np.diff(starts) > 0)) if config.weight > 0 else np.empty(0, dtype=np.int64)
    if len(labels) == 0:
        return Synthetic(np.empty((0, s.shape[1])), labels)
    size = config.n_synthetic or int(np.clip(n_rows // (2 * len(labels)), LEAST_SYNTHETIC, most))
    generator, variance = torch_generator(rng), torch.from_numpy(within_variance)
    drawn = np.empty((size * len(labels), s.shape[1]))
    for place, label in enumerate(labels):
        mine = torch.from_numpy(s[order[starts[label] : starts[label + 1]]])
        drawn[place * size : (place + 1) * size] = config.draw(mine, size, generator, variance, residuals).numpy()
    return Synthetic(drawn, np.repeat(labels, size))


def class_residuals(s: Array, y: Labels, lenders: NDArray[np.bool_]) -> Tensor:
    """Deviations from their means of the classes that lend, stretched for the mean that each has lost."""
    lent = lenders[y]
    residuals, _, counts = within_class_residuals(s[lent], y[lent])
    _, member = np.unique(y[lent], return_inverse=True)
    stretch = np.sqrt(counts / np.maximum(counts - 1, 1))
    return torch.from_numpy(residuals[counts[member] > 1] * stretch[member][counts[member] > 1, None])
