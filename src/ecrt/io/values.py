"""Plain values as JSON and back, with what JSON has no form for: tuples, NaN, vectors of labels, objects of ours."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pandas as pd
from msgspec import Meta
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from torch import nn

from ecrt.errors import InputError
from ecrt.io.parsing import BadContentError, typed
from ecrt.stages import Part, Restart
from ecrt.stages.parts import part_classes
from ecrt.training import History

LABEL_DTYPES = re.compile(r"object|\|b1|\|[iu]1|[<>](?:[iu][248]|f[248]|U\d{1,8})", re.ASCII)
MOST_ITEMS = 10**6
MOST_ARRAY_BYTES = 64 * 2**20
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

OBJECTS: dict[str, type[Any]] = {}
"""Classes whose objects may stand among plain values, besides parts. No name in a file is looked up anywhere else."""


def register(*classes: type[Any]) -> None:
    """Let objects of these classes be saved among plain values: dataclasses, or scikit-learn's estimators.

    What is saved are the fields of a dataclass, whose types are checked on the way back, and the parameters of an
    estimator, which must pass its own check (``check``, else ``_validate_params``).
    """
    OBJECTS.update({kind.__name__: kind for kind in classes})


register(History, Restart)


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
    if value is None or isinstance(value, (bool, np.bool_)):
        return None if value is None else bool(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, np.integer)):
        if abs(int(value)) >= 2**64:
            raise InputError(f"{where} cannot be saved: {value} is too large.")
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
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
        fields = {field: to_plain(item, f"{where}, {field}") for field, item in _fields(value).items()}
        return {"$object": {"kind": name, "fields": fields}}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, nn.Module):
        return {"$module": name}
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


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, BaseEstimator):
        return value.get_params(deep=False)
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _object(described: _Object, where: str, module: nn.Module | None) -> Any:
    kind = _known(described.kind)
    if kind is None:
        raise BadContentError(f"{where} holds an object of unknown kind {described.kind[:60]!r}.")
    is_estimator = issubclass(kind, BaseEstimator)
    names = kind._get_param_names() if is_estimator else [field.name for field in dataclasses.fields(kind)]
    if described.fields.keys() != set(names):
        raise BadContentError(f"{where} holds a {described.kind} with other fields than {sorted(names)}.")
    fields = {name: from_plain(item, f"{where}.{name}", module) for name, item in described.fields.items()}
    if not is_estimator:
        return typed(fields, kind, where)
    part = kind(**fields)
    try:
        getattr(part, "check", part._validate_params)()
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
        raise BadContentError(f"{where} has the dtype {found.dtype!r}, which is none of a label's.")
    dtype, values = np.dtype(found.dtype), [from_plain(item, where) for item in found.values]
    allowed = {"b": (bool,), "i": (int,), "u": (int,), "f": (float,), "U": (str,), "O": (str, int, float, bool)}
    if not all(type(item) in allowed[dtype.kind] for item in values):
        raise BadContentError(f"{where} holds values that are not of its dtype {dtype.str}.")
    if dtype.itemsize * len(values) > MOST_ARRAY_BYTES:
        raise BadContentError(f"{where} would take {dtype.itemsize} bytes for each of {len(values)} values.")
    try:
        array = np.array(values, dtype=dtype)
    except (OverflowError, ValueError) as error:
        raise BadContentError(f"{where} holds a value that its dtype {dtype.str} cannot.") from error
    if dtype.kind == "U" and array.tolist() != values:
        raise BadContentError(f"{where} holds strings longer than its dtype {dtype.str}.")
    return array
