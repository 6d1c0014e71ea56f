"""ECRT as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils import Tags, check_array, check_consistent_length
from torch.utils.data import Dataset

from ecrt.arrays import Array
from ecrt.augmentation import draw_from_donors
from ecrt.data import indicator_of
from ecrt.data.minority import TargetRegions, quantile_bins, target_roles
from ecrt.data.tables import LARGEST
from ecrt.errors import InputError
from ecrt.estimators.base import (
    FLOW_ROWS,
    FLOW_SOURCES,
    MLP_SOURCES,
    ECRTPredictor,
    Space,
    all_or_nothing,
    generator_of,
    in_blocks,
    input_errors,
)
from ecrt.estimators.export import NumberOutcome
from ecrt.estimators.inputs import (
    array_items,
    in_numpy,
    item_of,
    labelled_items,
    read_target_arrays,
    refuse_dates,
    repeated_rows,
    rows_to_score,
    weighted_rows,
)
from ecrt.estimators.preset import paper_options
from ecrt.flows import SourcePrior
from ecrt.stages import (
    Demixing,
    Donors,
    Flow,
    Head,
    Interpolated,
    Linear,
    LinearHead,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Part,
    sources_of,
)
from ecrt.stages.augmenting import TARGET_AUGMENTATION
from ecrt.stages.heads import TARGET_HEAD
from ecrt.stages.parts import Count, Rule, Share
from ecrt.stages.regression import NumberTarget, regress

MOST_EXAMPLES = 5000
"""Sources kept to sample from and to measure independence on."""


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTRegressor(RegressorMixin, ECRTPredictor):
    """Regressor for targets with rare values, by energy-based causal representation transfer.

    Quantile bins of y take the place of classes: the mechanism is learned where targets are dense and undone. Where
    they are sparse, synthetic sources are drawn, between or from rows with targets nearby. A head is trained on both.
    Every step must lower the error on held-out rows, where rare rows count as much as the others. Otherwise a plain
    regression is left.

    Parameters
    ----------
    encoder : {"identity", "mlp", "resnet18", "autoencoder"}, nn.Module or Encoder, default="identity"
        z = e(x); a supervised one learns to predict y. ``learn_from="auto"`` is all bins here, of encoder and
        de-mixing: rare targets lie beyond the others, where a mechanism that never saw them has to extrapolate.
    demixing : {"auto", "none", "linear", "flow"}, NoDemixing, Linear, Flow or a sequence of these, default="auto"
        As in :class:`ECRTClassifier`, but ``"auto"`` tries ``"none"`` first.
    augmentation : {"auto", "none", "interpolated", "donors"}, Interpolated, Donors or a sequence, default="auto"
        Synthetic rows for rare targets: between neighbours in source space (``Interpolated``), or each source from
        another donor (``Donors``, for sources that are independent given y). ``"auto"`` tries none and interpolated.
    head : {"auto", "linear", "mlp"}, LinearHead, MLPHead or a sequence of these, default="auto"
        Candidates, the simplest first, with the loss that training minimises and choices are made by; ``"auto"`` tries
        both, the MLP on up to 128 sources.
    n_bins : int or None, default=None
        Quantile bins of y for the contrast; ``None`` for 2 n_sources + 1, between 10 and a bin for every 20 rows.
    region_mass : "auto" or float, default="auto"
        Power a: a region of n rows has mass n^(1 - a) in the loss. 0 leaves regions as frequent as they are, 1 makes
        them equal; ``"auto"`` tries 0 and 0.25.
    weighted : "auto" or bool, default="auto"
        Whether sources are weighed by their signal before the head; ``"auto"`` tries both ways.
    validation_fraction, precision, checkpoint, device, verbose, random_state
        As in ``ECRTClassifier``.

    Attributes
    ----------
    regions_ : equal-width regions of the target, with the training rows of each and which of them are rare.
    bin_counts_ : rows of each quantile bin.
    table_ : how columns are read, ``None`` for images.
    encoder_, demixer_, head_ : the fitted modules.
    demixing_, weighted_, head_name_, region_mass_, augmentation_ : what was chosen; ``weighted_`` says whether
        the head's input is weighted by signal.
    parts_ : the parts of the fit, as chosen: encoder, demixing, augmentation and head.
    loss_ : name of the loss that the head was trained by.
    signal_weight_ : share of signal in each source.
    history_ : losses of every trained part and every candidate.
    diagnostics_, theory_met_ : as in :class:`ECRTClassifier`, with bins as classes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = np.exp(X[:, 0]) + 0.1 * rng.normal(size=300)
    >>> reg = ECRTRegressor(demixing="linear", head="linear", random_state=0).fit(X, y)
    >>> reg.predict(X).shape
    (300,)
    >>> s, targets = reg.sample(2, y=[8.0])
    >>> s.shape, targets.tolist()
    ((2, 3), [8.0, 8.0])
    """

    _roles = ECRTPredictor._roles | {"augmentation": TARGET_AUGMENTATION, "head": TARGET_HEAD}
    _learn_from: ClassVar[Literal["majority", "all"]] = "all"
    augmentation: str | Part | Sequence[str | Part] = "auto"
    head: str | Head | Sequence[str | Head] = "auto"
    n_bins: Count | None = None
    region_mass: Literal["auto"] | Share = "auto"
    weighted: Literal["auto"] | bool = "auto"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @classmethod
    def paper(
        cls, data: str = "tiny-imagenet", *, source_prior: SourcePrior = "per-class", **options: Any
    ) -> ECRTRegressor:
        """The paper's method for numbers (supplement B): bins for the contrast, the squared loss for encoder and head.

        Synthetic rows take every source from another donor with a target nearby.

        Parameters
        ----------
        data, source_prior : as in ``ECRTClassifier.paper``; the supplement has no network for numbers of its own.
        options : of the regressor, in place of these.
        """
        return cls(**(paper_options(data, source_prior, numbers=True) | options))

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> ECRTRegressor:
        """Learn encoder, de-mixing and head.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), or images for an encoder that takes
            them, or a torch Dataset of (x, y). A table may hold categories, dates and missing values.
        y : whole or real numbers, (n_samples,) or (n_samples, n_outputs); not given with a Dataset.
        sample_weight : how often each row occurs, whole numbers; see ``ECRTClassifier.fit``.
        """
        self._check_parts(self._rules())
        X, y, *_ = repeated_rows(weighted_rows(X, y, sample_weight), "ECRTRegressor")
        inputs, targets = self._read_targets(X, y)
        regions = TargetRegions.learn(targets)
        n_inputs = torch.as_tensor(item_of(X, 0)[0]).numel() if isinstance(X, Dataset) else inputs.shape[1]
        bins = quantile_bins(regions.position(targets), self._wanted_bins(len(targets), n_inputs))
        places = np.arange(len(bins))
        items = labelled_items(X, places) if isinstance(X, Dataset) else array_items(inputs, places)
        rare = regions.is_rare(targets)
        roles = target_roles(bins, rare, **self._learners)
        target = NumberTarget(targets)
        self._check_heads(target)
        wanted = target.encoder_target(self._encoder, regions, roles.encoded_on[bins])
        with self._session() as session:
            encoded = self._encode(items, bins, roles, session, groups=indicator_of(bins, rare), target=wanted)
            rows = encoded.learn_rows
            z = encoded.features[rows]
            result = regress(
                z, targets[rows], bins=bins[rows], regions=regions, roles=roles, candidates=self._demixings(*z.shape),
                heads=self._heads(z.shape[1]),
                augmentations=self._parts("augmentation") or (NoAugmentation(), Interpolated()),
                region_mass=(0.0, 0.25) if isinstance(self.region_mass, str) else (float(self.region_mass),),
                weighings=(False, True) if isinstance(self.weighted, str) else (bool(self.weighted),),
                validation=self.validation_fraction, fresh=encoded.fresh[rows], **vars(session),
            )  # fmt: skip
            keep = np.sort(session.rng.permutation(len(z))[:MOST_EXAMPLES])
        plan = result.plan
        self.regions_, self.bin_counts_ = regions, roles.counts
        self.minority_bins_, self.demixed_on_ = np.flatnonzero(roles.minority), np.flatnonzero(roles.demixed_on)
        self.region_mass_, self.augmentation_ = plan.region_mass, plan.augmentation.kind
        self.weighted_ = plan.weighted
        self._keep_members((result.member,), result.demixed.restarts, encoded)
        self.history_ |= {"candidates": result.held_out, "chosen": str(plan), "head_setting": result.member.setting}
        all_bins = np.arange(len(roles.counts))
        self._keep_examples(z[keep], targets[rows][keep], bins[rows][keep], all_bins, roles.demixed_on)
        return self

    @property
    def loss_(self) -> str:
        """Name of the loss that the head was trained by."""
        loss: str = self.parts_["head"].loss
        return "squared" if loss == "auto" else loss

    @in_blocks
    def predict(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Targets in the units of y, shaped as in ``fit``."""
        outputs = self._outputs(X)
        predicted = self.regions_.restore(outputs.astype(np.float64))
        return predicted[:, 0] if self.one_output_ else predicted

    def _outcome(self, dtype: torch.dtype = torch.float64) -> NumberOutcome:
        return NumberOutcome(self.regions_.scale, self.regions_.center, one=self.one_output_)

    def score(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Coefficient of determination; a Dataset has y in its items."""
        X, y = rows_to_score(in_numpy(X), in_numpy(y), one_label=False)
        return float(super().score(X, y, in_numpy(sample_weight)))

    def sample(
        self,
        n_per_target: int,
        y: ArrayLike,
        space: Space = "source",
        random_state: int | np.random.RandomState | None = None,
    ) -> tuple[Array, Array]:
        """Draw synthetic samples at given targets.

        Parameters
        ----------
        n_per_target : samples of each target.
        y : targets, shaped as in ``fit``.
        space : ``"source"``; ``"feature"`` to invert the de-mixing (with the identity encoder, the columns of X as
            numbers); or ``"input"`` to decode these features too, where the encoder has a decoder.
        random_state : seed of the draw.
        """
        self._check_draw(n_per_target, space)
        wanted = np.asarray(y, dtype=np.float64)
        columns = wanted.reshape(len(wanted), -1)
        if columns.shape[1] != len(self.regions_.center) or not np.isfinite(columns).all():
            raise InputError(f"y must hold finite numbers, {len(self.regions_.center)} for each target.")
        repeated = np.repeat(columns, n_per_target, axis=0)
        z, known = self._examples
        s = sources_of(self.demixer_, z)
        standard = self.regions_.standardise
        n_donors = getattr(self.parts_["augmentation"], "n_donors", Donors().n_donors)
        drawn = draw_from_donors(s, standard(known), standard(repeated), n_donors, generator_of(random_state))
        return self._restored(drawn, space), repeated[:, 0] if self.one_output_ else repeated

    def _read_targets(self, X: Any, y: Any) -> tuple[Array, Array]:
        """Rows as numbers (none of a Dataset, which may be large), and targets of shape (n, outputs)."""
        if isinstance(X, Dataset):
            if y is not None:
                raise InputError("A Dataset yields (x, y): do not pass y as well.")
            self.table_ = None
            targets = read_target_arrays(X)
            self.one_output_ = targets.ndim == 1
            return np.empty((0, 0)), targets[:, None] if targets.ndim == 1 else targets
        if y is None:
            raise InputError("This ECRTRegressor estimator requires y to be passed, but the target y is None.")
        refuse_dates(y, "y")
        with input_errors():
            targets = check_array(
                y, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="y", estimator=self
            )
        too_large = np.abs(targets) > LARGEST
        if too_large.any():
            raise InputError(f"y holds a value beyond {LARGEST:g} in row {int(np.argwhere(too_large)[0, 0])}.")
        rows, _ = self._learn_rows(X, np.zeros(len(targets)))
        check_consistent_length(rows, targets)
        self.one_output_ = targets.ndim == 1
        return rows, targets[:, None] if targets.ndim == 1 else targets

    def _wanted_bins(self, n_rows: int, n_inputs: int) -> int:
        if self.n_bins is not None:
            return self.n_bins
        n_features = n_inputs if self._encoder.network == "identity" else self._encoder.n_features
        return int(max(min(max(2 * self._n_sources(n_features) + 1, 10), n_rows // 20), 2))

    def _rules(self) -> Iterator[Rule]:
        """Options that have an effect only with some others."""
        yield from super()._rules()
        none = {part.kind for part in self._parts("demixing")} == {"none"}
        yield "weighted", not none or self.weighted is False, "demixing other than 'none'"
        plain = any(not one.weighted for one in self._parts("demixing") if not isinstance(one, NoDemixing))
        yield "demixing", not plain or self.weighted is False, "weighted=False for signal_weights=False"

    def _demixings(self, n_rows: int, n_features: int) -> tuple[Demixing, ...]:
        """Ways of de-mixing to try: plain regression first, if nothing else is asked for."""
        flow = n_features <= FLOW_SOURCES and n_rows >= FLOW_ROWS
        return self._parts("demixing") or (NoDemixing(), Linear(), *([Flow()] if flow else []))

    def _heads(self, n_features: int) -> tuple[Head, ...]:
        """Heads to try, the simplest first."""
        few = self._n_sources(n_features) <= MLP_SOURCES
        return self._parts("head") or (LinearHead(), *([MLPHead()] if few else []))

    def _fitted_choices(self) -> dict[str, Any]:
        """Options that leave nothing to choose but how long a network is trained."""
        (member,) = self._settled()
        chosen = {"demixing": member.demixing, "augmentation": member.augmentation, "head": member.head}
        return chosen | {"region_mass": float(self.region_mass_), "weighted": bool(self.weighted_)}

    def refit(self, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        """Fit on other rows with the parts that the last fit chose, so that what was tested is what is then used.

        Options stay what they are.

        Parameters
        ----------
        X, y, sample_weight : as ``fit`` takes them; y is not used with a Dataset.
        """
        asked = self.get_params(deep=False)
        self.set_params(**self._fitted_choices())
        try:
            self.fit(X, None if isinstance(X, Dataset) else y, sample_weight)
        finally:
            self.set_params(**asked)
