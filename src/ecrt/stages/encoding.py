"""Stage 1: z = e(x), with features that the flow and the head may safely learn from."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset, TensorDataset

from ecrt.arrays import Labels
from ecrt.checkpoints import Tally
from ecrt.data import ClassRoles, indicator_of, stratified_holdout, with_lost_groups
from ecrt.data.images import crop_and_flip
from ecrt.distributed import by_rows, in_two, mine, rolled, whole_batches
from ecrt.errors import InputError
from ecrt.losses import REGRESSION_LOSS_OPTIONS, LossRule, check_loss, loss_rule, mix, mixed_loss
from ecrt.machine import all_threads, in_parts
from ecrt.nn import MLP, AutoEncoder, BalancedHead, CosineHead, EncoderName, RowEncoder, make_encoder
from ecrt.randomness import Dropout, generator_on, own_generator_on
from ecrt.stages.heads import LOSSES
from ecrt.stages.holdout import halves
from ecrt.stages.parts import (
    BatchSize,
    Count,
    MixupAlpha,
    NonNegative,
    Part,
    Positive,
    Role,
    Rule,
    Share,
    ShareBelowOne,
    Sizes,
    whole_numbers,
)
from ecrt.training import Divide, History, IndexBatches, Progress, TrainingConfig, divide_rows, torch_generator, train

Items = Dataset[Any]

RESIDENT_BYTES = 8 * 2**30
"""Rows in memory up to this size are kept on the device while an encoder learns from them."""

ROWS_FOR_MOMENTS = 2**17
"""Centre, spread and bounds of columns are learned from no more rows than these."""


class Encoder(Part):
    """An encoder z = e(x), and how it is trained.

    Parameters
    ----------
    network : {"identity", "mlp", "resnet18", "autoencoder"} or nn.Module, default="mlp"
        The identity suits tables and embeddings. A module is copied before it is trained. An auto-encoder learns
        without labels, by reconstructing its input.
    n_features : int, default=32
        Features that a network made by name gives.
    hidden : sequence of int or None, default=None
        Hidden layers of an MLP or an auto-encoder that is made by name; ``None`` for 512 and 256 units.
    dropout : float or None, default=None
        Of the hidden layers of an MLP that is made by name and of those of its ``head_hidden``; ``None`` for 0.1.
    batch_norm : bool, default=True
        Whether the columns of an MLP that is made by name, which are standardised over all rows, are so once more over
        each batch.
    train : bool, default=True
        Whether a network with parameters is trained, or used as it is.
    learn_from : {"auto", "majority", "all"}, default="auto"
        Classes that it learns from: ``"auto"`` is the majority classes, and all bins of a continuous target.
    holdout : float, default=0.2
        Share of those rows that it never sees. De-mixing and head learn from them (and from rows of other classes)
        alone, because features of rows that an encoder has memorised lie on their class means. A class of two rows or
        more has one at least on either side. Labels of one half of these rows stop the training, the other half stays
        fresh to judge what comes later. With 0 the encoder sees all rows, for all epochs, and is then to predict with
        its own head.
    reuse_rows : bool, default=False
        Whether de-mixing and head also learn from the rows that the encoder has learned from, as in the paper. Rows to
        judge by are those that it has not seen all the same.
    loss : str or LossRule, default="auto"
        ``"auto"`` is cross-entropy, for multi-label data that of each label, and the squared loss for numbers. Classes:
        any of ``ecrt.losses.LOSS_OPTIONS``, where ``"weighted"`` is importance weighting, or a rule of your own.
        Labels: ``"cross-entropy"``, ``"logit-adjusted"``, ``"focal"`` or ``"ldam"``. Numbers: ``"squared"``,
        ``"absolute"`` or ``"huber"``.
    loss_options : dict or None, default=None
        Options of that loss.
    head : {"linear", "cosine"}, default="linear"
        Head of that loss, which is not used afterwards; LDAM's margins are meant for the cosine one.
    head_hidden : sequence of int, default=()
        Hidden layers of that head.
    mixup : float, default=0
        Parameter of the Beta distribution that inputs and their losses are mixed by; 0 for no mixup.
    mixup_off : float, default=0
        Share of the epochs, the last ones, without mixup.
    crop_padding : int, default=0
        Images are shifted at random by up to this many pixels.
    flip : bool, default=False
        Images are mirrored at random.
    precision : {"auto", "float32", "bfloat16"}, default="auto"
        Of training; ``"auto"`` is mixed precision for images on a GPU.
    epochs : int, default=60
        Passes over the data at most.
    batch_size, learning_rate, weight_decay, gradient_norm : default=256, 1e-3, 1e-4 and 5
        Of the steps; gradients are scaled down to ``gradient_norm``.
    optimizer : {"adamw", "sgd"}, default="adamw"
        AdamW, or stochastic gradient descent with Nesterov momentum.
    momentum : float, default=0.9
        Of SGD.
    patience : int, default=15
        Epochs without a better held-out loss after which training stops.
    """

    kind = "encoder"
    network: EncoderName | nn.Module = field(default="mlp", kw_only=False)
    n_features: Count = 32
    hidden: Sizes | None = None
    dropout: ShareBelowOne | None = None
    batch_norm: bool = True
    train: bool = True
    learn_from: Literal["auto", "majority", "all"] = "auto"
    holdout: ShareBelowOne = 0.2
    reuse_rows: bool = False
    loss: Annotated[str, LOSSES] | LossRule = "auto"
    loss_options: dict[str, float] | None = None
    head: Literal["linear", "cosine"] = "linear"
    head_hidden: Sizes = ()
    mixup: MixupAlpha = 0.0
    mixup_off: Share = 0.0
    crop_padding: Annotated[int, Interval(Integral, 0, None, closed="left")] = 0
    flip: bool = False
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    epochs: Count = 60
    batch_size: BatchSize = 256
    learning_rate: Positive = 1e-3
    weight_decay: NonNegative = 1e-4
    gradient_norm: Positive = 5.0
    optimizer: Literal["adamw", "sgd"] = "adamw"
    momentum: ShareBelowOne = 0.9
    patience: Count = 15

    def check(self) -> None:
        """Raise an error if an option cannot be what it is, or was set and would have no effect."""
        super().check()
        if isinstance(self.loss, str) and self.loss in REGRESSION_LOSS_OPTIONS:
            check_loss(self.loss, self.loss_options, REGRESSION_LOSS_OPTIONS)
        else:
            _ = self.class_loss
        whole_numbers("Encoder: hidden", () if self.hidden is None else self.hidden)
        whole_numbers("Encoder: head_hidden", self.head_hidden)

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        by_name = isinstance(self.network, str) and self.network != "identity"
        yield "n_features", by_name, "a network that is made by name: 'mlp', 'resnet18' or 'autoencoder'"
        rows = isinstance(self.network, str) and self.network in ("mlp", "autoencoder")
        yield "hidden", rows, "an MLP or an auto-encoder that is made by name"
        yield "batch_norm", self.network == "mlp", "an MLP that is made by name"
        deep = self.supervised and len(self.head_hidden) > 0
        yield "dropout", self.network == "mlp" or deep, "an MLP that is made by name, or head_hidden"
        yield "head_hidden", self.supervised and self.head == "linear", "a network that is trained, and head='linear'"
        training = "learn_from holdout reuse_rows crop_padding flip batch_size learning_rate weight_decay gradient_norm"
        yield f"{training} optimizer", self.trains, "a network that is trained"
        yield "loss loss_options head mixup precision", self.supervised, "a network that is trained on classes"
        yield "mixup_off", self.mixup > 0 and self.supervised, "mixup"
        yield "momentum", self.optimizer == "sgd", "optimizer='sgd'"
        yield "patience", self.trains and self.holdout > 0, "rows that the network does not see: holdout above 0"

    @property
    def trains(self) -> bool:
        """Whether there is a network with anything to learn."""
        if isinstance(self.network, nn.Module):
            return self.train and any(parameter.requires_grad for parameter in self.network.parameters())
        return self.train and self.network != "identity"

    @property
    def supervised(self) -> bool:
        """Whether a network learns from classes."""
        return self.trains and self.network != "autoencoder" and not isinstance(self.network, AutoEncoder)

    @property
    def takes_images(self) -> bool:
        """Whether inputs may have more than one axis."""
        return isinstance(self.network, nn.Module) or self.network == "resnet18"

    @property
    def class_loss(self) -> LossRule:
        """The loss; LDAM's margins are in the units of the head."""
        margins = {"scale": self.logit_scale} if self.head == "cosine" and self.loss in ("ldam", "ldam-drw") else {}
        name = "cross-entropy" if self.loss == "auto" else self.loss
        return loss_rule(name, {**margins, **(self.loss_options or {})})

    @property
    def logit_scale(self) -> float:
        """What a cosine head multiplies cosines by."""
        return (self.loss_options or {}).get("scale", 30.0)

    def module(self, items: Items) -> nn.Module:
        """The network to train or to use: a copy of the module given, or one made by name for such items."""
        if isinstance(self.network, nn.Module):
            return copy.deepcopy(self.network)
        layers: dict[str, Any] = {"dropout": self.dropout_rate, "batch_norm": self.batch_norm}
        if self.hidden is not None:
            layers["hidden"] = whole_numbers("hidden", self.hidden)
        return make_encoder(self.network, tuple(items[0][0].shape), n_features=self.n_features, **layers)

    @property
    def dropout_rate(self) -> float:
        """Dropout of hidden layers."""
        return 0.1 if self.dropout is None else self.dropout


