"""What a rival is, a part with hooks into the usual fit of a head, and the scikit-learn classifier that fits it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context, clone
from torch import Tensor, nn
from torch.utils.data import Dataset

from ecrt.arrays import Array, Labels
from ecrt.data import ClassRoles
from ecrt.data.minority import minority_mask
from ecrt.errors import InputError
from ecrt.estimators.base import ClassProbabilities, Costs, EstimatorBase, Minority, Prior, Session, all_or_nothing
from ecrt.estimators.export import ServedModel
from ecrt.estimators.inputs import repeated_rows, weighted_rows
from ecrt.estimators.saved import CLASSES, DECIDED, DEMIXED, INPUT, check_classes, check_decision, declare, refuse
from ecrt.flows import Demixer, LinearDemixing, SharedPrior
from ecrt.io import attributes as saved
from ecrt.losses import LossName, LossRule
from ecrt.metrics import shift_prior
from ecrt.nn import BalancedHead
from ecrt.stages import (
    ENCODER,
    Augmentation,
    Encoder,
    EncodeResult,
    LinearHead,
    MLPHead,
    NoAugmentation,
    NoDemixing,
    Part,
    Role,
    Synthetic,
    demix,
    head_outputs,
    sources_of,
)
from ecrt.stages.blending import Attempt, transfer
from ecrt.stages.choosing import Draw
from ecrt.stages.heads import BatchRisk, HeadFitter, HeadLoss, NetworkHead, Target, plain_risk
from ecrt.stages.parts import Rule, changed_options, known_parts, refuse_idle
from ecrt.stages.scoring import Way
from ecrt.stages.targets import ClassTarget, temperature_of, without_prior
from ecrt.training import Progress


@dataclass(frozen=True)
class Number:
    """A number to tune between two bounds, whole if they are; on a logarithmic scale if ``log``.

    ``first`` is tried first; ``None`` for the default of the option.
    """

    low: float
    high: float
    first: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of a few plain values to tune; ``first`` is tried first, and ``None`` is the default of the option."""

    values: tuple[Any, ...]
    first: Any = None


Space = Mapping[str, Number | Choice]
"""What may be tuned, by the name of the option."""


