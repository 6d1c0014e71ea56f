"""How the attributes of a fitted estimator go to files and back.

Each attribute is declared once, by name and kind: a plain value with a type, an array with a shape and a dtype, labels,
or a network. ``pack`` and ``unpack`` do the rest. Sizes in shapes have names, such as ``"classes sources"``: the first
array that has a size gives it its value, and all others must agree. Shapes are compared before anything is read, so
that an array that is not wanted costs nothing.

Plain values are JSON, with a form for what JSON lacks: tuples, NaN, vectors of labels, objects of ours. What is saved
of a network are its tensors, and little else: its sizes can be seen from their shapes. It is built by its own
constructor on the meta device, where nothing is allocated, and then given the tensors.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
import pandas as pd
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.disk import typed
from ecrt.errors import BadContentError, InputError
from ecrt.flows import ClassPrior, Demixer, LinearDemixing, LowRank, MaskedFlow, SharedPrior
from ecrt.losses import LossRule
from ecrt.nn import (
    MLP,
    AutoEncoder,
    BalancedHead,
    ClassGaussians,
    CosineHead,
    Forest,
    GrownTrees,
    MLPEncoder,
    ResNet18,
    RowEncoder,
    Standardise,
    Trees,
    make_encoder,
    make_head,
)
from ecrt.randomness import seeded
from ecrt.stages import Part, Restart
from ecrt.stages.parts import part_classes
from ecrt.training import History

LABEL_DTYPES = re.compile(r"object|\|b1|\|[iu]1|[<>](?:[iu][248]|f[248]|U\d{1,8})", re.ASCII)
Label = str | int | float | bool
LABELS: dict[str, Any] = {"b": list[bool], "i": list[int], "u": list[int], "f": list[float], "U": list[str]}
MOST_ITEMS = 10**6
MOST_ARRAY_BYTES = 64 * 2**20
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

TENSORS = "tensors"
"""Stands in the JSON file for an attribute that is in the tensor file."""

DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool}

OBJECTS: dict[str, type[Any]] = {"History": History, "Restart": Restart}
"""Dataclasses that may stand among plain values, besides parts. No name in a file is looked up anywhere else.

