"""Encoders, de-mixers and heads as JSON and tensors, and back.

Modules are built by their own constructors from sizes that the tensors present must confirm, on the meta device where
nothing is allocated; then they are given the tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from ecrt.errors import InputError
from ecrt.flows import ClassPrior, Demixer, LinearDemixing, LowRank, MaskedFlow, SharedPrior
from ecrt.io.fields import BadContentError, Fields, TensorStore
from ecrt.nn import (
    MLP,
    AutoEncoder,
    EncoderName,
    GaussianHead,
    MLPEncoder,
    ResNet18,
    RowEncoder,
    Standardise,
    make_encoder,
    make_head,
)
from ecrt.nn.randomness import seeded
from ecrt.stages.predict import BalancedHead

__all__ = [
    "encoder_width",
    "pack_demixer",
    "pack_encoder",
    "pack_head",
    "unpack_demixer",
    "unpack_encoder",
    "unpack_head",
]

Tensors = dict[str, Tensor]
LARGEST = 2**24
"""Of any size that a constructor is given."""

MOST_LAYERS = 64
FLOATS = {"float32": torch.float32, "float64": torch.float64}


def pack_encoder(encoder: nn.Module, *, own: bool) -> tuple[dict[str, Any], Tensors]:
    """Describe an encoder; of a user's own, tensors alone are kept."""
    tensors = _state(encoder, "encoder")
    floats = [t.dtype for t in (*encoder.parameters(), *encoder.buffers()) if t.is_floating_point()]
    described = None if own else _describe_encoder(encoder)
    if described is None:
        described = {"kind": "own", "class": type(encoder).__name__}
    if described["kind"] != "identity":
        described["dtype"] = str(floats[0]).removeprefix("torch.") if floats else None
    return described, tensors


def unpack_encoder(fields: Fields, store: TensorStore, n_features: int, given: nn.Module | None) -> nn.Module:
    """Build the encoder that was described, or fill a copy of the one given.

    Parameters
    ----------
    n_features : features that it must give.
    given : the user's own encoder.
    """
    kind = fields.text("kind", ("identity", "mlp", "autoencoder", "resnet18", "own"))
    if (given is not None) != (kind == "own"):
        if kind == "own":
            name = fields.text("class")[:80]
            raise BadContentError(f"It was fitted with an encoder of your own ({name!r}).", "Pass that as encoder=.")
        raise BadContentError(f"It has a built-in encoder ({kind!r}).", "Do not pass encoder=.")
    if kind == "identity":
        return nn.Identity().eval()
    floats = () if fields.is_null("dtype") else (FLOATS[fields.text("dtype", FLOATS)],)
    if given is not None:
        fields.text("class")
        return _fill_own(given, store, floats).eval()
    n_in = fields.whole("in_features", 1, LARGEST)
    with torch.device("meta"):
        if kind == "resnet18":
            last = None if fields.is_null("n_features") else fields.whole("n_features", n_features, n_features)
            width = fields.whole("width", 1, 2**16)
            if last is None and n_features != 8 * width:
                raise BadContentError(f"The encoder gives {8 * width} features, not {n_features}.")
            encoder: nn.Module = ResNet18(n_in, last, width)
        else:
            fields.whole("n_features", n_features, n_features)
            encoder = make_encoder(cast(EncoderName, kind), (n_in,), n_features=n_features, hidden=_hidden(fields))
    store.fill(encoder, "encoder", floats)
    if isinstance(encoder, RowEncoder):
        _check_columns(encoder.columns)
    return encoder.eval()


def encoder_width(encoder: nn.Module) -> int | None:
    """Columns or channels that a ready-made encoder takes, if it is one that tells."""
    described = _describe_encoder(encoder)
    return None if described is None else described.get("in_features")


