"""Every rival behind one scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from torch.utils.data import Dataset

from ecrt.augmentation.resampling import tukey_power
from ecrt.data import ClassRoles, MinorityRule
from ecrt.data.minority import minority_mask
from ecrt.errors import InputError
from ecrt.estimators.base import COMMON_CONSTRAINTS, EstimatorBase, PriorMixin, Session, all_or_nothing
from ecrt.estimators.baseline_encoding import end_to_end, features_to_learn_from, is_end_to_end
from ecrt.estimators.baseline_methods import BASELINE_METHODS, resolve_options
from ecrt.estimators.baseline_models import balanced_scores, fit_model
from ecrt.estimators.classifier import MINORITY_CONSTRAINT
from ecrt.estimators.inputs import targets_to_score
from ecrt.losses import LOSS_OPTIONS, LossName
from ecrt.stages import (
    Augmentation,
    NoAugmentation,
    NoDemixing,
    Parametric,
    demix,
    head_outputs,
    sources_of,
    transfer,
)
from ecrt.stages.parts import Rule, changed_options
from ecrt.stages.rivals import LinearRival, MLPRival, make_drawing

__all__ = ["BaselineClassifier"]

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class BaselineClassifier(ClassifierMixin, PriorMixin, EstimatorBase):
    """Other people's methods for imbalanced classes, on the same encoders, heads, training and priors as ECRT.

    Features are scaled and a head learns from them, with its weight decay or its epochs chosen on held-out rows
    where every class counts alike. With an encoder that is trained, methods that are losses, mixup and the second
    steps train it end to end; the others act on its features, of rows that it has not seen.

    Parameters
    ----------
    method : str, default="erm"
        A loss (``"erm"``, ``"hinge"``, ``"weighted"``, ``"class-balanced"``, ``"focal"``, ``"ldam"``, ``"ldam-drw"``,
        ``"logit-adjusted"``); a risk (``"mixup"``, ``"remix"``, ``"vat"``, ``"isda"``);
        synthetic rows (``"smote"``, ``"feature-smote"``, ``"distribution-calibration"``, ``"cgan"``,
        ``"flow-augmentation"``); a second step (``"crt"``, ``"tau-norm"``, ``"post-hoc"``); or a model (``"lda"``,
        ``"qda"``, ``"gradient-boosting"``, ``"balanced-forest"``). ``docs/rivals.md`` describes them.
    method_options : dict or None, default=None
        Options of the method, ``BASELINE_METHODS[method].options``; of a model, also those of its class.
    loss : str or None, default=None
        Loss of a method that is none itself; ``None`` for the one it was published with.
    loss_options : dict or None, default=None
        Options of the loss, ``ecrt.losses.LOSS_OPTIONS[loss]``.
    scaling : {"columns", "one"}, default="columns"
        Features are divided each by its own spread, or all by one: principal components and other embeddings, whose
        small columns are mostly noise, are better left in proportion. A trained encoder's head reads them as they are.
    head : {"linear", "mlp"}, default="linear"
        Network on the features.
    head_hidden : sequence of int or None, default=None
        Hidden layers of the MLP; ``None`` for one of 256 units.
    head_dropout : float or None, default=None
        In the MLP; ``None`` for 0.1.
    weight_decay : float or None, default=None
        Of a linear head on its mean loss, chosen on held-out rows if ``None``; of AdamW where a head is trained by
        steps (an MLP, and every head under a risk), 0.01 if ``None``.
    minority : "auto", "all", int, labels or callable, default="auto"
        Who is minority, for distribution calibration and augmentation by the flow.
    class_prior : {"balanced", "training"} or array, default="balanced"
        Prior that predictions assume. The scores of every method are stored with all classes alike, and the log prior
        is added. ``"erm"`` under ``"balanced"`` is post-hoc logit adjustment: for plain ERM ask for ``"training"``.
    epochs : int, default=100
        Passes over the data at most, of a head that is trained by steps.
    learning_rate : float, default=2e-3
        Of such a head: an MLP takes four times as much, a linear head forty times.
    encoder : {"identity", "mlp", "resnet18", "autoencoder"}, nn.Module or Encoder, default="identity"
        As in ``ECRTClassifier``; its loss and mixup are the method's. With ``holdout=0``, methods that train end to end
        see all rows for all epochs.
    validation_fraction, device, verbose, random_state
        As in ``ECRTClassifier``.

    Attributes
    ----------
    classes_, class_counts_, table_, encoder_ : as in ``ECRTClassifier``.
    minority_classes_ : labels called minority.
    end_to_end_ : whether the head was trained with the encoder.
    demixer_ : scales features; it leaves them as they are where ``end_to_end_``.
    head_, model_ : what predicts: a network, which ``save`` can keep, or a model of another library, which it cannot.
    history_ : what was tried on held-out rows, and the losses of a trained encoder.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(300, n_classes=3, n_informative=6, weights=[.6, .3, .1], random_state=0)
    >>> BaselineClassifier(method="logit-adjusted", random_state=0).fit(X, y).predict_proba(X).shape
    (300, 3)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "minority": MINORITY_CONSTRAINT,
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "method": [StrOptions(set(BASELINE_METHODS))],
        "method_options": [None, dict],
        "loss": [None, StrOptions(set(LOSS_OPTIONS))],
        "loss_options": [None, dict],
        "scaling": [StrOptions({"columns", "one"})],
        "head": [StrOptions({"linear", "mlp"})],
        "head_hidden": [None, "array-like"],
        "head_dropout": [None, Interval(Real, 0, 1, closed="left")],
        "weight_decay": [None, Interval(Real, 0, None, closed="left")],
        "class_prior": [StrOptions({"balanced", "training"}), "array-like"],
    }

    method: str = "erm"
    method_options: dict[str, Any] | None = None
    loss: LossName | None = None
    loss_options: dict[str, float] | None = None
    scaling: Literal["columns", "one"] = "columns"
    head: Literal["linear", "mlp"] = "linear"
    head_hidden: Sequence[int] | None = None
    head_dropout: float | None = None
    weight_decay: float | None = None
    epochs: int = 100
    learning_rate: float = 2e-3
    minority: MinorityRule = "auto"
    class_prior: str | ArrayLike = "balanced"

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None) -> BaselineClassifier:
        """Learn from X and y, which may be all that ``ECRTClassifier`` takes, with one label a row."""
        method, loss, loss_options, options = resolve_options(
            self.method, self.loss, self.loss_options, self.method_options
        )
        self._check_parts(self._rules())
        items, labels = self._read_classes(X, y)
        counts = np.bincount(labels, minlength=len(self.classes_))
        everyone = np.ones(len(counts), dtype=bool)
        minority = minority_mask(counts, self.classes_, self.minority)
        roles = ClassRoles(
            counts=counts, minority=minority, augmented=minority, encoded_on=everyone, demixed_on=everyone
        )
        self.multilabel_, self.class_counts_, self.minority_classes_ = False, counts, self.classes_[minority]
        self.model_: Any = None
        self.head_: Any = None
        self.history_: dict[str, Any] = {}
        with self._session() as session:
            self.end_to_end_ = end_to_end(self, items, labels, roles, session, loss, loss_options, options)
            if self.end_to_end_:
                return self
            z, y_rows, fresh = features_to_learn_from(self, items, labels, roles, session)
            self._powered = (z >= 0).all(axis=0)
            z = self._power(z, options)
            if method.kind == "model":
                self._fit_model(z, y_rows, roles, options, session)
            else:
                self._fit_head(z, y_rows, fresh, roles, loss, loss_options, options, session)
        return self

    def _rules(self) -> Iterator[Rule]:
        """Options that have an effect only with some others."""
        method, encoder = BASELINE_METHODS[self.method], self._encoder
        if {"loss", "loss_options", "mixup", "mixup_off"} & changed_options(encoder):
            raise InputError("Encoder: its loss and mixup are the method's here. Use method, loss and method_options.")
        end = is_end_to_end(self)
        own_head = method.kind != "model" and not end
        by_steps = self.head == "mlp" or method.kind == "risk" or (self.loss or method.loss) == "hinge"
        yield "head", own_head, "a method that is no model of its own, and no trained encoder"
        yield "weight_decay validation_fraction", own_head, "a method that fits a head"
        yield "head_hidden head_dropout", own_head and self.head == "mlp", "head='mlp'"
        yield "learning_rate", own_head and by_steps, "head='mlp', or a method that trains a linear head by steps"
        tree = self.method in ("gradient-boosting", "balanced-forest")
        yield "scaling", not (end or tree), "a method that depends on it: neither trees nor an encoder's own head do"

    def _fit_model(self, z: Array, y: Labels, roles: ClassRoles, options: dict[str, Any], session: Session) -> None:
        rows = np.arange(len(y))
        standard = demix(
            z, y, train_rows=rows, held_out_rows=rows[:0], demixed_on=roles.demixed_on,
            config=NoDemixing(scaling=self.scaling), **vars(session),
        )  # fmt: skip
        self.demixer_ = standard.demixer
        self.model_ = fit_model(self.method, standard.learned, y, options, session.rng)
        self._model_counts = np.bincount(y, minlength=len(roles.counts))

    def _fit_head(
        self, z: Array, y: Labels, fresh: NDArray[np.bool_], roles: ClassRoles, loss: LossName,
        loss_options: dict[str, float], options: dict[str, Any], session: Session,
    ) -> None:  # fmt: skip
        method, name = BASELINE_METHODS[self.method], cast(Any, self.method)
        augmentation: Augmentation = NoAugmentation()
        drawing: Any = None
        risk: dict[str, Any] = {}
        if method.kind == "risk":
            risk = {"risk_name": name, "risk_options": options}
        elif method.kind == "second step":
            risk = {"second_step": name, "tau": options.get("tau", 1.0)}
        elif method.kind == "draw":
            name = name.removeprefix("feature-")
            drawing = make_drawing(name, roles, options, **vars(session))
            if name == "flow-augmentation":
                augmentation = Parametric(weight=options["weight"])
            else:
                risk = {"class_mass": "balanced"}  # every class has as many rows as the largest
        shared: dict[str, Any] = {
            "loss": loss, "loss_options": loss_options, "weight_decay": self.weight_decay, "epochs": self.epochs
        }  # fmt: skip
        head: LinearRival | MLPRival
        if self.head == "linear":
            head = LinearRival(learning_rate=40 * self.learning_rate, **shared, **risk)
        else:
            head = MLPRival(
                learning_rate=4 * self.learning_rate,
                hidden=self.head_hidden,
                dropout=self.head_dropout,
                **shared,
                **risk,
            )
        result = transfer(
            z, y, roles=roles, candidates=[NoDemixing(scaling=self.scaling)], heads=[head], augmentation=augmentation,
            validation=self.validation_fraction, drawing=drawing, fresh=fresh, **vars(session),
        )  # fmt: skip
        self.demixer_, self.head_ = result.demixed.demixer, result.head
        # Where the encoder has learned from every row, as it may for cRT, none is left to judge the head.
        judged = {"head_candidates": result.choice.candidates, "held_out": result.choice.held_out}
        self.history_ |= {"head_setting": result.choice.setting, **(judged if fresh.any() else {})}

    def decision_function(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Balanced scores plus log class prior; for two classes, that of the second less that of the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_log_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Log-probabilities under ``class_prior``."""
        return np.asarray(log_softmax(self._scores(X), axis=1))

    def predict_proba(self, X: ArrayLike | Dataset[Any]) -> Array:
        """Probabilities under ``class_prior``, one column for each of ``classes_``."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike | Dataset[Any]) -> NDArray[Any]:
        """The most probable label under ``class_prior``."""
        best = self._scores(X).argmax(axis=1)
        return self.classes_[best]

    def score(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Accuracy; a Dataset has y in its items."""
        return float(super().score(X, targets_to_score(X, y, one_label=True), sample_weight))

    def _power(self, z: Array, options: dict[str, Any]) -> Array:
        """Features less skewed, for distribution calibration; others as they are."""
        if self.method != "distribution-calibration":
            return z
        return np.where(self._powered, tukey_power(np.maximum(z, 0.0), options["power"]), z)

    def _scores(self, X: Any) -> Array:
        """Balanced scores plus log class prior."""
        features = self._features(X)
        _, _, _, options = resolve_options(self.method, self.loss, self.loss_options, self.method_options)
        features = self._power(features, options)
        inputs = sources_of(self.demixer_, features)
        if self.model_ is not None:
            scores = balanced_scores(self.method, self.model_, inputs, self._model_counts)
        else:
            scores = head_outputs(self.head_, inputs)
        return scores + self.log_class_prior_
