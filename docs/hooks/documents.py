"""Puts the repository's own documents into the site, as they are, with their links led to pages of it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

PAGES = {
    "REPRODUCIBILITY.md": "reproducibility.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"\[(`?)([^\]\[]+?)\1\]\((?!https?:|#)([^)#\s]+)\)")


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for each document."""
    root = Path(config.config_file_path).parent
    for document, page in PAGES.items():
        text = (root / document).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_LINK.sub(_led, text)))
    return files


def _led(link: re.Match[str]) -> str:
    """A link to a page of the site where there is one; else what it said, as code."""
    tick, text, target = link.groups()
    if target in PAGES:
        return f"[{tick}{text}{tick}]({PAGES[target]})"
    if target.startswith("docs/") and target.endswith(".md"):
        return f"[{tick}{text}{tick}]({posixpath.relpath(target, 'docs')})"
    if target.startswith("fedqcl/") and target.endswith(".py"):
        return f"[{tick}{text}{tick}][{target.removesuffix('.py').replace('/', '.')}]"
    return f"`{text}`"