ENCODER = Role((Encoder,), made_from=(*get_args(EncoderName), nn.Module))
"""What the parameter ``encoder`` takes."""


@dataclass(frozen=True, kw_only=True)
class EncodeResult:
    """The encoder, features of every row, and which rows it has not been trained on.

    Attributes
    ----------
    learn_rows : what later stages learn from: the unseen rows, and those of classes that have no other.
    fresh : mask over all rows: those whose labels the encoder has neither learned from nor been stopped by.
    head : from features to balanced logits of ``head_classes``, learned with the encoder from ``head_counts`` rows of
        each: together they predict with no further stage. ``None`` where no supervised loss was trained.
    """

    encoder: nn.Module
    features: NDArray[np.float64]
    unseen: Labels
    learn_rows: Labels
    fresh: NDArray[np.bool_]
    history: History | None = None
    head: nn.Module | None = None
    head_classes: Labels = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    head_counts: Labels = field(default_factory=lambda: np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class EncoderTarget:
    """What an encoder learns to predict where it is not one class for each row.

    Attributes
    ----------
    values : of each row, one for every output.
    rows : mask of the rows that it may learn from.
    loss : outputs and values, to one loss for each row.
    """

    values: Tensor
    rows: NDArray[np.bool_]
    loss: Callable[[Tensor, Tensor], Tensor]


def encode(
    items: Items,
    y: Labels,
    roles: ClassRoles,
    config: Encoder,
    *,
    rng: np.random.Generator,
    device: torch.device,
    progress: Progress | None = None,
    groups: sparse.csr_array | None = None,
    oversample: Callable[[Labels], tuple[Items, Labels]] | None = None,
    target: EncoderTarget | None = None,
) -> EncodeResult:
    """Train the encoder (or take it as it is) and map every row.

    Parameters
    ----------
    items : pairs (x, label), indexed like ``y``; with a ``target``, pairs of x and its row.
    y : classes of rows, or groups to split them by.
    groups : rows by groups that later stages must not lose, an indicator of labels or of rare regions: the encoder
        leaves them the rows of a group that has no other. ``None`` where classes are all there is.
    oversample : rows that the encoder may learn from, to all items with synthetic ones after them, and their classes.
    target : what is learned, ``None`` for the classes.
    """
    if (config.crop_padding or config.flip) and items[0][0].ndim != 3:
        raise InputError("Encoder: crop_padding and flip are for images, and these are not.")
    everything = np.arange(len(y))
    encoder = config.module(items)
    check_encoder(encoder, items, device)
    if not config.train or not any(p.requires_grad for p in encoder.parameters()):
        if isinstance(encoder, RowEncoder):
            encoder.learn_columns(some_rows(items, everything))
        features, fresh = features_of(encoder, items, device=device), np.ones(len(y), dtype=bool)
        return EncodeResult(encoder=encoder, features=features, unseen=everything, learn_rows=everything, fresh=fresh)
    learn_from = np.flatnonzero(roles.encoded_on[y] if target is None else target.rows)
    fitted, held_out = learn_from, learn_from[:0]
    if config.holdout > 0:
        split = stratified_holdout(y[learn_from], config.holdout, rng, both_sides=True)
        if np.bincount(np.delete(y, learn_from[split[0]])).max(initial=0) < 2:  # too few for later stages
            split = stratified_holdout(y[learn_from], 0.5, rng, both_sides=True)
        fitted, held_out = (learn_from[part] for part in split)
        if groups is not None:
            left = np.setdiff1d(fitted, with_lost_groups(np.setdiff1d(everything, fitted), groups))
            fitted = left if len(left) else fitted
            held_out = held_out[np.isin(y[held_out], y[fitted])]
    unseen = np.setdiff1d(everything, fitted)
    fresh = np.isin(everything, unseen)
    if not isinstance(encoder, AutoEncoder):  # whose loss asks for no label
        held_out = rng.permutation(held_out)
        held_out = np.sort(held_out[halves(y[held_out])])
        fresh[held_out] = False
    learned_items, learned_y = (items, y) if oversample is None else oversample(fitted)
    learned_rows = np.concatenate([fitted, np.arange(len(y), len(learned_y))])
    training = EncoderTraining(
        encoder, learned_items, learned_y, learned_rows, config, target=target, rng=rng, device=device
    )
    history = training.run(held_out, progress)
    return EncodeResult(
        encoder=encoder,
        features=features_of(encoder, items, device=device),
        unseen=unseen,
        learn_rows=everything if config.reuse_rows else with_lost_groups(unseen, indicator_of(y)),
        fresh=fresh,
        history=history,
        head=training.balanced_head(),
        head_classes=training.classes,
        head_counts=training.counts_m.cpu().numpy(),
    )


@torch.no_grad()
def check_encoder(encoder: nn.Module, items: Items, device: torch.device) -> None:
    """Let the encoder map one item, and say what is wrong if it cannot, before anything is trained."""
    x = items[0][0]
    try:
        z = encoder.to(device).eval()(x[None].to(device, module_dtype(encoder)))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"The encoder does not take items of shape {tuple(x.shape)}: {error}") from error
    _refuse_unless_matrix(z)


