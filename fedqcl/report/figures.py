"""A section's figures: curves over the tasks, accuracy against forgetting, sweeps over an axis, and queues.

There is one for each data set and quantity, so that a page can put them in as many columns as fit. They are drawn from
the cells' means over seeds, with the standard deviation where there is one. A view's function takes the section, for
the words of a label; those of its cells that are to be drawn, one or more of one data set; and the axis, where the view
has one. It yields pairs of a name, blank for a figure that is alone, and the figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedqcl.plots import style
from fedqcl.plots.run import draw_queue_heatmap
from fedqcl.report.runs import Matrix, accuracy_after, deviation, forgetting_after
from fedqcl.report.sections import Cell, Section, as_number, by_choice
from fedqcl.run.records import mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Figures = dict[str, "Figure"]
Line = list[tuple[float, float]]

_CURVES: dict[str, tuple[str, float, Callable[[Matrix], list[float]]]] = {
    "accuracy": ("average accuracy (%)", 100, accuracy_after),
    "forgetting": ("forgetting", 1, forgetting_after),
}
_SWEPT = {
    "accuracy": ("average accuracy (%)", 100, "average_accuracy"),
    "forgetting": ("forgetting", 1, "forgetting"),
    "last-task": ("last task accuracy (%)", 100, "last_task_accuracy"),
}


def draw(section: Section, kind: str, axis: str | None = None) -> Figures:
    """The figures of a view.

    Args:
        section: the runs.
        kind: of the view: ``curves``, ``pareto``, ``sweep`` or ``queues``.
        axis: whose choices it is of, and only cells that have one; a sweep and queues need one.

    Returns:
        Figures by a name fit for a file; none if no run has what the view shows.
    """
    drawers = {"curves": curves, "pareto": pareto, "sweep": sweep, "queues": queues}
    figures = {}
    for dataset, cells in section.panels().items():
        shown = [cell for cell in cells if axis is None or axis in cell.at]
        for name, figure in drawers[kind](section, shown, axis or "") if shown else []:
            words = [word for word in (kind, axis, dataset, name) if word]
            figures["-".join(words).replace(" ", "_")] = figure
    return figures


def curves(section: Section, cells: Sequence[Cell], axis: str) -> Iterator[tuple[str, Figure]]:
    """Average accuracy and forgetting after each task, a line a cell."""
    for name, (label, factor, quantity) in _CURVES.items():
        figure, ax = _axes(f"{label.partition(' (')[0].capitalize()} after each task", cells[0].dataset)
        for look, cell in zip(_looks(), cells, strict=False):
            over_runs = list(zip(*(quantity(run.accuracy) for run in cell.runs), strict=False))
            points = [(factor * mean(values), factor * deviation(values)) for values in over_runs]
            _line(ax, range(1, len(points) + 1), points, section.label(cell, ["config"]), look)
        ax.set_xlabel("tasks learned")
        ax.set_ylabel(label)
        _whole_ticks(ax)
        style.legend(figure, ax)
        yield name, figure


def pareto(section: Section, cells: Sequence[Cell], axis: str) -> Iterator[tuple[str, Figure]]:
    """Accuracy against forgetting, a point a cell; with choices of one numeric axis alone, in their order."""
    swept = _only_numeric_axis(section, cells)
    note = f", {swept} beside each point" if swept else ""
    figure, ax = _axes("Accuracy against forgetting", f"{cells[0].dataset}{note}")
    if swept:
        _path(ax, [cell for group in by_choice(cells, swept).values() for cell in group], swept)
    else:
        for look, cell in zip(_looks(), cells, strict=False):
            _point(ax, cell, section.label(cell, ["config"]), look)
        style.legend(figure, ax)
    ax.set_xlabel("forgetting (less is better)")
    ax.set_ylabel("average accuracy (%)")
    ax.margins(0.1)
    ax.locator_params(axis="x", nbins=6)
    yield "", figure


def sweep(section: Section, cells: Sequence[Cell], axis: str) -> Iterator[tuple[str, Figure]]:
    """Accuracy, forgetting and last-task accuracy over the choices of an axis, evenly spaced, a line for each rest."""
    choices = list(by_choice(cells, axis))
    lines: dict[str, list[Cell]] = {}
    for cell in cells:
        lines.setdefault(section.label(cell, ["config", axis]), []).append(cell)
    for name, (label, factor, key) in _SWEPT.items():
        figure, ax = _axes(f"{label.partition(' (')[0].capitalize()} over {axis}", cells[0].dataset)
        for look, (line, members) in zip(_looks(), lines.items(), strict=False):
            there = {cell.at[axis]: (factor * cell.mean(key), factor * cell.std(key)) for cell in members}
            _line(ax, range(len(choices)), [there.get(choice, (math.nan, math.nan)) for choice in choices], line, look)
        ax.set_xticks(range(len(choices)), [str(choice) for choice in choices])
        ax.set_xlim(-0.3, len(choices) - 0.7)
        ax.set_xlabel(axis)
        ax.set_ylabel(label)
        if len(lines) > 1:
            style.legend(figure, ax)
        yield name, figure


def queues(section: Section, cells: Sequence[Cell], axis: str) -> Iterator[tuple[str, Figure]]:
    """The queue matrix at each choice of an axis, in colours that mean the same in all of them."""
    matrices = {}
    for cell in cells:
        runs = [run.queues for run in cell.runs if len(run.queues) > 1]  # one task has no past
        if runs:
            matrices[section.label(cell, ["config"])] = _mean_matrix(runs)
    high = max((value for matrix in matrices.values() for value in style.known(matrix)), default=0.0)
    for label, matrix in matrices.items():
        figure, ax = style.square(len(matrix) - 1)
        draw_queue_heatmap(ax, matrix, len(matrix), f"{label}, {cells[0].dataset}", high)
        yield label, figure


def _axes(title: str, subtitle: str) -> tuple[Figure, Axes]:
    figure = style.figure(5.6, 3.6, "constrained")
    ax = figure.add_subplot()
    ax.grid(color="#DDDDDD", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    style.title(ax, title, subtitle)
    return figure, ax


def _line(ax: Axes, x: range, points: Line, label: str, look: dict[str, Any]) -> None:
    """A line through means, with a bar of the deviation."""
    means, stds = [mean for mean, _ in points], [0 if math.isnan(std) else std for _, std in points]
    ax.errorbar(x, means, yerr=stds, label=label, markersize=4.5, linewidth=1.5, elinewidth=0.8, **look)


def _point(ax: Axes, cell: Cell, label: str, look: dict[str, Any]) -> None:
    """A cell as a point, with bars of the deviations."""
    bars = [0 if math.isnan(std) else std for std in (cell.std("forgetting"), 100 * cell.std("average_accuracy"))]
    x, y = cell.mean("forgetting"), 100 * cell.mean("average_accuracy")
    ax.errorbar(x, y, bars[1], bars[0], label=label, markersize=7, elinewidth=1, **{**look, "linestyle": ""})


def _only_numeric_axis(section: Section, cells: Sequence[Cell]) -> str | None:
    """The axis, if the cells are of one method and differ in one number."""
    axes = [
        axis for axis in section.axes if axis not in ("config", "method") and any(axis in cell.at for cell in cells)
    ]
    numeric = len(axes) == 1 and all(as_number(cell.at.get(axes[0])) is not None for cell in cells)
    return axes[0] if numeric and len({cell.method for cell in cells}) == 1 else None


def _path(ax: Axes, cells: Sequence[Cell], axis: str) -> None:
    """Points in the order of an axis, joined, each with its choice beside it."""
    x, y = [cell.mean("forgetting") for cell in cells], [100 * cell.mean("average_accuracy") for cell in cells]
    ax.plot(x, y, color=style.FAINT, linewidth=0.8, zorder=1)
    ax.scatter(x, y, c=range(len(cells)), cmap="viridis", s=45, zorder=2)
    for cell, point in zip(cells, zip(x, y, strict=True), strict=True):
        ax.annotate(str(cell.at[axis]), point, (5, 4), textcoords="offset points", fontsize=8, color=style.INK)


def _looks() -> Iterator[dict[str, Any]]:
    while True:
        yield from style.LOOKS


def _whole_ticks(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _mean_matrix(matrices: Sequence[Matrix]) -> Matrix:
    """Mean of matrices of one shape, NaN left out."""
    return [[mean(values) for values in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
