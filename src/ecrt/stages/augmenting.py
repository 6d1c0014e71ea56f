"""Stage 3: synthetic sources for the classes, labels and targets that need them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval
from torch import Tensor

from ecrt.arrays import Array, Labels, Mask
from ecrt.augmentation import WIDTHS, ClassSources, borrowed, gaussian, kernel, pairs, permutation
from ecrt.errors import InputError, code_of_user
from ecrt.flows import ClassPrior
from ecrt.machine import ask
from ecrt.moments import within_class_residuals
from ecrt.stages.parts import Count, NonNegative, Part, Role, Share
from ecrt.training import torch_generator

LEAST_SYNTHETIC = 20

SyntheticCount = Annotated[int, Interval(Integral, 1, 10**7, closed="both")]


class Weighted(Part):
    """Synthetic samples with a weight: Eq. 3 of the paper, its Algorithm 1, or a share of each class's own weight."""

    weight: Share = 0.5
    weighting: Literal["share", "added", "replaced"] = "share"
    n_synthetic: SyntheticCount | None = None

    def multiples(self, mass_m: Array, augmented_m: Mask) -> tuple[Array, Array]:
        r"""What real and synthetic samples of each class weigh together, as multiples of its weight :math:`w_m`.

        With :math:`\lambda` the option ``weight``: :math:`1 - \lambda` and :math:`\lambda` for a ``"share"``; 1 and
        :math:`\lambda / w_m` where they are ``"added"``; :math:`1 - \lambda_m` and
        :math:`\lambda_m = \min(1, \lambda / w_m)` where real samples are ``"replaced"``.

        >>> real, synthetic = Weighted(weight=0.1, weighting="added").multiples(np.array([0.6, 0.4]), np.arange(2) == 1)
        >>> real.tolist(), synthetic.tolist()
        ([1.0, 1.0], [0.0, 0.25])
        """
        synthetic_m = np.where(augmented_m, float(self.weight), 0.0)
        if self.weighting != "share":
            synthetic_m = np.divide(synthetic_m, mass_m, out=np.zeros_like(synthetic_m), where=mass_m > 0)
        if self.weighting == "added":
            return np.ones_like(synthetic_m), synthetic_m
        synthetic_m = np.minimum(synthetic_m, 1.0)
        return 1 - synthetic_m, synthetic_m