def _describe_encoder(encoder: nn.Module) -> dict[str, Any] | None:
    """Name and sizes of a ready-made encoder; ``None`` for one that is not."""
    if type(encoder) is nn.Identity:
        return {"kind": "identity"}
    if type(encoder) is AutoEncoder:
        return {"kind": "autoencoder", **_mlp_sizes(encoder.encoder)}
    if type(encoder) is MLPEncoder:
        return {"kind": "mlp", **_mlp_sizes(encoder.encoder)}
    if type(encoder) is ResNet18 and isinstance(stem := encoder[0], nn.Conv2d):
        last = encoder[-1]
        n_features = last.out_features if isinstance(last, nn.Linear) else None
        return {
            "kind": "resnet18", "in_features": stem.in_channels, "n_features": n_features, "width": stem.out_channels
        }  # fmt: skip
    return None


def _fill_own(given: nn.Module, store: TensorStore, floats: tuple[torch.dtype, ...]) -> nn.Module:
    advice = "Pass an encoder that was built as it was for fitting."
    expected, found = set(given.state_dict()), store.names("encoder")
    if expected != found:
        raise BadContentError(
            f"The encoder given ({type(given).__name__}) does not fit: it lacks {sorted(found - expected)[:5]} and has "
            f"{sorted(expected - found)[:5]} besides.",
            advice,
        )
    encoder = copy.deepcopy(given)
    if floats:
        encoder = encoder.to(floats[0])  # buffers that are not stored
    try:
        store.fill(encoder, "encoder", tuple(FLOATS.values()), finite=False)
    except (BadContentError, RuntimeError) as error:
        raise BadContentError(f"The encoder given does not fit. {str(error)[:300]}", advice) from error
    return encoder.cpu()


def pack_demixer(demixer: Demixer) -> tuple[dict[str, Any], Tensors]:
    """Describe a de-mixing function."""
    linear, flow = demixer.linear, demixer.flow
    described = {
        "n_features": linear.n_features,
        "n_kept": len(linear.kept_k),
        "n_signal": linear.n_signal,
        "rank": linear.weight.left_kr.shape[1] if isinstance(linear.weight, LowRank) else None,
        "prior": "per-class" if isinstance(demixer.prior, ClassPrior) else "shared",
        "flow": None if flow is None else {"n_blocks": len(flow.blocks), "hidden": _flow_hidden(flow)},
    }
    return described, _state(demixer, "demixer")


def unpack_demixer(fields: Fields, store: TensorStore, n_classes: int) -> Demixer:
    """Build the de-mixing function that was described."""
    d = fields.whole("n_features", 1, LARGEST)
    k = fields.whole("n_kept", 1, d)
    q = fields.whole("n_signal", 1, k)
    rank = None if fields.is_null("rank") else fields.whole("rank", 0, k)
    shapes = {"weight_kk": (k, k)} if rank is None else {"left_kr": (k, rank), "right_kr": (k, rank)}
    for name, shape in shapes.items():
        store.check(f"demixer.linear.weight.{name}", shape, (torch.float64,))
    store.check("demixer.linear.standardise.center_d", (d,), (torch.float64,))
    with torch.device("meta"):
        prior: SharedPrior | ClassPrior = SharedPrior()
        if fields.text("prior", ("shared", "per-class")) == "per-class":
            prior = ClassPrior(n_classes, q)
        weight: Tensor | LowRank = torch.empty(k, k)
        if rank is not None:
            weight = LowRank(torch.empty(()), torch.empty(k, rank), torch.empty(k, rank))
        columns = Standardise(*(torch.empty(d) for _ in range(4)))
        linear = LinearDemixing(columns, torch.empty(k, dtype=torch.int64), weight, q)
    flow = None
    if not fields.is_null("flow"):
        with fields.part("flow") as part:
            flow = _unpack_flow(part, store, q)
    demixer = Demixer(linear, prior, flow)
    store.fill(demixer, "demixer")
    kept = linear.kept_k
    if kept.min() < 0 or kept.max() >= d or len(kept.unique()) != k:
        raise BadContentError(f"The columns to keep are not {k} different ones of {d}.")
    _check_columns(columns)
    return demixer.eval()


