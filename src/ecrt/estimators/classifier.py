"""ECRT as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.base import ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import Tags, TransformerTags
from sklearn.utils.validation import check_is_fitted
from torch.utils.data import Dataset

from ecrt.data import ClassRoles, MinorityRule, assign_roles
from ecrt.errors import InputError, warn_user
from ecrt.estimators.base import ECRTBase, all_or_nothing
from ecrt.estimators.effects import refuse_borrowing, refuse_idle
from ecrt.estimators.examples import draw_samples, keep_examples
from ecrt.estimators.inputs import targets_to_score
from ecrt.estimators.multilabel import fit_labels, has_several_labels, predict_labels
from ecrt.estimators.new_classes import add_classes
from ecrt.estimators.options import CLASSIFIER_CONSTRAINTS, demix_configs, head_config, log_class_prior
from ecrt.estimators.parts import in_parts
from ecrt.estimators.selected_fit import fit_selected
from ecrt.losses import LossName
from ecrt.stages import EncodeResult, TransferResult, transfer
from ecrt.stages.scoring import predict_outputs

__all__ = ["ECRTClassifier"]

Array = NDArray[np.float64]


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class ECRTClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, ECRTBase):
    """Classifier for imbalanced data by energy-based causal representation transfer.

    One invertible mechanism is supposed to generate the features of every class. It is learned where data abound (the
    majority classes) and undone; in the space of independent sources the rare classes are augmented, and a classifier
    with balanced logits is trained there.

    Parameters
    ----------
    encoder : {"identity", "mlp", "resnet18", "autoencoder"} or nn.Module, default="identity"
        z = e(x). The default suits tables and embeddings. A module is copied before it is trained.
    train_encoder : bool, default=True
        Whether an encoder with parameters is trained here, or used as it is.
    encode_on, demix_on : {"majority", "all"}, default="majority"
        Classes that encoder and de-mixing learn from.
    encoder_loss : str, default="cross-entropy"
        Loss of a supervised encoder: any of ``ecrt.losses.LOSS_OPTIONS``, ``"weighted"`` for importance weighting.
    encoder_options : dict or None, default=None
        More on its training: ``crop_padding`` and ``flip`` of images, ``precision``, ``head`` ("linear" or "cosine"),
        ``loss_options``, ``mixup_off`` (share of the last epochs without mixup), ``optimizer`` ("adamw" or "sgd"),
        ``learning_rate``, ``weight_decay``, ``momentum``, ``gradient_norm``, ``patience``.
    mixup : float, default=0
        Parameter of the Beta distribution that samples are mixed by, 0 for no mixup: inputs of an encoder that is
        trained, or else sources, for a head that is then trained by steps.
    encoder_holdout : float, default=0.2
        Share of rows that a trained encoder does not see, for de-mixing and head to learn from.
    encoder_epochs : int, default=60
        Passes over the data at most.
    n_features : int, default=32
        Features that a named, trained encoder gives.
    demixing : {"auto", "none", "linear", "flow"}, default="auto"
        ``"none"`` only standardises, for comparison; ``"linear"`` whitens within classes; ``"flow"`` trains a masked
        autoregressive flow on top; ``"auto"`` tries the last two (the flow on up to 64 sources and at least 500 rows)
        and keeps the flow only if it lowers the held-out loss beyond noise.
    n_sources : int or None, default=None
        Signal sources; ``None`` for as many as features.
    rotation : {"symmetric", "discriminant", "joint"}, default="symmetric"
        What settles the axes that linear de-mixing leaves open: closeness to the features, differences of class means,
        or covariances of all classes as diagonal as can be.
    objective : {"fdv", "gcl", "infonce"}, default="fdv"
        Contrastive loss of the flow.
    label_marginal : {"auto", "exact", "batch"}, default="auto"
        Negative labels from the batch, or all labels with their frequencies; ``"auto"`` is exact up to 1,024 classes
        and, beyond, for a row's own label.
    critic : {"additive", "cosine", "gaussian", "label-network"}, default="additive"
        How labels and sources are compared; ``"gaussian"`` is the additive one, started at the classes' Gaussians.
    critic_width : int or None, default=None
        Units of the critic's hidden layers; ``None`` for 64 on up to 8 sources and 32 on more.
    likelihood_weight : float, default=1.0
        Weight of the flow's log-likelihood per dimension.
    source_prior : {"per-class", "shared"}, default="per-class"
        Gaussian prior of the sources, for each class (MP) or for all (1P).
    n_restarts : int or None, default=None
        Flows trained, with other starts and other orders of the features; held-out contrastive loss chooses. ``None``
        for two on up to 8 sources, where the order decides what one block can undo, and one on more.
    flow_blocks : int or sequence of int, default=1
        Autoregressive blocks of the flow (the paper's has 4). With several numbers restarts take them in turn, and the
        fewest blocks that are as good as the best but for noise are kept.
    flow_hidden : sequence of int, default=(128, 128)
        Hidden layers of every block.
    minority : "auto", "all", int, labels or callable, default="auto"
        Who is minority: fewer samples than half the median of the classes that hold a uniform share; every class;
        fewer samples than a number; the labels given; or what a function from counts to a mask says.
    augmentation : {"parametric", "permutation", "borrowed"}, default="parametric"
        Synthetic sources from a Gaussian, by shuffling coordinates within the class, or around the class's mean with
        residuals of the majority classes.
    augmentation_weight : float, default=0.5
        Share of a minority class's weight that goes to its synthetic samples; 0 for no augmentation.
    n_synthetic : int or None, default=None
        Synthetic samples of each minority class; ``None`` makes half as many as rows in all, but no class larger than
        the largest.
    pseudo_samples : float, default=10
        How many samples the common variance counts for in the variance of a class.
    precision : {"float64", "float32"}, default="float64"
        Of predictions and of ``transform``; training does not depend on it, and it may be set after ``fit``. In
        float32 they are quicker and half as large, and differ by about 1e-5.
    mean_shrinkage : float, default=0
        How far the mean that synthetic sources are drawn around is drawn towards that of all classes: 0 not at all, 1
        as far as its error and the spread of class means warrant. Not used with several labels a row.
    head : {"auto", "linear", "mlp", "gaussian"} or sequence of these, default="auto"
        Classifier on the sources; with several, simplest first, a later one must lower the held-out loss beyond noise.
    class_mass : {"training", "tempered", "balanced"}, default="training"
        Weight of classes in the head's loss: as frequent as in training, alike, or the geometric mean of both. With
        several labels a row, ``"balanced"`` weighs rows as if a label were drawn first and then a row that has it.
    head_loss : str, default="logit-adjusted"
        Loss of a linear or MLP head: any of ``ecrt.losses.LOSS_OPTIONS``; classes count in it as ``class_mass`` says,
        and what prior it leaves in the scores is taken off. With several labels a row, ``"logit-adjusted"``,
        ``"cross-entropy"``, ``"focal"`` or ``"ldam"``.
    head_loss_options : dict or None, default=None
        Options of that loss, such as ``{"tau": 1.5}``.
    head_hidden : sequence of int or None, default=None
        Hidden layers of an MLP head; ``None`` for one of 256 units, or of 1,024 with several labels on many rows.
    head_dropout : float or None, default=None
        Dropout of an MLP head; ``None`` for 0.1, or 0.5 with several labels on many rows.
    weight_decay : float or None, default=None
        Of the linear head, on the mean loss, where ``None`` chooses on held-out rows; of an MLP head, that of AdamW,
        where ``None`` is 0.01.
    class_prior : {"balanced", "training"} or array, default="balanced"
        Prior that ``predict_proba``, ``decision_function`` and ``predict`` assume. With several labels a row: the
        frequency of each label, between 0 and 1; ``"balanced"`` is what it would be if a label were drawn first, all
        alike, and then a row that has it (labels that accompany others stay more frequent).
    thresholds : {"half", "validation"}, default="half"
        With several labels a row, a label is predicted from a probability of one half on, or from where its F1 is
        highest on held-out rows (labels with fewer than two such rows keep one half).
    selection : {"pseudo-minority"} or None, default=None
        Choose options before the fit: some majority classes are cut down to minority size, and what each choice does to
        their hidden samples is measured. Options that were set to other than their defaults are left alone. Where no
        transfer beats plain logit adjustment beyond noise, plain logit adjustment is what is fitted, with a warning.
        With too few classes for this, repeated cross-validation decides.
    selection_trials : int or None, default=None
        Fits that the choice may take; the same seed then gives the same choice on every machine.
    selection_budget : float, default=180
        Seconds that it may take otherwise.
    validation_fraction : float, default=0.2
        Share of each class held out to stop, choose and compare.
    epochs, batch_size, learning_rate
        Of the flow; the encoder shares the batch size, an MLP head the epochs at four times the learning rate. Training
        stops when the held-out loss has not improved for 15 epochs. ``epochs`` and ``encoder_epochs`` are limits and
        may be given where nothing is trained by steps; any other option that would have no effect is refused.
    device : str, default="auto"
        Where networks are trained: ``"cpu"``, ``"cuda"``, or a GPU if there is one.
    verbose : bool, default=False
        Show progress bars.
    random_state : int, RandomState or None, default=None
        The same seed gives the same result, bit by bit, whatever else runs at the same time and however many threads
        there are; of images on the CPU, which use them all, up to rounding. A fit draws from generators of its own and
        leaves those of numpy and torch alone, also with a module of your own that draws from torch.

    Attributes
    ----------
    classes_ : labels.
    multilabel_ : whether a row may have several.
    table_ : how columns are read, ``None`` for images and Datasets.
    class_counts_ : samples of each class.
    minority_classes_, demixed_on_ : labels called minority; labels that de-mixing learned from.
    encoder_, demixer_, head_ : the fitted modules.
    demixing_, head_name_ : what ``"auto"`` chose.
    signal_weight_ : share of signal in each source.
    history_ : losses of every trained part, restarts and candidates.
    diagnostics_ : independence of sources in each class, round-trip error, likelihood, the theorem's conditions.
    theory_met_ : whether those conditions hold.
    selection_ : with ``selection``, what was tried and chosen, and a sentence that says so.
    label_log_odds_ : with several labels a row, log-odds of their frequencies, in training and balanced.
    thresholds_ : likewise, with ``thresholds="validation"``, the balanced logit from which each label is predicted.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(600, n_classes=4, n_informative=6, weights=[.4, .3, .25, .05], random_state=0)
    >>> clf = ECRTClassifier(demixing="linear", random_state=0).fit(X, y)
    >>> clf.predict_proba(X).shape
    (600, 4)
    >>> clf.minority_classes_.tolist()
    [3]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CLASSIFIER_CONSTRAINTS

    minority: MinorityRule = "auto"
    augmentation: Literal["parametric", "permutation", "borrowed"] = "parametric"
    augmentation_weight: float = 0.5
    n_synthetic: int | None = None
    mean_shrinkage: float = 0.0
    head: str | Sequence[str] = "auto"
    class_mass: Literal["training", "tempered", "balanced"] = "training"
    head_loss: LossName = "logit-adjusted"
    head_loss_options: dict[str, float] | None = None
    head_hidden: Sequence[int] | None = None
    head_dropout: float | None = None
    weight_decay: float | None = None
    class_prior: str | ArrayLike = "balanced"
    thresholds: Literal["half", "validation"] = "half"
    selection: Literal["pseudo-minority"] | None = None
    selection_trials: int | None = None
    selection_budget: float = 180.0

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None) -> ECRTClassifier:
        """Learn encoder, de-mixing and head.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features), images (n_samples, channels, height,
            width) for an encoder that takes them, or a torch Dataset of (x, y). A table may hold categories, dates and
            missing values; ``table_`` says how each column was read.
        y : labels; not given with a Dataset. Where a row may have several labels: an indicator of zeros and ones, dense
            or sparse, one column for each label (of a data frame, its column names are ``classes_``).
        """
        several = has_several_labels(X, y)
        refuse_idle(self, several)
        if several:
            if self.selection is not None:
                raise InputError("selection chooses for one label a row: with several use selection=None.")
            fit_labels(self, X, y)
            return self
        if self.selection is not None:
            fit_selected(self, X, y)
            return self
        items, labels = self._read_classes(X, y)
        counts = np.bincount(labels, minlength=len(self.classes_))
        roles = assign_roles(
            counts, self.classes_, minority=self.minority, encode_on=self.encode_on, demix_on=self.demix_on
        )
        refuse_borrowing(self, counts[~roles.augmented])
        with self._session() as session:
            encoded = self._encode(items, labels, roles, session)
            rows = encoded.learn_rows
            z, y_rows = encoded.features[rows], labels[rows]
            result = transfer(
                z, y_rows, roles=roles, candidates=demix_configs(self, *z.shape), validation=self.validation_fraction,
                head_config=head_config(self, *z.shape), fresh=encoded.fresh[rows], **vars(session),
            )  # fmt: skip
        self.multilabel_ = False
        self._take(encoded, result, counts, roles)
        keep_examples(self, z, y_rows, roles.demixed_on, session.rng)
        return self

    def _take(
        self, encoded: EncodeResult, result: TransferResult, counts: NDArray[np.int64], roles: ClassRoles
    ) -> None:
        """Keep what the stages found."""
        self.class_counts_ = counts
        self.minority_classes_ = self.classes_[roles.minority]
        self.demixed_on_ = self.classes_[roles.demixed_on & (counts > 0)]
        self.demixing_, self.demixer_ = result.method, result.demixed.demixer
        self.head_name_, self.head_ = result.choice.name, result.head
        self.signal_weight_ = result.demixed.signal_weight
        self.head_scale_ = result.demixed.head_scale
        self.within_variance_ = result.demixed.within_variance
        self.history_: dict[str, Any] = {
            "encoder": encoded.history,
            "restarts": result.demixed.restarts,
            "head_candidates": result.choice.candidates,
            "head_setting": result.choice.setting,
            "head_temperature": result.choice.temperature,
            "demixing_held_out": result.held_out,
        }

    @in_parts
    def transform(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Signal sources of X, unscaled."""
        return self._sources(X)

    @in_parts
    def decision_function(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Balanced logits plus log class prior; for two classes, that of the second less that of the first.

        With several labels a row, log-odds of each.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 and not self.multilabel_ else scores

    @in_parts
    def predict_log_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Log-probabilities under ``class_prior``."""
        if self._several_labels():
            return np.asarray(log_expit(self._scores(X)))
        return np.asarray(log_softmax(self._scores(X), axis=1))

    @in_parts
    def predict_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Probabilities under ``class_prior``, one column for each of ``classes_``.

        With several labels a row they need not sum to one.
        """
        to_probabilities = torch.sigmoid if self._several_labels() else partial(torch.softmax, dim=1)
        return np.asarray(to_probabilities(torch.from_numpy(self._scores(X))))

    @in_parts
    def predict(self, X: ArrayLike | Dataset[Any]) -> NDArray[Any]:
        """The most probable label under ``class_prior``; with several labels a row, an indicator of those predicted."""
        if self._several_labels():
            return predict_labels(self, X)
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def score(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy; labels that were not in training count as wrong, with a warning.

        With several labels a row, the share of rows with all labels right. A Dataset has y in its items.
        """
        check_is_fitted(self)
        y = targets_to_score(X, y, one_label=not self.multilabel_)
        if self.multilabel_:
            return float(super().score(X, y, sample_weight))
        unknown = np.setdiff1d(np.asarray(y), self.classes_)
        if len(unknown):
            warn_user(f"Labels that were not in training count as wrong: {unknown.tolist()}.")
        return float(super().score(X, y, sample_weight))

    def sample(
        self,
        n_per_class: int,
        classes: Iterable[Any] | None = None,
        space: Literal["source", "feature"] = "source",
        random_state: int | np.random.RandomState | None = None,
    ) -> tuple[Array, NDArray[Any]]:
        """Draw synthetic samples by the fitted ``augmentation``.

        Parameters
        ----------
        n_per_class : samples of each class.
        classes : labels to draw; ``None`` for all.
        space : ``"source"``, or ``"feature"`` to invert the de-mixing (with the identity encoder, the space of X).
        random_state : seed of the draw.
        """
        check_is_fitted(self)
        return draw_samples(self, n_per_class, classes, space, random_state)

    @all_or_nothing
    def add_classes(self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None) -> ECRTClassifier:
        """Learn new classes, from one sample each on, with encoder and de-mixing as they are.

        The head is fitted anew, under the setting that ``fit`` chose, on sources kept of the known classes and on those
        of the new ones, which are minority.

        Parameters
        ----------
        X, y : rows of new classes alone and their labels, or a Dataset of both.
        """
        add_classes(self, X, y)
        return self

    def _chosen(self, option: str) -> Any:
        """An option as the fit had it: as selected, or else as given."""
        return getattr(self, "selection_", {"options": {}})["options"].get(option, getattr(self, option))

    def _several_labels(self) -> bool:
        check_is_fitted(self)
        return bool(self.multilabel_)

    def _scores(self, X: Any) -> Array:
        """Balanced logits plus log class prior."""
        features = self._features(X)
        scores = predict_outputs(self.demixer_, self.head_scale_, self.head_, features, self._dtype)
        scores += log_class_prior(self).astype(scores.dtype)
        if self.multilabel_:
            never = self.class_counts_ == 0
            scores[:, never] = self.label_log_odds_[0, never]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        heads = np.ravel(np.asarray(self.head, dtype=object)).tolist()
        tags.classifier_tags.multi_label = "gaussian" not in heads and self.selection is None
        tags.transformer_tags = TransformerTags(preserves_dtype=[self.precision])
        return tags
