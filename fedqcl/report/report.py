"""A report: tables, figures and a page, made from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedqcl.errors import InputError
from fedqcl.report import figures
from fedqcl.report.names import Names
from fedqcl.report.page import page_ids, write_page
from fedqcl.report.runs import read_runs
from fedqcl.report.sections import Section, make_sections
from fedqcl.report.tables import Table, complexity_table, long_table, results_table
from fedqcl.report.views import parse_view

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Chapter:
    """A section with its tables and figures.

    Attributes:
        section: the runs.
        name: that of its table files, and its id on the page.
        tables: in the order of its views.
        figures: SVG files in the order of its views.
    """

    section: Section
    name: str
    tables: list[Table] = field(default_factory=list)
    figures: list[Path] = field(default_factory=list)


def make_report(paths: Sequence[Path | str], out: Path) -> Path:
    """Write ``index.html``, ``tables/`` and ``figures/``.

    Args:
        paths: run folders, or folders that hold some.
        out: made if missing; files of an earlier report are replaced.

    Returns:
        The page.

    Raises:
        InputError: there are no finished runs, or ``out`` cannot be written.
    """
    runs, unfinished = read_runs(paths)
    try:
        for folder in (out / "tables", out / "figures"):
            folder.mkdir(parents=True, exist_ok=True)
        names = Names(page_ids())
        chapters = [_chapter(section, names, out) for section in make_sections(runs)]
        return write_page(out / "index.html", chapters, runs, unfinished)
    except OSError as error:
        raise InputError(f"out: {error.filename or out} cannot be written ({error.strerror})") from None


def _chapter(section: Section, names: Names, out: Path) -> Chapter:
    chapter = Chapter(section, names.make(section.name))
    for view in section.show:
        kind, axis = parse_view(section.name, view)
        if kind == "table":
            chapter.tables.append(results_table(section, axis))
        elif kind == "complexity":
            chapter.tables.append(complexity_table(section))
        else:
            for name, figure in figures.draw(section, kind, axis).items():
                chapter.figures.append(_save(figure, out / "figures" / names.make(f"{chapter.name}-{name}")))
    if not chapter.tables and not chapter.figures:  # the runs that are there do not vary in what it is to show
        chapter.tables.append(results_table(section))
    _write_tables(chapter, out / "tables" / chapter.name)
    return chapter


def _write_tables(chapter: Chapter, path: Path) -> None:
    tables = chapter.tables or [results_table(chapter.section)]
    Path(f"{path}.md").write_text("\n".join(table.markdown() for table in tables), encoding="utf-8")
    Path(f"{path}.tex").write_text("\n".join(table.latex() for table in tables), encoding="utf-8")
    Path(f"{path}.csv").write_text(long_table(chapter.section), encoding="utf-8")


def _save(figure: Figure, path: Path) -> Path:
    """Write a figure as SVG, the same bytes for the same figure."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(f"{path}.svg", metadata={"Date": None})
    return Path(f"{path}.svg")