class Rival(Part):
    """Somebody else's method for imbalanced classes.

    Features are scaled, and a head learns from them; held-out rows choose its setting. A subclass says what its method
    does differently, by overriding one or more hooks:

    - ``loss``: another loss.
    - ``risk``: what a step of training minimises, made from the loss.
    - ``synthetic``: rows that are learned from beside the real ones.
    - ``second_step``: what is made of the head once it is fitted.
    - ``fit_model`` and ``scores``: another model in place of a head.

    With an encoder that is trained, a rival acts on the features of rows that the encoder has not seen, or trains
    encoder and head together: see ``trains_encoder`` and the hooks after it. The fields of a rival are its options. The
    docstring says under "References" where the method comes from.
    """

    label: ClassVar[str]
    """Name for readers."""
    usual_loss: ClassVar[LossName] = "cross-entropy"
    """Loss that the method was published with; used if the rival has no ``loss`` and the head names none."""
    tuned: ClassVar[Space | None] = {}
    """Options that a comparison tunes; ``None`` leaves the method out of comparisons."""
    kept: ClassVar[bool] = True
    """Whether a fitted model can be saved: not where ``fit_model`` gives a model of another library."""

    # --- the head ---------------------------------------------------------------------------------------------------

    def loss(self) -> LossRule:
        """The loss for classes, in place of that of the head."""
        raise NotImplementedError

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """What a step minimises, made anew for each run; ``counts_m`` says how often classes count in the loss."""
        return plain_risk(loss)

    recordable: ClassVar[bool] = False
    """Whether a step under that risk asks nothing of the host, neither how far training is nor a random number."""

    def second_step(self, first: HeadFitter, target: ClassTarget, head: NetworkHead) -> HeadFitter:
        """What fits the head, made from what fits it usually."""
        return first

    # --- rows -------------------------------------------------------------------------------------------------------

    def synthetic(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> tuple[Array, Labels]:
        """Synthetic rows and their classes, made from scaled features; every row then has the same weight."""
        raise NotImplementedError

    def draw_from(
        self, z: Array, y: Labels, train_rows: Labels, held_out_rows: Labels, roles: ClassRoles, session: Session
    ) -> Draw:
        """How synthetic rows are made, from the rows of each fit alone; by ``synthetic``, unless it is overridden."""

        def rows_of(s: Array, labels: Labels) -> Synthetic:
            return Synthetic(*self.synthetic(s, labels, roles, session), same_weight=True)

        return Draw(lambda part, learn: lambda rows: rows_of(part.learned[rows], y[rows]))

    @property
    def synthetic_mass(self) -> Augmentation:
        """Says which share of a class's mass its synthetic rows hold, where not every row has the same weight."""
        return NoAugmentation()

    def transform(self, z: Tensor, nonnegative: Tensor) -> Tensor:
        """Features before they are scaled; ``nonnegative`` are the columns that were never negative in the fit."""
        return z

    # --- an encoder -------------------------------------------------------------------------------------------------

    @property
    def trains_encoder(self) -> bool:
        """Whether encoder and head are trained together; by default, where the rival is a loss."""
        return self.overrides("loss")

    def encoder(self, config: Encoder) -> Encoder:
        """How the encoder is trained together with its head."""
        return clone(config).set_params(loss=self.loss()) if self.overrides("loss") else config

    def oversample(
        self, items: Dataset[Any], labels: Labels, rng: np.random.Generator
    ) -> Callable[[Labels], tuple[Dataset[Any], Labels]] | None:
        """From rows that the encoder may learn from to all items with synthetic ones after them, and their classes."""
        return None

    def adapt(self, head: BalancedHead, encoded: EncodeResult, labels: Labels) -> nn.Module:
        """What is made of the head that was trained with the encoder."""
        return head

    learns_from_encoded_rows: ClassVar[bool] = False
    """Whether a rival that does not train the encoder learns from rows that the encoder has seen, too."""

    refits_last_layer: ClassVar[bool] = False
    """Whether its second step fits the last layer anew, with a loss of its own: all of a linear head."""

    # --- another model ----------------------------------------------------------------------------------------------

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> Any:
        """A fitted model in place of a head, from scaled features and class indices, which all occur.

        It may be a network that gives balanced scores: such a model can be saved, and needs no ``scores``.
        """
        raise NotImplementedError

    def scores(self, model: Any, s: Array, counts: Labels) -> Array:
        """Log-probabilities of that model for equally frequent classes.

        By default, what its decision function gives, without the class frequencies that ``counts`` of its fit tell.
        """
        scores = np.asarray(model.decision_function(s), dtype=np.float64)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return shift_prior(scores, counts, np.ones(len(counts)))

    scale_free: ClassVar[bool] = False
    """Whether the scale of features means nothing to the model."""

    # --- what is made of all this -----------------------------------------------------------------------------------

    def overrides(self, hook: str) -> bool:
        """Whether the rival overrides a hook."""
        return getattr(type(self), hook) is not getattr(Rival, hook)

    @property
    def draws(self) -> bool:
        """Whether there are synthetic rows."""
        return self.overrides("synthetic") or self.overrides("draw_from")

    def head(self, head: NetworkHead) -> NetworkHead:
        """A head as this method trains it."""
        changed: dict[str, Any] = {}
        if self.overrides("loss"):
            changed["loss"] = self.loss()
        elif head.loss == "auto":
            changed["loss"] = self.usual_loss
        if self.overrides("synthetic"):  # every class has as many rows as the synthetic ones make of it
            changed["class_mass"] = "balanced"
        kind = LinearRivalHead if isinstance(head, LinearHead) else MLPRivalHead
        return kind(**{**head.get_params(deep=False), **changed, "rival": self})

    @classmethod
    def reference(cls) -> str:
        """Where the method comes from: "References" of its docstring, or of the rival that it extends, or a line."""
        for kind in cls.__mro__[: cls.__mro__.index(Rival)]:
            _, _, references = (inspect.getdoc(kind) or "").partition("References\n----------\n")
            if references:
                return " ".join(references.partition("\n\n")[0].split())
        return (inspect.getdoc(cls) or "").partition("\n")[0]


class RivalHead(NetworkHead):
    """A head that is trained as a rival says.

    Parameters
    ----------
    rival : the rival.
    loss, loss_options, class_mass, mixup, weight_decay, epochs, learning_rate
        As in ``LinearHead``.
    """

    rival: Rival = field(default_factory=Rival)

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """What a step minimises."""
        return self.rival.risk(loss, counts_m)

    @property
    def plain(self) -> bool:
        """Whether the risk is the loss itself."""
        return not self.rival.overrides("risk")

    @property
    def recordable(self) -> bool:
        """Whether a step asks nothing of the host."""
        return self.plain or self.rival.recordable

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """What fits the head, and takes the second step."""
        first = super().fitter(target, rng, progress)
        if not self.rival.overrides("second_step"):
            return first
        if not isinstance(target, ClassTarget):
            raise InputError(f"{type(self.rival).__name__} is for rows with one class each.")
        return self.rival.second_step(first, target, self)


class LinearRivalHead(RivalHead, LinearHead):
    """A linear head that is trained as a rival says."""


class MLPRivalHead(RivalHead, MLPHead):
    """A head with hidden layers that is trained as a rival says."""


def known_rivals() -> dict[str, type[Rival]]:
    """All rivals by their short names: those of this room, and those of the user that have been imported."""
    return cast(dict[str, type[Rival]], known_parts(Rival))


ROWS_COUNT_EQUALLY = ("risk", "synthetic", "draw_from", "second_step", "fit_model")
"""Hooks that know nothing of weights of rows."""

METHOD, HEAD = Role((), open_to=Rival), Role((LinearHead, MLPHead))
"""What the parameters ``method`` and ``head`` of ``BaselineClassifier`` take."""


# --- the classifier --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True, eq=False, repr=False)  # writes __init__, and nothing else
class BaselineClassifier(ClassProbabilities, EstimatorBase):
    """Other people's methods for imbalanced classes, on the same encoders, heads, training and priors as ECRT.

    Features are scaled and a head learns from them, with its weight decay or its epochs chosen on held-out rows, where
    every class has the same weight. With an encoder that is trained, methods that are losses, ``"mixup"``, ``"smote"``,
    ``"post-hoc"`` and ``"tau-norm"`` train it together with a linear head; the others act on its features, of rows that
    it has not seen.

    Parameters
    ----------
    method : str or Rival, default="erm"
        A loss (``"erm"``, ``"hinge"``, ``"weighted"``, ``"class-balanced"``, ``"focal"``, ``"ldam"``, ``"ldam-drw"``,
        ``"logit-adjusted"``); another risk in training (``"mixup"``, ``"remix"``, ``"vat"``, ``"isda"``); synthetic
        rows (``"smote"``, ``"feature-smote"``, ``"distribution-calibration"``, ``"cgan"``, ``"flow-augmentation"``); a
        second step (``"crt"``, ``"tau-norm"``, ``"post-hoc"``); or a model (``"lda"``, ``"qda"``,
        ``"gradient-boosting"``, ``"balanced-forest"``). Parts of ``ecrt.rivals`` have the options of the methods, such
        as ``LDAM(largest_margin=1.0)``; ``docs/rivals.md`` describes them. A rival of your own is a subclass of
        ``ecrt.rivals.Rival``.
    scaling : {"columns", "one"}, default="columns"
        Features are divided each by its own spread, or all by one: principal components and other embeddings, whose
        small columns are mostly noise, are better left in proportion. A trained encoder's head reads them as they are.
    head : {"linear", "mlp"}, LinearHead or MLPHead, default="linear"
        Network on the features. Where its loss is ``"auto"``, that is the loss which the method was published with.
    minority : "auto", "all", int, labels or callable, default="auto"
        Who is minority, for distribution calibration and augmentation by the flow.
    class_prior : {"balanced", "training"} or array, default="balanced"
        Prior that predictions assume. The scores of every method are stored for equally frequent classes, and the log
        prior is added. ``"erm"`` under ``"balanced"`` is post-hoc logit adjustment: for plain ERM ask for
        ``"training"``.
    costs : array, data frame, mapping or None, default=None
        As in ``ECRTClassifier``; methods without a head of ours keep the plain rule.
    encoder : {"identity", "mlp", "resnet18", "autoencoder"}, nn.Module or Encoder, default="identity"
        As in ``ECRTClassifier``. With ``holdout=0``, methods that train it with a head see all rows for all epochs.
    validation_fraction, checkpoint, device, verbose, random_state
        As in ``ECRTClassifier``.

    Attributes
    ----------
    classes_, class_counts_, table_, encoder_ : as in ``ECRTClassifier``.
    minority_classes_ : labels called minority.
    end_to_end_ : whether the head was trained with the encoder.
    demixer_ : scales features; it leaves them as they are where ``end_to_end_``.
    nonnegative_ : columns of the features that were never negative.
    head_, model_ : what predicts: a network, which ``save`` can keep, or a model of another library (QDA), which it
        cannot.
    model_counts_ : rows of each class that such a model was fitted on.
    history_ : what was tried on held-out rows, and the losses of a trained encoder.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(300, n_classes=3, n_informative=6, weights=[.6, .3, .1], random_state=0)
    >>> BaselineClassifier(method="logit-adjusted", random_state=0).fit(X, y).predict_proba(X).shape
    (300, 3)
    """

    _roles: ClassVar[dict[str, Role]] = {"encoder": ENCODER, "method": METHOD, "head": HEAD}
    method: str | Rival = "erm"
    scaling: Literal["columns", "one"] = "columns"
    head: str | LinearHead | MLPHead = "linear"
    minority: Minority = "auto"
    class_prior: Prior = "balanced"
    costs: Costs = None

    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(
        self, X: ArrayLike | Dataset[Any], y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> BaselineClassifier:
        """Learn from X and y, which may be all that ``ECRTClassifier`` takes, with one label for each row.

        ``sample_weight`` says how often each row occurs, as in ``ECRTClassifier``; methods that are more than a loss,
        and encoders that are trained, take whole numbers.
        """
        self._check_parts(self._rules())
        found = weighted_rows(X, y, sample_weight)
        if self._encoder.trains or any(self.rival.overrides(hook) for hook in ROWS_COUNT_EQUALLY):
            found = repeated_rows(found, f"method={self.rival!r}, or an encoder that is trained,")
        X, y, weight, _ = found
        items, labels = self._read_classes(X, y)
        counts = self._class_counts(labels, weight)
        everyone = np.ones(len(counts), dtype=bool)
        minority = minority_mask(counts, self.classes_, self.minority)
        roles = ClassRoles(
            counts=counts, minority=minority, augmented=minority, encoded_on=everyone, demixed_on=everyone
        )
        self._keep_counts(counts, multilabel=False)
        self.minority_classes_ = self.classes_[minority]
        self.model_: Any = None
        self.head_: Any = None
        self.history_: dict[str, Any] = {}
        self.end_to_end_ = self._end_to_end
        with self._session() as session:
            if self.end_to_end_:
                self._train_encoder(items, labels, roles, session)
                self._decide(None, labels)
                return self
            rival, encoded = self.rival, self._encode(items, labels, roles, session)
            self.history_ |= {"encoder": encoded.history}
            if len(encoded.unseen) == 0 and not rival.learns_from_encoded_rows:
                raise InputError(f"holdout=0 leaves no row for {rival!r} to learn from: set holdout above 0.")
            rows = np.arange(len(labels)) if rival.learns_from_encoded_rows else encoded.learn_rows
            self.nonnegative_: NDArray[np.bool_] = np.all(encoded.features[rows] >= 0, axis=0)
            z = self._prepared(encoded.features[rows])
            if rival.overrides("fit_model"):
                self._fit_model(z, labels[rows], roles, session)
                trial = None
            else:
                mine = None if weight is None else weight[rows]
                trial = self._fit_head(z, labels[rows], encoded.fresh[rows], roles, session, mine)
        self._decide(trial if weight is None else None, labels[rows])
        return self

    @property
    def rival(self) -> Rival:
        """The method as a part."""
        return self._parts("method")[0]

    @property
    def network(self) -> NetworkHead:
        """The head as the rival trains it."""
        return self.rival.head(self._parts("head")[0])

    @property
    def _end_to_end(self) -> bool:
        """Whether there is an encoder to train and the method trains it with its own head."""
        return self.rival.trains_encoder and self._encoder.supervised

    def _check_parts(self, rules: Iterable[Rule] = ()) -> None:
        """Raise an error if an option has no effect, or a value that is not allowed or is the choice of the method."""
        rival, head = self.rival, self._parts("head")[0]
        name = type(rival).__name__
        self._encoder.check()
        rival.check()
        if rival.overrides("loss"):
            if {"loss", "loss_options"} & changed_options(head):
                raise InputError(f"{name} is a loss itself: leave the loss of the head out, or choose another method.")
            if self._end_to_end and {"loss", "loss_options"} & changed_options(self._encoder):
                raise InputError(f"{name} is a loss itself: leave the loss of the encoder out.")
        if self._encoder.learn_from == "majority":
            raise InputError("Encoder: rivals learn from all classes. Leave learn_from='majority' out.")
        if head.mixup > 0:
            raise InputError("Mixup is a method here: use method=Mixup(alpha=...), and leave mixup of the head out.")
        if rival.overrides("synthetic") and head.class_mass != "training":
            raise InputError(f"{name} makes all classes equally large: leave class_mass of the head out.")
        refuse_idle(self, rules)
        if not (rival.overrides("fit_model") or self._end_to_end):
            self.network.check()
            _ = self.network.class_loss

    def _rules(self) -> Iterator[Rule]:
        """Options that have an effect only with some others."""
        rival, end = self.rival, self._end_to_end
        own_head = not rival.overrides("fit_model") and not end
        yield "head", own_head, "a method with a head, and no trained encoder"
        heads = self._parts("head") if own_head and rival.refits_last_layer else ()
        lost = any(isinstance(one, LinearHead) and changed_options(one) & {"loss", "loss_options"} for one in heads)
        yield "head", not lost, "an MLP head for its loss: of a linear head all is fitted anew, with a loss of its own"
        yield "validation_fraction", own_head, "a method that fits a head"
        scaled = not (end or rival.scale_free)
        yield "scaling", scaled, "a method that depends on it: neither trees nor an encoder's own head do"

    def _train_encoder(self, items: Dataset[Any], labels: Labels, roles: ClassRoles, session: Session) -> None:
        """Train encoder and linear head together."""
        rival = self.rival
        config = rival.encoder(self._encoder)
        oversample = rival.oversample(items, labels, session.rng)
        encoded = self._encode(items, labels, roles, session, config, oversample=oversample)
        self.head_ = rival.adapt(_balanced_head(encoded, labels, config), encoded, labels)
        n_features = encoded.features.shape[1]
        self.demixer_ = Demixer(LinearDemixing.identity(n_features), SharedPrior()).eval()
        self.nonnegative_ = np.zeros(n_features, dtype=bool)
        self.history_ |= {"encoder": encoded.history}

    def _fit_model(self, z: Array, y: Labels, roles: ClassRoles, session: Session) -> None:
        rows = np.arange(len(y))
        standard = demix(
            z, y, train_rows=rows, held_out_rows=rows[:0], demixed_on=roles.demixed_on,
            config=NoDemixing(scaling=self.scaling), **vars(session),
        )  # fmt: skip
        self.demixer_ = standard.demixer
        seed = int(session.rng.integers(2**31))
        model = self.rival.fit_model(standard.learned, y, session.rng, seed)
        if isinstance(model, nn.Module):
            self.head_ = model.eval()
            return
        self.model_ = model
        self.model_counts_ = np.bincount(y, minlength=len(roles.counts))

    def _fit_head(
        self, z: Array, y: Labels, fresh: NDArray[np.bool_], roles: ClassRoles, session: Session, weight: Array | None
    ) -> Callable[[], tuple[Array, Labels]] | None:
        """Fit the head; what it gives of held-out rows, where there are any."""
        rival = self.rival
        result = transfer(
            z, y, roles=roles, validation=self.validation_fraction, fresh=fresh, weight=weight,
            attempts=[Attempt(NoDemixing(scaling=self.scaling), [self.network], rival.synthetic_mass)],
            draw_from=partial(rival.draw_from, roles=roles, session=session) if rival.draws else None, **vars(session),
        )  # fmt: skip
        (member,), choice = result.members, result.choice
        self.demixer_, self.head_ = member.demixer, member.network
        # Where the encoder has learned from every row, as it may for cRT, none is left to judge the head.
        judged = {"head_candidates": choice.candidates, "held_out": choice.held_out}
        self.history_ |= {"head_setting": choice.setting, **(judged if fresh.any() else {})}
        return result.trial if fresh.any() else None

    def _prepared(self, z: Array) -> Array:
        """Features as the method takes them, before they are scaled."""
        if not self.rival.overrides("transform"):
            return z
        return _Prepare(self.rival, self.nonnegative_)(torch.tensor(z)).numpy()

    def _served(self) -> ServedModel:
        if self.model_ is not None:
            raise InputError(
                f"{type(self.rival).__name__} is a model of another library, {type(self.model_).__name__}, in the "
                "attribute model_: skl2onnx exports such models."
            )
        served = ServedModel(
            self.encoder_, [Way(self.demixer_, np.ones(self.demixer_.linear.n_signal), self.head_)], self._outcome()
        )
        if self.rival.overrides("transform"):
            served.encoder = nn.Sequential(served.encoder, _Prepare(self.rival, self.nonnegative_))
        return served

    def _scores(self, X: Any) -> Array:
        """Balanced scores plus log class prior."""
        features = self._prepared(self._features(X))  # first of all: it refuses a model that is not fitted
        inputs = sources_of(self.demixer_, features)
        if self.model_ is None:
            return head_outputs(self.head_, inputs) + self.log_class_prior_
        return self.rival.scores(self.model_, inputs, self.model_counts_) + self.log_class_prior_


class _Prepare(nn.Module):
    """What a rival does to features before they are scaled."""

    def __init__(self, rival: Rival, nonnegative: NDArray[np.bool_]) -> None:
        super().__init__()
        self.transform, self.nonnegative = rival.transform, nn.Buffer(torch.tensor(nonnegative))

    def forward(self, z_nd: Tensor) -> Tensor:
        return self.transform(z_nd.double(), self.nonnegative)


def _balanced_head(encoded: EncodeResult, labels: Labels, config: Encoder) -> BalancedHead:
    """The encoder's head; of an improper loss at the temperature of rows that the encoder has not looked at."""
    head: Any = encoded.head
    head = head.double().cpu().eval()
    if not encoded.fresh.any() or config.class_loss.proper:
        return head
    prior_m = config.class_loss.prior(torch.from_numpy(encoded.head_counts))
    z, y = torch.from_numpy(encoded.features[encoded.fresh]), labels[encoded.fresh]
    tempered = without_prior(head.head, prior_m, temperature_of(head.head, prior_m, z, y))
    return tempered if isinstance(tempered, BalancedHead) else BalancedHead(tempered, torch.zeros_like(head.log_mass_m))


def _check_saved(clf: BaselineClassifier) -> None:
    refuse("A rival takes one label for each row.", when=clf.multilabel_)
    check_classes(clf)
    _ = clf.log_class_prior_
    check_decision(clf)


SAVED = {
    **CLASSES,
    **DECIDED,
    **INPUT,
    **DEMIXED,
    "head_": saved.HeadNetwork("classes"),
    "model_": saved.Value(None),
    "multilabel_": saved.Value(bool),
    "end_to_end_": saved.Value(bool),
    "nonnegative_": saved.Array("features", bool),
}
declare(BaselineClassifier, SAVED, _check_saved)
