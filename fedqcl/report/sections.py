"""Runs put together: the sections of a report, and in each the runs that differ in the seed alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedqcl.report.paper import DATASETS, METHODS
from fedqcl.report.runs import Run, deviation
from fedqcl.run.config import CIRCUMSTANCES
from fedqcl.run.records import mean

OTHER = "other-runs"
# What tells no two runs apart.
_NO_PART = re.compile(
    rf"seed_everything|data\.source\.(root|path|download|verify)|trainer\.({'|'.join(sorted(CIRCUMSTANCES))})(\..*)?"
)


@dataclass(frozen=True)
class Cell:
    """Runs at one place of a grid, which differ in the seed.

    Attributes:
        at: the place, the choice by axis, without the seed.
        runs: one a seed; of one that was repeated, the first by name.
    """

    at: dict[str, Any]
    runs: list[Run]

    def mean(self, name: str) -> float:
        """Mean over the seeds of a number of the summary."""
        return mean([run.figure(name) for run in self.runs])

    def std(self, name: str) -> float:
        """Standard deviation over the seeds (n - 1); NaN with one."""
        return deviation([run.figure(name) for run in self.runs])

    def cost(self, name: str) -> float:
        """Mean over the seeds of a number of the summary's ``costs``."""
        return mean([run.figure(name, "costs") for run in self.runs])

    @property
    def dataset(self) -> str:
        """The data set, as the paper calls it: ``Split-CIFAR-100``; with the images unless they are the test images."""
        run = self.runs[0]
        return _on(f"Split-{DATASETS.get(run.dataset, run.dataset)}", run.images)

    @property
    def devices(self) -> str:
        """What the runs ran on."""
        return ", ".join(sorted({run.device for run in self.runs}))

    @property
    def method(self) -> str:
        """Short name of the method."""
        return self.runs[0].method


@dataclass(frozen=True)
class Section:
    """An experiment's part of a report: of its runs those that were tested on the same images.

    Attributes:
        name: the experiment's, with the images unless they are the test images.
        title: in words, likewise.
        fills: what of the paper it stands for; blank for nothing.
        show: its views, such as ``sweep over V``.
        cells: its runs, in order.
    """

    name: str
    title: str
    fills: str
    show: list[str]
    cells: list[Cell]

    @cached_property
    def axes(self) -> list[str]:
        """The axes that have more than one choice, the method and the data set besides."""
        names = dict.fromkeys(axis for cell in self.cells for axis in cell.at)
        return [axis for axis in names if axis == "method" or len({str(cell.at.get(axis)) for cell in self.cells}) > 1]

    def label(self, cell: Cell, without: Iterable[str] = ()) -> str:
        """A cell in words: its choices but for some axes; single runs of no experiment by their names."""
        if len(self.cells) > 1 and all(len(other.runs) == 1 and not other.runs[0].places for other in self.cells):
            return cell.runs[0].path.name
        words = [in_words(axis, cell) for axis in self.axes if axis in cell.at and axis not in without]
        return ", ".join(words) or cell.method

    def panels(self, cells: Sequence[Cell] | None = None) -> dict[str, list[Cell]]:
        """Cells by their data set."""
        panels: dict[str, list[Cell]] = {}
        for cell in self.cells if cells is None else cells:
            panels.setdefault(in_words("config", cell), []).append(cell)
        return panels


def in_words(axis: str, cell: Cell) -> str:
    """A cell's choice of an axis in words: a number or a list says of what it is."""
    value = cell.at.get(axis)
    if axis == "config":
        return cell.dataset
    if axis == "method" or (isinstance(value, str) and as_number(value) is None and not value.startswith("[")):
        return str(value)
    return f"{axis} {value:g}" if isinstance(value, float) else f"{axis} {value}"