On the way back a part must pass its own ``check``; of other dataclasses the types of the fields are checked.
"""

LARGEST = 2**24
"""Of any size of a layer."""

MOST_LAYERS = 64
MOST_BLOCKS = 4096
MOST_DEPTH = 1024
"""Of a tree."""

FLOATS = (torch.float32, torch.float64)
ENCODERS: dict[type[nn.Module], str] = {
    nn.Identity: "identity",
    MLPEncoder: "mlp",
    AutoEncoder: "autoencoder",
    ResNet18: "resnet18",
}


# --- plain values ---------------------------------------------------------------------------------------------------


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    fields: dict[str, Any]


class _Array(msgspec.Struct, forbid_unknown_fields=True):
    dtype: Annotated[str, Meta(max_length=10)]
    values: Annotated[list[Any], Meta(max_length=MOST_ITEMS)]


def to_plain(value: Any, where: str) -> Any:
    """A value as JSON; what is not of a kind that comes back as it was, is refused.

    >>> to_plain({"hidden": (128, 128), "loss": float("inf")}, "option")
    {'hidden': {'$tuple': [128, 128]}, 'loss': {'$float': 'inf'}}
    """
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        if abs(value) >= 2**64:
            raise InputError(f"{where} cannot be saved: {value} is too large.")
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, tuple):
        return {"$tuple": [to_plain(item, where) for item in value]}
    if isinstance(value, (list, set, frozenset)):
        return [to_plain(item, where) for item in (value if isinstance(value, list) else sorted(value, key=repr))]
    if isinstance(value, dict):
        if not all(isinstance(key, str) and not key.startswith("$") for key in value):
            raise InputError(f"{where} cannot be saved: keys must be strings that do not start with '$'.")
        return {str(key): to_plain(item, where) for key, item in value.items()}
    if isinstance(value, (np.ndarray, pd.Series, pd.Index)):
        return {"$array": array_to_plain(np.asarray(value), where)}
    name = type(value).__name__
    if type(value) is _known(name):
        names = [field.name for field in dataclasses.fields(value)]
        fields = {field: to_plain(getattr(value, field), f"{where}, {field}") for field in names}
        return {"$object": {"kind": name, "fields": fields}}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, nn.Module):
        return {"$module": name}
    if callable(value) or isinstance(value, Part | LossRule):
        raise InputError(
            f"{where} cannot be saved: it is code of yours ({getattr(value, '__name__', name)}), and files hold none. "
            "Make it a class with a short name (docs/extend.md), or keep the model with joblib.dump."
        )
    raise InputError(f"{where} cannot be saved: it is of type {name}.")


def from_plain(value: Any, where: str, module: nn.Module | None = None) -> Any:
    """The value that ``to_plain`` was given; ``module`` stands for a torch module, which is not saved itself."""
    if isinstance(value, list):
        return [from_plain(item, where, module) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: from_plain(item, where, module) for key, item in value.items()}
    content = value[tag]
    if len(value) > 1:
        raise BadContentError(f"{where} holds a value with fields that are not known here.")
    if tag == "$tuple" and isinstance(content, list):
        return tuple(from_plain(item, where, module) for item in content)
    if tag == "$float":
        return NOT_FINITE[typed(content, Literal["nan", "inf", "-inf"], where)]
    if tag == "$array":
        return array_from_plain(content, where)
    if tag == "$object":
        return _object(typed(content, _Object, where), where, module)
    if tag == "$module":
        return module
    raise BadContentError(f"{where} holds a value of unknown kind {tag[:60]!r}.")


def _known(name: str) -> type[Any] | None:
    """A class whose objects may be saved: a registered one, or a part, the user's own ones included."""
    return OBJECTS.get(name) or next((one for one in part_classes(Part) if one.__name__ == name), None)


def _object(described: _Object, where: str, module: nn.Module | None) -> Any:
    kind = _known(described.kind)
    if kind is None:
        raise BadContentError(f"{where} holds an object of unknown kind {described.kind[:60]!r}.")
    names = {field.name for field in dataclasses.fields(kind)}
    if described.fields.keys() != names:
        raise BadContentError(f"{where} holds a {described.kind} with other fields than {sorted(names)}.")
    fields = {name: from_plain(item, f"{where}.{name}", module) for name, item in described.fields.items()}
    if not hasattr(kind, "check"):
        return typed(fields, kind, where)
    part = kind(**fields)
    try:
        part.check()
    except (TypeError, ValueError) as error:
        raise BadContentError(f"{where} holds a {described.kind} that cannot be: {str(error)[:300]}") from error
    return part


def array_to_plain(array: NDArray[Any], where: str) -> dict[str, Any]:
    """A vector of labels (numbers, truth values or strings) with its dtype."""
    dtype = "object" if array.dtype == object else array.dtype.str
    if array.ndim != 1 or not LABEL_DTYPES.fullmatch(dtype):
        raise InputError(f"{where} cannot be saved: dtype {array.dtype}, shape {array.shape}.")
    values = array.tolist()
    if not all(isinstance(value, (str, int, float, np.bool_, np.number)) for value in values):
        raise InputError(f"{where} cannot be saved: labels must be strings, numbers or truth values.")
    return {"dtype": dtype, "values": [to_plain(value, where) for value in values]}


def array_from_plain(value: Any, where: str) -> NDArray[Any]:
    """The vector that ``array_to_plain`` was given."""
    found: _Array = typed(value, _Array, where)
    if not LABEL_DTYPES.fullmatch(found.dtype):
        raise BadContentError(f"{where} has the dtype {found.dtype!r}, which labels cannot have.")
    dtype = np.dtype(found.dtype)
    values = typed([from_plain(item, where) for item in found.values], LABELS.get(dtype.kind, list[Label]), where)
    if dtype.itemsize * len(values) > MOST_ARRAY_BYTES:
        raise BadContentError(f"{where} would take {dtype.itemsize} bytes for each of {len(values)} values.")
    try:
        array = np.array(values, dtype=dtype)
    except (OverflowError, ValueError) as error:
        raise BadContentError(f"{where} holds a value that its dtype {dtype.str} cannot.") from error
    if dtype.kind == "U" and array.tolist() != values:
        raise BadContentError(f"{where} holds strings longer than its dtype {dtype.str}.")
    return array


