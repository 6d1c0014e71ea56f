"""Files beside a model, and settings: text, JSON and YAML from a stranger, of bounded size and depth."""

from __future__ import annotations

import os
from typing import Any

import yaml

from ecrt.disk import plain_bytes
from ecrt.errors import InputError
from ecrt.io.fields import BadContentError
from ecrt.io.parse import DEEPEST, MOST_JSON_BYTES, parse_json

__all__ = ["parse_yaml", "read_json", "read_text", "read_yaml"]

MOST_TEXT_BYTES = 2**20
MOST_YAML_EVENTS = 10_000
"""Values, keys, and beginnings and ends of lists."""


def read_text(path: str | os.PathLike[str]) -> str:
    """A short text."""
    try:
        return plain_bytes(path, MOST_TEXT_BYTES).decode("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text in UTF-8.") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """A JSON file, with the limits of a model's."""
    try:
        return parse_json(plain_bytes(path, MOST_JSON_BYTES))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except BadContentError as error:
        raise InputError(f"{path} cannot be read. {error.problem}") from error


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """A YAML file of plain values: no aliases, which let a few lines stand for gigabytes, and no key twice."""
    try:
        return parse_yaml(read_text(path))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read: {error}.") from error


def parse_yaml(text: str) -> Any:
    """The value that a text in YAML stands for; ``ValueError`` if it is none, or not a plain one."""
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


def _check_plain(value: Any) -> None:
    if isinstance(value, dict):
        for key, entry in value.items():
            _check_plain(key)
            _check_plain(entry)
    elif isinstance(value, list):
        for entry in value:
            _check_plain(entry)
    elif not isinstance(value, (str, bool, int, float, type(None))):
        raise ValueError(f"it holds a {type(value).__name__}: put quotes around a value that is a text")
    elif isinstance(value, int) and abs(value) >= 2**64:
        raise ValueError("it holds a whole number of more than 19 digits")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, which takes no key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "the same key twice", node.start_mark)
        return found
