"""Encoders, de-mixers and heads as kinds of attributes.

What is saved of a network are its tensors, and little else: its sizes can be seen from their shapes. It is built by its
own constructor on the meta device, where nothing is allocated, and then given the tensors.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

import msgspec
import torch
from msgspec import Meta
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.flows import ClassPrior, Demixer, LinearDemixing, LowRank, MaskedFlow, SharedPrior
from ecrt.io.attributes import Kind, TensorStore
from ecrt.io.parsing import BadContentError, typed
from ecrt.nn import (
    MLP,
    AutoEncoder,
    BalancedHead,
    ClassGaussians,
    MLPEncoder,
    ResNet18,
    RowEncoder,
    Standardise,
    make_encoder,
    make_head,
)
from ecrt.randomness import seeded

LARGEST = 2**24
"""Of any size of a layer."""

MOST_LAYERS = 64
MOST_BLOCKS = 4096
FLOATS = (torch.float32, torch.float64)
ENCODERS: dict[type[nn.Module], str] = {
    nn.Identity: "identity",
    MLPEncoder: "mlp",
    AutoEncoder: "autoencoder",
    ResNet18: "resnet18",
}


def _pack_state(module: nn.Module, name: str, store: TensorStore) -> None:
    for key, value in module.state_dict().items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} cannot be saved: {key!r} in its state_dict is not a tensor.")
        store.tensors[f"{name}.{key}"] = value


def _layer_sizes(store: TensorStore, prefix: str) -> tuple[int, ...]:
    """Numbers of units of an MLP, from its inputs to its outputs."""
    layers = sorted(
        int(found.group(1)) for name in store.under(prefix) if (found := re.fullmatch(r"(\d{1,5})\.weight", name))
    )
    shapes = [store.shape(f"{prefix}.{layer}.weight") for layer in layers[: MOST_LAYERS + 1]]
    if not 1 <= len(shapes) <= MOST_LAYERS or not all(
        len(shape) == 2 and 1 <= min(shape) <= max(shape) <= LARGEST for shape in shapes
    ):
        raise BadContentError(f"The layers of {prefix} are not those of a network.")
    return (shapes[0][1], *(shape[0] for shape in shapes))


class _EncoderRecord(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    kind: Literal["identity", "mlp", "autoencoder", "resnet18", "own"]
    name: str = ""


@dataclass(frozen=True)
class EncoderNetwork(Kind):
    """An encoder: the name of a ready-made one, or that of the class of the user's own, and its tensors."""

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """Its name, and tensors."""
        _pack_state(value, name, store)
        kind = ENCODERS.get(type(value)) if store.own_encoder is None else None
        record = _EncoderRecord("own", type(value).__name__) if kind is None else _EncoderRecord(cast(Any, kind))
        return msgspec.to_builtins(record)

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Built anew, or a copy of the user's own with the saved tensors."""
        record: _EncoderRecord = typed(plain, _EncoderRecord, name)
        kind, given = record.kind, store.own_encoder
        if kind == "own" and given is None:
            advice = "Pass that as encoder=."
            raise BadContentError(f"It was fitted with your own encoder ({record.name[:80]!r}).", advice)
        if kind != "own" and given is not None:
            raise BadContentError(f"It has a built-in encoder ({kind!r}).", "Do not pass encoder=.")
        if given is not None:
            return _fill_own(given, store, name).eval()
        if kind == "identity":
            return nn.Identity().eval()
        encoder, n_features = _new_encoder(kind, store, name)
        if n_features != store.sizes["features"]:
            raise BadContentError(f"The encoder gives {n_features} features, not {store.sizes['features']}.")
        store.fill(encoder, name, _precision(store, name))
        if isinstance(encoder, RowEncoder):
            _check_columns(encoder.columns)
        return encoder.eval()


def _new_encoder(kind: str, store: TensorStore, prefix: str) -> tuple[nn.Module, int]:
    """An encoder without tensors, and the number of features that it gives."""
    with torch.device("meta"):
        if kind != "resnet18":
            n_in, *hidden, n_out = _layer_sizes(store, f"{prefix}.encoder")
            return make_encoder(cast(Any, kind), (n_in,), n_features=n_out, hidden=hidden), n_out
        stem = store.shape(f"{prefix}.0.weight")
        last = store.shape(f"{prefix}.13.weight")[0] if "13.weight" in store.under(prefix) else None
        if len(stem) != 4 or not (1 <= stem[0] <= 2**16 and 1 <= stem[1] <= LARGEST and (last or 1) <= LARGEST):
            raise BadContentError("The layers of the encoder are not those of a network.")
        return ResNet18(stem[1], last, stem[0]), 8 * stem[0] if last is None else last


def _precision(store: TensorStore, prefix: str) -> tuple[torch.dtype, ...]:
    """The dtype of a network's first tensor of floats, if it has any."""
    return tuple(dtype for dtype in store.under(prefix).values() if dtype in FLOATS)[:1]


def encoder_width(encoder: nn.Module) -> int | None:
    """Columns or channels that a ready-made encoder takes, if that is known."""
    if isinstance(encoder, RowEncoder):
        return len(encoder.columns.center_d)
    return cast(nn.Conv2d, encoder[0]).in_channels if isinstance(encoder, ResNet18) else None


def _fill_own(given: nn.Module, store: TensorStore, name: str) -> nn.Module:
    advice = "Pass an encoder that was built as it was for fitting."
    expected, found = set(given.state_dict()), store.under(name)
    if expected != found.keys():
        lacking, more = sorted(found.keys() - expected)[:5], sorted(expected - found.keys())[:5]
        raise BadContentError(
            f"The encoder given ({type(given).__name__}) does not fit: it lacks {lacking} and has {more} besides.",
            advice,
        )
    encoder = copy.deepcopy(given)
    for dtype in _precision(store, name):
        encoder = encoder.to(dtype)  # buffers that are not stored
    try:
        store.fill(encoder, name, FLOATS, finite=False)
    except (BadContentError, RuntimeError) as error:
        raise BadContentError(f"The encoder given does not fit. {str(error)[:300]}", advice) from error
    return encoder.cpu()