# --- attributes -----------------------------------------------------------------------------------------------------


class TensorStore:
    """The tensors of a model, and what is known of it while it is packed or unpacked.

    Attributes
    ----------
    tensors : by name. When unpacking, each is taken once; those on disk are read then, once their shapes are known to
        be right.
    attributes : of the estimator, by name; when unpacking, those unpacked so far.
    own_encoder : the user's own module, if the encoder is one.
    sizes : those known so far, by name.
    """

    def __init__(
        self, tensors: Mapping[str, Any], attributes: Mapping[str, Any], own_encoder: nn.Module | None
    ) -> None:
        self.tensors, self.attributes, self.own_encoder = dict(tensors), dict(attributes), own_encoder
        self.sizes: dict[str, int] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, which must be there."""
        if name not in self.tensors:
            raise BadContentError(f"Tensor {name!r} is missing.")
        return tuple(self.tensors[name].shape)

    def sized(self, name: str, wanted: str) -> tuple[int, ...]:
        """The shape that a tensor should have; sizes that are not known yet are learned from it."""
        symbols, found = wanted.split(), self.shape(name)
        if len(symbols) != len(found):
            raise BadContentError(f"Tensor {name!r} has shape {found}; needed is ({', '.join(symbols)}).")
        return tuple(
            int(symbol) if symbol.isdigit() else self.sizes.setdefault(symbol, size)
            for symbol, size in zip(symbols, found, strict=True)
        )

    def check(self, name: str, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
        """Refuse a tensor that is missing, or is not what is expected, before anything of its size is built."""
        found = self.shape(name)
        if found != shape or self.tensors[name].dtype not in dtypes:
            raise BadContentError(
                f"Tensor {name!r} is {self.tensors[name].dtype} of shape {found}; needed is "
                f"{' or '.join(str(dtype) for dtype in dtypes)} of shape {shape}."
            )

    def take(self, name: str, shape: tuple[int, ...], *dtypes: torch.dtype, finite: bool = True) -> Tensor:
        """The tensor of that name, which must have this shape and one of these dtypes."""
        self.check(name, shape, *dtypes)
        stored = self.tensors.pop(name)
        tensor: Tensor = stored if isinstance(stored, Tensor) else stored.read()
        if finite and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise BadContentError(f"Tensor {name!r} holds NaN or infinity.")
        return tensor

    def fill(
        self, module: nn.Module, prefix: str, floats: tuple[torch.dtype, ...] = (torch.float64,), *, finite: bool = True
    ) -> None:
        """Give a module its tensors, in place of those it was built with (which may be on the meta device).

        Parameters
        ----------
        prefix : what names of the tensors have before the names in the module's ``state_dict``.
        floats : dtypes that floating-point tensors may have.
        """
        state = {}
        for name, built in module.state_dict().items():
            dtypes = floats if built.is_floating_point() else (built.dtype,)
            state[name] = self.take(f"{prefix}.{name}", tuple(built.shape), *dtypes, finite=finite)
        module.load_state_dict(state, strict=True, assign=True)

    def under(self, prefix: str) -> dict[str, torch.dtype]:
        """Names that begin with a prefix, without the prefix, and their dtypes."""
        prefix = f"{prefix}."
        return {name.removeprefix(prefix): t.dtype for name, t in self.tensors.items() if name.startswith(prefix)}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How an attribute is packed: as JSON, and as tensors whose names begin with its own.

    Attributes
    ----------
    optional : whether an estimator may lack the attribute.
    """

    optional: bool = False

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """Give the JSON, and add the tensors."""
        raise NotImplementedError

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """The value; a ``BadContentError`` if it does not fit what is known of the model."""
        raise NotImplementedError


