"""Every method of the package, for tests of what all of them promise."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import fedqcl.methods
from fedqcl.errors import InputError
from fedqcl.methods import Method
from fedqcl.parts import Spec

# For a small problem, where a method has such an option.
SMALL = {"V": 2.0, "delta": -0.5, "memory": 30, "replay_batch": 3}


def method_classes() -> list[type[Method]]:
    """Every concrete method of the package."""
    for module in pkgutil.walk_packages(fedqcl.methods.__path__, "fedqcl.methods."):
        importlib.import_module(module.name)
    found, waiting = [], [Method]
    while waiting:
        children = waiting.pop().__subclasses__()
        waiting += children
        found += [c for c in children if c.__module__.startswith("fedqcl.methods.") and c.loss is not Method.loss]
    return sorted(found, key=lambda c: c.__name__)


def small_method(cls: type[Method]) -> Method:
    """A method for a small problem."""
    options = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in SMALL.items() if name in options})


def skip_if_refused(method: Method, spec: Spec | None) -> None:
    """Skip a test of a problem that the method does not take."""
    assert spec is not None
    try:
        method.check(spec)
    except InputError as error:
        pytest.skip(str(error))
