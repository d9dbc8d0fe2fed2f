"""Tables: of results with the paper's figures beside them, and of costs; as Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedqcl.report.paper import complexity, printed
from fedqcl.report.sections import Cell, Section


class Figure(NamedTuple):
    """A number in a table.

    Attributes:
        mean: NaN for none.
        std: NaN for none.
        digits: after the point.
        best: the best in its column.
    """

    mean: float
    std: float = math.nan
    digits: int = 1
    best: bool = False

    def text(self, plus_minus: str = " ± ") -> str:
        """The number, with its deviation if there is one; blank for none."""
        if math.isnan(self.mean):
            return ""
        text = f"{self.mean:.{self.digits}f}"
        return text if math.isnan(self.std) else f"{text}{plus_minus}{self.std:.{self.digits}f}"


Entry = str | Figure


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        columns: for each a heading it shares with its neighbours, blank for none, and one of its own.
        rows: texts and numbers.
    """

    columns: list[tuple[str, str]]
    rows: list[list[Entry]]

    def markdown(self) -> str:
        """As Markdown, the best in bold."""
        head = [f"{group} {name}".strip() for group, name in self.columns]
        rule = ["---" if isinstance(entry, str) else "--:" for entry in self.rows[0]]
        body = [[_marked(entry, "**{}**") for entry in row] for row in self.rows]
        return "".join(f"| {' | '.join(row)} |\n" for row in [head, rule, *body])

    def latex(self) -> str:
        """As a LaTeX ``tabular`` for the booktabs package, the best in bold."""
        groups = _spans(self.columns)
        first = " & ".join(_tex(name) if n == 1 else rf"\multicolumn{{{n}}}{{c}}{{{_tex(name)}}}" for name, n in groups)
        lines = [
            f"\\begin{{tabular}}{{{''.join('l' if isinstance(e, str) else 'c' for e in self.rows[0])}}}",
            r"\toprule",
        ]
        lines += [rf"{first} \\"] if any(group for group, _ in self.columns) else []
        lines += [" & ".join(_tex(name) for _, name in self.columns) + r" \\", r"\midrule"]
        for row in self.rows:
            cells = [
                _tex(entry) if isinstance(entry, str) else _marked(entry, r"\textbf{{{}}}", r" $\pm$ ") for entry in row
            ]
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def html(self) -> str:
        """As an HTML table, the best in bold."""
        groups = "".join(f'<th colspan="{n}">{html.escape(name)}</th>' for name, n in _spans(self.columns))
        names = "".join(
            f"<th{' class=n' * isinstance(entry, Figure)}>{html.escape(name)}</th>"
            for (_, name), entry in zip(self.columns, self.rows[0], strict=True)
        )
        rows = "".join(f"<tr>{''.join(map(_td, row))}</tr>\n" for row in self.rows)
        first = f"<tr>{groups}</tr>" if any(group for group, _ in self.columns) else ""
        return f"<table><thead>{first}<tr>{names}</tr></thead>\n<tbody>\n{rows}</tbody></table>"


def results_table(section: Section, across: str | None = None) -> Table:
    """Accuracy, forgetting, last-task and learning accuracy of a section's cells, beside what the paper prints.

    Args:
        section: the runs.
        across: the axis whose choices are side by side; the others are rows.
    """
    columns: dict[str, dict[str, Cell]] = {}
    labels: dict[str, None] = {}
    for cell in section.cells:
        row = section.label(cell, without=[across] if across else [])
        labels[row] = None
        columns.setdefault(_column(section, cell, across), {})[row] = cell
    heads: list[tuple[str, str]] = [("", "")]
    bodies: list[list[Entry]] = [list(labels)]
    for group, cells in columns.items():
        beside = {row: printed(cell.runs[0]) for row, cell in cells.items()}
        for name, figures in _result_columns([cells.get(row) for row in labels], [beside.get(row) for row in labels]):
            heads.append((group, name))
            bodies.append(figures)
    return Table(heads, [list(row) for row in zip(*bodies, strict=True)])


def _column(section: Section, cell: Cell, across: str | None) -> str:
    if across is None:
        return ""
    return cell.dataset if across == "config" else section.label(cell, set(section.axes) - {across})


