"""A run's pictures: accuracy curves, the accuracy matrix, the queue heatmap and the queues' courses.

The ``draw_*`` functions draw on given axes and the ``*_figure`` functions on a new figure; they take plain lists, NaN
where there is no value. Figures are made without pyplot, so no window, no backend and no state shared with a user's own
plots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fedqcl.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def accuracy_figure(
    tasks: Sequence[int], accuracy: style.Rows, average: Sequence[float], subtitle: str = "", images: str = "test"
) -> Figure:
    """Accuracy of each task and their average over the communication rounds.

    Args:
        tasks: the task of each round, from 1.
        accuracy: fractions, [rounds, T].
        average: fractions, [rounds].
        subtitle: a second line below the title.
        images: what it was measured on, ``test`` or ``validation``.
    """
    figure, ax = _curves(tasks, f"{images.capitalize()} accuracy over the communication rounds", subtitle)
    _lines(ax, [[100 * value for value in row] for row in accuracy])
    rounds = range(1, len(tasks) + 1)
    ax.plot(rounds, [100 * value for value in average], color=style.INK, linewidth=2.6, label="average", zorder=4)
    ax.set_ylabel(f"{images} accuracy (%)")
    low = min(100 * value for row in [*accuracy, average] for value in row if not math.isnan(value))
    bottom = max(10 * math.floor(low / 10) - 2, -2)
    ax.set_ylim(bottom, 102)
    ax.set_yticks([tick for tick in ax.get_yticks() if bottom <= tick <= 100])
    style.legend(figure, ax)
    return figure


def queues_figure(tasks: Sequence[int], queues: style.Rows, subtitle: str = "") -> Figure:
    """The mean queue of each past task over the communication rounds.

    Args:
        tasks: the task of each round, from 1.
        queues: mean over clients, [rounds, T], NaN for tasks not past.
        subtitle: a second line below the title.
    """
    figure, ax = _curves(tasks, "Virtual queues over the communication rounds", subtitle)
    _lines(ax, queues)
    ax.set_ylabel("queue $Q^{(j)}$ of past task $j$, mean over clients")
    ax.set_ylim(bottom=0)
    ax.margins(y=0.08)
    style.legend(figure, ax)
    return figure


def accuracy_matrix_figure(matrix: style.Rows, subtitle: str = "", images: str = "test") -> Figure:
    """The accuracy matrix as a heatmap; see :func:`draw_accuracy_matrix`."""
    figure, ax = style.square(len(matrix[0]))
    draw_accuracy_matrix(ax, matrix, subtitle, images)
    return figure


def queue_heatmap_figure(queues: style.Rows, num_tasks: int, subtitle: str = "") -> Figure:
    """The queue matrix as a heatmap; see :func:`draw_queue_heatmap`."""
    figure, ax = style.square(num_tasks - 1)
    draw_queue_heatmap(ax, queues, num_tasks, subtitle)
    return figure


def draw_accuracy_matrix(ax: Axes, matrix: style.Rows, subtitle: str = "", images: str = "test") -> None:
    """Draw accuracy on task j (column) after task i (row), j <= i.

    Args:
        ax: where to draw.
        matrix: fractions, [t, T] with t <= T.
        subtitle: a second line below the title.
        images: what it was measured on, ``test`` or ``validation``.
    """
    T = len(matrix[0])
    cells = [[100 * value if j <= i else math.nan for j, value in enumerate(row)] for i, row in enumerate(matrix)]
    cells += [[math.nan] * T for _ in range(T - len(matrix))]
    known = style.known(cells) or [0.0]
    low = min(10 * math.floor(min(known) / 10), 90)
    limits = (low, max(10 * math.ceil(max(known) / 10), low + 10))
    label = f"{images} accuracy (%)"
    style.heatmap(ax, cells, range(1, T + 1), range(1, T + 1), limits, "viridis", label, style.percent)
    ax.set_xlabel("tested on task $j$")
    ax.set_ylabel("after learning task $i$")
    style.title(ax, "Accuracy matrix", subtitle)


def draw_queue_heatmap(
    ax: Axes, queues: style.Rows, num_tasks: int, subtitle: str = "", high: float | None = None
) -> None:
    """Draw the mean queue of past task j (column) after the last round of task i (row), as the paper does.

    Args:
        ax: where to draw.
        queues: mean over clients after each finished task, [t, T], NaN for tasks not past.
        num_tasks: T.
        subtitle: a second line below the title.
        high: the value with the darkest colour; the highest if left out.
    """
    past = num_tasks - 1
    cells = [[value if j <= i else math.nan for j, value in enumerate(row[:past])] for i, row in enumerate(queues[1:])]
    cells += [[math.nan] * past for _ in range(past - len(cells))]
    limits = (0.0, high or max(style.known(cells), default=0.0) or 1.0)
    label = "queue $Q^{(j)}[i]$, mean over clients"
    style.heatmap(ax, cells, range(2, num_tasks + 1), range(1, num_tasks), limits, "OrRd", label, style.short)
    ax.set_xlabel("past task $j$")
    ax.set_ylabel("after learning task $i$")
    style.title(ax, "Virtual queue matrix", subtitle)


def _curves(tasks: Sequence[int], title: str, subtitle: str) -> tuple[Figure, Axes]:
    """Axes over the rounds, every other task on a grey band and each with its number above."""
    from matplotlib.ticker import MaxNLocator

    figure = style.figure(9.0, 4.6, "constrained")
    ax = figure.add_subplot()
    spans = list(_spans(tasks))
    for task, first, last in spans:
        if task % 2 == 0:
            ax.axvspan(first - 0.5, last + 0.5, color=style.BAND, zorder=0)
        text = f"task {task}" if len(spans) <= 10 else str(task)
        ax.annotate(
            text, ((first + last) / 2, 1), (0, 4), ax.get_xaxis_transform(), "offset points",
            ha="center", va="bottom", fontsize=8, color=style.FAINT,
        )  # fmt: skip
    ax.set_xlim(0.5, len(tasks) + 0.5)
    ax.set_xlabel("communication round")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    style.title(ax, title, subtitle, above=18)
    return figure, ax


def _spans(tasks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each task with its first and last round, from 1."""
    for task in dict.fromkeys(tasks):
        rounds = [index for index, other in enumerate(tasks, start=1) if other == task]
        yield task, rounds[0], rounds[-1]


def _lines(ax: Axes, rows: style.Rows) -> None:
    """A line a task."""
    T = len(rows[0])
    look: dict[str, Any] = {
        "marker": "o" if len(rows) <= 60 else "",
        "markersize": 3.2,
        "linewidth": 1.5 if T <= 10 else 1.1,
    }
    for task, (values, color) in enumerate(zip(zip(*rows, strict=True), _task_colors(T), strict=True), start=1):
        if style.known([values]):
            rounds = range(1, len(rows) + 1)
            ax.plot(rounds, values, color=color, label=f"task {task}", **look)


def _task_colors(tasks: int) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if tasks <= len(style.FEW_TASKS):
        return list(style.FEW_TASKS[:tasks])
    return [to_hex(colormaps["viridis"](0.93 * task / (tasks - 1))) for task in range(tasks)]
