"""Parts: the options of one stage, which are the options of the estimators at the same time.

A part is declared beside the function that uses it. What the estimators do with all of their parts (short names,
checks, plain values for files and for the command line) is here.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions, validate_parameter_constraints

from ecrt.errors import InputError

Count = Annotated[int, Interval(Integral, 1, None, closed="left")]
Positive = Annotated[float, Interval(Real, 0, None, closed="neither")]
NonNegative = Annotated[float, Interval(Real, 0, None, closed="left")]
Share = Annotated[float, Interval(Real, 0, 1, closed="both")]
ShareBelowOne = Annotated[float, Interval(Real, 0, 1, closed="left")]
Sizes = Annotated[Sequence[int], "array-like"]
BatchSize = Annotated[int, Interval(Integral, 2, None, closed="left")]
MixupAlpha = Annotated[float, Interval(Real, 0, 1e6, closed="both")]

Rule = tuple[str, bool, str]
"""Options, with blanks between; whether they have an effect; and what they need to have one."""


def _constraints(hint: Any) -> list[Any]:
    """The constraints of a type: those that it is annotated with, the values of a ``Literal``, or the type itself."""
    origin = get_origin(hint)
    if origin is Annotated:
        return list(hint.__metadata__)
    if origin in (Union, UnionType):
        return [constraint for one in get_args(hint) for constraint in _constraints(one)]
    if origin is Literal:
        return [StrOptions(set(get_args(hint)))]
    return [{NoneType: None, bool: "boolean"}.get(hint, origin or hint)]


class _AllowedValues:
    """Which values the options of a class may have, as scikit-learn's validation wants it: their types say it."""

    def __get__(self, instance: Any, kind: type[Composed]) -> dict[str, list[Any]]:
        hints = get_type_hints(kind, include_extras=True)
        found = {name: _constraints(hints[name]) for name in kind._get_param_names()}
        for name in found.keys() & kind._roles.keys():
            found[name] = kind._roles[name].constraint() + ([None] if None in found[name] else [])
        return found


