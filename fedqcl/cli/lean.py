"""Keeps out of a start what takes seconds and is not needed."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from fedqcl.cli.uncompiled import put_off_compiler

# A second each and more, for metrics of texts and of sounds, and for operations on boxes in images.
NOT_NEEDED = ("transformers", "scipy.signal", "torch._dynamo.utils")


@contextmanager
def lean_imports() -> Iterator[None]:
    """Import what is inside without what is not needed, and without ever looking for garbage in it.

    The libraries are a million objects that stay until the end, when Python would look at each of them once more.
    Where PyTorch is there already, nothing is done.
    """
    if "torch" in sys.modules:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        put_off_compiler()
        _put_off(NOT_NEEDED)
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


def _put_off(names: Sequence[str]) -> None:
    """Import torchmetrics, which Lightning needs, without modules that it, or torchvision, would bring in.

    What they take from these modules goes on working: it is looked up when it is first used.
    """
    if "torchmetrics" in sys.modules:
        return
    missing = [name for name in names if name not in sys.modules]
    sys.modules |= {name: _StandIn(name) for name in missing}
    try:
        importlib.import_module("torchmetrics")
    finally:
        for name in missing:
            if isinstance(sys.modules.get(name), _StandIn):
                del sys.modules[name]


class _StandIn(ModuleType):
    """A module of nothing but :class:`_Later`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self.__name__, name)


class _Later:
    """What a module has under a name, looked up when something is asked of it."""

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look_up(), name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._look_up()(*args, **options)

    def _look_up(self) -> Any:
        return getattr(importlib.import_module(self._module), self._name)