def _refuse_unless_matrix(z: Any) -> None:
    """Raise an error unless an encoder gave one row of features for each sample."""
    if not isinstance(z, Tensor) or z.ndim != 2:
        shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise InputError(
            f"The encoder must return a matrix, one row of features for each sample; it gave {shape}. End it with "
            "nn.Flatten(), for example."
        )


@torch.no_grad()
def features_of(
    encoder: nn.Module, items: Items, *, device: torch.device, batch_size: int = 1024
) -> NDArray[np.float64]:
    """Map all rows in batches; rows that sit in memory are sliced, not collected one by one."""
    encoder.to(device).eval()
    dtype = module_dtype(encoder)

    def encoded(x: Tensor) -> Tensor:
        with all_threads(enabled=x.ndim == 4):
            z = encoder(x.to(device, dtype))
        _refuse_unless_matrix(z)
        return z.double().cpu()

    def some(part: slice) -> Tensor:
        if isinstance(items, TensorDataset):
            batches: Iterable[Tensor] = [items.tensors[0][part]]
        else:
            whole = part == slice(0, len(items))  # type: ignore[arg-type]
            mine = items if whole else Subset(items, range(part.start, part.stop))
            batches = (x for x, _ in in_order(mine, batch_size))
        return torch.cat([z for x in batches for z in in_parts(encoded, x, batch_size)])

    features = by_rows(len(items), some).numpy()  # type: ignore[arg-type]
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise InputError(f"The encoder gave a value that is not finite for row {row}.")
    return features


