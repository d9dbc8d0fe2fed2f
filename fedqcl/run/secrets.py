"""Keeping keys and passwords out of what a run writes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

NAME = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
HIDDEN = "***"


def without_secrets(value: Any) -> Any:
    """A configuration without the entries that are named like a key or a password; a number is none."""
    if isinstance(value, Mapping):
        return {name: without_secrets(item) for name, item in value.items() if not _is_secret(str(name), item)}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value


@contextmanager
def secrets_off_command_line() -> Iterator[None]:
    """For a library that records the command line: the words that are secrets are hidden while the block runs."""
    words = sys.argv
    sys.argv = [_hide(before, word) for before, word in zip(["", *words], words, strict=False)]
    try:
        yield
    finally:
        sys.argv = words


def _is_secret(name: str, value: Any) -> bool:
    return isinstance(value, str | list) and NAME.search(name) is not None


def _hide(before: str, word: str) -> str:
    name, equals, _ = word.partition("=")
    if name.startswith("-"):
        return f"{name}={HIDDEN}" if equals and NAME.search(name) else word
    return HIDDEN if before.startswith("-") and "=" not in before and NAME.search(before) else word
