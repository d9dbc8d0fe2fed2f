"""Puts code where a page asks for it.

``<!-- file: examples/anchored.py -->`` stands for a file of the repository, ``<!-- source: fedqcl.loop.fit -->`` for a
function without its docstring.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

_FILE = re.compile(r"<!-- file: (\S+) -->")
_FUNCTION = re.compile(r"<!-- source: ([\w.]+)\.(\w+) -->")
_LANGUAGES = {".py": "python", ".sbatch": "bash"}


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: Any) -> str:
    """Replace the marks."""
    root = Path(config.config_file_path).parent
    return _FUNCTION.sub(_function, _FILE.sub(lambda mark: _file(root, mark[1]), markdown))


def _file(root: Path, name: str) -> str:
    path = root / name
    return f'```{_LANGUAGES[path.suffix]} title="{name}"\n{path.read_text(encoding="utf-8")}```'


def _function(mark: re.Match[str]) -> str:
    module, name = mark.groups()
    source = inspect.getsource(getattr(importlib.import_module(module), name))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    docstring = function.body[0]
    lines = source.splitlines()
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(["```python", *lines, "```"])
