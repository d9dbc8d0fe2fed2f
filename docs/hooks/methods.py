"""Ends every method's page with what is read from elsewhere: its options, and the figures that the paper prints."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mkdocs.structure.pages import Page

from fedqcl import methods
from fedqcl.methods import Method
from fedqcl.report.paper import TABLES, printed_in

SHIPPED = [cls for cls in vars(methods).values() if isinstance(cls, type) and issubclass(cls, Method)]
BY_PAGE = {f"methods/{cls.__name__.lower()}.md": cls for cls in SHIPPED if cls is not Method}
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
        figures = printed_in(table).get(method)
        if figures:
            accuracy = _with_std(figures.average_accuracy, figures.accuracy_std)
            yield f"| {table} | {accuracy} | {_with_std(figures.forgetting, figures.forgetting_std)} |"


def _with_std(mean: float, std: float) -> str:
    return f"{mean:g}" if math.isnan(std) else f"{mean:g} ± {std:g}"
