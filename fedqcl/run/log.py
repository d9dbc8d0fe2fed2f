"""One place to report a run to: it tells the run folder, the console and the loggers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedqcl.run.console import Console
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import Logger, Matrix, RoundRecord, RunInfo
from fedqcl.run.writing import writing


class SilentLog:
    """Takes a run's records and passes none of them on: for the ranks that do not speak."""

    @property
    def run_id(self) -> str | None:
        """The id by which a logger's run can be gone on with, if one has any."""
        return None

    def tables(self) -> dict[str, str]:
        """What the run folder's tables hold so far, by file name."""
        return {}

    def say(self, line: str) -> None:
        """Show the user a line."""

    def warn(self, line: str) -> None:
        """Of something that went wrong and did not end the run."""

    def start(self, info: RunInfo, run_id: str | None = None, rounds_done: int = 0) -> None:
        """Before the first round, or before the next one of a run that is gone on with."""

    def round(self, record: RoundRecord) -> None:
        """After a round."""

    def task(self, record: RoundRecord, matrix: Matrix, queues: Matrix) -> None:
        """After a task.

        Args:
            record: its last round.
            matrix: the accuracy matrix so far [T, T], NaN where it has no value.
            queues: mean queues after each task so far, a row [T] each, empty for a method without.
        """

    def finish(self, summary: dict[str, Any]) -> None:
        """After the last task: draw the pictures, close everything. A run with a summary has finished."""

    def stop(self) -> None:
        """In the place of :meth:`finish` when the run has been asked to stop, and may be gone on with."""

    def fail(self) -> None:
        """In the place of :meth:`finish` when the run fails."""


class RunLog(SilentLog):
    """Passes a run's records on to its folder, the console and the loggers.

    Args:
        folder: the run's files.
        console: what the user sees; nothing by default.
        loggers: whoever else follows the run.
    """

    def __init__(self, folder: RunFolder, console: Console | None = None, loggers: Sequence[Logger] = ()) -> None:
        self.folder = folder
        self.console = console or Console("quiet")
        self.loggers = loggers

    @property
    def run_id(self) -> str | None:
        """That of the first logger that has one."""
        return next((logger.run_id for logger in self.loggers if logger.run_id), None)

    def tables(self) -> dict[str, str]:
        """Read from the folder."""
        return self.folder.tables()

    def say(self, line: str) -> None:
        """On the console."""
        self.console.say(line)

    def warn(self, line: str) -> None:
        """On the console."""
        self.console.warn(line)

    def start(self, info: RunInfo, run_id: str | None = None, rounds_done: int = 0) -> None:
        """Tell console and loggers."""
        self.console.start(info, self.folder.path, rounds_done)
        for logger in self.loggers:
            logger.start(info, self.folder.path, run_id, self.console.say)

    def round(self, record: RoundRecord) -> None:
        """Write it down, then tell console and loggers."""
        with writing(self.folder.path):
            self.folder.write_round(record)
        self.console.round(record)
        for logger in self.loggers:
            logger.round(record)

    def task(self, record: RoundRecord, matrix: Matrix, queues: Matrix) -> None:
        """Tell console and loggers."""
        self.console.task(record, matrix)
        for logger in self.loggers:
            logger.task(record, matrix, queues)

    def finish(self, summary: dict[str, Any]) -> None:
        """The summary is written when all else is done, and the user told last."""
        from fedqcl.run.pictures import plot_run

        with writing(self.folder.path):
            pictures = plot_run(self.folder.path)
        for logger in self.loggers:
            logger.finish(summary)
        self.folder.write_summary(summary)
        self.console.finish(summary, self.folder.path, pictures)

    def stop(self) -> None:
        """Tell console and loggers."""
        self.console.fail()
        for logger in self.loggers:
            logger.stop()

    def fail(self) -> None:
        """Tell console and loggers."""
        self.console.fail()
        for logger in self.loggers:
            logger.fail()
