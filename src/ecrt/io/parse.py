"""JSON from a stranger: bounded in size, depth, number of values and length of numbers, with no key twice."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ecrt.io.fields import BadContentError

__all__ = ["MOST_JSON_BYTES", "canonical", "parse_json"]

MOST_JSON_BYTES = 32 * 2**20
MOST_VALUES = 2_000_000
"""Values and objects in all: each costs some hundred bytes of memory."""

DEEPEST = 32
LONGEST_INTEGER = 20
LONGEST_FLOAT = 40
CHUNK = 2**20


def parse_json(data: bytes) -> Any:
    """The value that the bytes stand for."""
    if len(data) > MOST_JSON_BYTES:
        raise BadContentError(f"The JSON is {len(data)} bytes long; at most {MOST_JSON_BYTES} are read.")
    _check_structure(data)
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except (ValueError, RecursionError) as error:
        raise BadContentError(f"It is not JSON: {str(error)[:200]}.") from error


def canonical(value: Any) -> bytes:
    """The one way to write a value: what digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _check_structure(data: bytes) -> None:
    """Bound depth and number of values before the parser, which recurses, sees them."""
    # Without escapes, every second stretch between quotes lies inside a string.
    plain = np.frombuffer(data.replace(rb"\\", b"").replace(rb"\"", b""), dtype=np.uint8)
    quotes, depth, values = 0, 0, 1
    for start in range(0, len(plain), CHUNK):
        part = plain[start : start + CHUNK]
        before = quotes + np.cumsum(part == ord('"'))
        outside = part[before % 2 == 0]
        opened, closed = np.isin(outside, (ord("["), ord("{"))), np.isin(outside, (ord("]"), ord("}")))
        depths = depth + np.cumsum(opened.astype(np.int64) - closed)
        values += int(opened.sum()) + int((outside == ord(",")).sum())
        if depths.max(initial=0) > DEEPEST:
            raise BadContentError(f"It is nested more than {DEEPEST} deep.")
        if values > MOST_VALUES:
            raise BadContentError(f"It holds more than {MOST_VALUES} values.")
        quotes, depth = int(before[-1]), int(depths[-1]) if len(depths) else depth


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same key twice")
    return result


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    value = float(text) if len(text) <= LONGEST_FLOAT else math.inf
    if not math.isfinite(value):
        raise ValueError("a number that is too long or too large")
    return value


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not allowed")