class Composed(BaseEstimator):
    """Something with options, some of which take parts: an estimator, or a part with its own parts."""

    _roles: ClassVar[dict[str, Role]] = {}
    """What the options take that take parts, by name."""
    _parameter_constraints: ClassVar[Any] = _AllowedValues()

    def set_params(self, **params: Any) -> Self:
        """Set options; those of a part as ``demixing__objective``, where a short name is made its part first."""
        for path in params.copy():
            name, nested, _ = path.partition("__")
            if nested and name in self._roles:
                value = params.get(name, getattr(self, name))
                if not isinstance(value, Part):
                    params[name] = self._roles[name].part(value, name)
        super().set_params(**params)
        return self

    def _parts(self, name: str) -> tuple[Any, ...]:
        """The parts that an option stands for; none for ``"auto"`` and ``None``."""
        value, role = getattr(self, name), self._roles[name]
        return () if value is None or (isinstance(value, str) and value in role.others) else role.all(value, name)

    @classmethod
    def _from_plain_options(cls, options: Mapping[str, Any], of: str = "") -> Self:
        """Made from the options in a configuration file, where a part is a mapping with its kind and options."""
        known = cls._get_param_names()
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InputError(f"{of}{cls.__name__} has no option {unknown[0]!r}; it has {known}.")
        roles, defaults = cls._roles, cls()
        return cls(**{
            name: roles[name].from_plain(one, name, getattr(defaults, name)) if name in roles else one
            for name, one in options.items()
        })  # fmt: skip


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Part(Composed):
    """The options of one stage, as keyword arguments.

    The fields of a subclass are its options, as in a dataclass. The type of a field says which values are allowed.
    scikit-learn's ``BaseEstimator`` gives them ``get_params``, ``set_params``, ``clone`` and a ``repr`` of what differs
    from the defaults.
    """

    kind: ClassVar[str]
    """Short name, for a part with all its defaults."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclass(kw_only=True, eq=False, repr=False)(cls)

    def check(self) -> None:
        """Raise an error if an option has a value that it cannot have, or was set and would have no effect."""
        name = type(self).__name__
        try:
            validate_parameter_constraints(self._parameter_constraints, self.get_params(deep=False), name)
        except ValueError as error:
            raise InputError(str(error)) from error
        refuse_idle(self, self.rules(), of=f"{name}: ")
        for option in self._roles:
            for part in self._parts(option):
                part.check()

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
    except (TypeError, ValueError):  # arrays and frames
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


def part_classes(base: type[Part]) -> Iterator[type[Part]]:
    """All classes with a short name that have been derived from a part so far."""
    for one in base.__subclasses__():
        if "kind" in vars(one):
            yield one
        yield from part_classes(one)


def known_parts(base: type[Part]) -> dict[str, type[Part]]:
    """The same by their short names; no two may share one."""
    found: dict[str, type[Part]] = {}
    for one in part_classes(base):
        other = found.get(one.kind, one)
        if (other.__module__, other.__qualname__) != (one.__module__, one.__qualname__):  # not read a second time
            raise InputError(f"{other.__name__} and {one.__name__} are both called {one.kind!r}: rename one of them.")
        found[one.kind] = one
    return found


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
    open_to : whose subclasses by others may be given too, and by short name once their module is imported.
    made_from : names or types of values that the first class takes as its one positional argument, in place of the
        short name of a class: the networks of an encoder.
    function_as : the class of the part, with a field ``function``, that a function stands for, if any may be given.
    """

    classes: tuple[type[Part], ...]
    others: tuple[str, ...] = ()
    several: bool = False
    open_to: type[Part] | None = None
    made_from: tuple[str | type, ...] = ()
    function_as: type[Part] | None = None

    @property
    def kinds(self) -> dict[str, type[Part]]:
        """Classes by their short names."""
        others = {} if self.open_to is None else known_parts(self.open_to)
        return {**others, **{one.kind: one for one in self.classes}}

    @property
    def names(self) -> set[str]:
        """All names that may be given."""
        return {*self.others, *(one for one in self.made_from or self.kinds if isinstance(one, str))}

    def constraint(self) -> list[Any]:
        """What scikit-learn's validation of parameters allows."""
        types = [one for one in self.made_from if isinstance(one, type)]
        names = StrOptions(self.names) if self.open_to is None else str  # a short name may come later
        functions = () if self.function_as is None else (callable,)
        return [names, *self.types, *types, *functions, *((list, tuple) if self.several else ())]

    @property
    def types(self) -> tuple[type[Part], ...]:
        """What a part must be an object of."""
        return self.classes if self.open_to is None else (*self.classes, self.open_to)

    def part(self, value: Any, name: str) -> Part:
        """The part that a short name or a part stands for; ``name`` is that of the parameter."""
        if isinstance(value, self.types):
            return value
        if isinstance(value, tuple(one for one in self.made_from if isinstance(one, type))):
            return self.classes[0](value)
        if isinstance(value, str) and value in self.names - set(self.others):
            return self.classes[0](value) if self.made_from else self.kinds[value]()
        if self.function_as is not None and callable(value) and not isinstance(value, type):
            return self.function_as(function=value)
        calls = ", ".join(f"{one.__name__}(...)" for one in self.types)
        if isinstance(value, str) and value in self.others:
            raise InputError(f"{name}={value!r} has no options: choose one of {calls} first.")
        raise InputError(f"{name}={value!r}: use one of {sorted(self.names)}, or {calls}.")

    def all(self, value: Any, name: str) -> tuple[Part, ...]:
        """The parts that a value stands for, one or several."""
        if not (self.several and isinstance(value, list | tuple)):
            return (self.part(value, name),)
        if not value:
            raise InputError(f"{name} is an empty sequence: give at least one part.")
        if alone := [one for one in value if isinstance(one, str) and one in self.others]:
            raise InputError(f"{name}={value!r}: {alone[0]!r} cannot be one of several.")
        return tuple(self.part(one, name) for one in value)

    def from_plain(self, value: Any, name: str, default: Any = None) -> Any:
        """What a configuration file says, with its options as a part; unknown keys are refused.

        Options without a kind are those of the one part that has them, or of the default.
        """
        if isinstance(value, list | tuple):
            return [self.from_plain(one, name, default) for one in value]
        if not isinstance(value, Mapping):
            return value
        options = {str(key): one for key, one in value.items()}
        kinds = self.kinds
        able = [kind for kind, one in kinds.items() if set(options) <= set(one._get_param_names())]
        meant = able if len(able) == 1 else [kind for kind in able if kind == default]
        kind = options.pop("kind", meant[0] if meant else None)
        if len(kinds) == 1 and kind is None:
            kind = self.classes[0].kind
        known = {option for one in kinds.values() for option in one._get_param_names()}
        if kind is None and not set(options) <= known:
            close = difflib.get_close_matches(unknown := min(set(options) - known), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {sorted(known)}."
            raise InputError(f"{name}: no part has an option {unknown!r}; {hint}")
        if not isinstance(kind, str) or kind not in kinds:
            raise InputError(f"{name}: say which part has these options: kind must be one of {sorted(able or kinds)}.")
        return kinds[kind]._from_plain_options(options, of=f"{name}: ")
