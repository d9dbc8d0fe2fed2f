"""Puts code in the place of a link that stands by itself.

``[anchored.py](../examples/anchored.py)`` alone on its line becomes the file, and
``[fedqcl.loop.fit](../fedqcl/loop.py)``, whose text is a dotted name, the function without its docstring. In the
repository both are links to the file.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

_FUNCTION = re.compile(r"^\[(fedqcl[\w.]*)\.(\w+)\]\(\.\./\S+\)$", re.MULTILINE)
_FILE = re.compile(r"^\[[\w.]+\]\(\.\./(\S+)\)$", re.MULTILINE)
_LANGUAGES = {".py": "python", ".sbatch": "bash"}


def on_page_markdown(markdown: str, config: MkDocsConfig, **_: Any) -> str:
    """Replace the links."""
    root = Path(config.config_file_path).parent
    return _FILE.sub(lambda link: _file(root, link[1]), _FUNCTION.sub(_function, markdown))


def _file(root: Path, name: str) -> str:
    path = root / name
    return f'```{_LANGUAGES[path.suffix]} title="{name}"\n{path.read_text(encoding="utf-8")}```'


def _function(link: re.Match[str]) -> str:
    module, name = link.groups()
    source = inspect.getsource(getattr(importlib.import_module(module), name))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    docstring = function.body[0]
    lines = source.splitlines()
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(["```python", *lines, "```"])
