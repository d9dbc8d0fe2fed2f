"""Ends every method's page with what is read from elsewhere: its options, and the figures that the paper prints."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import yaml
from mkdocs.structure.pages import Page

from fedqcl import methods
from fedqcl.methods import Method

SHIPPED = [cls for cls in vars(methods).values() if isinstance(cls, type) and issubclass(cls, Method)]
BY_PAGE = {f"methods/{cls.__name__.lower()}.md": cls for cls in SHIPPED if cls is not Method}
TABLES = yaml.safe_load(files("fedqcl.report").joinpath("paper.yaml").read_text(encoding="utf-8"))["tables"]
END = """
## Options

::: {path}
    options:
      heading_level: 3
      members: false
      show_bases: false
      skip_local_inventory: true

Each is an option `model.method.NAME`; [Configuration](../configuration.md#model.method.{name}) has their ranges.

## Figures

{figures}

What this package measures stands in [Reproducibility](../reproducibility.md#measured).
"""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Add the end."""
    cls = BY_PAGE.get(page.file.src_uri)
    if cls is None:
        return markdown
    name = cls.__name__
    return markdown + END.format(path=f"{cls.__module__}.{name}", name=name, figures=_figures(name))


def _figures(method: str) -> str:
    rows = list(_rows(method))
    if not rows:
        return "The paper prints none of it."
    return "\n".join(["| the paper | average accuracy, % | forgetting |", "|---|--:|--:|", *rows])


def _rows(method: str) -> Iterator[str]:
    for table in TABLES:
        if method in table["figures"]:
            accuracy, accuracy_std, forgetting, forgetting_std = table["figures"][method]
            yield f"| {table['name']} | {_pair(accuracy, accuracy_std)} | {_pair(forgetting, forgetting_std)} |"


def _pair(mean: float, std: float | None) -> str:
    return f"{mean:g}" if std is None else f"{mean:g} ± {std:g}"
