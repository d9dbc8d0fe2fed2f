"""A run's pictures: accuracy curves, the accuracy matrix, the queue heatmap and the queues' courses.

``plot_run`` reads the run folder and writes ``plots/*.png``. The ``draw_*`` functions draw on given axes and
the ``*_figure`` functions on a new figure; they take plain lists, NaN where there is no value. Figures are made
without pyplot, so no window, no backend and no state shared with a user's own plots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedqcl.errors import InputError
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Sequence[float]]

# Okabe and Ito's palette, which colour-blind readers tell apart, without its yellow (too light) and black.
FEW_TASKS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
INK, FAINT, BAND = "#222222", "#777777", "#F4F4F4"


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
    tasks = [int(row["task"]) for row in rounds]
    accuracy, queues = _columns(rounds, "accuracy"), _columns(rounds, "queue")
    figures = {
        "accuracy": accuracy_figure(tasks, accuracy, [row["average_accuracy"] for row in rounds], name),
        "accuracy_matrix": accuracy_matrix_figure(_last_rounds(tasks, accuracy), name),
    }
    if any(not math.isnan(value) for row in queues for value in row):
        figures["queue_heatmap"] = queue_heatmap_figure(_last_rounds(tasks, queues), len(accuracy[0]), name)
        figures["queues"] = queues_figure(tasks, queues, name)
    folder.plots.mkdir(exist_ok=True)
    return [_save(figure, folder.plots / f"{stem}.png") for stem, figure in figures.items()]


def accuracy_figure(tasks: Sequence[int], accuracy: Rows, average: Sequence[float], subtitle: str = "") -> Figure:
    """Accuracy of each task and their average over the communication rounds.

    Args:
        tasks: the task of each round, from 1.
        accuracy: fractions, [rounds, T].
        average: fractions, [rounds].
        subtitle: a second line below the title.
    """
    figure, ax = _curves(tasks, "Test accuracy over the communication rounds", subtitle)
    _lines(ax, [[100 * value for value in row] for row in accuracy])
    rounds = range(1, len(tasks) + 1)
    ax.plot(rounds, [100 * value for value in average], color=INK, linewidth=2.6, label="average", zorder=4)
    ax.set_ylabel("test accuracy (%)")
    low = min(100 * value for row in [*accuracy, average] for value in row if not math.isnan(value))
    bottom = max(10 * math.floor(low / 10) - 2, -2)
    ax.set_ylim(bottom, 102)
    ax.set_yticks([tick for tick in ax.get_yticks() if bottom <= tick <= 100])
    _legend(figure, ax)
    return figure


def queues_figure(tasks: Sequence[int], queues: Rows, subtitle: str = "") -> Figure:
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
    _legend(figure, ax)
    return figure


def accuracy_matrix_figure(matrix: Rows, subtitle: str = "") -> Figure:
    """The accuracy matrix as a heatmap; see :func:`draw_accuracy_matrix`."""
    figure, ax = _square(len(matrix[0]))
    draw_accuracy_matrix(ax, matrix, subtitle)
    return figure


def queue_heatmap_figure(queues: Rows, num_tasks: int, subtitle: str = "") -> Figure:
    """The queue matrix as a heatmap; see :func:`draw_queue_heatmap`."""
    figure, ax = _square(num_tasks - 1)
    draw_queue_heatmap(ax, queues, num_tasks, subtitle)
    return figure


def draw_accuracy_matrix(ax: Axes, matrix: Rows, subtitle: str = "") -> None:
    """Draw accuracy on task j (column) after task i (row), j <= i.

    Args:
        ax: where to draw.
        matrix: fractions, [t, T] with t <= T.
        subtitle: a second line below the title.
    """
    T = len(matrix[0])
    cells = [[100 * value if j <= i else math.nan for j, value in enumerate(row)] for i, row in enumerate(matrix)]
    cells += [[math.nan] * T for _ in range(T - len(matrix))]
    known = _known(cells) or [0.0]
    low = min(10 * math.floor(min(known) / 10), 90)
    limits = (low, max(10 * math.ceil(max(known) / 10), low + 10))
    _heatmap(ax, cells, range(1, T + 1), range(1, T + 1), limits, "viridis", "test accuracy (%)", _percent)
    ax.set_xlabel("tested on task $j$")
    ax.set_ylabel("after learning task $i$")
    _title(ax, "Accuracy matrix", subtitle)


def draw_queue_heatmap(ax: Axes, queues: Rows, num_tasks: int, subtitle: str = "") -> None:
    """Draw the mean queue of past task j (column) after the last round of task i (row), as the paper does.

    Args:
        ax: where to draw.
        queues: mean over clients after each finished task, [t, T], NaN for tasks not past.
        num_tasks: T.
        subtitle: a second line below the title.
    """
    past = num_tasks - 1
    cells = [[value if j <= i else math.nan for j, value in enumerate(row[:past])] for i, row in enumerate(queues[1:])]
    cells += [[math.nan] * past for _ in range(past - len(cells))]
    limits = (0.0, max(_known(cells), default=0.0) or 1.0)
    label = "queue $Q^{(j)}[i]$, mean over clients"
    _heatmap(ax, cells, range(2, num_tasks + 1), range(1, num_tasks), limits, "OrRd", label, short)
    ax.set_xlabel("past task $j$")
    ax.set_ylabel("after learning task $i$")
    _title(ax, "Virtual queue matrix", subtitle)


def _columns(rounds: Sequence[dict[str, float]], name: str) -> list[list[float]]:
    """The columns ``name_1`` ... ``name_T`` of a table, [rounds, T]."""
    tasks = sum(column.removeprefix(f"{name}_").isdecimal() for column in rounds[0])
    return [[row[f"{name}_{task}"] for task in range(1, tasks + 1)] for row in rounds]


def _last_rounds(tasks: Sequence[int], rows: Rows) -> list[Sequence[float]]:
    """The row of each task's last round."""
    return list(dict(zip(tasks, rows, strict=True)).values())


