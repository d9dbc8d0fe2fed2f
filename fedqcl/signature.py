"""What may be given: the typed arguments of classes, what fits them, and how to say so."""

from __future__ import annotations

import argparse
import importlib
import inspect
import types
from collections.abc import Callable
from enum import Enum
from os import PathLike
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from jsonargparse import ArgumentParser

from fedqcl.types import Count, Fraction, Index, NonNegative, Positive, Real, Share

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    type(None): "null",
    Count: "a whole number from 1 up",
    Index: "a whole number from 0 up",
    Positive: "a number above 0",
    NonNegative: "a number from 0 up",
    Real: "a number",
    Share: "a number above 0, at most 1",
    Fraction: "a number from 0 up, below 1",
}
_LEAVES = (int, float, complex, str, bytes, list, tuple, set, dict, PathLike, Enum)


class Parameter(NamedTuple):
    """One argument of a class.

    Attributes:
        hint: its type.
        required: it has no default.
        words: what may be given, where the type does not say it well.
    """

    hint: Any
    required: bool = False
    words: str = ""

    def expected(self) -> str:
        """What may be given."""
        return self.words or expected(self.hint)


class ClassHint(NamedTuple):
    """The class that a type hint asks for, or for a callable the class that it returns.

    Attributes:
        base: any subclass of it will do.
        supplied: how many of its leading arguments are not the user's to give.
    """

    base: type
    supplied: int

    @property
    def names(self) -> list[str]:
        """Short names of the classes that come with the base, sorted."""
        package = _package(self.base)
        found = {c.__name__ for c in _subclasses(self.base) if _public(c) and _package(c) == package}
        return sorted(found) or [self.base.__name__]

    def find(self, name: str) -> Any:
        """What a short name or a dotted path stands for; None if it stands for nothing.

        Raises:
            ImportError: the module of the dotted path cannot be imported, for whatever reason.
        """
        module, _, attribute = name.rpartition(".")
        if not module:
            return next((c for c in [self.base, *_subclasses(self.base)] if c.__name__ == name), None)
        try:
            return getattr(importlib.import_module(module), attribute, None)
        except Exception as error:
            raise ImportError(f"{type(error).__name__}: {error}") from None


def class_hint(hint: Any) -> ClassHint | None:
    """The class that a hint asks for; None if it asks for a value."""
    members = [member for member in _members(hint) if member is not type(None)]
    if len(members) != 1:
        return None
    hint = members[0]
    if get_origin(hint) is Callable:
        supplied, result = get_args(hint)
        inner = class_hint(result)
        return inner and ClassHint(inner.base, len(supplied))
    return ClassHint(hint, 0) if _is_class(hint) and not issubclass(hint, _LEAVES) else None


def parameters(cls: type, supplied: int = 0) -> dict[str, Parameter] | None:
    """A class's arguments by name, without its ``supplied`` first ones; None if it takes any.

    A ``**kwargs`` stands for the arguments of the next class in line.
    """
    found: dict[str, Parameter] = {}
    for owner in cls.__mro__:
        if owner is object:
            break
        if "__init__" not in vars(owner):
            continue
        arguments = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        hints = _hints(owner.__init__)  # type: ignore[misc]
        for argument in arguments:
            if argument.kind in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
                required = argument.default is argument.empty
                found.setdefault(argument.name, Parameter(hints.get(argument.name, Any), required))
        if not any(argument.kind is argument.VAR_KEYWORD for argument in arguments):
            break
        if owner.__mro__[1] is object:
            return None
    return dict(list(found.items())[supplied:])


def may_nest(hint: Any) -> bool:
    """Whether keys may lie under a value of this type."""
    flat = (str, int, float, bool, type(None))
    return not all(
        member in flat or get_origin(member) in (Literal, list) or member in _WORDS for member in _members(hint)
    )


def fits(hint: Any, value: Any, text: bool) -> bool:
    """Whether jsonargparse takes the value for the hint; what it cannot judge fits."""
    if value is None:
        return hint is Any or type(None) in _members(hint)
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
    except ValueError:
        return True
    try:
        parser.parse_args([f"--value={value}"]) if text else parser.parse_object({"value": value})
    except (argparse.ArgumentError, TypeError, ValueError):
        return False
    return True


def expected(hint: Any) -> str:
    """What may be given for a hint, in words."""
    members = _members(hint)
    if len(members) > 1:
        values = [member for member in members if class_hint(member) is None]
        # A number or a Tensor, say: nobody writes a Tensor down.
        return " or ".join(map(expected, members if values in ([], [type(None)]) else values))
    asked = class_hint(hint)
    if asked:
        return ", ".join(asked.names)
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is list:
        return f"a list, each {expected(get_args(hint)[0])}"
    if not _is_class(hint):
        return "a value" if hint is Any else str(hint)
    number = issubclass(hint, (int, float))
    return _WORDS.get(hint) or (number and hint.__doc__) or hint.__name__


def _is_class(hint: Any) -> bool:
    # typing.Any is a class since Python 3.11, and list[int] passed for one before.
    return isinstance(hint, type) and get_origin(hint) is None and hint is not Any


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except Exception:
        return {}


def _subclasses(base: type) -> list[type]:
    direct: list[type] = base.__subclasses__()
    return direct + [c for d in direct for c in _subclasses(d)]


def _public(cls: type) -> bool:
    return not cls.__name__.startswith("_") and not inspect.isabstract(cls)


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]