class Batch(NamedTuple):
    """Items of a step (row numbers, or samples with their labels), the mixup share, and the share of training done."""

    items: Any
    share: Tensor | None
    done: float


@dataclass
class Epochs:
    """The batches of one epoch after another, with what changes from epoch to epoch.

    ``batches`` hold samples or, where ``rows`` are given, places among these rows. ``changes``: whether the loss does
    so in the course of training.
    """

    batches: Iterable[Any]
    config: Encoder
    rng: np.random.Generator
    device: torch.device
    rows: Tensor | None = None
    changes: bool = False
    epoch: Tally = field(default_factory=Tally)

    def __len__(self) -> int:
        return len(self.batches)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        config, n_epochs = self.config, self.config.epochs
        # Where the loss does not change with it, a recorded step serves all epochs.
        done = self.epoch.value / n_epochs if self.changes else 1.0
        shares: Iterable[Tensor | None] = [None] * len(self)
        if config.mixup > 0 and self.epoch.value < round(n_epochs * (1 - config.mixup_off)):
            drawn = self.rng.beta(config.mixup, config.mixup, len(self)).astype(np.float32)
            shares = torch.from_numpy(drawn).to(self.device).unbind()
        self.epoch.value += 1
        for items, share in zip(self.batches, shares, strict=False):
            yield Batch(items if self.rows is None else self.rows[items], share, done)