def _curves(tasks: Sequence[int], title: str, subtitle: str) -> tuple[Figure, Axes]:
    """Axes over the rounds, every other task on a grey band and each with its number above."""
    from matplotlib.ticker import MaxNLocator

    figure = _figure(9.0, 4.6, "constrained")
    ax = figure.add_subplot()
    spans = list(_spans(tasks))
    for task, first, last in spans:
        if task % 2 == 0:
            ax.axvspan(first - 0.5, last + 0.5, color=BAND, zorder=0)
        text = f"task {task}" if len(spans) <= 10 else str(task)
        ax.annotate(
            text, ((first + last) / 2, 1), (0, 4), ax.get_xaxis_transform(), "offset points",
            ha="center", va="bottom", fontsize=8, color=FAINT,
        )  # fmt: skip
    ax.set_xlim(0.5, len(tasks) + 0.5)
    ax.set_xlabel("communication round")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)
    _title(ax, title, subtitle, above=18)
    return figure, ax


def _spans(tasks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each task with its first and last round, from 1."""
    for task in dict.fromkeys(tasks):
        rounds = [index for index, other in enumerate(tasks, start=1) if other == task]
        yield task, rounds[0], rounds[-1]


def _lines(ax: Axes, rows: Rows) -> None:
    """A line a task."""
    T = len(rows[0])
    style: dict[str, Any] = {
        "marker": "o" if len(rows) <= 60 else "",
        "markersize": 3.2,
        "linewidth": 1.5 if T <= 10 else 1.1,
    }
    for task, (values, color) in enumerate(zip(zip(*rows, strict=True), _task_colors(T), strict=True), start=1):
        if _known([values]):
            rounds = range(1, len(rows) + 1)
            ax.plot(rounds, values, color=color, label=f"task {task}", **style)


def _task_colors(tasks: int) -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if tasks <= len(FEW_TASKS):
        return list(FEW_TASKS[:tasks])
    return [to_hex(colormaps["viridis"](0.93 * task / (tasks - 1))) for task in range(tasks)]


def _heatmap(
    ax: Axes, cells: Rows, rows: range, columns: range, limits: tuple[float, float], colors: str, label: str,
    text: Callable[[float], str],
) -> None:  # fmt: skip
    """Cells with their values written in; an unknown one stays empty."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    image = ax.imshow(cells, cmap=colors, vmin=limits[0], vmax=limits[1])
    size = max(6.5, min(10.0, 100 / len(columns)))
    cmap, norm = colormaps[colors], Normalize(*limits)
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            if not math.isnan(value):
                red, green, blue, _ = cmap(norm(value))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                ax.text(j, i, text(value), ha="center", va="center", fontsize=size, color="white" if dark else INK)
    ax.set_xticks(range(len(columns)), [str(task) for task in columns])
    ax.set_yticks(range(len(rows)), [str(task) for task in rows])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    figure = ax.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(image, ax=ax, shrink=0.8, label=label)
    bar.outline.set_visible(False)


def _figure(width: float, height: float, layout: Literal["constrained", "compressed"]) -> Figure:
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=150, layout=layout, facecolor="white")


def _square(cells: int) -> tuple[Figure, Axes]:
    side = max(3.4, min(9.0, 0.55 * cells + 1.0))
    figure = _figure(side + 1.0, side, "compressed")
    return figure, figure.add_subplot()


def _title(ax: Axes, title: str, subtitle: str, above: int = 4) -> None:
    """A bold title over a small grey line, ``above`` points over the axes."""
    ax.set_title(title, loc="left", fontweight="bold", fontsize=12, color=INK, pad=above + (16 if subtitle else 2))
    if subtitle:
        ax.annotate(subtitle, (0, 1), (0, above), "axes fraction", "offset points", fontsize=9, color=FAINT)


def _legend(figure: Figure, ax: Axes) -> None:
    entries = len(ax.get_lines())
    figure.legend(
        *ax.get_legend_handles_labels(),
        loc="outside right center",
        frameon=False,
        fontsize=9,
        ncols=1 + (entries > 14),
    )


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path)
    return path


def _known(rows: Rows) -> list[float]:
    return [value for row in rows for value in row if not math.isnan(value)]


def _percent(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"
