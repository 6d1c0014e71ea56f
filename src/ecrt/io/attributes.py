"""How the attributes of a fitted estimator go to files and back.

Each attribute is declared once, by name and kind: a plain value with a type, an array with a shape and a dtype, labels,
or a network (see :mod:`ecrt.io.networks`). ``pack`` and ``unpack`` do the rest. Sizes in shapes have names, such as
``"classes sources"``: the first array that has a size gives it its value, and all others must agree. Shapes are
compared before anything is read, so that an array that is not wanted costs nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ecrt.io.parsing import BadContentError, typed
from ecrt.io.values import array_from_plain, array_to_plain, from_plain, to_plain

TENSORS = "tensors"
"""Stands in the JSON file for an attribute that is in the tensor file."""

DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool}


@dataclass
class Packed:
    """What is to be written.

    Attributes
    ----------
    attributes : of the estimator, by name.
    own_encoder : whether its encoder is a module of the user's, of which tensors alone are kept.
    tensors : those of the attributes packed so far.
    """

    attributes: Mapping[str, Any]
    own_encoder: bool = False
    tensors: dict[str, Tensor | NDArray[Any]] = field(default_factory=dict)


@dataclass
class Unpacked:
    """What is read.

    Attributes
    ----------
    store : the tensors, and the sizes known so far.
    own_encoder : the user's module, if one was given.
    attributes : those unpacked so far, by name.
    """

    store: TensorStore
    own_encoder: nn.Module | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How an attribute is packed: as JSON, which is returned, and as tensors whose names begin with its own.

    Attributes
    ----------
    optional : whether an estimator may lack the attribute.
    """

    optional: bool = False

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """Give the JSON, and add the tensors."""
        raise NotImplementedError

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """The value; a ``BadContentError`` if it cannot be what the file says."""
        raise NotImplementedError