class EncoderTraining:
    """An encoder with a head over the classes it learns from, or over the columns of another target.

    Parameters
    ----------
    items : pairs (x, label), indexed like ``y``; with a ``target``, pairs of x and its row.
    fitted : rows to learn from; their classes are those of the head, in order.
    """

    def __init__(
        self, encoder: nn.Module, items: Items, y: Labels, fitted: Labels, config: Encoder, *,
        rng: np.random.Generator, device: torch.device, target: EncoderTarget | None = None,
    ) -> None:  # fmt: skip
        self.encoder, self.items, self.fitted = encoder.to(device).eval(), items, fitted
        self.config, self.rng, self.device = config, rng, device
        if isinstance(encoder, RowEncoder):
            encoder.learn_columns(some_rows(items, fitted))
        self.dtype = module_dtype(encoder)
        self.classes, places = np.unique(y[fitted], return_inverse=True)
        index = np.full(y.max() + 1, -1)
        index[self.classes] = np.arange(len(self.classes))
        # On the device, so that the loss has nothing to copy there at every step
        self.counts_m = torch.from_numpy(np.bincount(places)).to(device)
        self.target, self.rule = target, None if target is not None else config.class_loss
        self.loss: Callable[..., Tensor]
        if target is None:
            self.values_of, n_outputs = torch.from_numpy(index).to(device), len(self.classes)
            self.loss = config.class_loss.tried(self.counts_m)
        else:
            self.values_of, n_outputs = target.values.to(device), target.values.shape[1]
            self.loss = lambda outputs, values, done: target.loss(outputs, values)
        self.rows: Tensor | None = None
        if isinstance(items, TensorDataset) and items.tensors[0].nbytes <= RESIDENT_BYTES:
            self.rows = items.tensors[0].to(device)
            self.value_n = self.values_of if target else self.values_of[torch.from_numpy(y).to(device)]
        sample = items[int(fitted[0])][0]
        self.images = sample.ndim == 3
        self.half = config.precision == "bfloat16" or (
            config.precision == "auto" and device.type == "cuda" and self.images
        )
        with torch.no_grad():
            n_features = encoder(sample[None].to(device, self.dtype)).shape[1]
        self.head: nn.Module
        if config.head == "cosine":
            self.head = CosineHead(n_features, n_outputs, config.logit_scale)
        elif hidden := whole_numbers("head_hidden", config.head_hidden):
            self.head = MLP(n_features, hidden, n_outputs, config.dropout_rate)
        else:
            self.head = nn.Linear(n_features, n_outputs)
        self.head.to(device)
        draws = any(isinstance(part, Dropout) for net in (encoder, self.head) for part in net.modules())
        of_rows = isinstance(encoder, RowEncoder) and not isinstance(encoder, AutoEncoder)
        self.by_parts = of_rows and device.type == "cpu" and not (draws or self.half)

    def run(self, held_out: Labels, progress: Progress | None) -> History:
        """Train; ``held_out`` rows decide which epoch is kept, if there are any."""
        on_gpu = self.device.type == "cuda"
        both = nn.ModuleList([self.encoder, self.head])
        with (
            gpu_layout(self.encoder, enabled=on_gpu and self.images),
            all_threads(enabled=self.images),
            whole_batches(both, by_parts=self.by_parts),
        ):
            return train(
                both,
                lambda batch: self.losses(batch).mean(),
                self._epochs(),
                (lambda: self._held_out_loss(held_out)) if len(held_out) else None,
                TrainingConfig.of(self.config),
                stage="encoder",
                graphs=on_gpu and self.rows is not None,
                others_draw=self.rows is None,
                divide=self._divide() if self.rows is not None else None,
                progress=progress,
            )

    def _divide(self) -> Divide | None:
        """How a batch is divided; ``None`` where that changes what a row gives: it is moved, or seen with others."""
        config, mixing = self.config, (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd, Dropout)
        if config.mixup or config.crop_padding or config.flip:
            return None
        if any(isinstance(part, mixing) for net in (self.encoder, self.head) for part in net.modules()):
            return None
        return lambda batch, parts: [
            (Batch(rows, None, batch.done), share) for rows, share in divide_rows(batch.items, parts)
        ]

    def balanced_head(self) -> nn.Module | None:
        """The head as one that gives balanced logits of classes.

        Nothing for another target, nor for an auto-encoder, whose head has learned nothing.
        """
        if self.rule is None or isinstance(self.encoder, AutoEncoder):
            return None
        prior_m = self.rule.prior(self.counts_m)
        return BalancedHead(self.head, torch.log(prior_m / prior_m.sum()).float()).eval()

    def losses(self, batch: Batch) -> Tensor:
        """One loss for each sample, on views and mixtures of them while training."""
        if self.rows is not None:
            rows = mine(batch.items) if self.encoder.training else batch.items
            x, values = self.rows[rows], self.value_n[rows]
        else:
            x, values = batch.items[0].to(self.device), self.values_of[batch.items[1].to(self.device)]
        if self.encoder.training and (self.config.crop_padding or self.config.flip):
            generator = own_generator_on(x.device)
            x = crop_and_flip(x, self.config.crop_padding, flip=self.config.flip, generator=generator)
        x = x.to(self.dtype)
        if isinstance(self.encoder, AutoEncoder):
            return self.encoder.reconstruction_errors(x)
        share = None if batch.share is None else batch.share.expand(len(x))
        if share is not None:
            # Batches are shuffled: the neighbour is as good a partner as a random one, and needs no random order.
            x = mix(x, rolled(x), share)
        outputs = self._outputs(x)
        if share is None:
            return self.loss(outputs, values, batch.done)
        first, second = mixed_loss(self.loss, outputs, values, rolled(values), share, batch.done)
        return first + second

    def _outputs(self, x: Tensor) -> Tensor:
        """What the head gives."""
        encoder = self.encoder
        if self.by_parts and isinstance(encoder, RowEncoder) and encoder.training:
            return torch.cat([self.head(encoder.encoder(part)) for part in in_two(encoder.standardise(x))])
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            z = encoder(x)
        return self.head(z.to(next(self.head.parameters()).dtype))

    def _epochs(self) -> Epochs:
        generator, size = torch_generator(self.rng), min(self.config.batch_size, len(self.fitted))
        changes = self.rule is not None and self.rule.changes
        if self.rows is not None:
            rows = torch.from_numpy(self.fitted).to(self.device)
            batches = IndexBatches(len(rows), size, generator, self.device)
            return Epochs(batches, self.config, self.rng, self.device, rows, changes)
        # A last batch of one would break batch normalisation.
        items = Subset(self.items, self.fitted.tolist())
        order = RandomSampler(items, generator=generator)
        batches_of_rows = BatchSampler(order, size, drop_last=len(self.fitted) % size == 1)
        loader: DataLoader[Any] = DataLoader(items, batch_sampler=MyPart(batches_of_rows), generator=generator)
        return Epochs(loader, self.config, self.rng, self.device, None, changes)

    def _held_out_loss(self, held_out: Labels) -> float:
        size = self.config.batch_size

        def some(part: slice) -> Tensor:
            batches: Iterable[Any] = in_order(Subset(self.items, held_out[part].tolist()), size)
            if self.rows is not None:
                batches = torch.from_numpy(held_out[part]).to(self.device).split(size)
            return torch.cat([self.losses(Batch(items, None, 1.0)) for items in batches])

        return by_rows(len(held_out), some).mean().item()


