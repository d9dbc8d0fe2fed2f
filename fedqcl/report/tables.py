"""Tables: of results with the paper's figures beside them, and of costs; as Markdown, CSV, LaTeX and HTML."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fedqcl.report.paper import Printed, complexity, printed
from fedqcl.report.sections import Cell, Section, in_words, order


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
        lines = [[cell.replace("|", r"\|") for cell in row] for row in [head, rule, *body]]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

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
    rows = [(section.label(cell, without=[across] if across else []), cell) for cell in section.cells]
    labels = dict.fromkeys(label for label, _ in rows)
    columns: dict[str, dict[str, Cell]] = {}
    for label, cell in sorted(rows, key=lambda row: order(row[1].at.get(across or ""))):
        columns.setdefault(_group(cell, across), {})[label] = cell
    heads: list[tuple[str, str]] = [("", "")]
    bodies: list[list[Entry]] = [list(labels)]
    for group, cells in columns.items():
        beside = {row: printed(cell.runs[0]) for row, cell in cells.items()}
        for name, figures in _result_columns([cells.get(row) for row in labels], [beside.get(row) for row in labels]):
            heads.append((group, name))
            bodies.append(figures)
    return Table(heads, [list(row) for row in zip(*bodies, strict=True)])


def _group(cell: Cell, across: str | None) -> str:
    known = across == "config" or across in cell.at
    return in_words(across, cell) if across and known else ""


# Heading, name in the summary, factor, digits, and the paper's figure with its deviation where it has one.
_RESULTS = (
    ("Acc %", "average_accuracy", 100, 2, ("average_accuracy", "accuracy_std")),
    ("Forget", "forgetting", 1, 3, ("forgetting", "forgetting_std")),
    ("Last task %", "last_task_accuracy", 100, 2, ()),
    ("Learned %", "learning_accuracy", 100, 2, ()),
)


def _result_columns(
    cells: Sequence[Cell | None], beside: Sequence[Printed | None]
) -> Iterator[tuple[str, list[Entry]]]:
    """Our figures and the paper's, a paper's column only where it prints something."""
    for heading, name, factor, digits, names in _RESULTS:
        yield heading, _ours(cells, name, factor, digits)
        if names and any(beside):
            printed = [[getattr(figures, name, math.nan) for name in names] for figures in beside]
            yield "paper", [Figure(mean, std, digits) for mean, std in printed]


def _ours(cells: Sequence[Cell | None], name: str, factor: float, digits: int) -> list[Entry]:
    """A column of our figures, the best as they are printed marked if there are several."""
    means = [round(factor * cell.mean(name), digits) if cell else math.nan for cell in cells]
    stds = [factor * cell.std(name) if cell else math.nan for cell in cells]
    known = [mean for mean in means if not math.isnan(mean)]
    best = (min if name == "forgetting" else max)(known) if len(known) > 1 else math.nan
    return [Figure(mean, std, digits, mean == best) for mean, std in zip(means, stds, strict=True)]


def complexity_table(section: Section) -> Table:
    """What each method costs: the paper's formulas, in its symbols, and what its runs took; traffic is a client's."""
    cells, formulas = section.cells, complexity()
    columns: list[tuple[tuple[str, str], Sequence[Entry]]] = [(("", ""), [section.label(cell) for cell in cells])]
    for part in ("storage", "computation", "traffic", "boundary"):
        texts = [formulas.get(cell.method, {}).get(part, "") for cell in cells]
        columns.append((("O(...), in the paper", part), texts))
    for title, digits, measure in _COSTS:
        values = [measure(cell) for cell in cells]
        if not all(map(math.isnan, values)):
            columns.append((("measured", title), [Figure(value, digits=digits) for value in values]))
    columns.append((("measured", "on"), [cell.devices for cell in cells]))
    return Table([head for head, _ in columns], [list(row) for row in zip(*(body for _, body in columns), strict=True)])


_COSTS: tuple[tuple[str, int, Callable[[Cell], float]], ...] = (
    ("s in all", 0, lambda cell: cell.mean("wall_seconds")),
    ("training s", 1, lambda cell: cell.mean("train_seconds")),
    ("ms a step", 2, lambda cell: 1e3 * cell.mean("train_seconds") / cell.mean("client_steps")),
    ("images a step, at last", 0, lambda cell: cell.cost("gradient_images_per_step")),
    ("MB sent a round", 2, lambda cell: cell.cost("bytes_sent_per_round") / 1e6),
    ("MB received a round", 2, lambda cell: cell.cost("bytes_received_per_round") / 1e6),
    ("MB sent a task", 2, lambda cell: cell.cost("bytes_sent_per_task") / 1e6),
    ("MB received a task", 2, lambda cell: cell.cost("bytes_received_per_task") / 1e6),
    ("MB stored", 2, lambda cell: cell.cost("client_storage_bytes") / 1e6),
)


def long_table(section: Section) -> str:
    """Every figure of a section as CSV, a row a cell: its place, the number of seeds, means and deviations."""
    axes = sorted({axis for cell in section.cells for axis in cell.at})
    rows = [_long_row(cell, axes) for cell in section.cells]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _long_row(cell: Cell, axes: Sequence[str]) -> dict[str, object]:
    figures: dict[str, float] = {}
    for name in ("average_accuracy", "forgetting", "last_task_accuracy", "learning_accuracy", "backward_transfer"):
        figures |= {f"{name}_mean": cell.mean(name), f"{name}_std": cell.std(name)}
    figures |= {f"{name}_mean": cell.mean(name) for name in ("train_seconds", "wall_seconds")}
    percent = {"average_accuracy": 100, "accuracy_std": 100}
    beside = printed(cell.runs[0]) or Printed(*[math.nan] * 4)
    figures |= {f"paper_{name}": value / percent.get(name, 1) for name, value in beside._asdict().items()}
    return {
        "dataset": cell.dataset,
        **{axis: cell.at.get(axis, "") for axis in axes},
        "seeds": len(cell.runs),
        **{name: "" if math.isnan(value) else f"{value:.6g}" for name, value in figures.items()},
        "device": cell.devices,
    }


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


_TEX = {char: f"\\{char}" for char in "%_&#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "²": "$^2$",
    "[": "{[}",  # bare, these two would be options of the row end before them
    "*": "{*}",
}


def _tex(text: str) -> str:
    """A text as LaTeX shows it."""
    return "".join(_TEX.get(char, char) for char in text)