@dataclass(frozen=True)
class DemixerNetwork(Kind):
    """A de-mixing function, which gives the sizes "features" and "sources", and takes "classes"."""

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """The number of signal sources, and tensors."""
        _pack_state(value, name, store)
        return value.linear.n_signal

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Built anew."""
        (d,) = store.sized(f"{name}.linear.standardise.center_d", "features")
        (k,) = store.sized(f"{name}.linear.kept_k", "kept")
        q = store.sizes["sources"] = typed(plain, Annotated[int, Meta(ge=1, le=LARGEST)], name)
        if not 1 <= q <= k <= d <= LARGEST:
            raise BadContentError(f"There are {q} sources of {k} of {d} features.")
        there = store.under(name)
        with torch.device("meta"):
            weight: Tensor | LowRank = torch.empty(k, k)
            if "linear.weight.left_kr" in there:
                rank = min(k, store.sized(f"{name}.linear.weight.left_kr", "kept rank")[1])
                weight = LowRank(torch.empty(()), torch.empty(k, rank), torch.empty(k, rank))
            columns = Standardise(*(torch.empty(d) for _ in range(4)))
            linear = LinearDemixing(columns, torch.empty(k, dtype=torch.int64), weight, q)
            prior = ClassPrior(store.sizes["classes"], q) if "prior.mean_md" in there else SharedPrior()
        demixer = Demixer(linear, prior, _new_flow(store, f"{name}.flow.blocks", q))
        store.fill(demixer, name)
        kept = linear.kept_k
        if kept.min() < 0 or kept.max() >= d or len(kept.unique()) != k:
            raise BadContentError(f"The columns to keep are not {k} different ones of {d}.")
        _check_columns(columns)
        return demixer.eval()


def _new_flow(store: TensorStore, prefix: str, n_sources: int) -> MaskedFlow | None:
    """A flow with the right shapes. Its masks come from tensors, so it cannot be built without memory: check first."""
    n_blocks = len({name.partition(".")[0] for name in store.under(prefix)})
    if not n_blocks:
        return None
    if n_blocks > MOST_BLOCKS:
        raise BadContentError(f"A flow has at most {MOST_BLOCKS} blocks.")
    sizes = (n_sources, 2 * n_sources) if n_sources == 1 else _layer_sizes(store, f"{prefix}.0.hyper")
    if sizes[0] != n_sources or sizes[-1] != 2 * n_sources:
        raise BadContentError(f"The shape of the flow is not one of {n_sources} sources.")
    for block in range(n_blocks):
        if n_sources == 1:
            store.check(f"{prefix}.{block}.phi.0", (1,), torch.float64)
            continue
        for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
            store.check(f"{prefix}.{block}.hyper.{2 * layer}.weight", (n_out, n_in), torch.float64)
    with seeded(0):  # not from the caller's numbers; they are overwritten
        return MaskedFlow(n_sources, n_blocks, sizes[1:-1])


def _check_columns(columns: Standardise) -> None:
    if not ((columns.spread_d > 0).all() and (columns.low_d <= columns.high_d).all()):
        raise BadContentError("The columns have spreads that are not positive, or bounds that are out of order.")


@dataclass(frozen=True)
class HeadShape:
    """Kind of a head, and the layers and dropout of an MLP."""

    kind: Literal["linear", "mlp", "gaussian"]
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0


def head_shape(head: nn.Module) -> HeadShape:
    """What a head is, whether balanced afterwards or not."""
    inner = head.head if isinstance(head, BalancedHead) else head
    if type(inner) is MLP:
        hidden = [layer.out_features for layer in inner if isinstance(layer, nn.Linear)][:-1]
        dropout = next((layer.p for layer in inner if isinstance(layer, nn.Dropout)), 0.0)
        return HeadShape("mlp", tuple(hidden), dropout)
    if type(inner) not in (nn.Linear, ClassGaussians):
        raise InputError(f"A head of class {type(inner).__name__} cannot be saved.")
    return HeadShape("linear" if type(inner) is nn.Linear else "gaussian")


@dataclass(frozen=True)
class HeadNetwork(Kind):
    """A head from "sources" to some other size.

    Attributes
    ----------
    outputs : name of that size.
    """

    outputs: str

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """Its dropout, and tensors."""
        _pack_state(value, name, store)
        return head_shape(value).dropout

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Built anew."""
        dropout = typed(plain, Annotated[float, Meta(ge=0, lt=1)], name)
        n_sources, n_outputs = store.sizes["sources"], store.sizes[self.outputs]
        balanced = "log_mass_m" in store.under(name)
        inner = f"{name}.head" if balanced else name
        there = store.under(inner)
        with torch.device("meta"):
            if "variance_md" in there:
                head: nn.Module = ClassGaussians(torch.empty(n_outputs, n_sources), torch.empty(n_outputs, n_sources))
            else:
                hidden = () if "weight" in there else _layer_sizes(store, inner)[1:-1]
                head = make_head(n_sources, n_outputs, hidden, dropout)
            if balanced:
                head = BalancedHead(head, torch.empty(n_outputs))
        store.fill(head, name)
        found = head.head if balanced else head
        if isinstance(found, ClassGaussians) and not (found.variance_md > 0).all():
            raise BadContentError("The head has variances that are not positive.")
        return head.eval()
