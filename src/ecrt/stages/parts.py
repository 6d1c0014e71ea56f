"""Parts: the options of one stage, which are the options of the estimators at the same time.

A part is declared beside the function that uses it. What the estimators do with all of their parts alike (short names,
checks, plain values for files and for the command line) is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import StrOptions, validate_parameter_constraints

from ecrt.errors import InputError

__all__ = ["Part", "Role", "Rule", "changed_options", "refuse_idle", "whole_numbers"]

Rule = tuple[str, bool, str]
"""Options, with blanks between; whether they have an effect; and what they need to have one."""


class Part(BaseEstimator):
    """The options of one stage, as keyword arguments.

    Subclasses are dataclasses with ``eq=False, repr=False``; scikit-learn's ``BaseEstimator`` gives them
    ``get_params``, ``set_params``, ``clone`` and a ``repr`` of what differs from the defaults.
    """

    kind: ClassVar[str]
    """Short name, for a part with all its defaults."""
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def check(self) -> None:
        """Raise an error if an option has a value that it cannot have, or was set and would have no effect."""
        name = type(self).__name__
        try:
            validate_parameter_constraints(self._parameter_constraints, self.get_params(deep=False), name)
        except ValueError as error:
            raise InputError(str(error)) from error
        refuse_idle(self, self.rules(), of=f"{name}: ")

    def rules(self) -> Iterator[Rule]:
        """Options that have an effect only under conditions."""
        yield from ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and not changed_options(self, other)

    __hash__ = None  # type: ignore[assignment]


def changed_options(part: Any, other: Any = None) -> set[str]:
    """Names of the options of a part or an estimator that differ from those of another, or from the defaults."""
    defaults = (type(part)() if other is None else other).get_params(deep=False)
    return {name for name, value in part.get_params(deep=False).items() if _differs(value, defaults[name])}


def _differs(value: Any, default: Any) -> bool:
    try:
        return bool(value != default)
    except ValueError:  # arrays
        return True


def refuse_idle(part: Any, rules: Iterable[Rule], of: str = "") -> None:
    """Raise an error if an option of a part or an estimator was set and has no effect."""
    given = changed_options(part)
    for names, acts, needs in rules:
        for name in given.intersection(names.split()):
            if not acts:
                default = getattr(type(part)(), name)
                raise InputError(
                    f"{of}{name}={getattr(part, name)!r} would have no effect: it needs {needs}. Leave {name} at its "
                    f"default, {default!r}."
                )


def whole_numbers(name: str, given: Any, *, least: int = 0) -> tuple[int, ...]:
    """Whole numbers from 1 on, at least ``least`` of them, of an option that takes one or several."""
    found = np.atleast_1d(np.asarray(given)).tolist()
    if len(found) < least or not all(type(one) is int and one >= 1 for one in found):
        wanted = "whole numbers from 1 on" + (", one at least" if least else "")
        raise InputError(f"{name} must hold {wanted}; got {given!r}.")
    return tuple(found)


@dataclass(frozen=True)
class Role:
    """What one parameter of an estimator takes: a short name, a part, or several of these.

    Attributes
    ----------
    classes : of the parts.
    others : further names, such as ``"auto"``; they have no options.
    several : whether a sequence may be given.
    made_from : names or types of values that the first class takes as its one positional argument, in place of the
        short name of a class: the networks of an encoder.
    """

    classes: tuple[type[Part], ...]
    others: tuple[str, ...] = ()
    several: bool = False
    made_from: tuple[str | type, ...] = ()

    @property
    def kinds(self) -> dict[str, type[Part]]:
        """Classes by their short names."""
        return {one.kind: one for one in self.classes}

    @property
    def names(self) -> set[str]:
        """All names that may be given."""
        return {*self.others, *(one for one in self.made_from or self.kinds if isinstance(one, str))}

    def constraint(self) -> list[Any]:
        """What scikit-learn's validation of parameters is told."""
        types = [one for one in self.made_from if isinstance(one, type)]
        return [StrOptions(self.names), *self.classes, *types, *((list, tuple) if self.several else ())]

    def part(self, value: Any, name: str) -> Part:
        """The part that a short name or a part stands for; ``name`` is that of the parameter."""
        if isinstance(value, self.classes):
            return value
        if isinstance(value, tuple(one for one in self.made_from if isinstance(one, type))):
            return self.classes[0](value)
        if isinstance(value, str) and value in self.names - set(self.others):
            return self.classes[0](value) if self.made_from else self.kinds[value]()
        calls = ", ".join(f"{one.__name__}(...)" for one in self.classes)
        if isinstance(value, str) and value in self.others:
            raise InputError(f"{name}={value!r} has no options of its own: choose one of {calls} first.")
        raise InputError(f"{name}={value!r}: use one of {sorted(self.names)}, or {calls}.")

    def all(self, value: Any, name: str) -> tuple[Part, ...]:
        """The parts that a value stands for, one or several."""
        if not (self.several and isinstance(value, list | tuple)):
            return (self.part(value, name),)
        if not value:
            raise InputError(f"{name} is an empty sequence: give one part at least.")
        return tuple(self.part(one, name) for one in value)

    def to_plain(self, value: Any) -> Any:
        """A part as its kind and options; other values as they are, and each of a sequence."""
        if isinstance(value, Part):
            return {"kind": value.kind, **value.get_params(deep=False)}
        return [self.to_plain(one) for one in value] if isinstance(value, list | tuple) else value

    def from_plain(self, value: Any, name: str) -> Any:
        """The value that ``to_plain`` was given, or what a configuration file says; unknown keys are refused."""
        if isinstance(value, list | tuple):
            return [self.from_plain(one, name) for one in value]
        if not isinstance(value, Mapping):
            return value
        options = {str(key): one for key, one in value.items()}
        kinds = self.kinds
        able = [kind for kind, one in kinds.items() if set(options) <= set(one._get_param_names())]
        kind = options.pop("kind", able[0] if len(able) == 1 else None)  # an option that one part alone has names it
        if len(kinds) == 1 and kind is None:
            kind = self.classes[0].kind
        if not isinstance(kind, str) or kind not in kinds:
            raise InputError(f"{name}: say which part has these options: kind must be one of {sorted(kinds)}.")
        known = kinds[kind]._get_param_names()
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InputError(f"{name}: {kinds[kind].__name__} has no option {unknown[0]!r}; it has {known}.")
        return kinds[kind](**options)
