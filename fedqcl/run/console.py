"""What a run shows while it runs: a progress bar on a terminal, a line a round elsewhere, a table a task."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from fedqcl.plots.style import short
from fedqcl.run.records import ClientRecord, Matrix, RoundRecord, RunInfo, mean

if TYPE_CHECKING:
    from rich.progress import Progress

Level = Literal["quiet", "normal", "verbose"]

TASKS_A_LINE = 10
HEADLINE = ("average_accuracy", "forgetting")
MORE_FIGURES = ("backward_transfer", "learning_accuracy", "last_task_accuracy")
OF_SEVERAL_TASKS = ("forgetting", "backward_transfer")


class Console:
    """Tells a person how a run goes.

    Args:
        level: ``quiet`` shows no more than warnings and the end: average accuracy, forgetting, the time taken, and
            where files and pictures are; of an evaluation the average accuracy. ``verbose`` adds a line a client.
        file: where to write; the standard output if left out.
    """

    def __init__(self, level: Level = "normal", file: TextIO | None = None) -> None:
        from rich.console import Console as RichConsole

        file = file or sys.stdout
        if isinstance(file, io.TextIOWrapper):
            file.reconfigure(errors="replace")  # a class name the terminal cannot show must not end a run
        self._out = RichConsole(file=file, highlight=False, soft_wrap=True)
        self._level = level
        self._terminal = file.isatty()
        self._bar: Progress | None = None

    def start(self, info: RunInfo, folder: Path, rounds_done: int = 0) -> None:
        """Say what is run, where its files go, and from where the run goes on."""
        self._info = info
        self._rounds_before = self._rounds_done = rounds_done
        self._since = time.monotonic()
        if self._level == "quiet":
            return
        T = len(info.tasks)
        plan = [f"{info.num_clients} clients", _tasks(info), f"{_count(info.rounds, 'round')} a task"]
        self._print(f"{info.method} on {info.dataset}: {', '.join(plan)}, seed {info.seed}", style="bold")
        facts = {"devices": info.devices, "memory": info.memory, "split": info.split, "folder": str(folder)}
        if info.evaluated_on == "validation":
            facts["tested on"] = "validation images, held out from training"
        if rounds_done:
            task, round_ = divmod(rounds_done - 1, info.rounds)
            facts["goes on"] = f"after task {task + 1}, round {round_ + 1}"
        self._facts({name: fact for name, fact in facts.items() if fact})
        if self._terminal:
            self._start_bar(T * info.rounds)

    def say(self, line: str) -> None:
        """Show a line, unless quiet."""
        if self._level != "quiet":
            self._print(line)

    def warn(self, line: str) -> None:
        """Show a line even if quiet: the figures are not what was asked for without it."""
        self._print(f"warning: {line}")

    def round(self, record: RoundRecord) -> None:
        """Report a round."""
        if self._rounds_done == self._rounds_before:
            self.say("")
        self._rounds_done += 1
        if self._bar is not None:
            self._move_bar(record)
        if self._level == "verbose" or (self._level == "normal" and self._bar is None):
            self._print(self._round_line(record))
        if self._level == "verbose":
            for client in record.active:
                self._print(_client_line(client))

    def task(self, record: RoundRecord, matrix: Matrix) -> None:
        """Report a task after its last round: the accuracy matrix's newest row and the queues."""
        T = len(self._info.tasks)
        if self._level == "quiet" or record.task == T - 1:  # the final table shows the last task
            return
        figures = f"average accuracy {_percent(record.average_accuracy)} %"
        if not math.isnan(record.forgetting):
            figures += f", forgetting {_percent(record.forgetting)} %"
        self._print()
        self._print(f"after task {record.task + 1} of {T}: {figures}", style="bold")
        rows = {"accuracy %": [_percent(a) for a in matrix[record.task]]}
        if record.queue and record.task > 0:
            rows["queue"] = [short(q) for q in record.queue]
        self._by_task(rows, record.task + 1)
        self._print()

    def finish(self, summary: dict[str, Any], folder: Path, pictures: Sequence[Path] = ()) -> None:
        """Show the final figures and where files and pictures are."""
        self._stop_bar()
        if self._level != "quiet":
            self._final_table(summary)
        where = ", on validation images" if self._info.evaluated_on == "validation" else ""
        taken = duration(summary["wall_seconds"])  # of all sessions, if the run was gone on with
        self._print(f"{_figures(summary, self._known(HEADLINE))}{where}, in {taken}", style="bold")
        if self._level != "quiet":
            self._print(_figures(summary, self._known(MORE_FIGURES)))
        places = {"files": str(folder)}
        if pictures:
            places["pictures"] = f"{pictures[0].parent}: {' '.join(picture.name for picture in pictures)}"
        self._facts(places)

    def evaluation(self, figures: dict[str, Any], part: str) -> None:
        """Show how a finished run's model does.

        Args:
            figures: fractions, ``accuracy`` of each task [T] and ``average_accuracy``.
            part: the images it was tested on, ``test`` or ``validation``.
        """
        if self._level != "quiet":
            self._print(f"{part} accuracy of the final model")
            self._by_task({"accuracy %": [_percent(a) for a in figures["accuracy"]]}, len(figures["accuracy"]))
        self._print(_figures(figures, ["average_accuracy"]), style="bold")

    def fail(self) -> None:
        """Leave the terminal as it was found when a run ends early."""
        self._stop_bar()

    def _print(self, line: str = "", style: str = "") -> None:
        from rich.text import Text

        self._out.print(Text(line, style))

    def _facts(self, facts: dict[str, str]) -> None:
        width = max(map(len, facts))
        for name, value in facts.items():
            self._print(f"  {name:<{width}}  {value}")

    def _round_line(self, record: RoundRecord) -> str:
        info = self._info
        T, C = len(info.tasks), info.rounds
        parts = [
            f"task {record.task + 1:>{len(str(T))}}/{T}",
            f"round {record.round + 1:>{len(str(C))}}/{C}",
            f"loss {record.loss:<7.4g}",
            f"accuracy {_percent(record.average_accuracy):>5} %",
        ]
        if record.task > 0:
            parts.append(f"forgetting {_percent(record.forgetting):>5} %")
            if record.queue:
                parts.append(f"queue {short(mean(record.queue)):>6}")
        parts += [f"{len(record.active)}/{info.num_clients} clients", duration(record.seconds)]
        return "  ".join(parts)

    def _known(self, names: Iterable[str]) -> list[str]:
        """Of some figures those that a run of so many tasks has."""
        return [name for name in names if len(self._info.tasks) > 1 or name not in OF_SEVERAL_TASKS]

    def _by_task(self, rows: dict[str, list[str]], tasks: int) -> None:
        """A line of figures for each row, ``TASKS_A_LINE`` tasks at a time."""
        width = max(map(len, rows))
        for first in range(0, tasks, TASKS_A_LINE):
            shown = range(first, min(first + TASKS_A_LINE, tasks))
            self._print(f"  {'task':<{width}}" + "".join(f"{task + 1:>7}" for task in shown), style="dim")
            for name, cells in rows.items():
                self._print(f"  {name:<{width}}" + "".join(f"{cells[task]:>7}" for task in shown))

    def _final_table(self, summary: dict[str, Any]) -> None:
        from rich import box
        from rich.table import Table

        matrix = [[_nan(a) for a in row] for row in summary.get("accuracy_matrix", [])]
        queues = [[_nan(q) for q in row] for row in summary.get("queue_matrix") or []]
        if not matrix:
            return
        last = len(matrix) - 1
        of_several = ["forgotten %", *(["queue"] if queues else [])] if last else []
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("task", justify="right")
        table.add_column("classes", overflow="ellipsis", no_wrap=True, max_width=26)
        for name in ("learned %", "final %", *of_several):
            table.add_column(name, justify="right", no_wrap=True)
        for task, classes in enumerate(self._info.tasks):
            drop = max((row[task] for row in matrix[task:last]), default=math.nan) - matrix[last][task]
            cells = [_percent(matrix[task][task]), _percent(matrix[last][task])]
            cells += [_percent(drop), *([short(queues[last][task])] if queues else [])] if last else []
            table.add_row(str(task + 1), _some(classes), *cells)
        self._out.print(table, soft_wrap=False)

    def _start_bar(self, rounds: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = ("{task.description}", "{task.percentage:>3.0f} %", "{task.fields[news]}")
        position, percentage, news = (TextColumn(column, markup=False) for column in columns)
        self._bar = Progress(
            position, BarColumn(16), percentage, news, console=self._out, refresh_per_second=2, transient=True
        )
        done = self._rounds_done
        self._bar.add_task(self._position(done), total=rounds, completed=done, news="")
        self._bar.start()

    def _move_bar(self, record: RoundRecord) -> None:
        assert self._bar is not None
        bar = self._bar.tasks[0]
        pace = (time.monotonic() - self._since) / (self._rounds_done - self._rounds_before)
        left = pace * ((bar.total or 0) - self._rounds_done)
        news = f"accuracy {_percent(record.average_accuracy)} %  {duration(left)} left"
        done = self._rounds_done
        self._bar.update(bar.id, completed=done, description=self._position(done), news=news)

    def _stop_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _position(self, rounds_done: int) -> str:
        T, C = len(self._info.tasks), self._info.rounds
        task, round_ = divmod(min(rounds_done, T * C - 1), C)
        return f"task {task + 1}/{T}  round {round_ + 1}/{C}"


def _tasks(info: RunInfo) -> str:
    sizes = sorted({len(task) for task in info.tasks})
    classes = " to ".join(map(str, [sizes[0], sizes[-1]] if len(sizes) > 1 else sizes))
    return f"{_count(len(info.tasks), 'task')} of {classes} classes"


def _client_line(client: ClientRecord) -> str:
    state = "".join(f"  {name} {_state(value)}" for name, value in client.state.items())
    loss = "-" if math.isnan(client.loss) else f"{client.loss:.4g}"
    return f"  client {client.client}  {client.samples} images  {client.steps} steps  loss {loss}{state}"


def _state(value: float | list[float]) -> str:
    values = value if isinstance(value, list) else [value]
    return " ".join(short(item) for item in values if not math.isnan(item)) or "-"


def _some(classes: Sequence[str]) -> str:
    """All of a few names, of many or long ones the first and the last."""
    names = ", ".join(classes if len(classes) <= 4 else [*classes[:2], f"... {classes[-1]}"])
    return names if len(names) <= 24 or len(classes) < 3 else f"{classes[0]} ... {classes[-1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _percent(fraction: float) -> str:
    return "-" if math.isnan(fraction) else f"{100 * fraction:.1f}"


def _figures(summary: dict[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {_percent(_nan(summary.get(name)))} %" for name in names)


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def duration(seconds: float) -> str:
    """Seconds in words: ``8.1 s``, ``5 min 06 s`` or ``1 h 50 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
