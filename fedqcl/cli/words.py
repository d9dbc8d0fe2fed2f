"""The words of a command line: split into options, and put in an order in which their order does not matter."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from fedqcl.errors import InputError

WITHOUT_VALUE = {"-h", "--help", "-q", "--quiet", "-v", "--verbose", "--print_config"}


class Option(NamedTuple):
    """One option as typed: ``--name value``, ``--name=value``, ``--name``, or a stray word (an empty name)."""

    name: str
    value: str | None

    def word(self) -> str:
        """The option as one word."""
        if not self.name:
            return self.value or ""
        return self.name if self.value is None else f"{self.name}={self.value}"


def split_options(words: list[str]) -> list[Option]:
    """Split a command line, after the command, into its options."""
    options: list[Option] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not _is_option(word):
            options.append(Option("", word))
            continue
        name, equals, value = word.partition("=")
        name = "--config" if name == "-c" else name
        if equals:
            options.append(Option(name, value))
        elif name in WITHOUT_VALUE or not rest or _is_option(rest[0]):
            options.append(Option(name, None))
        else:
            options.append(Option(name, rest.pop(0)))
    return options


def in_order(options: list[Option]) -> list[Option]:
    """Config files first, then a class before its own options; otherwise as typed, so that the later one wins."""
    return sorted(options, key=lambda option: (option.name != "--config", option.name.count(".")))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """``did you mean X? `` for the known name that is nearly the one given; nothing if none is."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}? " if near else ""


def _is_option(word: str) -> bool:
    """Whether a word is an option's name rather than a value; ``-1`` and ``-1e-3`` are values."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are reported like all others: one line, no usage."""

    def error(self, message: str) -> NoReturn:
        """Refuse a command line.

        Raises:
            InputError: always.
        """
        raise InputError(message)
