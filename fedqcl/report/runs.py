"""Finished runs, read from their folders."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from fedqcl.errors import InputError, one_line
from fedqcl.run.config import parse_config
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import mean
from fedqcl.run.shape import check_config, check_summary, is_number

Matrix: TypeAlias = "list[list[float]]"
Places: TypeAlias = "dict[str, dict[str, Any]]"


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: its folder.
        text: its ``config.yaml``; blank if a script has made it, whose options are not known.
        summary: what ``summary.json`` holds.
        places: by experiment, its title, what it fills and shows, and where in it the run lies; from ``sweep.json``.
        marked: when that file was written.
    """

    path: Path
    text: str
    summary: Mapping[str, Any]
    places: Places = field(default_factory=dict)
    marked: float = 0.0

    @cached_property
    def config(self) -> Any:
        """The configuration, nested as in its file."""
        return parse_config(self.text)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration by dotted key; a class is the value of its own key, by its short name."""
        return dict(_flatten("", self.config))

    @property
    def dataset(self) -> str:
        """What the images are called: by their class, or by their file or folder if they are the user's own."""
        return str(self.summary.get("dataset") or self.settings.get("data.source", "")).lower()

    @property
    def method(self) -> str:
        """Short name of the method; blank if unknown."""
        return str(self.settings.get("model.method", ""))

    @property
    def images(self) -> str:
        """What it was tested on: ``test``, or ``validation`` and the share of the training images that was held out."""
        part, share = self.summary.get("evaluated_on", "test"), self.settings.get("data.validation")
        return f"{part} {share:g}" if part != "test" and is_number(share) else str(part)

    @property
    def device(self) -> str:
        """What it ran on."""
        return str(self.summary.get("device", "unknown"))

    @property
    def seed(self) -> Any:
        """The seed."""
        return self.summary.get("seed", self.settings.get("seed_everything"))

    def figure(self, name: str, group: str | None = None) -> float:
        """A number of the summary, or of a group in it, the last one of a list; NaN if it has none."""
        value = (self.summary.get(group) or {} if group else self.summary).get(name)
        value = value[-1] if isinstance(value, list) and value else value
        return float(value) if is_number(value) else math.nan

    @cached_property
    def accuracy(self) -> Matrix:
        """Accuracy on task j (column) after task i (row), fractions [T, T]."""
        return _matrix(self.summary.get("accuracy_matrix"))

    @cached_property
    def queues(self) -> Matrix:
        """Mean queue of task j (column) after task i (row) [T, T]; empty if the method has none."""
        return _matrix(self.summary.get("queue_matrix"))


def read_runs(paths: Iterable[Path | str]) -> tuple[list[Run], list[Path]]:
    """Read all runs in and below some folders.

    Args:
        paths: run folders, or folders that hold some at any depth.

    Returns:
        The finished runs, sorted by folder, and the folders of those that have not finished.

    Raises:
        InputError: there is no such folder, no finished run, or one whose files are damaged.
    """
    finished, unfinished = [], []
    for path in map(Path, paths):
        if not path.is_dir():
            raise InputError(f"{path}: there is no such folder; give runs' folders, or a folder that holds some")
        for folder in _folders(path):
            run = _read(RunFolder(folder))
            finished.append(run) if run else unfinished.append(folder)
    unique = {run.path.resolve(): run for run in finished}
    if not unique:
        raise InputError(f"{', '.join(map(str, paths))}: no finished run there; a finished one has a summary.json")
    return sorted(unique.values(), key=lambda run: run.path.as_posix()), unfinished


def _folders(path: Path) -> Iterator[Path]:
    with os.scandir(path) as entries:
        names = {entry.name: entry.is_dir() for entry in entries}
    if "config.yaml" in names or "summary.json" in names:
        yield path
        return
    for name in sorted(names):
        if names[name] and not name.startswith("."):
            yield from _folders(path / name)


def _read(folder: RunFolder) -> Run | None:
    try:
        return _read_checked(folder)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{folder.path}: cannot be read ({one_line(error)}); remove it or leave it out") from None


def _read_checked(folder: RunFolder) -> Run | None:
    """The run; None if it has not finished. ``ValueError`` if a file is not what a run or a sweep writes."""
    summary = folder.read_summary()
    if not summary:
        return None
    check_summary(summary)
    places = folder.read_places()
    marked = folder.places.stat().st_mtime if places else 0.0
    run = Run(folder.path, folder.config.read_text(encoding="utf-8"), summary, places, marked)
    if run.text or run.places:  # a script's run has no options in its file, and is of no sweep
        check_config(run.text, run.config)
    return run


def _flatten(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield key, value
        return
    if "class_path" in value:
        yield key, str(value["class_path"]).rpartition(".")[2]
        value = value.get("init_args")
    for name, part in value.items() if isinstance(value, Mapping) else ():
        yield from _flatten(f"{key}.{name}".lstrip("."), part)


def _matrix(rows: Any) -> Matrix:
    return [[math.nan if value is None else float(value) for value in row] for row in rows or []]


def accuracy_after(matrix: Matrix) -> list[float]:
    """Average accuracy over the tasks seen after each task [T], from an accuracy matrix [T, T]."""
    return [mean(row[: t + 1]) for t, row in enumerate(matrix)]


def forgetting_after(matrix: Matrix) -> list[float]:
    """Forgetting after each task [T]: the mean drop of the earlier ones from their best; NaN after the first."""
    return [mean([_drop(matrix, t, j) for j in range(t)]) for t in range(len(matrix))]


def _drop(matrix: Matrix, t: int, j: int) -> float:
    return max(row[j] for row in matrix[j:t]) - matrix[t][j]


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample (n - 1), NaN left out; NaN with fewer than two."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.stdev(known) if len(known) > 1 else math.nan
