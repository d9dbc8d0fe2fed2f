"""Lets docstrings, written with a few roles of Sphinx and doctests, be read as Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import AliasResolutionError, Extension, Module, NameResolutionError, Object

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`([^`]+)`")
_INLINE = re.compile(r":math:`([^`]+)`")
_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
_BLOCK = re.compile(r"^( *)\.\. math:: (.+)$", re.MULTILINE)


class Roles(Extension):
    """Rewrites the docstrings of a package when it has been read."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Rewrite them all."""
        _rewrite(pkg)


def _rewrite(obj: Object) -> None:
    if obj.docstring:
        text = _ROLE.sub(lambda role: _reference(obj, role[1]), obj.docstring.value)
        text = _INLINE.sub(lambda role: rf"\({role[1]}\)", text)
        text = _EXAMPLE.sub("Examples:", text)
        obj.docstring.value = _BLOCK.sub(r"\1\\[ \2 \\]", text)
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)


def _reference(obj: Object, name: str) -> str:
    """A link to what a role names as seen from an object; plain code if the reference has no place for that."""
    first, dot, rest = name.partition(".")
    try:
        path = name if name.startswith("fedqcl.") else f"{obj.resolve(first)}{dot}{rest}"
        target = obj.modules_collection[path]
        path = target.canonical_path
    except (AliasResolutionError, KeyError, NameResolutionError):
        return f"`{name}`"
    return f"[`{name}`][{path}]" if target.has_docstring else f"`{name}`"
