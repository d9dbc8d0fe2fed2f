"""Checks what a user gave against the typed signatures; a mistake is one line that says what would be right.

jsonargparse checks the same again, but several of its messages lack the key, and some mistakes in a file it passes
over. Whether a value fits a type remains its answer: it is asked for one option at a time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from fedqcl.cli.configs import read_config
from fedqcl.cli.given import Given, given_in_file
from fedqcl.cli.words import did_you_mean
from fedqcl.errors import InputError
from fedqcl.signature import ClassHint, Parameter, class_hint, expected, fits, may_nest, parameters


class Linked(NamedTuple):
    """An argument that is set through another option."""

    by: str


Group: TypeAlias = "Mapping[str, Group | Parameter | Linked]"


def check(
    tree: Group, classes: Mapping[str, type], given: Iterable[Given], complete: bool = True
) -> dict[str, type | None]:
    """Check everything given, in order.

    Args:
        tree: all options, as nested groups; the options of a class that the user chooses are found from the class.
        classes: the classes chosen by default, by key.
        given: what the user gave; what comes later overrides.
        complete: whether what has no default must have been given.

    Returns:
        The classes that were chosen, by key, with ``classes`` where none was; None where that cannot be told.

    Raises:
        InputError: the first thing wrong.
    """
    checker = _Checker(tree, classes)
    for item in given:
        checker.add(item)
    if complete:
        checker.check_complete()
    return checker.classes


class _Checker:
    def __init__(self, tree: Group, classes: Mapping[str, type]) -> None:
        self.tree = tree
        # The class in force at each key; None where a function makes the object.
        self.classes: dict[str, type | None] = dict(classes)
        self.keys: set[str] = set()

    def add(self, given: Given) -> None:
        """Check one value, and note a chosen class."""
        self.keys.add(given.key)
        if "${" in str(given.value):
            raise InputError(f"{given.key}: {given.value} is not resolved{given.place}; write the value itself")
        node = self._find(given)
        if node is None:
            return
        if isinstance(node, Linked):
            raise InputError(f"{given.key}: is set by {node.by}{given.place}; give that instead")
        if _is_file(given.value) and (not isinstance(node, Parameter) or class_hint(node.hint)):
            file = Path(given.value)
            for item in given_in_file({given.key: read_config(file)}, file.name):
                self.add(item)
        elif isinstance(node, Parameter):
            self._check_value(given, node)
        else:
            raise InputError(f"{given.key}: {_shown(given)}; give options under it: {_names(node)}")

    def check_complete(self) -> None:
        """Check that every argument without a default was given."""
        for key, node in self._walk(self.tree):
            if isinstance(node, Parameter) and node.required and key not in self.keys:
                owner = self.classes.get(key.rpartition(".")[0])
                by = f" by {owner.__name__}" if owner else ""
                raise InputError(f"{key}: is needed{by} and was not given; give {node.expected()}")

    def _find(self, given: Given) -> Group | Parameter | Linked | None:
        """What a key stands for; None if that cannot be told."""
        node: Group | Parameter | Linked = self.tree
        path = ""
        for name in given.key.split("."):
            options = self._options(path, node, given)
            if options is None:
                return None
            if name not in options:
                raise InputError(self._unknown(given, path, options))
            node = options[name]
            path = f"{path}.{name}".lstrip(".")
        return node

    def _options(self, key: str, node: Group | Parameter | Linked, given: Given) -> Group | None:
        """The options under a key; None if there may be any."""
        if isinstance(node, Mapping):
            return node
        asked = class_hint(node.hint) if isinstance(node, Parameter) else None
        if asked is None:
            if isinstance(node, Parameter) and may_nest(node.hint):
                return None
            raise InputError(f"{given.key}: there is nothing under {key}{given.place}; give {key} itself")
        if key in self.classes:
            cls = self.classes[key]
            return None if cls is None else parameters(cls, asked.supplied)
        if asked.names != [asked.base.__name__]:
            raise InputError(f"{given.key}: comes before {key}{given.place}; first give {key}: {expected(asked.base)}")
        return parameters(asked.base, asked.supplied)

    def _check_value(self, given: Given, parameter: Parameter) -> None:
        asked = class_hint(parameter.hint)
        if asked and isinstance(given.value, str) and given.value not in ("", "null"):
            self.classes[given.key] = _choose(given, asked)
        elif not fits(parameter.hint, given.value, text=not given.file):
            raise InputError(f"{given.key}: {_shown(given)}; give {parameter.expected()}")

    def _unknown(self, given: Given, path: str, options: Group) -> str:
        """Say that there is no such key, and which was meant."""
        name, dot, rest = given.key[len(path) :].lstrip(".").partition(".")
        cls = self.classes.get(path)
        what = f"{given.key}: there is no such option{f' of {cls.__name__}' if cls else ''}{given.place}"
        near = _near(name, [f"{path}.{option}".lstrip(".") for option in options])
        if near is None and cls is None:
            near = _near(name, [known for known, _ in self._walk(self.tree)])
        return f"{what}; did you mean {near}{dot}{rest}?" if near else f"{what}; known: {_names(options) or 'none'}"

    def _walk(self, group: Group, path: str = "") -> Iterator[tuple[str, Parameter | Linked]]:
        """All options, with those of the classes in force."""
        for name, node in group.items():
            key = f"{path}.{name}".lstrip(".")
            if isinstance(node, Mapping):
                yield from self._walk(node, key)
                continue
            yield key, node
            cls = self.classes.get(key)
            asked = class_hint(node.hint) if isinstance(node, Parameter) else None
            if cls and asked:
                yield from self._walk(parameters(cls, asked.supplied) or {}, key)


def _choose(given: Given, asked: ClassHint) -> type | None:
    """The class that is given; None for what jsonargparse must judge, such as a function that makes one."""
    known = f"known: {', '.join(asked.names)}"
    try:
        found = asked.find(given.value)
    except ImportError as error:
        raise InputError(f"{given.key}: {given.value} cannot be imported{given.place} ({error}); {known}") from None
    if isinstance(found, type) and issubclass(found, asked.base):
        return found
    if callable(found) and not isinstance(found, type):
        return None
    hint = did_you_mean(given.value, asked.names)
    raise InputError(f"{given.key}: {given.value} is no {asked.base.__name__}{given.place}; {hint}{known}")


def _names(options: Group) -> str:
    return ", ".join(name for name, node in options.items() if not isinstance(node, Linked))


def _near(name: str, keys: list[str]) -> str | None:
    """The key whose last part is, or is nearly, a name."""
    by_last = {key.rpartition(".")[2].lower(): key for key in reversed(keys)}
    near = difflib.get_close_matches(name.lower(), by_last, n=1)
    return by_last[near[0]] if near else None


def _shown(given: Given) -> str:
    """What is wrong with a value."""
    if given.value is None:
        return f"has no value{given.place}"
    value = str(given.value).lower() if isinstance(given.value, bool) else given.value
    return f"{'empty' if value == '' else value} is not accepted{given.place}"


def _is_file(value: Any) -> bool:
    try:
        return isinstance(value, str) and Path(value).is_file()
    except OSError:  # too long for a file name
        return False
