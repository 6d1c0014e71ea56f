"""Stage 4: the head h(s), for classes, labels and numbers; how each kind is fitted, with the settings worth trying."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Protocol, cast

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch import Tensor, nn

from ecrt.arrays import Array
from ecrt.checkpoints import Tally
from ecrt.distributed import end_step, in_two, many_classes, mine, own_rows, share_out, summed
from ecrt.errors import InputError
from ecrt.losses import (
    LOSS_OPTIONS,
    REGRESSION_LOSS_OPTIONS,
    ClassMass,
    LossRule,
    class_logits,
    cross_entropy_slopes,
    loss_rule,
    mix,
    mixed_loss,
)
from ecrt.machine import ask, in_parts, smaller
from ecrt.nn import CELLS_AT_ONCE, ClassGaussians, SharedOutMLP, SideBySide, Trees, make_head
from ecrt.randomness import Dropout, generator_on, own_draws_only
from ecrt.stages.parts import (
    BatchSize,
    Count,
    MixupAlpha,
    NonNegative,
    Part,
    Positive,
    Role,
    Rule,
    ShareBelowOne,
    Sizes,
    whole_numbers,
)
from ecrt.training import (
    IndexBatches,
    Progress,
    TrainingConfig,
    minimise_convex,
    newton_softmax,
    torch_generator,
    train,
)

threshold_backward = torch.ops.aten.threshold_backward.grad_input

Watch = Callable[[nn.Module], float]
"""Gives the held-out loss of a head that is offered to it."""

WEIGHT_DECAYS = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
PSEUDO_SAMPLES = (1e6, 100.0, 20.0, 5.0, 1.0)
FEWEST_STEPS = 20
"""Boosting is tried with so many steps at least, and with twice as many up to the most that are allowed."""

PRECISE, ON_TRIAL = 1e-7, 1e-4
"""How small gradients of a linear head are made where it is solved exactly, and where a weight decay is only tried."""

NEWTON_WORK = 10**7
"""Up to this many rows times squared numbers of a linear head, Newton's method is quicker than L-BFGS."""

MANY_CLASSES = 500
"""With more outputs every second weight decay is tried."""

MANY_OUTPUTS = 2**21
"""With more rows times outputs a weight decay is tried with fewer steps: the one before it has led near."""

SHORT_PATIENCE = 10
"""Epochs without a better held-out loss after which several networks stop: the loss of their mean is steadier."""

NODE_COLUMNS = {
    "num_threshold": np.float64, "feature_idx": np.int64, "left": np.int64, "right": np.int64, "value": np.float64,
    "is_leaf": np.bool_,
}  # fmt: skip
"""What is kept of scikit-learn's nodes."""

COPIES = 24
"""Of the weights of a linear head: they, their gradient, the best so far, and the twenty vectors of L-BFGS."""

ROWS_AT_ONCE = 8192
SCORES_AT_ONCE = 2**26
"""On a GPU rows go together up to this many outputs, 256 MiB: every block there costs launches, and a wait."""

MANY_ROWS = 8192
"""Up to this many rows a network learns in small batches: it needs the steps."""

LOSSES = StrOptions({"auto", *LOSS_OPTIONS, *REGRESSION_LOSS_OPTIONS})

HeadLoss = Callable[..., Tensor]
"""What a head gives, targets and the share of training that lies behind, to one loss for each row."""


@dataclass(frozen=True)
class HeadSample:
    """Rows that a head learns from: scaled sources, targets, weights that sum to one, and what is synthetic.

    Targets are class indices, codes of all labels where a row may have several, or standardised numbers. ``variance``
    and ``between``, for Gaussian heads: of the scaled sources within classes, and of class means. ``draw`` makes other
    synthetic sources for rows of the sample, for heads that are trained by steps; ``None`` where they stay as they are.
    ``times`` says how often each real row occurs, ``None`` for once.
    """

    s: Tensor
    y: Tensor
    weight: Tensor
    synthetic: Tensor
    variance: Tensor | None = None
    between: Tensor | None = None
    draw: Callable[[Tensor], Tensor] | None = None
    times: Tensor | None = None

    def inputs(self, rows: Tensor) -> Tensor:
        """Scaled sources of rows, the synthetic ones drawn anew."""
        s, synthetic = self.s[rows], self.synthetic[rows]
        if self.draw is None:
            return s
        if s.is_cuda:  # to know how many they are would be to wait for the device
            return torch.where(synthetic[:, None], self.draw(rows), s)
        places = synthetic.nonzero()[:, 0]
        s[places] = self.draw(rows[places])
        return s


BatchRisk = Callable[[nn.Module, HeadSample, Tensor, float], Tensor]
"""What a step of training minimises: from a head, a sample, rows of it and the share of training that lies behind to
one value for each of the rows, its weight included."""