@dataclass(frozen=True)
class MyPart:
    """Of every batch of rows the part that this process reads."""

    batches: BatchSampler

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return map(mine, self.batches)


def some_rows(items: Items, rows: Labels) -> NDArray[np.float64]:
    """Rows in float64, or some of them evenly where there are more than the moments of columns need."""
    some = rows[:: len(rows) // ROWS_FOR_MOMENTS + 1]
    if isinstance(items, TensorDataset):
        return items.tensors[0][torch.from_numpy(some)].double().cpu().numpy()
    return np.stack([np.asarray(items[int(row)][0], dtype=np.float64) for row in some])


def in_order(items: Items, size: int) -> DataLoader[Any]:
    """Batches of all items. A loader draws a seed for its workers, even without any: not from the caller's numbers."""
    return DataLoader(items, size, generator=generator_on(torch.device("cpu")) or torch.Generator())


@contextmanager
def gpu_layout(encoder: nn.Module, *, enabled: bool) -> Iterator[None]:
    """Weights as channels last and convolutions chosen by trial, which tensor cores run fastest on; undone after."""
    if not enabled:
        yield
        return
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    encoder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
        encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def module_dtype(encoder: nn.Module) -> torch.dtype | None:
    """What the encoder takes; nothing for one without parameters, or one that standardises: as the rows are."""
    if isinstance(encoder, RowEncoder):
        return None
    return next((parameter.dtype for parameter in encoder.parameters()), None)
