"""What the user gave, from config files and from the command line, as dotted keys and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedqcl.cli.words import WITHOUT_VALUE, Option
from fedqcl.errors import InputError

_CLASS_OPTIONS = ("init_args", "dict_kwargs")


class Given(NamedTuple):
    """One value that the user gave.

    Attributes:
        key: dotted, without ``class_path`` and ``init_args``: a class is the value of its own key.
        value: what was given; text from the command line, None there if the value is missing.
        file: where it was given; empty for the command line.
    """

    key: str
    value: Any
    file: str = ""

    @property
    def place(self) -> str:
        """`` in FILE``, to put behind what is wrong; empty for the command line."""
        return f" in {self.file}" if self.file else ""


def given_in_file(content: Mapping[Any, Any], file: str) -> Iterator[Given]:
    """Everything that a config file says, a class before its options.

    Raises:
        InputError: an option of a class that lies beside ``class_path`` instead of under ``init_args``.
    """
    for key, value in content.items():
        yield from _flatten(str(key), value, file)


def given_in_words(options: Iterable[Option]) -> Iterator[Given]:
    """Everything that the command line says but for config files and options without a value.

    Raises:
        InputError: a word that belongs to no option.
    """
    for name, value in options:
        if not name:
            raise InputError(f"{value}: belongs to no option; {_meant(str(value))}")
        if name in WITHOUT_VALUE or name == "--config" or name.endswith(".help"):
            continue
        key = ".".join(part for part in name.strip("-+").split(".") if part not in ("class_path", "init_args"))
        mapping = _mapping(value)
        yield from [Given(key, value)] if mapping is None else _flatten(key, mapping, "")


def _meant(word: str) -> str:
    """What a word without an option may have been meant for."""
    if word.endswith((".yaml", ".yml")):
        return f"did you mean --config {word}?"
    return f"did you mean --ckpt_path {word}?" if Path(word).exists() else "options look like --trainer.rounds 10"


def _mapping(text: str | None) -> dict[Any, Any] | None:
    """The mapping that ``{...}`` stands for; None for any other text."""
    if text is None or not text.startswith("{"):
        return None
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return value if isinstance(value, dict) else None


def _flatten(key: str, value: Any, file: str) -> Iterator[Given]:
    if not isinstance(value, Mapping):
        yield Given(key, value, file)
        return
    options = dict(value)
    if "class_path" in options:
        yield Given(key, options.pop("class_path"), file)
        for name in options:
            if name not in _CLASS_OPTIONS:
                stray = Given(f"{key}.{name}", None, file)
                raise InputError(f"{stray.key}: is beside class_path{stray.place}; move it under {key}.init_args")
    for name, part in options.items():
        inside = name in _CLASS_OPTIONS and isinstance(part, Mapping)
        yield from _flatten(key if inside else f"{key}.{name}", part, file)
