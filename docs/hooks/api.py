"""Makes a reference page of each room of the package, from its docstrings, and its place in the navigation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

SECTION = "Python"
DIRECTIVE = """
::: {module}
    options:
      heading_level: {level}
      members: {members}
      show_root_full_path: true
      show_symbol_type_heading: false
"""


def on_config(config: MkDocsConfig, **_: Any) -> MkDocsConfig:
    """List the pages under the section that ``mkdocs.yml`` leaves empty."""
    for group in config.nav or []:
        for entry in next(iter(group.values())):
            if isinstance(entry, dict) and SECTION in entry:
                entry[SECTION] = [{_title(room): f"api/{room.stem}.md"} for room in _rooms(config)]
    return config


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add the pages."""
    for room in _rooms(config):
        own, *inner = _modules(room)
        text = DIRECTIVE.format(module=own, level=1, members="false" if inner else "null")
        text += "".join(DIRECTIVE.format(module=module, level=2, members="null") for module in inner)
        files.append(File.generated(config, f"api/{room.stem}.md", content=text))
    return files


def _rooms(config: MkDocsConfig) -> list[Path]:
    """The packages and modules right under ``fedqcl``, sorted."""
    package = Path(config.config_file_path).parent / "fedqcl"
    packages = [path.parent for path in package.glob("*/__init__.py")]
    modules = [path for path in package.glob("*.py") if not path.stem.startswith("_")]
    return sorted(packages + modules, key=lambda path: path.stem)


def _title(room: Path) -> str:
    return f"fedqcl.{room.stem}"


def _modules(room: Path) -> Iterator[str]:
    """The dotted names of a room's modules, its own first."""
    for path in sorted(room.rglob("*.py")) if room.is_dir() else [room]:
        parts = path.with_suffix("").relative_to(room.parent.parent).parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
