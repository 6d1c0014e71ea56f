"""What a rival is: a part with hooks into the usual fit of a head. Hooks that are not overridden change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn
from torch.utils.data import Dataset

from ecrt.data import ClassRoles
from ecrt.errors import InputError
from ecrt.estimators.base import Session
from ecrt.losses import LossName, LossRule
from ecrt.metrics import shift_prior
from ecrt.nn import BalancedHead
from ecrt.stages import Augmentation, Encoder, EncodeResult, LinearHead, MLPHead, NoAugmentation, Part, Role, Synthetic
from ecrt.stages.choosing import Draw
from ecrt.stages.heads import BatchRisk, HeadFitter, HeadLoss, NetworkHead, Target, plain_risk
from ecrt.stages.parts import known_parts
from ecrt.stages.targets import ClassTarget
from ecrt.training import Progress

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


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

    def transform(self, z: Array, nonnegative: NDArray[np.bool_]) -> Array:
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

    # --- another model ----------------------------------------------------------------------------------------------

    def fit_model(self, s: Array, y: Labels, rng: np.random.Generator, seed: int) -> Any:
        """A fitted model in place of a head, from scaled features and class indices, which all occur."""
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


METHOD = Role((), open_to=Rival)
"""What the parameter ``method`` of ``BaselineClassifier`` takes."""
