"""A run's pictures, drawn from its files alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedqcl.errors import InputError
from fedqcl.plots import run as plots
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import Matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_run(path: Path | str) -> list[Path]:
    """Draw a run's pictures.

    Args:
        path: the run folder; the run may still be going on.

    Returns:
        The files written: ``plots/accuracy.png``, ``accuracy_matrix.png`` and, for a method with queues,
        ``queue_heatmap.png`` and ``queues.png``.

    Raises:
        InputError: if the folder holds no rounds.
    """
    folder = RunFolder(path)
    rounds = folder.read_metrics()
    if not rounds:
        raise InputError(f"{folder.metrics}: no rounds to plot; give the folder of a run")
    name = folder.path.resolve().name
    images = folder.read_made_with().get("evaluated_on", "test")
    tasks = [int(row["task"]) for row in rounds]
    accuracy, queues = _columns(rounds, "accuracy"), _columns(rounds, "queue")
    figures = {
        "accuracy": plots.accuracy_figure(tasks, accuracy, [row["average_accuracy"] for row in rounds], name, images),
        "accuracy_matrix": plots.accuracy_matrix_figure(_last_rounds(tasks, accuracy), name, images),
    }
    if any(not math.isnan(value) for row in queues for value in row):
        figures["queue_heatmap"] = plots.queue_heatmap_figure(_last_rounds(tasks, queues), len(accuracy[0]), name)
        figures["queues"] = plots.queues_figure(tasks, queues, name)
    folder.plots.mkdir(exist_ok=True)
    return [_save(figure, folder.plots / f"{stem}.png") for stem, figure in figures.items()]


def _columns(rounds: Sequence[dict[str, float]], name: str) -> list[list[float]]:
    """The columns ``name_1`` ... ``name_T`` of a table, [rounds, T]."""
    tasks = sum(column.removeprefix(f"{name}_").isdecimal() for column in rounds[0])
    return [[row[f"{name}_{task}"] for task in range(1, tasks + 1)] for row in rounds]


def _last_rounds(tasks: Sequence[int], rows: Matrix) -> list[Sequence[float]]:
    """The row of each task's last round."""
    return list(dict(zip(tasks, rows, strict=True)).values())


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path)
    return path
