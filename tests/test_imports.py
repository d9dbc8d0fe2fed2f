"""Imports run one way, and each room knows only what it should."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedqcl
from tests.helpers.process import run_python

ROOT = Path(fedqcl.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(room: str) -> list[Path]:
    """The files of a package or the file of a module."""
    path = ROOT / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports, wherever in it: pairs of module and name, the name blank for a whole module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from ((str(node.module), alias.name) for alias in node.names)


def rooms_used(room: str) -> set[str]:
    """The other rooms of the package that a room imports: ``fedqcl.data.pool`` counts as ``data``."""
    used = set()
    for path in modules(room):
        for module, name in imports(path):
            parts = module.split(".")
            if parts[0] == "fedqcl":
                used.add(parts[1] if len(parts) > 1 else name)
    return used - {room}


KNOWS = {
    "errors": set(),
    "types": set(),
    "rng": set(),
    "version": set(),
    "signature": {"types"},
    "arguments": {"errors", "signature"},
    "orphans": set(),
    "kernels": set(),
    "plots": set(),
    "preemption": set(),
    "parts": set(),
    "models": {"errors", "kernels", "types"},
    "metrics": {"plots"},
    "data": {"errors", "parts", "rng", "types"},
    "methods": {"errors", "parts", "rng", "types"},
    "learner": {"errors", "methods", "models", "parts", "rng"},
    "engine": {"data", "errors", "kernels", "learner", "methods", "models", "orphans", "parts"},
    "schedule": {"rng"},
    "costs": {"engine"},
    "evaluate": {"data", "engine", "methods", "parts"},
    "checkpoint": {"engine", "errors", "parts", "schedule", "tracker"},
    "report": {"errors", "plots", "run"},
    "sweep": {"errors", "orphans", "report", "run"},
    "run": {"errors", "plots"},
    "tracker": {"costs", "engine", "evaluate", "methods", "metrics", "run", "schedule"},
    "resume": {"checkpoint", "errors", "run"},
    "loop": {"checkpoint", "engine", "methods", "schedule", "tracker"},
    "fitting": {
        "checkpoint", "costs", "data", "engine", "errors", "evaluate", "learner", "loop", "preemption", "run",
        "schedule", "tracker", "version",
    },
    "trainer": {
        "arguments", "checkpoint", "data", "engine", "errors", "evaluate", "fitting", "learner", "preemption", "resume",
        "run", "types",
    },
    "cli": {
        "data", "errors", "learner", "preemption", "report", "resume", "run", "signature", "sweep", "trainer", "types",
        "version",
    },
}  # fmt: skip
# Of the methods, the rooms outside know the interface, by these names from the package itself.
INTERFACE = {"ClientState", "Method", "Stats"}


@pytest.mark.parametrize("room", KNOWS)
def test_a_room_knows_only_these(room: str) -> None:
    assert rooms_used(room) <= KNOWS[room]


def test_the_rooms_lie_in_one_order() -> None:
    assert list(graphlib.TopologicalSorter(KNOWS).static_order())


def test_every_room_has_its_rule() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    files = {path.stem for path in ROOT.glob("*.py") if not path.stem.startswith("__")}
    assert packages | files == KNOWS.keys()


@pytest.mark.parametrize("room", sorted(KNOWS.keys() - {"methods"}))
def test_nothing_but_methods_names_a_method(room: str) -> None:
    for path in modules(room):
        for module, name in imports(path):
            if module.startswith("fedqcl.methods") or (module, name) == ("fedqcl", "methods"):
                assert module == "fedqcl.methods", path
                assert name in INTERFACE, path


def test_report_reads_files_and_needs_no_torch() -> None:
    for path in [*modules("report"), *modules("plots"), *modules("run")]:
        assert not {module.split(".")[0] for module, _ in imports(path)} & {"torch", "lightning", "torchmetrics"}
    modules_of = "fedqcl.run.pictures, fedqcl.report.report, fedqcl.cli.report"
    code = f"import sys, {modules_of}; print([m for m in ('torch', 'lightning') if m in sys.modules])"
    assert run_python("-c", code).stdout.strip() == "[]"


QUICK = """
import contextlib, sys
from fedqcl.cli import main
for words in ["--help"], ["--version"], ["report", "--help"], ["sweep", "--help"], ["sweep", "e99"]:
    with contextlib.suppress(SystemExit):
        main(words)
print([name for name in ("torch", "lightning", "numpy", "matplotlib", "jsonargparse") if name in sys.modules])
"""


def test_what_trains_nothing_imports_nothing_to_train_with() -> None:
    assert run_python("-c", QUICK).stdout.splitlines()[-1] == "[]"


def test_imports_make_no_circle() -> None:
    """Among modules, by what they import when they are loaded; imports inside functions are left out."""
    graph: dict[str, set[str]] = {}
    paths = {module_name(path): path for path in ROOT.rglob("*.py")}
    for name, path in paths.items():
        graph[name] = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fedqcl"):
                for alias in node.names:
                    target = f"{node.module}.{alias.name}"
                    graph[name].add(target if target in paths else str(node.module))
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