class Augmentation(Weighted):
    """A way to synthetic sources of classes; ``Parametric`` describes the options that all have."""

    def draw(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """A synthetic source vector for each of the classes ``y_b``; all in one call, for there may be many classes.

        Parameters
        ----------
        sources : what is known of the classes: rows of each, their means and variances.
        y_b : class indices, on the device of the sources.
        generator : to draw from, on that device.
        """
        raise NotImplementedError

    def draw_from(
        self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """The same, and the rows of the sources that each was made from; ``None``: all rows of its class."""
        return self.draw(sources, y_b, generator), None

    def others(self, sources_of: Callable[[Array], Array]) -> tuple[Array, Labels] | None:
        """Sources of other samples to draw from than those of the fit, and their classes; ``None`` for none.

        For experiments that know more than a fit may: ``sources_of`` maps features to sources.
        """
        return None


class FromRows(Augmentation):
    """One that makes each sample from a few rows, which it can name."""

    def draw(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """The sources of ``draw_from`` without their rows."""
        return self.draw_from(sources, y_b, generator)[0]

    def draw_from(
        self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Synthetic sources, and the rows that each was made from."""
        raise NotImplementedError


class NoAugmentation(Augmentation):
    """No synthetic samples."""

    kind = "none"

    weight: ClassVar[float] = 0.0  # type: ignore[misc]
    weighting: ClassVar[Literal["share"]] = "share"  # type: ignore[misc]
    n_synthetic: ClassVar[int | None] = None  # type: ignore[misc]


class Parametric(Augmentation):
    """Synthetic sources of a minority class from a Gaussian.

    An MLP head sees others at every step; other heads learn from ``n_synthetic`` of each class, drawn once.

    Parameters
    ----------
    weight : float, default=0.5
        Weight of the synthetic samples of a minority class, in the sense of ``weighting``.
    weighting : {"share", "added", "replaced"}, default="share"
        ``"share"``: of the weight that the class has, synthetic samples hold the share ``weight``, whatever its size.
        ``"added"``: they are added to the rows, all of which weigh 1 together (the paper's Algorithm 1).
        ``"replaced"``: the same weight is taken off the class's own rows, as far as they have it (its Eq. 3).
    n_synthetic : int or None, default=None
        Synthetic samples of each minority class; ``None`` makes half as many as rows in all, but no class larger than
        the largest.
    source : {"samples", "prior"}, default="samples"
        Mean and variance of a class are those of its samples, or those of the prior that was trained with the flow (MP
        in the paper); a class that the flow did not learn from has no other prior than its samples.
    pseudo_samples : float, default=10
        How many samples the common variance counts for in the variance of a class; with 0, as in the paper, a class of
        one sample has no variance.
    """

    kind = "parametric"

    source: Literal["samples", "prior"] = "samples"
    pseudo_samples: NonNegative = 10.0

    def draw(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """Samples of a Gaussian with the class's mean and variance."""
        moments = sources.trained_moments if self.source == "prior" else sources.moments
        return gaussian(moments(self.pseudo_samples), y_b, sources.noise(y_b, generator))


class Permutation(FromRows):
    """Synthetic sources by shuffling coordinates within a minority class (Eq. 2).

    Parameters
    ----------
    weight, weighting, n_synthetic
        As in ``Parametric``.
    """

    kind = "permutation"

    def draw_from(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Every coordinate from another sample."""
        return permutation(sources, y_b, generator)


class Borrowed(Augmentation):
    """Synthetic sources around the mean of a minority class, with residuals of the majority classes.

    Parameters
    ----------
    weight, weighting, n_synthetic, pseudo_samples
        As in ``Parametric``.
    """

    kind = "borrowed"

    pseudo_samples: NonNegative = 10.0

    def draw(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """The class's mean plus residuals of other classes; without any, samples are Gaussian."""
        return borrowed(sources, y_b, generator, self.pseudo_samples)


class Kernel(FromRows):
    """Synthetic sources near those of a minority class: kernel densities, with widths that suit the class.

    Parameters
    ----------
    weight, weighting, n_synthetic
        As in ``Parametric``.
    width : float or None, default=None
        Share of the spread of a class that is noise, above 0: with little, synthetic sources stay near single samples;
        with 1 they are those of ``Parametric``. ``None`` draws one for every synthetic sample, in proportion to how
        probable samples of the class, left out one at a time, are under it. How far the variance of a class is drawn
        towards the common one is drawn so, too.
    """

    kind = "kernel"

    width: Annotated[float, Interval(Real, 0, 1, closed="right")] | None = None

    def draw_from(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Samples of the class, each moved by noise."""
        return kernel(sources, y_b, generator, WIDTHS if self.width is None else (self.width,))


class Pairs(FromRows):
    """Synthetic sources between two near samples of a minority class and a little beyond, every coordinate by itself.

    Little has to be true of the sources for that. A class with a single sample gets those of ``Parametric``.

    Parameters
    ----------
    weight, weighting, n_synthetic
        As in ``Parametric``.
    """

    kind = "pairs"

    def draw_from(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Samples between a sample and one of its five nearest."""
        return pairs(sources, y_b, generator)


class _OfFunction:
    """Names the part of a function; it is no short name, since that would stand for no function."""

    kind: ClassVar[str] = "function"


FARTHEST = 1e6
"""How many times as far as the samples of its class, and one, a sample of a function may lie."""


class ByFunction(_OfFunction, Augmentation):
    """Synthetic sources by a function of yours, which any ``augmentation=`` takes as it is, too.

    Parameters
    ----------
    function : callable, default=None
        ``function(sources, n, rng)`` gives ``n`` synthetic samples, an array of shape (n, n_sources). ``sources`` are
        the samples of one class (n_samples, n_sources), in float64, and ``rng`` is a ``numpy.random.Generator``, the
        only source of chance if the same seed is to give the same model. It is called for each rare class, and by an
        MLP head at every step.
    weight, weighting, n_synthetic
        As in ``Parametric``.
    """

    function: Annotated[Callable[[Array, int, np.random.Generator], ArrayLike], callable] | None = None

    def check(self) -> None:
        """Raise an error if there is no function, or another option cannot be what it is."""
        super().check()
        if self.function is None:
            raise InputError("ByFunction needs function=, such as a function of (sources, n, rng).")

    def draw(self, sources: ClassSources, y_b: Tensor, generator: torch.Generator | None) -> Tensor:
        """What the function makes of each class in turn."""
        seed = torch.randint(2**62, (1,), generator=generator, device=sources.s_nd.device)
        rng = np.random.default_rng(int(seed))
        drawn_bd = sources.s_nd.new_empty(len(y_b), sources.s_nd.shape[1])
        for label in y_b.unique().tolist():
            mine_b = y_b == label
            own = slice(sources.start_m[label], sources.start_m[label] + sources.count_m[label])
            rows = sources.row_k[own]
            if sources.weight_k is not None:  # whole: others are refused
                rows = rows.repeat_interleave(sources.weight_k[own].long())
            made = self._made(sources.s_nd[rows].double().cpu().numpy(), int(mine_b.sum()), rng)
            drawn_bd[mine_b] = torch.from_numpy(made).to(drawn_bd)
        return drawn_bd

    def _made(self, s: Array, n: int, rng: np.random.Generator) -> Array:
        """Samples that the function has made, checked."""
        function: Any = self.function
        name = getattr(function, "__name__", type(function).__name__)
        wanted, what = (n, s.shape[1]), ""
        with code_of_user(f"augmentation: {name}(sources, n, rng)"):
            answer = function(s.copy(), n, rng)
        try:
            made = np.array(answer.detach().cpu() if isinstance(answer, Tensor) else answer)
            if made.dtype.kind in "cmMUS":
                raise TypeError
            made = made.astype(np.float64)
        except (TypeError, ValueError):
            made, what = s, f"no numbers, but a {type(answer).__name__}"
        if not what and made.shape != wanted:
            what = f"the shape {made.shape}"
        elif not np.isfinite(made).all():
            what = "NaN or infinity"
        elif np.abs(made).max(initial=0) > FARTHEST * (1 + np.abs(s).max()):
            what = f"numbers up to {np.abs(made).max():g}, where those of the class go up to {np.abs(s).max():g}"
        if what:
            raise InputError(f"augmentation: {name} gave {what}; finite samples of shape {wanted} were asked for.")
        return made


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


class Donors(Weighted):
    """Synthetic rows for a continuous target with every source from another donor (supplement B).

    Parameters
    ----------
    weight, weighting : default=0.5 and "share"
        Weight of the synthetic rows of a rare region, as in ``Parametric`` that of a class.
    n_synthetic : int or None, default=None
        Synthetic samples; ``None`` for half as many as rows. An MLP head sees other donors at every step.
    n_donors : int, default=20
        The kernel that weighs donors has half the distance to this many nearest targets as its bandwidth.
    """

    kind = "donors"

    n_donors: Count = 20


AUGMENTATION = Role(
    (NoAugmentation, Parametric, Permutation, Borrowed, Kernel, Pairs), open_to=Augmentation, function_as=ByFunction
)
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


def class_sources(
    s: Array,
    y: Labels,
    augmented: Mask,
    within_variance: Array,
    config: Augmentation,
    *,
    rows: Labels | None = None,
    lenders: Mask | None = None,
    prior: ClassPrior | None = None,
    trained: Mask | None = None,
    weight: Array | None = None,
) -> ClassSources:
    """What is drawn from: the sources of augmented classes.

    Parameters
    ----------
    rows : those of ``s`` and ``y`` that may be looked at, ``None`` for all.
    lenders : classes to borrow residuals from, ``None`` for those that are not augmented.
    prior, trained : Gaussians that were trained with a flow, and the classes whose are.
    weight : how often each row of ``s`` occurs, ``None`` for once.
    """
    rows = np.arange(len(y)) if rows is None else rows
    lenders = ~augmented if lenders is None else lenders
    residuals = None
    if isinstance(config, Borrowed):  # which is given whole weights alone
        lent = rows if weight is None else np.repeat(rows, weight[rows].astype(np.int64))
        residuals = _residuals(s[lent], y[lent], lenders)
    order = rows[np.argsort(y[rows], kind="stable")]
    order = order[augmented[y[order]]]
    each = None if weight is None else torch.from_numpy(weight[order])
    return _sources(s, order, y[order], len(augmented), within_variance, residuals, prior, trained, each)


def label_sources(
    s: Array,
    indicator: sparse.csr_array,
    augmented: Mask,
    within_variance: Array,
    *,
    prior: ClassPrior | None = None,
    trained: Mask | None = None,
) -> ClassSources:
    """The same of labels, each with the rows that have it: ``indicator`` is rows by labels."""
    columns = indicator.tocsc()
    label = np.repeat(np.arange(len(augmented)), np.diff(columns.indptr))
    kept = augmented[label]
    return _sources(s, columns.indices[kept], label[kept], len(augmented), within_variance, None, prior, trained)


def _sources(
    s: Array, row: NDArray[Any], label: Labels, n_classes: int, within_variance: Array, residuals: Tensor | None,
    prior: ClassPrior | None, trained: Mask | None, weight: Tensor | None = None,
) -> ClassSources:  # fmt: skip
    known = None
    if prior is not None and trained is not None:
        known = torch.from_numpy(trained), (prior.mean_md.detach(), prior.variance_md.detach())
    return ClassSources(
        torch.from_numpy(s), torch.from_numpy(row.astype(np.int64)), torch.from_numpy(label), n_classes,
        torch.from_numpy(within_variance), residuals, known, weight,
    )  # fmt: skip


def draw_classes(
    sources: ClassSources, config: Augmentation, rng: np.random.Generator, n_rows: int, largest: int
) -> Synthetic:
    """Draw synthetic sources once, for every class that there are rows of.

    ``n_rows`` are all rows there are, augmented or not, and ``largest`` those of the largest class: they set how many
    are drawn if the augmentation does not say.
    """
    labels = torch.unique(sources.label_k).numpy() if config.weight > 0 else np.empty(0, dtype=np.int64)
    n_sources = sources.s_nd.shape[1]
    if len(labels) == 0:
        return Synthetic(np.empty((0, n_sources)), labels)
    usual = int(np.clip(n_rows // (2 * len(labels)), LEAST_SYNTHETIC, max(largest, LEAST_SYNTHETIC)))
    size, generator = config.n_synthetic or usual, torch_generator(rng)
    ask(
        "Synthetic samples, an array", "Set a smaller n_synthetic of the augmentation.", copies=3,
        rows=size * len(labels), sources=n_sources,
    )  # fmt: skip
    drawn = np.empty((size * len(labels), n_sources))
    for place, label in enumerate(labels):
        mine = torch.full((size,), int(label))
        drawn[place * size : (place + 1) * size] = config.draw(sources, mine, generator).numpy()
    return Synthetic(drawn, np.repeat(labels, size))


def augment_classes(
    s: Array,
    y: Labels,
    augmented: Mask,
    within_variance: Array,
    config: Augmentation,
    rng: np.random.Generator,
    **options: Any,
) -> Synthetic:
    """Draw synthetic sources for every augmented class that has a sample; ``options`` of ``class_sources``."""
    counts = np.bincount(y)
    sources = class_sources(s, y, augmented, within_variance, config, **options)
    return draw_classes(sources, config, rng, len(y), int(counts.max(initial=0)))


def _residuals(s: Array, y: Labels, lenders: Mask) -> Tensor:
    """Deviations from their means of the classes that lend, stretched for the mean that each has lost."""
    lent = lenders[y]
    residuals, _, counts = within_class_residuals(s[lent], y[lent])
    _, member = np.unique(y[lent], return_inverse=True)
    stretch = np.sqrt(counts / np.maximum(counts - 1, 1))
    return torch.from_numpy(residuals[counts[member] > 1] * stretch[member][counts[member] > 1, None])
