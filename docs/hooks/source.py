"""Puts a function's source, without its docstring, where a page asks for it: ``<!-- source: fedqcl.loop.fit -->``."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

_MARK = re.compile(r"<!-- source: ([\w.]+)\.(\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the marks."""
    return _MARK.sub(_code, markdown)


def _code(mark: re.Match[str]) -> str:
    module, name = mark.groups()
    source = inspect.getsource(getattr(importlib.import_module(module), name))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    docstring = function.body[0]
    lines = source.splitlines()
    del lines[docstring.lineno - 1 : docstring.end_lineno]
    return "\n".join(["```python", *lines, "```"])
