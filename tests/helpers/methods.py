"""Every method of the package, for tests of what all of them promise."""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import sys

import pytest

import fedqcl.methods
import tests.helpers.own  # noqa: F401
from fedqcl.errors import InputError
from fedqcl.methods import Method
from fedqcl.parts import Spec
from tests.helpers.process import REPOSITORY

ROOMS = ("fedqcl.methods.", "examples.", "tests.helpers.own")
for found in pkgutil.walk_packages(fedqcl.methods.__path__, "fedqcl.methods."):
    importlib.import_module(found.name)
for file in (REPOSITORY / "examples").glob("*.py"):
    spec = importlib.util.spec_from_file_location(f"examples.{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])

# For a small problem, where a method has such an option.
SMALL = {"V": 2.0, "delta": -0.5, "memory": 30, "replay_batch": 3}


def method_classes() -> list[type[Method]]:
    """Every concrete method: the package's, the examples', and the tests' own."""
    return sorted(_subclasses(Method), key=lambda c: c.__name__)


def shipped_methods() -> list[type[Method]]:
    """Those of the package."""
    return [cls for cls in method_classes() if cls.__module__.startswith("fedqcl.methods.")]


def _subclasses(base: type[Method]) -> set[type[Method]]:
    """The concrete ones of the rooms that have methods; a test may define others, for a purpose of its own."""
    found = set[type[Method]]()
    for cls in base.__subclasses__():
        found |= _subclasses(cls)
        if cls.__module__.startswith(ROOMS) and cls.loss is not Method.loss:
            found.add(cls)
    return found


def small_method(cls: type[Method]) -> Method:
    """A method for a small problem."""
    options = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in SMALL.items() if name in options})


def skip_if_refused(method: Method, spec: Spec | None) -> None:
    """Skip a test of a problem that the method does not take."""
    assert spec is not None
    try:
        method.check(spec, num_clients=3)
    except InputError as error:
        pytest.skip(str(error))
