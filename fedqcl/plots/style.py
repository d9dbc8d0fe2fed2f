"""How the pictures look: colours, sizes, titles, heatmaps and numbers, all made without pyplot."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

Rows = Sequence[Sequence[float]]

# Okabe and Ito's palette, which colour-blind readers tell apart, without its yellow (too light) and black.
FEW_TASKS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
# Told apart by shape as well, since there are more methods than colours.
LOOKS: list[dict[str, Any]] = [
    {"color": color, "marker": marker, "linestyle": line}
    for (marker, line), color in zip(
        [("o", "-")] * 6 + [("s", "--")] * 6 + [("^", ":")] * 6, FEW_TASKS * 3, strict=True
    )
]
INK, FAINT, BAND = "#222222", "#777777", "#F4F4F4"
LETTERS_A_LINE = 60  # of a legend: about as many as fit into a figure's width


def heatmap(
    ax: Axes, cells: Rows, rows: range, columns: range, limits: tuple[float, float], colors: str, label: str,
    text: Callable[[float], str],
) -> None:  # fmt: skip
    """Cells with their values written in; an unknown one stays empty.

    Args:
        ax: where to draw.
        cells: ``[rows, columns]``, NaN for unknown.
        rows: what to number the rows.
        columns: what to number the columns.
        limits: the values at the ends of the colours.
        colors: a colour map's name.
        label: of the colour bar.
        text: a value as it is written in.
    """
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
    drawn = ax.get_figure(root=True)
    assert drawn is not None
    bar = drawn.colorbar(image, ax=ax, shrink=0.8, label=label)
    bar.outline.set_visible(False)


def figure(width: float, height: float, layout: Literal["constrained", "compressed"]) -> Figure:
    """An empty figure, inches."""
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=150, layout=layout, facecolor="white")


def square(cells: int) -> tuple[Figure, Axes]:
    """A figure with axes for a heatmap of that many rows and columns."""
    side = max(3.4, min(9.0, 0.55 * cells + 1.0))
    drawn = figure(side + 1.0, side, "compressed")
    return drawn, drawn.add_subplot()


def title(ax: Axes, title: str, subtitle: str, above: int = 4) -> None:
    """A bold title over a small grey line, ``above`` points over the axes.

    Args:
        ax: where to draw.
        title: the bold line.
        subtitle: the grey one; none if blank.
        above: points between the axes and the lines.
    """
    ax.set_title(title, loc="left", fontweight="bold", fontsize=12, color=INK, pad=above + (16 if subtitle else 2))
    if subtitle:
        ax.annotate(subtitle, (0, 1), (0, above), "axes fraction", "offset points", fontsize=9, color=FAINT)


def legend(figure: Figure, ax: Axes) -> None:
    """A legend beside the axes; one that would leave them no room beneath them, for which the figure grows."""
    width, height = figure.bbox.size
    columns = 1 + (len(ax.get_legend_handles_labels()[1]) > 14)
    beside = _legend(figure, ax, "outside right center", columns)
    taken = beside.get_window_extent()
    if taken.width > 0.45 * width or taken.height > height:
        beside.remove()
        beneath = _legend(figure, ax, "outside lower center", max(1, int(width / taken.width * columns)))
        figure.set_figheight((height + beneath.get_window_extent().height) / figure.dpi)


def _legend(
    figure: Figure, ax: Axes, place: Literal["outside right center", "outside lower center"], columns: int
) -> Legend:
    handles, labels = ax.get_legend_handles_labels()
    broken = [textwrap.fill(label, LETTERS_A_LINE) for label in labels]
    return figure.legend(handles, broken, loc=place, frameon=False, fontsize=9, ncols=columns)


def known(rows: Rows) -> list[float]:
    """All values but NaN."""
    return [value for row in rows for value in row if not math.isnan(value)]


def percent(value: float) -> str:
    """A percentage in up to four characters."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def short(value: float) -> str:
    """A number to two or three digits, in up to six characters, for tables and pictures; ``-`` for NaN."""
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    for limit, form in ((1, ".2g"), (9.995, ".2f"), (99.95, ".1f"), (9999.5, ".0f")):
        if abs(value) < limit:
            return format(value, form)
    return format(value, ".0e")
