"""PyTorch's compiler, not loaded before something is compiled: it takes seconds, and a run has no use for it.

Optimizers load it only to ask it to leave them alone, Lightning to know compiled modules when it sees them.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

NAME = "torch._dynamo"


class _Compiled(type):
    """Makes the class of what has been compiled: nothing, before the compiler is loaded."""

    def __instancecheck__(cls, instance: object) -> bool:
        compiler = sys.modules[NAME]
        return not isinstance(compiler, Unloaded) and isinstance(instance, compiler.OptimizedModule)


class _OptimizedModule(metaclass=_Compiled):
    """What Lightning asks a module whether it is."""


class Unloaded(ModuleType):
    """The compiler, answering as it does while nothing is compiled; asked for anything else, it loads."""

    OptimizedModule = _OptimizedModule
    trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)

    @staticmethod
    def disable(function: Callable[..., Any], *_: object, **__: object) -> Callable[..., Any]:
        """Never compile a function."""
        return function

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        """End what is being compiled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _load(self)
        return getattr(self, name)


class _Door(MetaPathFinder, Loader):
    """Loads the compiler for whoever imports a module of it, and hands out the module if it has come along."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Where a module of the compiler is."""
        compiler = sys.modules[NAME]
        if not name.startswith(f"{NAME}.") or not isinstance(compiler, Unloaded):
            return None
        _load(compiler)
        return ModuleSpec(name, self) if name in sys.modules else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that is there."""
        module = sys.modules[spec.name]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do but to put back what the import has written over."""
        module.__spec__ = self._spec


def _load(compiler: ModuleType) -> None:
    """Make of what stands for the compiler, and may stand for modules of it, the compiler itself."""
    for name in [name for name in sys.modules if name.startswith(f"{NAME}.")]:
        del sys.modules[name]
    compiler.__class__ = ModuleType
    spec = compiler.__spec__
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(compiler)


def put_off_compiler() -> None:
    """Import PyTorch, without its compiler until that is needed."""
    import torch

    spec = importlib.util.find_spec(NAME)
    if NAME in sys.modules or spec is None:
        return
    compiler = importlib.util.module_from_spec(spec)
    compiler.__class__ = Unloaded
    sys.modules[NAME] = torch._dynamo = compiler
    sys.meta_path.insert(0, _Door())
