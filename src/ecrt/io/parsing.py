"""JSON, YAML and text from a stranger: of limited size and depth, with the types that they should have."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import yaml

from ecrt.disk import plain_bytes
from ecrt.errors import InputError, ModelFileError

MOST_JSON_BYTES = 32 * 2**20
MOST_TEXT_BYTES = 2**20
MOST_VALUES = 2_000_000
"""Values in a JSON file, each of which costs some hundred bytes of memory; commas in texts count too."""

MOST_YAML_EVENTS = 10_000
"""Values, keys, and beginnings and ends of lists."""

DEEPEST = 32
"""Lists and objects in one another."""


class BadContentError(Exception):
    """What is wrong inside a model file, and what to do; whoever knows the file makes it a ``ModelFileError``."""

    def __init__(self, problem: str, advice: str | None = None) -> None:
        super().__init__(problem)
        self.problem, self.advice = problem, advice

    def of_file(self, path: object) -> ModelFileError:
        """The error to raise."""
        return ModelFileError(path, self.problem, *([] if self.advice is None else [self.advice]))


def typed(value: Any, kind: Any, where: str) -> Any:
    """A value of plain JSON as a type: a ``msgspec.Struct``, a dataclass, or whatever else msgspec knows.

    Nothing is guessed: ``"1"`` is no number. Fields that a dataclass does not have are refused, and so are those that a
    Struct forbids.

    >>> typed({"a": 1}, dict[str, str], "The file")
    Traceback (most recent call last):
    ecrt.io.parsing.BadContentError: The file: Expected `str`, got `int` - at `$[...]`.
    """
    try:
        found = msgspec.convert(value, kind)
        _check_fields(value, found)
        return found
    except (msgspec.MsgspecError, AttributeError, ValueError) as error:  # of arrays, and letters that UTF-8 lacks
        raise BadContentError(f"{where}: {str(error)[:300]}.") from error


def _check_fields(plain: Any, found: Any) -> None:
    """Refuse what msgspec would leave out: fields that a dataclass does not have, and values that have no fields."""
    if is_dataclass(found) and plain is not found:
        if not isinstance(plain, dict):
            raise ValueError(f"{type(found).__name__} cannot be made from a {type(plain).__name__}")
        if unknown := plain.keys() - {field.name for field in fields(found)}:
            raise ValueError(f"{type(found).__name__} has no fields {sorted(unknown)[:5]}")
        for name, part in plain.items():
            _check_fields(part, getattr(found, name))
    elif isinstance(found, dict):
        for name, part in found.items():
            _check_fields(plain.get(name), part)
    elif isinstance(found, list | tuple) and found and is_dataclass(found[0]):
        for entry, part in zip(plain, found, strict=True):
            _check_fields(entry, part)


def parse_json(data: bytes) -> Any:
    """The value that the bytes stand for; no key may be there twice."""
    if len(data) > MOST_JSON_BYTES:
        raise BadContentError(f"The JSON is {len(data)} bytes long; at most {MOST_JSON_BYTES} are read.")
    if 1 + sum(data.count(sign) for sign in (b"[", b"{", b",")) > MOST_VALUES:  # before memory is taken for them
        raise BadContentError(f"It holds more than {MOST_VALUES} values.")
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
        _check_plain(value)
    except RecursionError as error:
        raise BadContentError(f"It is nested more than {DEEPEST} deep.") from error
    except ValueError as error:
        raise BadContentError(f"It is not JSON that ecrt reads: {str(error)[:200]}.") from error
    return value


def canonical(value: Any) -> bytes:
    """The one way to write a value: what digests are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object has the same key twice")
    return result


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _check_plain(value: Any, depth: int = 0) -> None:
    """Refuse values that are nested too deep, numbers that are too large, and what JSON has no form for."""
    if isinstance(value, (dict, list)):
        if depth == DEEPEST:
            raise ValueError(f"it is nested more than {DEEPEST} deep")
        for entry in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_plain(entry, depth + 1)
    elif isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("it holds a whole number of more than 19 digits")
    elif not isinstance(value, (str, bool, int, float, type(None))):
        raise ValueError(f"it holds a {type(value).__name__}: put quotes around a value that is a text")


def read_text(path: str | os.PathLike[str]) -> str:
    """A short text."""
    try:
        return plain_bytes(path, MOST_TEXT_BYTES).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text in UTF-8.") from error


def read_json(path: str | os.PathLike[str], kind: Any = Any) -> Any:
    """A JSON file, with the limits of a model's; ``kind`` is the type that it must have, as for ``typed``."""
    try:
        return typed(parse_json(plain_bytes(path, MOST_JSON_BYTES)), kind, "It is not as ecrt writes it")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except BadContentError as error:
        raise InputError(f"{path} cannot be read. {error.problem}") from error


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """A YAML file of plain values: no aliases, which let a few lines stand for gigabytes, and no key twice."""
    text = read_text(path)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}.") from error


def parse_yaml(text: str) -> Any:
    """The value of a text in YAML; ``ValueError`` if it is not YAML, or not of plain values."""
    try:
        depth = 0
        for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError("anchors and aliases (& and *) are not read")
            if depth > DEEPEST or number > MOST_YAML_EVENTS:
                raise ValueError(f"it is nested more than {DEEPEST} deep, or longer than any settings")
        value = yaml.load(text, Loader=_Loader)
        _check_plain(value)
        return value
    except (yaml.YAMLError, OverflowError, RecursionError, TypeError, AttributeError, LookupError) as error:
        raise ValueError(f"it is not YAML: {' '.join(str(error).split())[:200]}") from error


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, which takes no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "the same key twice", node.start_mark)
        return found


# Numbers such as 1e-3, which YAML takes for text unless they have a point.
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[+-]?\d+e[+-]?\d+$", re.I), list("+-0123456789"))
