"""Tables in CSV files that grow by rows, and by columns when a row brings one."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fedqcl.run.records import State
from fedqcl.run.writing import replace


def append_rows(path: Path, records: Sequence[State]) -> None:
    """Append a row a record to a table; a column it lacks is added, blank in the rows above.

    A number has a column, a list one an item: ``queue: [a, b]`` becomes ``queue_1: a, queue_2: b``.
    """
    if not records:
        return
    rows, header = [_columns(record) for record in records], _header(path)
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


def _columns(record: State) -> dict[str, float]:
    row: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, list):
            row.update({f"{name}_{number}": item for number, item in enumerate(value, start=1)})
        else:
            row[name] = value
    return row


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
