"""Tables in CSV files that grow by rows, and by columns when a row brings one."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedqcl.run.records import State
from fedqcl.run.writing import replace


def columns(state: State) -> dict[str, float]:
    """A column for a number, one a task for a list: ``queue: [a, b]`` is ``queue_1: a, queue_2: b``."""
    found: dict[str, float] = {}
    for name, value in state.items():
        if isinstance(value, list):
            found.update({f"{name}_{task}": item for task, item in enumerate(value, start=1)})
        else:
            found[name] = value
    return found


def append_rows(path: Path, rows: list[dict[str, float]]) -> None:
    """Append rows to a table; a column it lacks is added, blank in the rows above."""
    if not rows:
        return
    header = _header(path)
    brought = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    if not set(brought) <= set(header):
        header = brought + [name for name in header if name not in brought]
        replace(path, _table(header, read_rows(path), with_header=True))
    size = path.stat().st_size
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(_table(header, rows))
    except OSError:
        os.truncate(path, size)  # no part of a row
        raise


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a table; blank is NaN, and a table that is not there has none."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(file)]


def _table(header: list[str], rows: Iterable[Mapping[str, float]], with_header: bool = False) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if with_header:
        writer.writerow(header)
    writer.writerows([_cell(row.get(name, math.nan)) for name in header] for row in rows)
    return text.getvalue()


def _cell(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else repr(float(value))


def _header(path: Path) -> list[str]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file), [])


def _number(cell: str) -> float:
    if not cell:
        return math.nan
    return float(cell) if set(cell) - set("-0123456789") else int(cell)
