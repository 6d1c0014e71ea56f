"""Values that JSON has no form for (tuples, arrays of labels, NaN) as JSON and back, types kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ecrt.errors import InputError
from ecrt.io.fields import BadContentError, Fields

__all__ = ["array_from_plain", "array_to_plain", "from_plain", "number_from_plain", "number_to_plain", "to_plain"]

ITEM_SIZES = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}
MOST_ARRAY_BYTES = 64 * 2**20
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


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
        return number_to_plain(float(value))
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
    raise InputError(f"{where} cannot be saved: it is of type {type(value).__name__}.")


def from_plain(value: Any, where: str) -> Any:
    """The value that ``to_plain`` was given."""
    if isinstance(value, list):
        return [from_plain(item, where) for item in value]
    if not isinstance(value, dict):
        return value
    tags = [key for key in value if key.startswith("$")]
    if not tags:
        return {key: from_plain(item, where) for key, item in value.items()}
    with Fields(value, where) as fields:
        if tags[0] == "$tuple":
            return tuple(from_plain(item, where) for item in fields.items("$tuple", 10**6))
        if tags[0] == "$float":
            return NOT_FINITE[fields.text("$float", NOT_FINITE)]
        if tags[0] == "$array":
            return array_from_plain(fields.raw("$array"), where)
    raise BadContentError(f"{where} holds a value of unknown kind {tags[0][:60]!r}.")


def number_to_plain(value: float) -> Any:
    """A number as JSON, which knows neither NaN nor infinity."""
    return value if math.isfinite(value) else {"$float": str(value)}


def number_from_plain(value: Any, where: str) -> float:
    """A number, NaN and infinity included."""
    value = from_plain(value, where)
    if type(value) not in (int, float):
        raise BadContentError(f"{where} is not a number.")
    return float(value)


def array_to_plain(array: NDArray[Any], where: str) -> dict[str, Any]:
    """A vector of labels (numbers, truth values or strings) with its dtype."""
    kind, itemsize = array.dtype.kind, array.dtype.itemsize
    if array.ndim != 1 or not (kind in "OU" or itemsize in ITEM_SIZES.get(kind, ())):
        raise InputError(f"{where} cannot be saved: dtype {array.dtype}, shape {array.shape}.")
    values = array.tolist()
    if kind == "O" and not all(isinstance(value, (str, int, float, np.bool_, np.number)) for value in values):
        raise InputError(f"{where} cannot be saved: labels must be strings, numbers or truth values.")
    return {
        "dtype": "object" if kind == "O" else array.dtype.str,
        "values": [to_plain(value, where) for value in values],
    }


def array_from_plain(value: Any, where: str) -> NDArray[Any]:
    """The vector that ``array_to_plain`` was given."""
    with Fields(value, where) as fields:
        dtype = _dtype(fields.text("dtype"), where)
        values = [from_plain(item, where) for item in fields.items("values", 10**6)]
    allowed = {"b": (bool,), "i": (int,), "u": (int,), "f": (float,), "U": (str,), "O": (str, int, float, bool)}
    if not all(type(item) in allowed[dtype.kind] for item in values):
        raise BadContentError(f"{where} holds values that are not of its dtype {dtype.str}.")
    if dtype.itemsize * len(values) > MOST_ARRAY_BYTES:
        raise BadContentError(f"{where} would take {dtype.itemsize} bytes for each of {len(values)} values.")
    try:
        array = np.empty(len(values), dtype=dtype)
        array[:] = values
    except (OverflowError, ValueError) as error:
        raise BadContentError(f"{where} holds a value that its dtype {dtype.str} cannot.") from error
    if dtype.kind == "U" and array.tolist() != values:
        raise BadContentError(f"{where} holds strings longer than its dtype {dtype.str}.")
    return array


def _dtype(text: str, where: str) -> np.dtype[Any]:
    if text == "object":
        return np.dtype(object)
    order, kind, size = text[:1], text[1:2], text[2:]
    known = order in ("<", ">", "|") and size.isascii() and size.isdigit() and len(size) <= 8
    if known and (kind == "U" or int(size) in ITEM_SIZES.get(kind, ())):
        return np.dtype(text)
    raise BadContentError(f"{where} has the dtype {text[:60]!r}, which is none of a label's.")