def pack(
    estimator: object, declared: Mapping[str, Kind], *, own_encoder: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """JSON and tensors of the declared attributes of an estimator."""
    to = Packed(vars(estimator), own_encoder)
    document = {
        name: kind.pack(to.attributes[name], name, to)
        for name, kind in declared.items()
        if name in to.attributes or not kind.optional
    }
    return document, to.tensors


def unpack(
    document: dict[str, Any], declared: Mapping[str, Kind], tensors: Mapping[str, Any], own_encoder: nn.Module | None
) -> dict[str, Any]:
    """The attributes that ``pack`` was given. All of the document and all tensors must be of them."""
    if unknown := document.keys() - declared.keys():
        raise BadContentError(f"The model has attributes that are not known here: {_some(unknown)}.")
    source = Unpacked(TensorStore(tensors), own_encoder)
    for name, kind in declared.items():
        if name in document:
            source.attributes[name] = kind.unpack(document[name], name, source)
        elif not kind.optional:
            raise BadContentError(f"The model has no attribute {name!r}.")
    source.store.end()
    return source.attributes


@dataclass(frozen=True)
class Value(Kind):
    """A plain value of a type that msgspec knows, such as ``Literal["none", "linear"]``."""

    type: Any

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """As JSON."""
        return to_plain(value, name)

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """From JSON."""
        return typed(from_plain(plain, name), self.type, name)


@dataclass(frozen=True)
class Labels(Kind):
    """A vector of labels: strings, numbers or truth values.

    Attributes
    ----------
    size : name of its length.
    """

    size: str

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """As JSON, with the dtype."""
        return array_to_plain(value, name)

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """From JSON."""
        labels = array_from_plain(plain, name)
        source.store.sizes[self.size] = len(labels)
        return labels


@dataclass(frozen=True)
class Array(Kind):
    """An array of numbers or truth values.

    Attributes
    ----------
    shape : names of its sizes, or numbers, with spaces between them.
    dtype : float, int or bool; 64 bits each, but for bool.
    least : smallest value allowed.
    positive : whether all must be above zero.
    below : name of a size that all must be below.
    finite : whether NaN and infinity are refused.
    nullable : whether it may be ``None`` instead.
    """

    shape: str
    dtype: type = float
    least: float | None = None
    positive: bool = False
    below: str | None = None
    finite: bool = True
    nullable: bool = False

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """As a tensor."""
        if value is None and self.nullable:
            return None
        to.tensors[name] = value
        return TENSORS

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """The tensor as an array."""
        if plain is None and self.nullable:
            return None
        _check_marked(plain, name)
        store = source.store
        array = store.take(name, store.sized(name, self.shape), DTYPES[self.dtype], finite=self.finite).numpy()
        low, high = (array.min(), array.max()) if array.size else (1, -1)
        if (
            (self.least is not None and low < self.least)
            or (self.positive and low <= 0)
            or (self.below is not None and high >= store.sizes[self.below])
        ):
            raise BadContentError(f"{name} holds numbers from {low} to {high}, which cannot be.")
        return array


@dataclass(frozen=True)
class Subset(Kind):
    """Some of the labels of another attribute, or some positions in it, as a truth value for each.

    Attributes
    ----------
    of : name of the other attribute, unpacked before.
    positions : whether the values are positions.
    """

    of: str
    positions: bool = False

    def _all(self, attributes: Mapping[str, Any]) -> NDArray[Any]:
        whole: NDArray[Any] = attributes[self.of]
        return np.arange(len(whole)) if self.positions else whole

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """As a tensor of truth values."""
        to.tensors[name] = np.isin(self._all(to.attributes), value)
        return TENSORS

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """Those of which it is true."""
        _check_marked(plain, name)
        whole = self._all(source.attributes)
        return whole[source.store.take(name, whole.shape, torch.bool).numpy()]


@dataclass(frozen=True)
class Record(Kind):
    """An object of some class, or a tuple, of which each field has a kind."""

    of: type[Any]
    fields: Mapping[str, Kind]

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """Field by field."""
        values = value if isinstance(value, tuple) else [getattr(value, key) for key in self.fields]
        parts = zip(self.fields.items(), values, strict=True)
        return {key: kind.pack(part, f"{name}.{key}", to) for (key, kind), part in parts}

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """Field by field."""
        if not isinstance(plain, dict) or plain.keys() != self.fields.keys():
            raise BadContentError(f"{name} has not the fields {sorted(self.fields)}.")
        values = {key: kind.unpack(plain[key], f"{name}.{key}", source) for key, kind in self.fields.items()}
        return tuple(values.values()) if self.of is tuple else self.of(**values)


@dataclass(frozen=True)
class Rows(Kind):
    """A tuple of dataclasses, one for each label of an attribute: a tensor for each field, since they may be many.

    Attributes
    ----------
    of : the dataclass. Its first field is the label, the others are numbers or truth values.
    labels : name of the attribute, unpacked before.
    positions : whether the labels are positions in it.
    """

    of: type[Any]
    labels: str
    positions: bool = False

    def _columns(self) -> dict[str, type]:
        by_name: dict[str, type] = {kind.__name__: kind for kind in DTYPES}
        return {column.name: by_name[str(column.type)] for column in dataclasses.fields(self.of)[1:]}

    def pack(self, value: Any, name: str, to: Packed) -> Any:
        """A tensor for each field."""
        for column, kind in self._columns().items():
            to.tensors[f"{name}.{column}"] = np.array([getattr(row, column) for row in value], dtype=kind)
        return TENSORS

    def unpack(self, plain: Any, name: str, source: Unpacked) -> Any:
        """Row by row."""
        _check_marked(plain, name)
        labels = source.attributes[self.labels]
        labels = np.arange(len(labels)) if self.positions else labels
        columns = [
            source.store.take(f"{name}.{column}", labels.shape, DTYPES[kind], finite=False).tolist()
            for column, kind in self._columns().items()
        ]
        return tuple(self.of(*row) for row in zip(labels.tolist(), *columns, strict=True))


class TensorStore:
    """The tensors of a file, each to be taken once.

    Parameters
    ----------
    tensors : by name; those on disk are read when they are taken, after their shapes were compared.

    Attributes
    ----------
    sizes : known so far, by name.
    """

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._left = dict(tensors)
        self.sizes: dict[str, int] = {}

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, which must be there."""
        if name not in self._left:
            raise BadContentError(f"Tensor {name!r} is missing.")
        return tuple(self._left[name].shape)

    def sized(self, name: str, wanted: str) -> tuple[int, ...]:
        """The shape that a tensor should have; sizes that are not known yet are learned from it."""
        symbols, found = wanted.split(), self.shape(name)
        if len(symbols) != len(found):
            raise BadContentError(f"Tensor {name!r} has shape {found}; needed is ({', '.join(symbols)}).")
        return tuple(
            int(symbol) if symbol.isdigit() else self.sizes.setdefault(symbol, size)
            for symbol, size in zip(symbols, found, strict=True)
        )

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, *, finite: bool = True) -> Tensor:
        """The tensor of that name, which must have this shape and dtype."""
        self.check(name, shape, (dtype,))
        stored = self._left.pop(name)
        tensor: Tensor = stored if isinstance(stored, Tensor) else stored.read()
        if finite and tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise BadContentError(f"Tensor {name!r} holds NaN or infinity.")
        return tensor

    def check(self, name: str, shape: tuple[int, ...], dtypes: Iterable[torch.dtype]) -> None:
        """Refuse a tensor that is missing, or is not what is expected, before anything of its size is built."""
        found = self.shape(name)
        if found != shape or self._left[name].dtype not in dtypes:
            raise BadContentError(
                f"Tensor {name!r} is {self._left[name].dtype} of shape {found}; needed is "
                f"{' or '.join(str(dtype) for dtype in dtypes)} of shape {shape}."
            )

    def fill(
        self, module: nn.Module, prefix: str, floats: tuple[torch.dtype, ...] = (torch.float64,), *, finite: bool = True
    ) -> None:
        """Give a module its tensors, in place of those it was built with (which may be on the meta device).

        Parameters
        ----------
        prefix : what names of the tensors have before the names in the module's ``state_dict``.
        floats : dtypes that floating-point tensors may have.
        """
        expected = {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}
        for name, tensor in expected.items():
            self.check(name, tuple(tensor.shape), floats if tensor.is_floating_point() else (tensor.dtype,))
        state = {
            name.removeprefix(f"{prefix}."): self.take(name, tuple(tensor.shape), self._left[name].dtype, finite=finite)
            for name, tensor in expected.items()
        }
        module.load_state_dict(state, strict=True, assign=True)

    def under(self, prefix: str) -> dict[str, torch.dtype]:
        """Names that begin with a prefix, without the prefix, and their dtypes."""
        prefix = f"{prefix}."
        return {name.removeprefix(prefix): t.dtype for name, t in self._left.items() if name.startswith(prefix)}

    def end(self) -> None:
        """Refuse what nobody took."""
        if self._left:
            raise BadContentError(f"The file holds tensors that are not known here: {_some(self._left)}.")


def _check_marked(plain: Any, name: str) -> None:
    if plain != TENSORS:
        raise BadContentError(f"{name} should be in the tensor file.")


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(repr(name[:60]) for name in listed[:5])
    return shown if len(listed) <= 5 else f"{shown} and {len(listed) - 5} more"