def plain_risk(loss: HeadLoss) -> BatchRisk:
    """The loss times the weight of the row."""

    def risk(head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        rows = mine(rows)
        return loss(head(sample.inputs(rows)), sample.y[rows], done) * sample.weight[rows]

    return risk


def mixup_risk(
    loss: HeadLoss,
    alpha: float,
    off: float = 0.0,
    share_of_label: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda share, y, partner: share,
) -> BatchRisk:
    """Mixup on the input of the head, each row with its own share.

    Parameters
    ----------
    alpha : parameter of the Beta distribution of the shares.
    off : share of the training, at its end, without mixup.
    share_of_label : from the share of the input and the labels of both rows, the share of the first label.
    """

    def risk(head: nn.Module, sample: HeadSample, rows: Tensor, done: float) -> Tensor:
        s, y, weight = sample.inputs(rows), sample.y[rows], sample.weight[rows]
        if done >= 1 - off:
            s, y, weight = map(mine, (s, y, weight))
            return loss(head(s), y, done) * weight
        alphas = torch.full_like(weight, alpha)
        share = torch._sample_dirichlet(torch.stack([alphas, alphas], dim=-1), generator_on(alphas.device))[..., 0]
        partner = torch.randperm(len(rows), generator=generator_on(torch.device("cpu"))).to(rows.device)
        label_share = share_of_label(share, y, y[partner])
        mixed, y, other, label_share = map(mine, (mix(s, s[partner], share), y, y[partner], label_share))
        first, second = mixed_loss(loss, head(mixed), y, other, label_share, done)
        return first * mine(weight) + second * mine(weight[partner])

    return risk


def each_network(loss: HeadLoss) -> HeadLoss:
    """The loss of networks side by side: the mean of what each has, for each row."""

    def mean(outputs_gnm: Tensor, y_n: Tensor, *rest: float) -> Tensor:
        n_networks = len(outputs_gnm)
        y = y_n.repeat(n_networks, *(1 for _ in y_n.shape[1:]))
        return loss(outputs_gnm.flatten(0, 1), y, *rest).unflatten(0, (n_networks, -1)).mean(0)

    return mean


@dataclass(frozen=True, kw_only=True)
class Networks:
    """How a head that is trained by steps is made for a target where its options are ``None``.

    Attributes
    ----------
    hidden, dropout, learning_rate, batch_size : of an MLP; a linear head takes ten times the learning rate and smaller
        batches, because it starts at zero and has far to go.
    patience : epochs without a better held-out loss after which training stops; ``None`` for all epochs.
    networks : among which the hidden units are divided.
    """

    hidden: tuple[int, ...] = (256,)
    dropout: float = 0.1
    learning_rate: float = 8e-3
    batch_size: int = 256
    patience: int | None = 15
    networks: int = 1


class Target:
    """What heads are to predict: classes, labels or numbers."""

    one_class: ClassVar[bool] = False
    """Whether a row has one class."""

    @property
    def n_outputs(self) -> int:
        """Columns of what a head gives."""
        raise NotImplementedError

    @property
    def networks(self) -> Networks:
        """How heads that are trained by steps are made."""
        raise NotImplementedError

    def loss_of(self, head: NetworkHead) -> HeadLoss:
        """The loss that a head is trained by, on the device; a loss that means nothing here is refused."""
        raise NotImplementedError

    def shift_of(self, head: NetworkHead) -> Tensor | None:
        """What is added to logits if the loss of a head is the cross-entropy of these sums; ``None`` if it is not."""
        return None

    def linear_fitter(self, head: LinearHead) -> LinearFitter:
        """What fits a linear head at once: Newton's method or L-BFGS, for logistic regression."""
        decays = WEIGHT_DECAYS if head.weight_decay is None else (head.weight_decay,)
        return LinearFitter(self.n_outputs, self.loss_of(head), decays, shift_m=self.shift_of(head))

    def counts_of(self, head: Head) -> Tensor:
        """How often classes count in the loss, on the device; empty where there are none."""
        return torch.empty(0)


class Head(Part):
    """A head on the sources."""

    @property
    def class_mass(self) -> ClassMass:
        """Weight of classes in the loss."""
        return "training"

    @property
    def class_loss(self) -> LossRule:
        """The loss where a row has one class."""
        raise InputError(f"{type(self).__name__} has no loss.")

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """What fits the head to such a target."""
        raise NotImplementedError


def loss_for(loss: str | LossRule, auto: str, known: Iterable[str], who: str) -> str:
    """The name of a loss; one that is not among those known is refused."""
    name = auto if loss == "auto" else loss
    if isinstance(name, LossRule) or name not in known:
        raise InputError(f"{who} with one of the losses {sorted(known)}, not {name!r}.")
    return name


class NetworkHead(Head):
    """What linear and MLP heads have in common; ``LinearHead`` describes the options."""

    loss: Annotated[str, LOSSES] | LossRule = "auto"
    loss_options: dict[str, float] | None = None
    class_mass: ClassMass = "training"
    mixup: MixupAlpha = 0.0
    weight_decay: NonNegative | None = None
    epochs: Count = 100
    learning_rate: Positive | None = None

    @property
    def class_loss(self) -> LossRule:
        """The loss where a row has one class."""
        if isinstance(self.loss, LossRule):
            return loss_rule(self.loss, self.loss_options)
        return loss_rule(self.loss_name("logit-adjusted", LOSS_OPTIONS, "Classes"), self.loss_options)

    def loss_name(self, auto: str, known: Iterable[str], what: str) -> str:
        """The loss by name; one that means nothing for such a target is refused."""
        return loss_for(self.loss, auto, known, f"{what} are predicted by a head")

    def risk(self, loss: HeadLoss, counts_m: Tensor) -> BatchRisk:
        """What a step minimises, made anew for each run; ``counts_m`` says how often classes count."""
        return mixup_risk(loss, self.mixup) if self.mixup > 0 else plain_risk(loss)

    @property
    def plain(self) -> bool:
        """Whether the risk is the loss itself, which a linear head can be fitted to at once."""
        return self.mixup == 0

    @property
    def recordable(self) -> bool:
        """Whether a step asks nothing of the host, neither how far training is nor a random number."""
        return self.plain

    def fitter_by_steps(
        self, target: Target, networks: Networks, rng: np.random.Generator, progress: Progress | None
    ) -> HeadFitter:
        """What trains such a network."""
        if self.mixup > 0 and not target.one_class:
            raise InputError(f"{type(self).__name__}: mixup is for rows with one class each; leave it out here.")
        training = TrainingConfig(
            epochs=self.epochs,
            batch_size=networks.batch_size,
            learning_rate=self.learning_rate or networks.learning_rate,
            weight_decay=1e-2 if self.weight_decay is None else self.weight_decay,
            patience=networks.patience or self.epochs,
        )
        changes = target.one_class and self.class_loss.changes
        loss = target.loss_of(self)
        return MLPFitter(
            target.n_outputs,
            partial(self.risk, each_network(loss) if networks.networks > 1 else loss, target.counts_of(self)),
            networks.hidden, networks.dropout, training, torch_generator(rng), progress, all_epochs=changes,
            recordable=target.one_class and self.recordable and not changes,
            shift_m=target.shift_of(self) if self.plain else None, networks=networks.networks,
        )  # fmt: skip


class LinearHead(NetworkHead):
    """A linear head.

    Parameters
    ----------
    loss : str or LossRule, default="auto"
        ``"auto"`` is logit adjustment for classes and labels, and the squared loss for numbers. Classes: any of
        ``ecrt.losses.LOSS_OPTIONS``, or a rule of your own; they count in it as ``class_mass`` says, and what prior it
        leaves in the scores is taken off. Labels: ``"logit-adjusted"``, ``"cross-entropy"``, ``"focal"`` or
        ``"ldam"``. Numbers: ``"squared"``, ``"absolute"`` or ``"huber"``.
    loss_options : dict or None, default=None
        Options of that loss, such as ``{"tau": 1.5}`` of logit adjustment, or ``{"delta": 1.0}``: where Huber's loss
        turns linear, in standard deviations of the target.
    class_mass : {"training", "tempered", "balanced"}, default="training"
        Weight of classes in the loss: as frequent as in training, all equal, or the geometric mean of both. Where a row
        may have several labels, ``"balanced"`` weighs rows as if a label were drawn first and then a row that has it.
    mixup : float, default=0
        Parameter of the Beta distribution that sources are mixed by; 0 for no mixup. For classes only.
    weight_decay : float or None, default=None
        Of a linear head, on the mean loss, where ``None`` chooses on held-out rows; of a head that is trained by steps,
        that of AdamW, where ``None`` is 0.01.
    epochs : int, default=100
        Passes over the data at most; training stops when the held-out loss has not improved for 15 epochs. A linear
        head is trained by steps under mixup and under the hinge loss, and fitted at once otherwise.
    learning_rate : float or None, default=None
        Of training by steps; ``None`` for 0.008, for numbers 0.004, and ten times as much for a linear head.
    """

    kind = "linear"

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        yield "learning_rate", self.by_steps, "a head that is trained by steps: mixup above 0, or loss='hinge'"

    @property
    def by_steps(self) -> bool:
        """Whether it is trained by steps: the risk is random, or has corners that L-BFGS fails at."""
        smooth = self.loss.smooth if isinstance(self.loss, LossRule) else self.loss != "hinge"
        return not self.plain or not smooth

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """L-BFGS or a closed form under a weight decay to choose, or training by steps."""
        if not self.by_steps:
            return target.linear_fitter(self)
        usual, n_rows = target.networks, round(target.counts_of(self).sum().item())
        networks = Networks(
            hidden=(),
            dropout=0.0,
            learning_rate=10 * usual.learning_rate,
            batch_size=min(usual.batch_size, max(32, n_rows // 16)),
        )
        return self.fitter_by_steps(target, networks, rng, progress)


class MLPHead(NetworkHead):
    """A head with hidden layers.

    Parameters
    ----------
    hidden : sequence of int or None, default=None
        Hidden layers; ``None`` for one of 256 units, for labels on more than 50,000 rows one of 1,024, for numbers two
        of 128.
    dropout : float or None, default=None
        ``None`` for 0.1, for labels on more than 50,000 rows 0.5, and none for numbers.
    batch_size : int or None, default=None
        ``None`` for 128 to 1,024, by the number of rows.
    networks : int, default=1
        Among which the units of one hidden layer are divided. Each learns by itself; what they give is averaged.
    loss, loss_options, class_mass, mixup, weight_decay, epochs, learning_rate
        As in ``LinearHead``.
    """

    kind = "mlp"

    hidden: Sizes | None = None
    dropout: ShareBelowOne | None = None
    batch_size: BatchSize | None = None
    networks: Count = 1

    def check(self) -> None:
        """Raise an error if an option cannot be what it is, or was set and would have no effect."""
        super().check()
        hidden = None if self.hidden is None else whole_numbers("MLPHead: hidden", self.hidden)
        if self.networks > 1 and hidden is not None and (len(hidden) > 1 or hidden[0] < self.networks):
            raise InputError(
                f"MLPHead: networks={self.networks} divides the units of one hidden layer, at least one for each "
                f"network; hidden={self.hidden!r} cannot be divided."
            )

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """Training by steps, stopped early."""
        hidden = None if self.hidden is None else whole_numbers("hidden", self.hidden)
        options = {"hidden": hidden, "dropout": self.dropout, "batch_size": self.batch_size}
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        networks = replace(target.networks, networks=self.networks, **given)
        if self.networks > 1:
            networks = replace(networks, patience=SHORT_PATIENCE)
            if len(networks.hidden) > 1:  # as for numbers
                raise InputError(f"MLPHead: networks={self.networks} needs one hidden layer: set hidden=(256,).")
        return self.fitter_by_steps(target, networks, rng, progress)


class GaussianHead(Head):
    """Gaussians of classes in closed form, from real rows alone; held-out rows choose how far variances are shared."""

    kind = "gaussian"

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """Moments of the classes."""
        if not target.one_class:
            raise InputError("GaussianHead predicts one class for each row: use LinearHead or MLPHead.")
        return GaussianFitter(target.n_outputs)


class TreesHead(Head):
    """Boosted trees on standardised features; held-out rows choose how many.

    Parameters
    ----------
    steps : int, default=100
        Steps of boosting at most.
    learning_rate : float or None, default=None
        What each step counts for; ``None`` for 0.1.
    leaves : int, default=15
        Leaves of a tree at most.
    """

    kind = "trees"

    steps: Count = 100
    learning_rate: Positive | None = None
    leaves: BatchSize = 15

    @property
    def class_loss(self) -> LossRule:
        """Trees know the class frequencies; these are taken off afterwards."""
        return loss_rule("cross-entropy", None)

    def fitter(self, target: Target, rng: np.random.Generator, progress: Progress | None) -> HeadFitter:
        """Boosting by histograms."""
        if not target.one_class:
            raise InputError("TreesHead predicts one class for each row: use LinearHead or MLPHead.")
        return TreesFitter(self, int(rng.integers(2**31)))


HEAD = Role((LinearHead, MLPHead, GaussianHead, TreesHead), others=("auto",), several=True)
"""What the parameter ``head`` of a classifier takes."""

TARGET_HEAD = Role((LinearHead, MLPHead), others=("auto",), several=True)
"""What the parameter ``head`` of a regressor takes."""


def last_layer(head: nn.Module) -> tuple[Callable[[Tensor], Tensor], nn.Linear]:
    """A head as what comes before its last layer, and that layer."""
    if isinstance(head, nn.Linear):
        return lambda s: s, head
    layers = list(head.children())
    if not layers or not isinstance(layers[-1], nn.Linear):
        raise InputError(f"{type(head).__name__} does not end in a linear layer.")

    def body(s: Tensor) -> Tensor:
        for layer in layers[:-1]:
            s = layer(s)
        return s

    return body, layers[-1]


class HeadFitter(Protocol):
    """Fits one kind of head."""

    @property
    def chooses_on_path(self) -> bool:
        """Whether held-out rows have a part in the heads that the path gives; the watch then keeps their losses."""

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """Heads under the settings to try, the most regular first."""

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """The head under one setting."""


@torch.no_grad()
def device_outputs(head: nn.Module, scaled_sources: Tensor) -> Tensor:
    """What a head gives for rows, in batches and in its own precision, as float64 where the head is."""
    reference = next(iter(head.state_dict().values()))
    return torch.cat(list(in_parts(lambda part: head(part.to(reference)).double(), scaled_sources, ROWS_AT_ONCE)))


def head_outputs(head: nn.Module, scaled_sources: Array) -> Array:
    """What a head gives for rows, in batches and in its own precision, as an array."""
    return device_outputs(head, torch.from_numpy(scaled_sources)).cpu().numpy()


class SoftmaxGradients:
    """Weighted cross-entropy of the logits of a head plus a shift; its gradients, written out, go to the parameters.

    Autograd would take longer than the arithmetic of a small batch. Arrays of a batch are kept for the next one.

    Parameters
    ----------
    head : a linear layer; an MLP: linear layers, each but the last followed by ReLU and perhaps dropout; or networks
        side by side, whose losses are averaged.
    shift_m : of the logits.
    """

    def __init__(self, head: nn.Module, shift_m: Tensor) -> None:
        layers = list(head.body.children() if isinstance(head, SideBySide) else head.children())
        self.last = head if isinstance(head, (nn.Linear, SideBySide)) else layers.pop()
        self.layers = layers
        self.parameters = list(head.parameters())
        self.gradients = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.shift_m = shift_m.to(self.parameters[0])
        self.space: dict[tuple[str, int], Tensor] = {}

    def clear(self) -> None:
        """Set all gradients to zero."""
        torch._foreach_zero_(self.gradients)
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient

    def of_batch(self, s: Tensor, y: Tensor, weight: Tensor, *, whole: bool = False) -> float:
        """The loss of a batch, or of the part of this process, and none but its gradients."""
        self.clear()
        whole = whole or any(isinstance(layer, Dropout) for layer in self.layers)
        parts = ((one,) if whole else in_two(one) for one in (s, y, weight))
        return torch.stack([self.add(*part) for part in zip(*parts, strict=True)]).sum().item()

    @torch.no_grad()
    def add(self, s: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The loss of some rows; its gradients are added up."""
        values, trace = s, []
        for place, layer in enumerate(self.layers):
            if isinstance(layer, nn.Linear):
                trace.append(values)
                room = self._array("values", place, len(s), layer.out_features)
                values = torch.addmm(layer.bias, values, layer.weight.T, out=room)
            elif isinstance(layer, Dropout):
                trace.append(layer.factors(values))
                values = values * trace[-1]
            else:
                trace.append(values.relu_())
        last = self._add_networks if isinstance(self.last, SideBySide) else self._add_last
        loss, slopes = last(values, y, weight)
        for place, before in reversed(list(enumerate(trace))):
            layer = self.layers[place]
            if isinstance(layer, nn.Linear):
                _add_gradients(layer, slopes, before)
                if place:
                    slopes = torch.mm(slopes, layer.weight, out=self._array("slopes", place, len(s), layer.in_features))
            elif isinstance(layer, Dropout):
                slopes.mul_(before)
            else:
                threshold_backward(slopes, before, 0, grad_input=slopes)
        return loss

    def _add_last(self, values: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and its derivatives by what the last layer is given, if there is a layer before it."""
        last = cast(nn.Linear, self.last)
        losses, slopes = cross_entropy_slopes(class_logits(values, last.weight, last.bias + self.shift_m), y)
        slopes.mul_(weight[:, None])
        _add_gradients(last, slopes, values)
        if self.layers:
            slopes = torch.mm(slopes, last.weight, out=self._array("slopes", -1, len(y), last.in_features))
        return losses @ weight, slopes

    def _add_networks(self, values: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The same for the last layers of networks side by side."""
        last = cast(SideBySide, self.last)
        n_networks, n_units, n_outputs = last.weight_ghm.shape
        hidden_gnh = values.unflatten(1, (n_networks, n_units)).transpose(0, 1)
        logits_gnm = torch.baddbmm(last.bias_g1m + self.shift_m, hidden_gnh, last.weight_ghm)
        share = (weight / n_networks).repeat(n_networks)
        losses, slopes = cross_entropy_slopes(logits_gnm.view(-1, n_outputs), y.repeat(n_networks))
        slopes_gnm = slopes.mul_(share[:, None]).view_as(logits_gnm)
        cast(Tensor, last.weight_ghm.grad).add_(torch.bmm(hidden_gnh.transpose(1, 2), slopes_gnm))
        cast(Tensor, last.bias_g1m.grad).add_(slopes_gnm.sum(1, keepdim=True))
        back_gnh = torch.bmm(slopes_gnm, last.weight_ghm.transpose(1, 2))
        return losses @ share, back_gnh.transpose(0, 1).reshape(values.shape)

    def _array(self, what: str, place: int, n_rows: int, width: int) -> Tensor:
        """Room for what goes into a layer, or comes out of it, with a row for each of the batch."""
        kept = self.space.get((what, place))
        if kept is None or len(kept) < n_rows:
            kept = self.space[what, place] = self.shift_m.new_empty(n_rows, width)
        return kept[:n_rows]


def _add_gradients(layer: nn.Linear, slopes: Tensor, before: Tensor) -> None:
    """To those of a linear layer, from derivatives by its outputs and from its inputs."""
    weight, bias = cast(Tensor, layer.weight.grad), cast(Tensor, layer.bias.grad)
    bias += slopes.sum(0)
    if before.shape[1] < slopes.shape[1]:  # matrix libraries are slow to sum into narrow columns
        weight += (before.T @ slopes).T
    else:
        weight += slopes.T @ before


@dataclass(frozen=True)
class LinearFitter:
    """A linear head by L-BFGS, or solved at once; the setting is its weight decay, on the mean loss.

    Parameters
    ----------
    n_outputs : columns of what the head gives.
    loss : of each row, smooth and convex.
    decays : to try, the largest first.
    precise : float64 instead of float32, and steps until nothing changes.
    solve : sets the head to the solution for a sample and a weight decay, where there is a closed form.
    shift_m : what is added to logits if the loss is the cross-entropy of these sums; ``None`` if it is not.
    """

    n_outputs: int
    loss: HeadLoss
    decays: tuple[float, ...] = WEIGHT_DECAYS
    precise: bool = False
    solve: Callable[[nn.Module, HeadSample, float], None] | None = None
    shift_m: Tensor | None = None
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """From strong to weak weight decay, each started from the solution before it."""
        sample, head = self._begin(sample)
        most = 40 if len(sample.y) * self.n_outputs <= MANY_OUTPUTS else 15
        for setting in self.decays[:: 1 if self.n_outputs <= MANY_CLASSES else 2]:
            self._minimise(head, sample, setting, *((150, PRECISE) if self.precise else (most, ON_TRIAL)))
            yield setting, copy.deepcopy(head)

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Minimise the weighted loss plus half the decay times the squared weights."""
        sample, head = self._begin(sample)
        self._minimise(head, sample, setting, *((150, PRECISE) if self.precise else (120, 1e-5)))
        return head

    def fit_tilted(self, sample: HeadSample, setting: float, start: nn.Module, tilt: Sequence[Tensor]) -> nn.Module:
        """The same plus a linear function, whose slopes by weights and biases are given, from a head to begin with."""
        head = copy.deepcopy(start)
        self._minimise(head, sample, setting, 150, PRECISE, tilt)
        return head

    def slopes(self, head: nn.Module, s: Tensor, y: Tensor) -> Tensor:
        """Derivatives of the loss of each row by its outputs."""
        if self.shift_m is not None:
            linear = cast(nn.Linear, head)
            shifted_m = linear.bias.detach() + self.shift_m.to(linear.bias)
            return cross_entropy_slopes(class_logits(s, linear.weight.detach(), shifted_m), y)[1]
        outputs = head(s).detach().requires_grad_()
        self.loss(outputs, y, 1.0).sum().backward()
        return cast(Tensor, outputs.grad)

    def _begin(self, sample: HeadSample) -> tuple[HeadSample, nn.Module]:
        if self.precise:
            sample = replace(sample, s=sample.s.double(), y=sample.y.double(), weight=sample.weight.double())
        ask(
            "A linear head", "Use fewer sources, as demixing=Linear(n_sources=64) finds.", numbers=sample.s.itemsize,
            copies=COPIES, device=sample.s.device, outputs=self.n_outputs, sources=sample.s.shape[1],
        )  # fmt: skip
        return sample, make_head(sample.s.shape[1], self.n_outputs).to(sample.s)

    def _minimise(
        self, head: nn.Module, sample: HeadSample, decay: float, iterations: int, tolerance: float,
        tilt: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        n_numbers = sum(parameter.numel() for parameter in head.parameters())
        if (
            not tilt
            and self.shift_m is not None
            and not sample.s.is_cuda
            and len(sample.y) * n_numbers**2 <= NEWTON_WORK
        ):
            with own_draws_only(head):
                newton_softmax(cast(nn.Linear, head), sample.s, sample.y, sample.weight, self.shift_m, decay)
            return
        if not tilt and self.solve is not None:
            self.solve(head, sample, decay)
            return
        weight = head.get_parameter("weight")
        # In blocks, so that memory holds the logits of a block only.
        cells, most = (SCORES_AT_ONCE, len(sample.y)) if sample.s.is_cuda else (CELLS_AT_ONCE, ROWS_AT_ONCE)
        at_once = min(max(cells // self.n_outputs, 1), most)
        n_rows = len(sample.y)
        own = [one[own_rows(n_rows)] for one in (sample.s, sample.y, sample.weight)]
        written = None if self.shift_m is None else SoftmaxGradients(head, self.shift_m)

        def loss_of(s: Tensor, y: Tensor, w: Tensor) -> Tensor:
            loss = (self.loss(head(s), y, 1.0) * w).sum()
            loss.backward()
            return loss.detach()

        def loss_and_backward() -> float:
            nonlocal at_once
            while True:
                total = torch.zeros((), dtype=torch.float64, device=sample.s.device)
                head.zero_grad(set_to_none=False)
                if written is not None:
                    written.clear()
                share_out(n_rows, always=True)
                try:
                    for block in zip(*(one.split(at_once) for one in own), strict=True):
                        total += loss_of(*block) if written is None else written.add(*block)
                    break
                except torch.OutOfMemoryError as error:
                    at_once = smaller(min(at_once, n_rows), error)
            total = summed(total)
            end_step(list(head.parameters()), 0.0)
            with torch.no_grad():
                total += 0.5 * decay * (weight**2).sum()
                cast(Tensor, weight.grad).add_(decay * weight)
                for parameter, slope in zip(head.parameters(), tilt, strict=False):
                    total += (slope * parameter).sum()
                    cast(Tensor, parameter.grad).add_(slope)
            return total.item()  # the one wait for the device

        minimise_convex(head, loss_and_backward, stage="linear head", max_iterations=iterations, tolerance=tolerance)


@dataclass(frozen=True)
class MLPFitter:
    """An MLP, or a linear head without hidden layers, trained by steps and stopped early; the setting is its epochs.

    Parameters
    ----------
    n_outputs : columns of what the head gives.
    new_risk : makes what a step minimises, anew for each run.
    hidden, dropout, training : of the network.
    generator : of the batches.
    all_epochs : never stop early; for losses that change in the course of training.
    recordable : whether a step asks nothing of the host, neither how far training is nor a random number.
    shift_m : what is added to logits if the risk is the cross-entropy of these sums; ``None`` if it is not.
    networks : among which the hidden units are divided; the risk is then of what each gives.
    """

    n_outputs: int
    new_risk: Callable[[], BatchRisk]
    hidden: tuple[int, ...]
    dropout: float
    training: TrainingConfig
    generator: torch.Generator
    progress: Progress | None = None
    all_epochs: bool = False
    recordable: bool = False
    shift_m: Tensor | None = None
    networks: int = 1

    @property
    def chooses_on_path(self) -> bool:
        """Unless all epochs are run."""
        return not self.all_epochs

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """One run, stopped where held-out loss is lowest."""
        if self.all_epochs:
            yield self.training.epochs, self.fit(sample, self.training.epochs)
            return
        head = self._new(sample)
        whole = _joined(head)
        history = train(
            head, self._loss(head, sample), self._batches(sample), lambda: watched(_joined(head, whole)), self.training,
            stage=self._stage(), graphs=self.recordable, gradients=self._gradients(head, sample),
            progress=self.progress,
        )  # fmt: skip
        yield history.best_epoch + 1, _joined(head, whole)

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Train for that many epochs of the same schedule."""
        head = self._new(sample)
        train(
            head, self._loss(head, sample), self._batches(sample), None, self.training,
            stage=f"{self._stage()}, all rows", stop_after=int(setting), graphs=self.recordable, to_the_end=True,
            gradients=self._gradients(head, sample), progress=self.progress,
        )  # fmt: skip
        return _joined(head)

    def _stage(self) -> str:
        return "MLP head" if self.hidden else "linear head"

    @property
    def _shared_out(self) -> bool:
        """Whether each process holds the last layer of some of the classes."""
        return many_classes(self.n_outputs) and self.shift_m is not None and self.networks == 1 and self.hidden != ()

    def _new(self, sample: HeadSample) -> nn.Module:
        n_inputs = sample.s.shape[1]
        if self._shared_out:
            return SharedOutMLP(n_inputs, self.hidden, self.n_outputs, self.dropout).to(sample.s)
        if self.networks > 1:
            return SideBySide(n_inputs, self.hidden[0], self.n_outputs, self.networks, self.dropout).to(sample.s)
        return make_head(n_inputs, self.n_outputs, self.hidden, self.dropout).to(sample.s)

    def _loss(self, head: nn.Module, sample: HeadSample) -> Callable[[Tensor], Tensor]:
        if isinstance(head, SharedOutMLP):
            return partial(self._loss_of_shares, head, sample)
        risk, step = self.new_risk(), Tally()
        n_steps = len(self._batches(sample)) * self.training.epochs

        def loss(batch: Tensor) -> Tensor:
            step.value += 1
            return risk(head, sample, batch, (step.value - 1) / n_steps).mean() * len(sample.y)

        return loss

    def _loss_of_shares(self, head: SharedOutMLP, sample: HeadSample, rows: Tensor) -> Tensor:
        """The same for classes that processes have shared out."""
        rows = mine(rows, always=True)
        s = sample.inputs(rows)
        losses = head.cross_entropy(s, sample.y[rows], cast(Tensor, self.shift_m).to(s)) * sample.weight[rows]
        return (losses.mean() if len(s) else losses.sum()) * len(sample.y)

    def _gradients(self, head: nn.Module, sample: HeadSample) -> Callable[[Tensor], float] | None:
        """The loss of a batch, with its gradients written out: autograd takes longer than their arithmetic."""
        if self.shift_m is None or isinstance(head, SharedOutMLP):
            return None
        written, n = SoftmaxGradients(head, self.shift_m), len(sample.y)
        whole = sample.draw is not None  # what is drawn is other for two processes in any case

        def gradients(rows: Tensor) -> float:
            own = mine(rows)
            weight = sample.weight[own] * (n / len(rows))
            return written.of_batch(sample.inputs(own), sample.y[own], weight, whole=whole)

        return gradients

    def _batches(self, sample: HeadSample) -> IndexBatches:
        return IndexBatches(len(sample.y), self.training.batch_size, self.generator, sample.s.device)


def _joined(head: nn.Module, whole: Any = None) -> nn.Module:
    """Networks side by side as one, where ``whole`` is what an earlier call gave; any other head as it is."""
    return head.joined(whole) if isinstance(head, (SideBySide, SharedOutMLP)) else head


@dataclass(frozen=True)
class GaussianFitter:
    r"""Gaussians of classes in closed form; the setting is nu, the weight of the common variance.

    With few samples a class mean is uncertain. It is drawn towards the grand mean as far as the spread b of class
    means warrants, and what uncertainty is left widens the predictive variance: for n samples of variance v,
    :math:`\hat\mu = \bar s_0 + k (\bar s - \bar s_0)` with :math:`k = b / (b + v / n)`, and :math:`v + k v / n`.

    The sample says what v and b are; ``n_classes`` is the number of classes.
    """

    n_classes: int
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """From one common variance to each class its own."""
        for setting in PSEUDO_SAMPLES:
            with own_draws_only():
                head = self.fit(sample, setting)
            yield setting, head

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """Moments of the real samples; synthetic ones, made from those moments, add nothing."""
        s_nd, y_n = sample.s[~sample.synthetic].double(), sample.y[~sample.synthetic]
        if sample.variance is None or sample.between is None:
            raise InputError("A Gaussian head needs the variance of sources within and between classes.")
        variance_d, between_d = sample.variance.to(s_nd), sample.between.to(s_nd)
        times_n1 = s_nd.new_ones(len(s_nd), 1) if sample.times is None else sample.times[:, None].to(s_nd)

        def class_sums(values_nd: Tensor) -> Tensor:
            return values_nd.new_zeros(self.n_classes, values_nd.shape[1]).index_add_(0, y_n, values_nd * times_n1)

        n_m1 = class_sums(s_nd.new_ones(len(s_nd), 1))
        mean_md = class_sums(s_nd) / torch.where(n_m1 > 0, n_m1, 1.0)
        squares_md = class_sums((s_nd - mean_md[y_n]) ** 2)
        return self.of_moments(n_m1, mean_md, squares_md, variance_d, between_d, setting)

    @staticmethod
    def of_moments(
        n_m1: Tensor, mean_md: Tensor, squares_md: Tensor, variance_d: Tensor, between_d: Tensor, setting: float
    ) -> ClassGaussians:
        """Gaussians from the numbers of samples, means and summed squared deviations of the classes."""
        variance_md = (squares_md + setting * variance_d) / ((n_m1 - 1).clamp(min=0) + setting)
        error_md = variance_d / n_m1.clamp(min=1e-9)
        trust_md = between_d / (between_d + error_md)
        grand_d = mean_md[n_m1[:, 0] > 0].mean(0)
        return ClassGaussians(grand_d + trust_md * (mean_md - grand_d), variance_md + trust_md * error_md)


@dataclass(frozen=True)
class TreesFitter:
    """Boosted trees by scikit-learn, kept as plain arrays; the setting is the number of steps."""

    options: TreesHead
    seed: int
    chooses_on_path: ClassVar[bool] = False

    def path(self, sample: HeadSample, watched: Watch) -> Iterator[tuple[float, nn.Module]]:
        """The first steps of one fit: a few, then twice as many, and so on."""
        steps = [self.options.steps]
        while steps[-1] > FEWEST_STEPS:
            steps.append(max(steps[-1] // 2, 1))
        model = self._boosted(sample, self.options.steps)
        for setting in reversed(steps):
            with own_draws_only():
                head = tree_arrays(model, setting)
            yield setting, head

    def fit(self, sample: HeadSample, setting: float) -> nn.Module:
        """That many steps."""
        return tree_arrays(self._boosted(sample, int(setting)), int(setting))

    def _boosted(self, sample: HeadSample, steps: int) -> Any:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            max_iter=steps, learning_rate=self.options.learning_rate or 0.1, max_leaf_nodes=self.options.leaves,
            l2_regularization=1.0, early_stopping=False, random_state=self.seed,
        )  # fmt: skip
        s, y, weight = (values.cpu().numpy() for values in (sample.s, sample.y, sample.weight))
        _, first, classes, counts = np.unique(y, return_index=True, return_inverse=True, return_counts=True)
        if not np.array_equal(weight, weight[first][classes]):
            n_rows = len(y) if sample.times is None else sample.times.sum().item() + len(y) - len(sample.times)
            return model.fit(s, y, sample_weight=weight * n_rows)
        # Weights of whole classes are a prior, which can be put in afterwards: bins under weights take long to find.
        model.fit(s, y)
        shift = np.log(weight[first] * counts.sum()).astype(np.float64)
        model._baseline_prediction = model._baseline_prediction + (shift if len(shift) > 2 else shift[1:] - shift[:1])
        return model


def tree_arrays(model: Any, steps: int) -> Trees:
    """The first steps of a ``HistGradientBoostingClassifier`` that has seen no missing values."""
    grown = [[tree.nodes for tree in step] for step in model._predictors[:steps]]
    nodes = [one for step in grown for one in step]
    first = torch.tensor([0, *(len(one) for one in nodes)]).cumsum(0)
    every = np.concatenate(nodes)
    column = {name: torch.from_numpy(every[name].astype(kind)) for name, kind in NODE_COLUMNS.items()}
    is_leaf, own = column["is_leaf"], torch.arange(len(every))
    offset = torch.repeat_interleave(first[:-1], first.diff())
    return Trees(
        column["num_threshold"],
        column["feature_idx"],
        torch.where(is_leaf, own, column["left"] + offset),
        torch.where(is_leaf, own, column["right"] + offset),
        torch.where(is_leaf, column["value"], 0.0),
        first[:-1].reshape(len(grown), -1),
        torch.from_numpy(model._baseline_prediction.astype(np.float64).ravel()),
        torch.tensor(max(int(one["depth"].max()) for one in nodes)),
    )
