"""Weights & Biases: a run's curves, pictures and tables, online where that can be had, else offline."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedqcl.run.records import Matrix, RoundRecord, RunInfo
from fedqcl.run.secrets import secrets_off_command_line, without_secrets
from fedqcl.run.wandb_access import obstacle

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS: dict[str, Any] = {
    "silent": True,
    "console": "off",
    "init_timeout": 30,
    "finish_timeout": 30,
    "finish_timeout_raises": True,
    "reinit": "create_new",
}

BY_ROUND = (
    *("cl/*", "acc/*", "queue/*", "comm/*"),
    *("loss", "lyapunov", "drift", "drift_bound", "seconds", "clients"),
)


class WandbLogger:
    """Logs a run to Weights & Biases.

    Without a key, without a network or when the server does not answer, the run is logged offline and one
    line says so. It never asks for anything, and nothing that goes wrong here ends a run.

    Every round logs ``cl/average_accuracy``, ``cl/forgetting``, ``acc/task_01`` ..., ``queue/task_01`` ...,
    ``loss``, ``lyapunov``, ``drift``, ``comm/bytes_sent`` and ``comm/bytes_received`` over the axis
    ``round``, which counts on through the tasks. Every task logs ``task/average_accuracy``,
    ``task/forgetting``, and the accuracy matrix and the queues as ``task/accuracy_matrix``,
    ``task/queue_heatmap`` (images) and ``task/accuracy_table``, ``task/queue_table`` over the axis ``task``.

    Args:
        project: the project runs go to.
        entity: the user or team; the account's default if left out.
        group: runs to be compared; DATASET-SCENARIO-N<clients>-T<tasks> if left out.
        tags: tags besides the data set and the method.
        mode: ``auto`` obeys the environment variable WANDB_MODE, and is ``online`` without it; ``online``
            falls back to ``offline`` by itself; ``disabled`` logs nothing.
    """

    def __init__(
        self,
        project: str = "fedqcl",
        entity: str | None = None,
        group: str | None = None,
        tags: list[str] | None = None,
        mode: Literal["auto", "online", "offline", "disabled"] = "auto",
    ) -> None:
        self.project = project
        self.entity = entity
        self.group = group
        self.tags = tags
        self.mode = mode
        self._run: Any = None
        self._say: Callable[[str], None] = print

    @property
    def run_id(self) -> str | None:
        """The W&B run's id, to continue it by; None while nothing is logged."""
        return self._run and str(self._run.id)

    def start(self, info: RunInfo, folder: Path, run_id: str | None = None, say: Callable[[str], None] = print) -> None:
        """Open the W&B run.

        Args:
            info: what is run.
            folder: W&B's files go into its ``wandb``.
            run_id: of an earlier W&B run that this one continues.
            say: shows the user a line.
        """
        self._say = say
        self._rounds = info.rounds
        self._tasks = len(info.tasks)
        self._images = info.evaluated_on
        mode = (os.environ.get("WANDB_MODE") or "online") if self.mode == "auto" else self.mode
        if mode == "disabled":
            return
        try:
            import wandb
        except ImportError:
            say("W&B: off (wandb is not installed)")
            return
        try:
            why = "as asked" if mode in {"offline", "dryrun"} else obstacle()
            with _no_input(), secrets_off_command_line():
                self._run = self._open(info, folder, run_id, offline=why)
        except Exception as error:
            say(f"W&B: off ({_first_line(error)})")
            wandb.teardown()
            return
        self._attempt(self._define_axes)

    def round(self, record: RoundRecord) -> None:
        """Log a round."""
        self._attempt(lambda: self._run.log(self._round_data(record)))

    def task(self, record: RoundRecord, matrix: Matrix, queues: Matrix) -> None:
        """Log a task: its figures, the accuracy matrix [T, T] and the queues so far."""
        self._attempt(lambda: self._run.log(self._task_data(record, matrix, queues)))

    def finish(self, summary: dict[str, Any]) -> None:
        """Put the final figures into the W&B run's summary and close it."""
        figures = {name: value for name, value in summary.items() if isinstance(value, int | float | str)}
        self._attempt(lambda: self._run.summary.update(_known(figures)))
        self._close(exit_code=0)

    def stop(self) -> None:
        """Close the W&B run as preempted."""
        self._attempt(lambda: self._run.mark_preempting())
        self._close(exit_code=1)

    def fail(self) -> None:
        """Close the W&B run as failed."""
        self._close(exit_code=1)

    def _round_data(self, record: RoundRecord) -> dict[str, Any]:
        state: dict[str, float] = {}
        for name, value in record.state.items():
            state.update(_by_task(name, value) if isinstance(value, list) else {name: value})
        data = {
            **self._position(record),
            "cl/average_accuracy": record.average_accuracy,
            "cl/forgetting": record.forgetting,
            **_by_task("acc", record.accuracy),
            "loss": record.loss,
            **state,
            "comm/bytes_sent": record.bytes_sent,
            "comm/bytes_received": record.bytes_received,
            "seconds": record.seconds,
            "clients": len(record.active),
        }
        return _known(data)

    def _task_data(self, record: RoundRecord, matrix: Matrix, queues: Matrix) -> dict[str, Any]:
        from fedqcl.plots.run import accuracy_matrix_figure, queue_heatmap_figure

        data: dict[str, Any] = {
            **self._position(record),
            "task/average_accuracy": record.average_accuracy,
            "task/forgetting": record.forgetting,
            "task/accuracy_matrix": _image(accuracy_matrix_figure(matrix, images=self._images)),
            "task/accuracy_table": _table(matrix),
        }
        if record.queue and len(queues) > 1:
            data["task/queue_heatmap"] = _image(queue_heatmap_figure(queues, self._tasks))
            data["task/queue_table"] = _table(queues)
        return _known(data)

    def _open(self, info: RunInfo, folder: Path, run_id: str | None, offline: str | None) -> Any:
        """The W&B run; ``offline`` says why it is not to be online, if so."""
        import wandb

        try:
            run = wandb.init(
                mode="offline" if offline else "online",
                dir=folder,
                settings=wandb.Settings(**SETTINGS),
                **self._options(info, run_id),
            )
        except Exception as error:
            if offline:
                raise
            wandb.teardown()  # or the id would count as in use
            return self._open(info, folder, run_id, offline=_first_line(error))
        if offline:
            self._say(f"W&B: logging offline ({offline}); `wandb sync {Path(run.dir).parent}` uploads it")
        else:
            self._say(f"W&B: {run.url}")
        return run

    def _options(self, info: RunInfo, run_id: str | None) -> dict[str, Any]:
        """What the W&B run is called, and what is to be known of it."""
        return {
            "project": self.project,
            "entity": self.entity,
            "group": self.group or f"{info.dataset}-{info.scenario}-N{info.num_clients}-T{len(info.tasks)}",
            "tags": [info.dataset, info.method, *(self.tags or [])],
            "name": info.name,
            "job_type": "fit",
            "config": {**without_secrets(info.config), "versions": info.versions},
            "id": run_id,
            "resume": "allow" if run_id else None,
        }

    def _define_axes(self) -> None:
        for axis in ("round", "task"):
            self._run.define_metric(axis, hidden=True)
        for names in BY_ROUND:
            self._run.define_metric(names, step_metric="round")
        self._run.define_metric("task/*", step_metric="task")

    def _position(self, record: RoundRecord) -> dict[str, int]:
        return {"task": record.task + 1, "round": record.task * self._rounds + record.round + 1}

    def _close(self, exit_code: int) -> None:
        self._attempt(lambda: self._run.finish(exit_code=exit_code))
        self._run = None

    def _attempt(self, call: Callable[[], None]) -> None:
        """Call W&B if a run is open; if that fails say so once, and log no more: the training goes on."""
        if self._run is None:
            return
        place = Path(self._run.dir).parent
        try:
            call()
        except Exception as error:
            self._say(f"W&B: stopped ({_first_line(error)}); `wandb sync {place}` uploads what there is")
            self._run = None


@contextlib.contextmanager
def _no_input() -> Iterator[None]:
    """Nothing can be typed, so nothing waits for it: wandb would ask for a key it does not find."""
    stdin = sys.stdin
    with Path(os.devnull).open() as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = stdin


def _by_task(name: str, values: list[float]) -> dict[str, float]:
    return {f"{name}/task_{task:02d}": value for task, value in enumerate(values, start=1)}


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if not (isinstance(value, float) and math.isnan(value))}


def _image(figure: Figure) -> Any:
    import numpy as np
    import wandb
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return wandb.Image(np.asarray(canvas.buffer_rgba()))


def _table(rows: Matrix) -> Any:
    """A table with a row for each finished task."""
    import wandb

    columns: list[str | int] = ["after task", *(f"task {task + 1}" for task in range(len(rows[0])))]
    cells = [[None if math.isnan(value) else value for value in row] for row in rows]
    data = [[task, *row] for task, row in enumerate(cells, start=1) if any(value is not None for value in row)]
    return wandb.Table(columns=columns, data=data)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return type(error).__name__ if text in {"", "<no message>"} else text.splitlines()[0].rstrip(".")
