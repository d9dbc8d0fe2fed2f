"""Makes the reference of all options, from the typed arguments that the command line reads and their docstrings."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Iterator
from typing import Any

import docstring_parser
import yaml
from jsonargparse import ArgumentParser, Namespace

from fedqcl.cli.configs import shipped_configs
from fedqcl.data import FederatedData
from fedqcl.learner import Learner
from fedqcl.signature import ClassHint, Parameter, class_hint, expected, parameters
from fedqcl.trainer import FederatedTrainer
from fedqcl.types import Seed

GROUPS = {"trainer": FederatedTrainer, "model": Learner, "data": FederatedData}
LINKED = {"data.seed"}  # given as seed_everything
MARK = "<!-- options -->"
_LOG = logging.getLogger("mkdocs.hooks.configuration")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the mark."""
    return markdown.replace(MARK, "\n".join([*_command(), *_groups()])) if MARK in markdown else markdown


def _command() -> Iterator[str]:
    """What belongs to the command rather than to a class."""
    fit = docstring_parser.parse(FederatedTrainer.fit.__doc__ or "")
    (checkpoint,) = (param.description for param in fit.params if param.arg_name == "ckpt_path")
    configs = ", ".join(f"`{name}`" for name in shipped_configs())
    yield "## The command\n"
    yield _entry("config", "a YAML file, or the name of a shipped one", None, f"May be given several times: {configs}.")
    yield _entry("seed_everything", expected(Seed), 0, "Decides everything random.")
    yield _entry("ckpt_path", "a run's folder, `last` or `auto`", None, checkpoint or "")
    yield "`-q` and `-v` are short for `--trainer.console quiet` and `verbose`.\n"


def _groups() -> Iterator[str]:
    for group, cls in GROUPS.items():
        yield f"## {group}\n\n{_summary(cls)}\n"
        choices = []
        for name, parameter, default, meaning in _arguments(cls):
            key, asked = f"{group}.{name}", class_hint(parameter.hint)
            if key in LINKED:
                continue
            yield _entry(key, _accepted(parameter, asked), default, meaning)
            if asked and _is_ours(asked.base):
                choices.append((key, asked))
        for key, asked in choices:
            yield from _classes(key, asked)


def _classes(key: str, asked: ClassHint) -> Iterator[str]:
    """The options of every class that may be chosen for a key."""
    yield f"## {key} {{ #{key}.classes }}\n"
    for name in asked.names:
        cls = asked.find(name)
        yield f"### {name} {{ #{key}.{name} }}\n\n{_summary(cls)}\n"
        for option, parameter, default, meaning in _arguments(cls, asked.supplied):
            accepted = _accepted(parameter, class_hint(parameter.hint))
            yield _entry(f"{key}.{option}", accepted, default, meaning, level=4, anchor=f"{key}.{name}.{option}")


def _arguments(cls: type, supplied: int = 0) -> Iterator[tuple[str, Parameter, Any, str]]:
    """Name, type, default and meaning of each of a class's arguments."""
    defaults = _defaults(cls)
    documented = docstring_parser.parse(inspect.getdoc(cls) or "").params
    meanings = {param.arg_name: param.description or "" for param in documented}
    for name, parameter in (parameters(cls, supplied) or {}).items():
        yield name, parameter, ... if parameter.required else defaults[name], meanings.get(name, "")


def _defaults(cls: type) -> dict[str, Any]:
    """As the command line has them, a class by its path."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(cls, "it", fail_untyped=False)
    found = parser.get_defaults().get("it") or Namespace()
    return vars(found)


def _accepted(parameter: Parameter, asked: ClassHint | None) -> str:
    """What may be given, in words, with links to the classes of this package."""
    words = expected(parameter.hint)
    if asked is None:
        return words
    kind = "an" if asked.base.__name__[0] in "AEIO" else "a"
    return f"{kind} {asked.base.__name__}: {words}" if words != asked.base.__name__ else words


def _entry(key: str, accepted: str, default: Any, meaning: str, level: int = 3, anchor: str = "") -> str:
    """One option."""
    if not meaning:
        _LOG.warning("%s has no meaning: its docstring leaves it out", key)
    shown = "needed" if default is ... else f"default `{_shown(default)}`"
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", " ".join(meaning.split()))
    heading = f"{'#' * level} `{key}` {{ #{anchor or key} .option }}"
    return f"{heading}\n\n{accepted} · {shown}\n{{ .accepted }}\n\n{text[:1].upper()}{text[1:]}\n"


def _shown(default: Any) -> str:
    """A default as YAML has it; a class by its name and options."""
    if isinstance(default, Namespace) and "class_path" in default:
        given = "".join(f", {name}={value}" for name, value in vars(default.get("init_args", Namespace())).items())
        return default.class_path.rpartition(".")[2] + given
    if isinstance(default, type):
        return default.__name__
    return yaml.safe_dump(default, default_flow_style=True).removesuffix("\n...\n").strip()


def _summary(cls: type) -> str:
    """The first sentence or two of a class's docstring."""
    text = docstring_parser.parse(inspect.getdoc(cls) or "").short_description or ""
    return re.sub(r":\w+:`([^`]+)`", r"`\1`", text)


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "fedqcl"