def pack(
    estimator: object, declared: Mapping[str, Kind], own_encoder: nn.Module | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON and tensors of the declared attributes of an estimator."""
    store = TensorStore({}, vars(estimator), own_encoder)
    there = [name for name, kind in declared.items() if name in store.attributes or not kind.optional]
    document = {name: declared[name].pack(store.attributes[name], name, store) for name in there}
    return document, store.tensors


def unpack(
    document: dict[str, Any], declared: Mapping[str, Kind], tensors: Mapping[str, Any], own_encoder: nn.Module | None
) -> dict[str, Any]:
    """The attributes that ``pack`` was given. All of the document and all tensors must be of them."""
    store = TensorStore(tensors, {}, own_encoder)
    for name, kind in declared.items():
        if name in document:
            store.attributes[name] = kind.unpack(document[name], name, store)
        elif not kind.optional:
            raise BadContentError(f"The model has no attribute {name!r}.")
    for what, names in (("attributes", document.keys() - declared.keys()), ("tensors", store.tensors.keys())):
        if names:
            shown = ", ".join(repr(name[:60]) for name in sorted(names)[:5])
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise BadContentError(f"The model has {what} that are not known here: {shown}{more}.")
    return store.attributes


@dataclass(frozen=True)
class Value(Kind):
    """A plain value of a type that msgspec knows, such as ``Literal["none", "linear"]``."""

    type: Any

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """As JSON."""
        return to_plain(value, name)

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """From JSON."""
        return typed(from_plain(plain, name, store.own_encoder), self.type, name)


@dataclass(frozen=True)
class Labels(Kind):
    """A vector of labels (strings, numbers or truth values), and the name of its size."""

    size: str

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """As JSON, with the dtype."""
        return array_to_plain(value, name)

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """From JSON."""
        labels = array_from_plain(plain, name)
        store.sizes[self.size] = len(labels)
        return labels


@dataclass(frozen=True)
class Array(Kind):
    """An array of numbers or truth values.

    Attributes
    ----------
    shape : names of its sizes, or numbers, with spaces between them.
    dtype : float or int, of 64 bits, or bool.
    least : smallest value allowed.
    positive : whether all must be above zero.
    below : name of a size that all must be below.
    nullable : whether it may be ``None`` instead.
    fractions : whether an array of int may hold floats instead.
    """

    shape: str
    dtype: type = float
    least: float | None = None
    positive: bool = False
    below: str | None = None
    nullable: bool = False
    fractions: bool = False

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """As a tensor."""
        if value is None and self.nullable:
            return None
        store.tensors[name] = value
        return TENSORS

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """The tensor as an array."""
        if plain is None and self.nullable:
            return None
        _check_marked(plain, name)
        dtypes = [DTYPES[self.dtype], *([torch.float64] if self.fractions else [])]
        array = store.take(name, store.sized(name, self.shape), *dtypes).numpy()
        low, high = (array.min(), array.max()) if array.size else (1, -1)
        if (
            (self.least is not None and low < self.least)
            or (self.positive and low <= 0)
            or (self.below is not None and high >= store.sizes[self.below])
        ):
            raise BadContentError(f"{name} holds numbers from {low} to {high}, which is not possible.")
        return array


@dataclass(frozen=True)
class Subset(Kind):
    """Some of the labels of another attribute, unpacked before, or some positions in it: a truth value for each."""

    of: str
    positions: bool = False

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """As a tensor of truth values."""
        store.tensors[name] = np.isin(_labels(store, self.of, self.positions), value)
        return TENSORS

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Those of which it is true."""
        _check_marked(plain, name)
        labels = _labels(store, self.of, self.positions)
        return labels[store.take(name, labels.shape, torch.bool).numpy()]


@dataclass(frozen=True)
class Rows(Kind):
    """A tuple of dataclasses, one for each label of an attribute: a tensor for each field, since they may be many.

    Attributes
    ----------
    row : the dataclass. Its first field is the label, the others are numbers or truth values.
    of, positions : the labels, as in ``Subset``.
    """

    row: type[Any]
    of: str
    positions: bool = False

    def _columns(self, name: str) -> dict[str, type]:
        """Types of the tensors by name."""
        by_name: dict[str, type] = {kind.__name__: kind for kind in DTYPES}
        return {f"{name}.{column.name}": by_name[str(column.type)] for column in dataclasses.fields(self.row)[1:]}

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """A tensor for each field."""
        for column, kind in self._columns(name).items():
            field = column.removeprefix(f"{name}.")
            store.tensors[column] = np.array([getattr(row, field) for row in value], dtype=kind)
        return TENSORS

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Row by row."""
        _check_marked(plain, name)
        labels = _labels(store, self.of, self.positions)
        columns = [
            store.take(column, labels.shape, DTYPES[kind], finite=False).tolist()
            for column, kind in self._columns(name).items()
        ]
        return tuple(self.row(*row) for row in zip(labels.tolist(), *columns, strict=True))


@dataclass(frozen=True)
class Record(Kind):
    """An object of some class, or a tuple, of which each field has a kind."""

    of: type[Any]
    fields: Mapping[str, Kind]

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """Field by field."""
        values = value if isinstance(value, tuple) else [getattr(value, key) for key in self.fields]
        parts = zip(self.fields.items(), values, strict=True)
        return {key: kind.pack(part, f"{name}.{key}", store) for (key, kind), part in parts}

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Field by field."""
        if not isinstance(plain, dict) or plain.keys() != self.fields.keys():
            raise BadContentError(f"{name} does not have the fields {sorted(self.fields)}.")
        values = {key: kind.unpack(plain[key], f"{name}.{key}", store) for key, kind in self.fields.items()}
        return tuple(values.values()) if self.of is tuple else self.of(**values)


def _labels(store: TensorStore, name: str, positions: bool) -> NDArray[Any]:
    labels: NDArray[Any] = store.attributes[name]
    return np.arange(len(labels)) if positions else labels


def _check_marked(plain: Any, name: str) -> None:
    if plain != TENSORS:
        raise BadContentError(f"{name} should be in the tensor file.")


# --- networks -------------------------------------------------------------------------------------------------------


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


class _EncoderRecord(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["identity", "mlp", "autoencoder", "resnet18", "own"]
    name: str = ""


@dataclass(frozen=True)
class EncoderNetwork(Kind):
    """An encoder: the name of a ready-made one, or that of the class of the user's own, and its tensors."""

    def pack(self, value: Any, name: str, store: TensorStore) -> Any:
        """Its name, and tensors."""
        _pack_state(value, name, store)
        kind = ENCODERS.get(type(value)) if store.own_encoder is None else None
        return {"kind": "own", "name": type(value).__name__} if kind is None else {"kind": kind}

    def unpack(self, plain: Any, name: str, store: TensorStore) -> Any:
        """Built anew, or a copy of the user's own with the saved tensors."""
        record: _EncoderRecord = typed(plain, _EncoderRecord, name)
        kind, given = record.kind, store.own_encoder
        if kind == "own" and given is None:
            raise BadContentError(
                f"It was fitted with your own encoder ({record.name[:80]!r}).", "Pass that as encoder=."
            )
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
            there = store.under(prefix)
            layers: dict[str, Any] = {"n_features": n_out, "hidden": hidden}
            if kind == "mlp":
                layers["dropout"] = 0.0 if "encoder.2.weight" in there else 0.1
                layers["batch_norm"] = "normalise.running_mean" in there
            return make_encoder(cast(Any, kind), (n_in,), **layers), n_out
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
            f"The encoder given ({type(given).__name__}) does not fit: it lacks {lacking} and also has {more}.",
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


class HeadShape(NamedTuple):
    """Kind of a head, and the layers and dropout of an MLP."""

    kind: Literal["linear", "cosine", "mlp", "gaussian", "trees", "forest"]
    hidden: tuple[int, ...] = ()
    dropout: float = 0.0


def head_shape(head: nn.Module) -> HeadShape:
    """What a head is, whether balanced afterwards or not."""
    inner = head.head if isinstance(head, BalancedHead) else head
    if type(inner) is MLP:
        hidden = [layer.out_features for layer in inner if isinstance(layer, nn.Linear)][:-1]
        dropout = next((layer.p for layer in inner if isinstance(layer, nn.Dropout)), 0.0)
        return HeadShape("mlp", tuple(hidden), dropout)
    kinds: dict[type[nn.Module], Any] = {
        nn.Linear: "linear", CosineHead: "cosine", ClassGaussians: "gaussian", Trees: "trees", Forest: "forest",
    }  # fmt: skip
    if type(inner) not in kinds:
        raise InputError(f"A head of class {type(inner).__name__} cannot be saved.")
    return HeadShape(kinds[type(inner)])


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
            if "root_st" in there:
                head: nn.Module = _new_trees(store, inner, n_outputs)
            elif "share_km" in there:
                head = _new_forest(store, inner, n_outputs)
            elif "variance_md" in there:
                head = ClassGaussians(torch.empty(n_outputs, n_sources), torch.empty(n_outputs, n_sources))
            elif "scale" in there:
                head = CosineHead(n_sources, n_outputs)
            else:
                hidden = () if "weight" in there else _layer_sizes(store, inner)[1:-1]
                head = make_head(n_sources, n_outputs, hidden, dropout)
            if balanced:
                head = BalancedHead(head, torch.empty(n_outputs))
        store.fill(head, name)
        found = head.head if balanced else head
        if isinstance(found, ClassGaussians) and not (found.variance_md > 0).all():
            raise BadContentError("The head has variances that are not positive.")
        if isinstance(found, GrownTrees):
            _check_trees(found, n_sources)
        return head.eval()


def _new_trees(store: TensorStore, name: str, n_outputs: int) -> Trees:
    """Trees without tensors; two classes have one logit."""
    (k,), (steps, logits) = store.shape(f"{name}.value_k")[:1] or (0,), (*store.shape(f"{name}.root_st"), 0, 0)[:2]
    if not 1 <= k <= LARGEST or not 1 <= steps <= LARGEST or logits != (1 if n_outputs == 2 else n_outputs):
        raise BadContentError("The trees are not those of a head.")
    values, places = torch.empty(k), torch.empty(k, dtype=torch.int64)
    roots, depth = torch.empty(steps, logits, dtype=torch.int64), torch.empty((), dtype=torch.int64)
    return Trees(values, places, places, places, values, roots, torch.empty(logits), depth)


def _new_forest(store: TensorStore, name: str, n_outputs: int) -> Forest:
    """A forest without tensors."""
    (k,), (n_trees,) = ((*store.shape(f"{name}.{one}"), 0)[:1] for one in ("share_km", "root_t"))
    if not 1 <= k <= LARGEST or not 1 <= n_trees <= LARGEST:
        raise BadContentError("The forest is not that of a head.")
    values, places = torch.empty(k), torch.empty(k, dtype=torch.int64)
    roots, depth = torch.empty(n_trees, dtype=torch.int64), torch.empty((), dtype=torch.int64)
    return Forest(values, places, places, places, torch.empty(k, n_outputs), roots, depth)


def _check_trees(trees: GrownTrees, n_sources: int) -> None:
    roots: Tensor = trees.get_buffer("root_t" if isinstance(trees, Forest) else "root_st")
    limits: list[tuple[Tensor, int]] = [(trees.feature_k, n_sources), (trees.depth, MOST_DEPTH)]
    limits += [(places, len(trees.threshold_k)) for places in (trees.left_k, trees.right_k, roots)]
    if any(int(values.min()) < 0 or int(values.max()) >= limit for values, limit in limits):
        raise BadContentError("The trees point to columns or nodes that are not there.")
    if isinstance(trees, Forest) and not (trees.share_km >= 0).all():
        raise BadContentError("The forest has shares below zero.")
