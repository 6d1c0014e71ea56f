"""ECRT as a scikit-learn regressor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags, TransformerTags, check_array, check_consistent_length, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from ecrt.augmentation.donors import draw_from_donors
from ecrt.data import indicator_of
from ecrt.data.density import TargetRegions, quantile_bins, target_roles
from ecrt.data.tables import LARGEST
from ecrt.diagnostics import SourceRows, diagnose_sources
from ecrt.errors import InputError
from ecrt.estimators.base import ECRTBase, all_or_nothing
from ecrt.estimators.effects import refuse_idle
from ecrt.estimators.inputs import array_items, item_of, labelled_items, read_target_arrays, targets_to_score
from ecrt.estimators.options import BASE_CONSTRAINTS, MLP_SOURCES, demix_configs, whole_numbers
from ecrt.estimators.parts import in_parts
from ecrt.stages import DemixConfig
from ecrt.stages.regress import RegressConfig, regress
from ecrt.stages.scoring import predict_outputs
from ecrt.training import TrainingConfig

__all__ = ["ECRTRegressor"]

Array = NDArray[np.float64]

MOST_EXAMPLES = 5000
"""Sources kept to sample from and to measure independence on."""

FEW_ROWS = 8192
"""Up to this many rows the MLP head learns in small batches: it needs the steps."""

REGRESSOR_CONSTRAINTS: dict[str, list[Any]] = BASE_CONSTRAINTS | {
    "loss": [StrOptions({"squared", "absolute", "huber"})],
    "huber_delta": [Interval(Real, 0, None, closed="neither")],
    "n_bins": [None, Interval(Integral, 1, None, closed="left")],
    "head": [StrOptions({"auto", "linear", "mlp"}), "array-like"],
    "head_hidden": ["array-like"],
    "region_mass": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="both")],
    "weighted": [StrOptions({"auto"}), "boolean"],
    "augmentation": [StrOptions({"auto", "none", "interpolated", "donors"})],
    "augmentation_weight": [Interval(Real, 0, 1, closed="both")],
    "n_synthetic": [None, Interval(Integral, 1, 10**7, closed="both")],
    "n_donors": [Interval(Integral, 1, None, closed="left")],
    "weight_decay": [None, Interval(Real, 0, None, closed="left")],
}


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTRegressor(ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin, ECRTBase):
    """Regressor for targets with rare values, by energy-based causal representation transfer.

    Quantile bins of y take the place of classes: the mechanism is learned where targets are dense and undone. Where
    they are sparse, synthetic sources are drawn, between or from rows with targets nearby. A head is trained on both;
    every step must lower the error on held-out rows, rare and others counted alike, or a plain regression is left.

    Parameters
    ----------
    loss : {"squared", "absolute", "huber"}, default="squared"
        What training minimises, and choices are made by.
    huber_delta : float, default=1.0
        Where Huber's loss turns linear, in standard deviations of y.
    n_bins : int or None, default=None
        Quantile bins of y for the contrast; ``None`` for 2 n_sources + 1, between 10 and a bin for every 20 rows.
    demixing : {"auto", "none", "linear", "flow"}, default="auto"
        As in :class:`ECRTClassifier`, but ``"auto"`` tries ``"none"`` first.
    encode_on, demix_on : {"majority", "all"}, default="all"
        Bins that encoder and de-mixing learn from. Rare targets lie beyond the others, where a mechanism that never saw
        them has to extrapolate: hence all.
    head : {"auto", "linear", "mlp"} or sequence of these, default="auto"
        Candidates, the simplest first; ``"auto"`` tries both, the MLP on up to 128 sources.
    head_hidden : sequence of int, default=(128, 128)
        Hidden layers of the MLP head.
    region_mass : "auto" or float, default="auto"
        Power a: a region of n rows has mass n^(1 - a) in the loss. 0 leaves regions as frequent as they are, 1 makes
        them alike; ``"auto"`` tries 0 and 0.25.
    weighted : "auto" or bool, default="auto"
        Whether sources are weighed by their signal before the head; ``"auto"`` tries both ways.
    augmentation : {"auto", "none", "interpolated", "donors"}, default="auto"
        ``"interpolated"``: as many rows as there are between neighbours in source space, and for each row with a rare
        target six more, between rare neighbours and moved along the sources' local slopes. ``"donors"``: every source
        from a donor of its own (the supplement's way, for sources that are independent given y). ``"auto"`` tries
        none and interpolated.
    augmentation_weight : float, default=0.5
        Share of the mass of rare regions that goes to samples from donors; that mass stays what it is.
    n_synthetic : int or None, default=None
        Samples from donors; ``None`` for half as many as rows.
    n_donors : int, default=20
        The kernel that weighs donors has half the distance to this many nearest targets as its bandwidth.
    weight_decay : float or None, default=None
        Of the linear head; ``None`` chooses on held-out rows.
    encoder, n_sources, epochs, random_state, ...
        As in :class:`ECRTClassifier`, with bins as classes; a trained encoder learns to tell the bins apart.

    Attributes
    ----------
    regions_ : equal-width regions of the target, with the training rows of each and which of them are rare.
    bin_counts_ : rows of each quantile bin.
    table_ : how columns are read, ``None`` for images.
    encoder_, demixer_, head_ : the fitted modules.
    demixing_, weighted_, head_name_, region_mass_, augmentation_ : what was chosen; ``weighted_`` says whether
        the head's input is weighted by signal.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = REGRESSOR_CONSTRAINTS

    encode_on: Literal["majority", "all"] = "all"
    demix_on: Literal["majority", "all"] = "all"
    loss: Literal["squared", "absolute", "huber"] = "squared"
    huber_delta: float = 1.0
    n_bins: int | None = None
    head: str | Sequence[str] = "auto"
    head_hidden: Sequence[int] = (128, 128)
    region_mass: str | float = "auto"
    weighted: Literal["auto"] | bool = "auto"
    augmentation: Literal["auto", "none", "interpolated", "donors"] = "auto"
    augmentation_weight: float = 0.5
    n_synthetic: int | None = None
    n_donors: int = 20
    weight_decay: float | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.transformer_tags = TransformerTags(preserves_dtype=[self.precision])
        return tags

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None) -> ECRTRegressor:
        """Learn encoder, de-mixing and head.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), or images for an encoder that takes
            them, or a torch Dataset of (x, y). A table may hold categories, dates and missing values.
        y : whole or real numbers, (n_samples,) or (n_samples, n_outputs); not given with a Dataset.
        """
        refuse_idle(self)
        inputs, targets = self._read_targets(X, y)
        regions = TargetRegions.learn(targets)
        n_inputs = torch.as_tensor(item_of(X, 0)[0]).numel() if isinstance(X, Dataset) else inputs.shape[1]
        bins = quantile_bins(regions.position(targets), self._wanted_bins(len(targets), n_inputs))
        items = labelled_items(X, bins) if isinstance(X, Dataset) else array_items(inputs, bins)
        rare = regions.is_rare(targets)
        roles = target_roles(bins, rare, encode_on=self.encode_on, demix_on=self.demix_on)
        with self._session() as session:
            encoded = self._encode(items, bins, roles, session, indicator_of(bins, rare))
            rows = encoded.learn_rows
            z = encoded.features[rows]
            result = regress(
                z, targets[rows], bins=bins[rows], regions=regions, roles=roles, candidates=self._candidates(z),
                config=self._config(z), validation=self.validation_fraction, fresh=encoded.fresh[rows], **vars(session),
            )  # fmt: skip
            self.regions_, self.bin_counts_ = regions, roles.counts
            self.minority_bins_, self.demixed_on_ = np.flatnonzero(roles.minority), np.flatnonzero(roles.demixed_on)
            self.demixing_, self.demixer_ = result.plan.demixing, result.demixed.demixer
            self.head_name_, self.head_ = result.plan.head, result.head
            self.region_mass_, self.augmentation_ = result.plan.region_mass, result.plan.augmentation
            self.weighted_ = result.plan.weighted
            self.signal_weight_ = result.demixed.signal_weight
            self.head_scale_ = result.head_scale
            self.within_variance_ = result.demixed.within_variance
            self.history_ = {
                "encoder": encoded.history,
                "restarts": result.demixed.restarts,
                "candidates": result.held_out,
                "chosen": str(result.plan),
                "head_setting": result.setting,
            }
            keep = np.sort(session.rng.permutation(len(z))[:MOST_EXAMPLES])
        kept = SourceRows.of(self.demixer_, z[keep], bins[rows][keep])
        self._examples = kept.s, targets[rows][keep]
        all_bins = np.arange(len(roles.counts))
        self._diagnosis = partial(diagnose_sources, self.demixer_, kept, all_bins, roles.demixed_on)
        return self

    @in_parts
    def predict(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Targets in the units of y, shaped as in ``fit``."""
        features = self._features(X)
        outputs = predict_outputs(self.demixer_, self.head_scale_, self.head_, features, self._dtype)
        predicted = self.regions_.restore(outputs.astype(np.float64))
        return predicted[:, 0] if self.one_output_ else predicted

    def score(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Coefficient of determination; a Dataset has y in its items."""
        return float(super().score(X, targets_to_score(X, y, one_label=False), sample_weight))

    @in_parts
    def transform(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Signal sources of X, unscaled."""
        return self._sources(X)

    def sample(
        self,
        n_per_target: int,
        y: ArrayLike,
        space: Literal["source", "feature"] = "source",
        random_state: int | np.random.RandomState | None = None,
    ) -> tuple[Array, Array]:
        """Draw synthetic samples at given targets.

        Parameters
        ----------
        n_per_target : samples of each target.
        y : targets, shaped as in ``fit``.
        space : ``"source"``, or ``"feature"`` to invert the de-mixing (with the identity encoder, the space of X).
        random_state : seed of the draw.
        """
        check_is_fitted(self)
        wanted = np.asarray(y, dtype=np.float64)
        columns = wanted.reshape(len(wanted), -1)
        if columns.shape[1] != len(self.regions_.center) or not np.isfinite(columns).all():
            raise InputError(f"y must hold finite numbers, {len(self.regions_.center)} for each target.")
        repeated = np.repeat(columns, n_per_target, axis=0)
        s, known = self._examples
        rng = np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        standard = self.regions_.standardise
        drawn = draw_from_donors(s, standard(known), standard(repeated), self.n_donors, rng)
        values = drawn if space == "source" else self.demixer_.inverse(torch.from_numpy(drawn)).detach().numpy()
        return values, repeated[:, 0] if self.one_output_ else repeated

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
        try:
            targets = check_array(
                y, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="y", estimator=self
            )
        except ValueError as error:
            raise InputError(str(error)) from error
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
        n_features = n_inputs if self.encoder == "identity" else self.n_features
        n_sources = n_features if self.n_sources is None else min(self.n_sources, n_features)
        return int(max(min(max(2 * n_sources + 1, 10), n_rows // 20), 2))

    def _candidates(self, z: Array) -> list[DemixConfig]:
        configs = demix_configs(self, *z.shape)
        return [DemixConfig(method="none", source_prior=self.source_prior), *configs] if (
            self.demixing == "auto"
        ) else configs  # fmt: skip

    def _config(self, z: Array) -> RegressConfig:
        n_sources = z.shape[1] if self.n_sources is None else min(self.n_sources, z.shape[1])
        few = len(z) <= FEW_ROWS
        heads: Any = self.head
        if isinstance(heads, str):
            heads = ("linear", "mlp")[: 2 if n_sources <= MLP_SOURCES else 1] if heads == "auto" else (heads,)
        mass = self.region_mass
        return RegressConfig(
            loss=self.loss,
            delta=self.huber_delta,
            heads=tuple(heads),
            weight_decay=self.weight_decay,
            hidden=whole_numbers("head_hidden", self.head_hidden),
            region_mass=(0.0, 0.25) if isinstance(mass, str) else (float(mass),),
            weighings=(False, True) if isinstance(self.weighted, str) else (bool(self.weighted),),
            augmentations=("none", "interpolated") if self.augmentation == "auto" else (self.augmentation,),
            augmentation_weight=self.augmentation_weight,
            n_synthetic=self.n_synthetic,
            n_donors=self.n_donors,
            training=TrainingConfig(
                epochs=self.epochs,
                batch_size=128 if few else 256,
                learning_rate=2 * self.learning_rate,
                weight_decay=1e-2,
                # Held-out loss over few rows is noisy while steps are long: no epoch is the last before they are short.
                patience=self.epochs if few else 15,
            ),
        )