def as_number(value: Any) -> float | None:
    """A number, or a text that is one (``1e5``); None otherwise."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (OverflowError, TypeError, ValueError):
        return None


def order(value: Any) -> tuple[Any, ...]:
    """A key to sort choices by: methods as in the paper, numbers by size, texts as people do."""
    if value in METHODS:
        return (0, METHODS.index(value))
    size = as_number(value)
    if size is not None:
        return (1, size)
    return (2, [int(part) if part.isdigit() else part.lower() for part in re.split(r"(\d+)", str(value))])


def by_choice(cells: Sequence[Cell], axis: str) -> dict[object, list[Cell]]:
    """Cells by their choice on an axis, sorted; those without are left out."""
    groups: dict[object, list[Cell]] = {}
    for cell in sorted((cell for cell in cells if axis in cell.at), key=lambda cell: order(cell.at[axis])):
        groups.setdefault(cell.at[axis], []).append(cell)
    return groups


def make_sections(runs: Sequence[Run]) -> list[Section]:
    """The experiments that runs belong to, and the runs of none, which differ in whatever settings they differ in."""
    experiments: dict[tuple[str, str], list[Run]] = {}
    others: dict[str, list[Run]] = {}
    for run in runs:
        for name in run.places:
            experiments.setdefault((name, run.images), []).append(run)
        if not run.places:
            others.setdefault(run.images, []).append(run)
    sections = [_section(name, images, members) for (name, images), members in experiments.items()]
    sections.sort(key=lambda section: order(section.name))
    return [*sections, *(_other_runs(images, others[images]) for images in sorted(others))]


def _section(name: str, images: str, runs: Sequence[Run]) -> Section:
    """An experiment's section; what it is called and shows is what its file said when a run was last marked."""
    last = max(runs, key=lambda run: run.marked).places[name]
    members = [(at, run) for run in runs for at in run.places[name]["at"]]
    return Section(_on(name, images), _on(last["title"], images), last["fills"], last["show"], _cells(members))


def _other_runs(images: str, runs: Sequence[Run]) -> Section:
    """The section of the runs of no experiment."""
    # Without options nothing tells which runs of scripts differ in the seed alone: each stands for itself.
    members = [({"config": run.dataset, "method": run.method or run.path.as_posix()}, run) for run in runs]
    show = ["table by config", "curves", "pareto"]
    return Section(_on(OTHER, images), _on("Other runs", images), "", show, _cells(members))


def _on(words: str, images: str) -> str:
    """A name that says on which images runs were tested, unless it is the test images."""
    return words if images == "test" else f"{words} on {images}"


def _cells(members: Sequence[tuple[dict[str, Any], Run]]) -> list[Cell]:
    """Cells of members; settings in which runs at one place differ become axes of their own."""
    places: dict[str, list[tuple[dict[str, Any], Run]]] = {}
    for at, run in members:
        place = {axis: _choice(value) for axis, value in at.items() if axis != "seed"}
        places.setdefault(repr(sorted(place.items())), []).append((place, run))
    extra = sorted({key for group in places.values() for key in _differing([run for _, run in group])})
    cells: dict[str, Cell] = {}
    for place, run in [member for group in places.values() for member in group]:
        at = place | {_short(key, extra): _choice(run.settings[key]) for key in extra if key in run.settings}
        cell = cells.setdefault(repr(sorted(at.items(), key=repr)), Cell(at, []))
        if run.seed not in {other.seed for other in cell.runs}:
            cell.runs.append(run)
    return sorted(cells.values(), key=lambda cell: [order(cell.at[axis]) for axis in sorted(cell.at, key=_rank)])


def _choice(value: Any) -> Any:
    """A choice that can be told from others and sorted: a list, such as tasks of unequal size, as text."""
    return str(value) if isinstance(value, list) else value


def _differing(runs: Sequence[Run]) -> set[str]:
    keys = {key for run in runs for key in run.settings if not _NO_PART.fullmatch(key)}
    return {key for key in keys if len({repr(run.settings.get(key)) for run in runs}) > 1}


def _short(key: str, keys: Sequence[str]) -> str:
    """The last part of a key, or the whole if another has the same."""
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in keys) == 1 else key


def _rank(axis: str) -> int:
    return {"config": 0, "method": 1}.get(axis, 2)
