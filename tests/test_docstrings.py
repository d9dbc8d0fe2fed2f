"""Every public name says what it is, every longer list of arguments what each is, and every example is true."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docstring_parser
import pytest

import fedqcl

ROOT = Path(fedqcl.__file__).parent
# Arguments that one sentence can tell of.
FEW = 3


def module_names() -> list[str]:
    """All modules but those that cannot be imported everywhere."""
    paths = [path for path in sorted(ROOT.rglob("*.py")) if path.stem not in ("__main__", "norm_triton")]
    names = (".".join(path.relative_to(ROOT.parent).with_suffix("").parts) for path in paths)
    return [name.removesuffix(".__init__") for name in names]


def public(holder: Any, module: str) -> Iterator[tuple[str, Any]]:
    """The public classes, functions and methods that a module defines: pairs of dotted name and object."""
    for name, value in vars(holder).items():
        value = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
        ours = getattr(value, "__module__", None) == module and (inspect.isclass(value) or inspect.isfunction(value))
        if ours and not name.startswith("_"):
            yield value.__qualname__, value
            if inspect.isclass(value):
                yield from public(value, module)


def documented(value: Any) -> list[str]:
    """The arguments that a docstring lists."""
    found = docstring_parser.parse(inspect.getdoc(value) or "").params
    return [param.arg_name.strip("*") for param in found if param.args[0] == "param"]


def arguments(function: Any) -> list[str]:
    """The names of a function's arguments but ``self`` and ``*args, **kwargs``."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.name not in ("self", "cls")]


def overrides(name: str, module: Any) -> bool:
    """Whether a method has its arguments explained where a class above it has the method."""
    owner, _, method = name.rpartition(".")
    cls = getattr(module, owner, None) if owner else None
    return cls is not None and any(method in vars(base) for base in cls.__mro__[1:])


@pytest.mark.parametrize("name", module_names())
def test_every_public_name_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert not [path for path, value in public(module, name) if not value.__doc__]


@pytest.mark.parametrize("name", module_names())
def test_arguments_are_listed_as_they_are(name: str) -> None:
    """A constructor's in the docstring of its class, a function's from four on in its own; none that is no more."""
    module = importlib.import_module(name)
    for path, value in public(module, name):
        if inspect.isclass(value):
            if "__init__" in vars(value) and inspect.getsourcefile(value.__init__) == module.__file__:
                assert set(arguments(value.__init__)) <= set(documented(value)), path
        else:
            listed, expected = documented(value), arguments(value)
            assert not listed or listed == expected, path
            assert listed or len(expected) <= FEW or overrides(path, module), path


@pytest.mark.parametrize("name", [n for n in module_names() if ">>>" in inspect.getsource(importlib.import_module(n))])
def test_every_example_is_true(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