def _check_columns(columns: Standardise) -> None:
    if not ((columns.spread_d > 0).all() and (columns.low_d <= columns.high_d).all()):
        raise BadContentError("The columns have spreads that are not positive, or bounds that are out of order.")


def _unpack_flow(fields: Fields, store: TensorStore, n_sources: int) -> MaskedFlow:
    """A flow with the right shapes. Its masks come from tensors, so it cannot be built without memory: check first."""
    n_blocks, hidden = fields.whole("n_blocks", 1, 4096), _hidden(fields)
    for block in range(n_blocks):
        name = f"demixer.flow.blocks.{block}"
        if n_sources == 1:
            store.check(f"{name}.phi.0", (1,), (torch.float64,))
            continue
        sizes = (n_sources, *hidden, 2 * n_sources)
        for layer, (n_in, n_out) in enumerate(pairwise(sizes)):
            store.check(f"{name}.hyper.{2 * layer}.weight", (n_out, n_in), (torch.float64,))
    with seeded(0):  # not from the caller's numbers; they are overwritten
        return MaskedFlow(n_sources, n_blocks, hidden)


def _flow_hidden(flow: MaskedFlow) -> list[int]:
    network = getattr(flow.blocks[0], "hyper", None)
    if not isinstance(network, nn.Sequential):
        return []  # one source: there is no network
    return [layer.out_features for layer in network if isinstance(layer, nn.Linear)][:-1]


def pack_head(head: nn.Module) -> tuple[dict[str, Any], Tensors]:
    """Describe a head."""
    inner = head.head if isinstance(head, BalancedHead) else head
    described: dict[str, Any] = {"balanced_afterwards": isinstance(head, BalancedHead)}
    if type(inner) is MLP:
        dropout = next((layer.p for layer in inner if isinstance(layer, nn.Dropout)), 0.0)
        described |= {"kind": "mlp", "hidden": _mlp_sizes(inner)["hidden"], "dropout": dropout}
    elif type(inner) in (nn.Linear, GaussianHead):
        described["kind"] = "linear" if type(inner) is nn.Linear else "gaussian"
    else:
        raise InputError(f"A head of class {type(inner).__name__} cannot be saved.")
    return described, _state(head, "head")


def unpack_head(fields: Fields, store: TensorStore, n_sources: int, n_classes: int) -> tuple[str, nn.Module]:
    """Build the head that was described; with it the name of its kind."""
    kind = fields.text("kind", ("linear", "mlp", "gaussian"))
    with torch.device("meta"):
        if kind == "gaussian":
            head: nn.Module = GaussianHead(torch.empty(n_classes, n_sources), torch.empty(n_classes, n_sources))
        elif kind == "linear":
            head = make_head(n_sources, n_classes)
        else:
            dropout = fields.raw("dropout")
            if type(dropout) is not float or not 0 <= dropout < 1:
                raise BadContentError("The head's dropout is not a share.")
            head = make_head(n_sources, n_classes, _hidden(fields), dropout)
        if fields.flag("balanced_afterwards"):
            head = BalancedHead(head, torch.empty(n_classes))
    store.fill(head, "head")
    if isinstance(head, GaussianHead) and not (head.variance_md > 0).all():
        raise BadContentError("The head has variances that are not positive.")
    return kind, head.eval()


def _mlp_sizes(mlp: Sequence[Any] | nn.Module) -> dict[str, Any]:
    layers = [layer for layer in mlp if isinstance(layer, nn.Linear)]  # type: ignore[union-attr]
    return {
        "in_features": layers[0].in_features,
        "hidden": [layer.out_features for layer in layers[:-1]],
        "n_features": layers[-1].out_features,
    }


def _hidden(fields: Fields) -> tuple[int, ...]:
    return fields.wholes("hidden", 1, LARGEST, MOST_LAYERS)


def _state(module: nn.Module, prefix: str) -> Tensors:
    state = module.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError(f"The {prefix} cannot be saved: {name!r} in its state_dict is not a tensor.")
    return {f"{prefix}.{name}": value for name, value in state.items()}
