"""PyTorch's compiler, not loaded before something is compiled: it takes seconds, and a run has no use for it.

Optimizers load it only to ask it to leave them alone, Lightning to know compiled modules when it sees them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

NAME = "torch._dynamo"


class _Compiled(type):
    """Makes the class of what has been compiled: nothing, before the compiler is loaded."""

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.__subclasscheck__(type(instance))

    def __subclasscheck__(cls, subclass: type) -> bool:
        compiled = getattr(sys.modules.get(NAME), "OptimizedModule", cls)
        return compiled is not cls and issubclass(subclass, compiled)


class _OptimizedModule(metaclass=_Compiled):
    """What Lightning asks a module whether it is."""


class Unloaded(ModuleType):
    """Stands for the compiler, answering as it does while nothing is compiled; asked for anything else, it loads it."""

    OptimizedModule = _OptimizedModule
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(fn: Any = None, *args: Any, **options: Any) -> Any:
        """Leave a function alone: one of PyTorch's own, for which it asks without ``wrapping``, or another."""
        if options.get("wrapping") is False:
            return fn
        return partial(_left_alone, args, options) if fn is None else _left_alone(args, options, fn)

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        """End what is being compiled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_load(), name)


class _Door(MetaPathFinder):
    """Loads the compiler for whoever imports a module of it, and hands out the module if it has come along."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module of the compiler is."""
        if not name.startswith(f"{NAME}.") or not isinstance(sys.modules.get(NAME), Unloaded):
            return None
        _load()
        # Out of sight until it is handed out, or the import system would take its own spec and load it once more.
        module = sys.modules.pop(name, None)
        return None if module is None else ModuleSpec(name, _There(module))


class _There(Loader):
    """Hands out a module that is there."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that is there."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do but to put back what the import has written over, where it could."""
        if module.__spec__ is not self._spec:
            module.__spec__ = self._spec


def _left_alone(args: Sequence[Any], options: Mapping[str, Any], fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that the compiler, once it is there, is asked to leave alone."""

    @wraps(fn)
    def call(*given: Any, **named: Any) -> Any:
        compiler = sys.modules.get(NAME)
        if compiler is None or isinstance(compiler, Unloaded):
            return fn(*given, **named)
        return compiler.disable(fn, *args, **options)(*given, **named)

    return call


def _load() -> ModuleType:
    """The compiler itself; what stands for it and for parts of it makes room, and comes back if it does not load."""
    import torch

    stand_in = sys.modules.get(NAME)
    if not isinstance(stand_in, Unloaded):
        return importlib.import_module(NAME)
    _make_room()
    vars(torch).pop("_dynamo", None)
    try:
        return importlib.import_module(NAME)
    except BaseException:
        _make_room()
        _install(stand_in)
        raise


def _make_room() -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{NAME}.")]:
        sys.modules.pop(name, None)


def _install(compiler: ModuleType) -> None:
    import torch

    sys.modules[NAME] = torch._dynamo = compiler


def put_off_compiler() -> None:
    """Import PyTorch, without its compiler until that is needed."""
    spec = importlib.util.find_spec(NAME)
    if NAME in sys.modules or spec is None:
        return
    compiler = importlib.util.module_from_spec(spec)
    compiler.__class__ = Unloaded
    _install(compiler)
    sys.meta_path.insert(0, _Door())