def _result_columns(cells: Sequence[Cell | None], beside: Sequence[object]) -> list[tuple[str, list[Entry]]]:
    """Our figures and the paper's, a paper's column only where it prints something."""

    def ours(name: str, factor: float, digits: int) -> list[Entry]:
        means = [cell.mean(name) * factor if cell else math.nan for cell in cells]
        known = [mean for mean in means if not math.isnan(mean)]
        top = (min if name == "forgetting" else max)(known, default=math.nan)
        return [
            Figure(mean, cell.std(name) * factor if cell else math.nan, digits, len(known) > 1 and mean == top)
            for mean, cell in zip(means, cells, strict=True)
        ]

    def paper(name: str, std: str, digits: int) -> list[Entry]:
        nan = math.nan
        return [Figure(getattr(figures, name, nan), getattr(figures, std, nan), digits) for figures in beside]

    found = [
        ("Acc %", ours("average_accuracy", 100, 2)),
        ("paper", paper("average_accuracy", "accuracy_std", 2)),
        ("Forget", ours("forgetting", 1, 3)),
        ("paper", paper("forgetting", "forgetting_std", 3)),
        ("Last task %", ours("last_task_accuracy", 100, 2)),
        ("Learned %", ours("learning_accuracy", 100, 2)),
    ]
    return [column for column in found if column[0] != "paper" or any(beside)]


def complexity_table(section: Section) -> Table:
    """What each method costs: the paper's formulas, in its symbols, and what its runs took; traffic is a client's."""
    formulas = complexity()
    parts = ("storage", "computation", "traffic", "boundary")
    columns = [
        ("s in all", 0, [cell.mean("wall_seconds") for cell in section.cells]),
        ("training s", 1, [cell.mean("train_seconds") for cell in section.cells]),
        ("ms a step", 2, [1000 * cell.mean("train_seconds") / cell.mean("client_steps") for cell in section.cells]),
        ("images a step, at last", 0, [cell.cost("gradient_images_per_step") for cell in section.cells]),
        *((title, 2, [cell.cost(name) / 1e6 for cell in section.cells]) for title, name in _COSTS.items()),
    ]
    measured = [column for column in columns if not all(map(math.isnan, column[2]))]
    heads = [("", ""), *(("O(...), in the paper", part) for part in parts)]
    heads += [("measured", title) for title, _, _ in measured] + [("measured", "on")]
    rows: list[list[Entry]] = []
    for number, cell in enumerate(section.cells):
        words = formulas.get(cell.method, {})
        figures = [Figure(values[number], digits=digits) for _, digits, values in measured]
        rows.append([section.label(cell), *(words.get(part, "") for part in parts), *figures, cell.devices])
    return Table(heads, rows)


_COSTS = {
    "MB sent a round": "bytes_sent_per_round",
    "MB received a round": "bytes_received_per_round",
    "MB sent a task": "bytes_sent_per_task",
    "MB received a task": "bytes_received_per_task",
    "MB stored": "client_storage_bytes",
}


def long_table(section: Section) -> str:
    """Every figure of a section as CSV, a row a cell: its place, the number of seeds, means and deviations."""
    axes = sorted({axis for cell in section.cells for axis in cell.at})
    names = ("average_accuracy", "forgetting", "last_task_accuracy", "learning_accuracy", "backward_transfer")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    statistics = [f"{name}_{statistic}" for name in names for statistic in ("mean", "std")]
    paper = [f"paper_{name}" for name in ("average_accuracy", "accuracy_std", "forgetting", "forgetting_std")]
    seconds = ("train_seconds", "wall_seconds")
    writer.writerow(["dataset", *axes, "seeds", *statistics, *(f"{name}_mean" for name in seconds), *paper, "device"])
    for cell in section.cells:
        figures = [value for name in names for value in (cell.mean(name), cell.std(name))]
        beside = printed(cell.runs[0]) or [math.nan] * 4
        numbers = [*figures, *map(cell.mean, seconds), beside[0] / 100, beside[1] / 100, *beside[2:]]
        row = [cell.dataset, *(cell.at.get(axis, "") for axis in axes), len(cell.runs)]
        texts = ["" if math.isnan(value) else f"{value:.6g}" for value in numbers]
        writer.writerow([*row, *texts, cell.devices])
    return text.getvalue()


def _spans(columns: Sequence[tuple[str, str]]) -> list[tuple[str, int]]:
    """Headings with the number of columns they are over."""
    spans: list[tuple[str, int]] = []
    for group, _ in columns:
        if group and spans and spans[-1][0] == group:
            spans[-1] = (group, spans[-1][1] + 1)
        else:
            spans.append((group, 1))
    return spans


def _marked(entry: Entry, bold: str, plus_minus: str = " ± ") -> str:
    text = entry if isinstance(entry, str) else entry.text(plus_minus)
    return bold.format(text) if isinstance(entry, Figure) and entry.best else text


def _td(entry: Entry) -> str:
    if isinstance(entry, str):
        return f"<td>{html.escape(entry)}</td>"
    return f"<td class=n>{_marked(entry, '<b>{}</b>')}</td>"


def _tex(text: str) -> str:
    """A text as LaTeX shows it."""
    return text.translate({ord(char): f"\\{char}" for char in "%_&#${}"} | {ord("²"): "$^2$", ord("\\"): "/"})
