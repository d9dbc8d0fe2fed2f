"""The page: one HTML file that needs no other and no network."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from fedqcl.report.runs import Run
from fedqcl.run.config import SHORT_NAMES
from fedqcl.run.shape import is_number

if TYPE_CHECKING:
    from fedqcl.report.report import Chapter

_SETTINGS = ("alpha", "N", "T", "R", "C", "M", "V", "delta", "lr", "scenario")
_FIGURES = {
    "accuracy %": ("average_accuracy", 100, 2),
    "forgetting": ("forgetting", 1, 3),
    "last task %": ("last_task_accuracy", 100, 2),
    "learned %": ("learning_accuracy", 100, 2),
    "seconds": ("wall_seconds", 1, 0),
}


def write_page(path: Path, chapters: Sequence[Chapter], runs: Sequence[Run], unfinished: Sequence[Path]) -> Path:
    """Write the page.

    Args:
        path: the HTML file.
        chapters: sections with their tables and figures.
        runs: all finished runs.
        unfinished: folders of runs that have not ended.

    Returns:
        ``path``.
    """
    left_out = f"Left out as unfinished: {', '.join(map(str, unfinished))}." if unfinished else ""
    parts = {
        "css": _file("page.css"),
        "js": _file("page.js"),
        "count": f"{len(runs)} run{'s' * (len(runs) != 1)}",
        "links": " ".join(map(_link, chapters)),
        "chapters": "\n".join(map(_chapter, chapters)),
        "unfinished": html.escape(left_out),
        "runs": _runs_table(runs),
        # "<" would end the script that holds it.
        "configs": json.dumps([run.text for run in runs], ensure_ascii=False).replace("<", "\\u003c"),
    }
    path.write_text(Template(_file("page.html")).substitute(parts), encoding="utf-8")
    return path


def page_ids() -> list[str]:
    """The ids of the page's own parts, which no chapter can have."""
    return re.findall(r'id="(.+?)"', _file("page.html"))


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _link(chapter: Chapter) -> str:
    return f'<a href="#{chapter.name}">{html.escape(chapter.section.title)}</a>'


def _chapter(chapter: Chapter) -> str:
    section = chapter.section
    stands_for = f"{section.fills} of the paper. " if section.fills else ""
    lines = [
        f'<section id="{chapter.name}">',
        f"<h2>{html.escape(section.title)}</h2>",
        f"<p class=faint>{html.escape(stands_for + _seeds(chapter))}</p>",
        *(f'<div class="scroll">\n{table.html()}\n</div>' for table in chapter.tables),
        '<div class="figures">',
        *map(_figure, chapter.figures),
        "</div>",
        "</section>",
    ]
    return "\n".join(lines)


def _seeds(chapter: Chapter) -> str:
    counts = sorted({len(cell.runs) for cell in chapter.section.cells})
    some = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    devices = sorted({run.device for cell in chapter.section.cells for run in cell.runs})
    return f"Seeds: {some}. On: {', '.join(devices)}. Files: {chapter.name}.csv, .md and .tex in tables."


def _figure(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<figure><img alt="{html.escape(path.stem)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _runs_table(runs: Sequence[Run]) -> str:
    names = ["run", "data", "tested on", "method", "seed", *_FIGURES, "on", *_SETTINGS, "experiments"]
    head = "".join(f"<th><button>{html.escape(name)}</button></th>" for name in names)
    rows = "\n".join(_row(number, run) for number, run in enumerate(runs))
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"


def _row(number: int, run: Run) -> str:
    name = html.escape(run.path.resolve().name)
    cells = [
        f'<td><button data-run="{number}">{name}</button></td>',
        *map(_cell, (run.dataset, run.images, run.method, run.seed)),
        *(_number(factor * run.figure(key), digits) for key, factor, digits in _FIGURES.values()),
        _cell(run.device),
        *(_cell(run.settings.get(SHORT_NAMES[name], "")) for name in _SETTINGS),
        _cell(", ".join(run.places)),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _number(value: float, digits: int) -> str:
    """A figure, sorted by more digits than are shown."""
    if math.isnan(value):
        return "<td></td>"
    return f'<td class=n data-value="{value:.6g}">{value:.{digits}f}</td>'


def _cell(value: object) -> str:
    """A setting; a number as short as it can be."""
    text = f"{value:g}" if is_number(value) else "" if value is None else str(value)
    return f"<td{' class=n' * is_number(value)}>{html.escape(text)}</td>"
