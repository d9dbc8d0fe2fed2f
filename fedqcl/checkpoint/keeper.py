"""Keeps a run's checkpoints while it runs: written beside the training, by all ranks, one at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

import torch

from fedqcl.checkpoint.directory import Checkpoints, name_after, publish, write_part
from fedqcl.checkpoint.state import RunState
from fedqcl.engine.averaging import all_reduce, gather
from fedqcl.engine.pulse import busy
from fedqcl.errors import Interrupted, refusal
from fedqcl.schedule import Position, Schedule

# A file that one machine has written may take a minute to show up on another, as names are cached.
SHOWING_SECONDS = 120.0


@dataclass(frozen=True)
class Start:
    """Where a run starts.

    Attributes:
        folder: the run's folder.
        token: differs from that of every other process that has worked on the run.
        position: the task and the round to go on with.
        checkpoint: what to go on from; None at the beginning.
        run_id: of the logger's run to go on with, if any.
        lines: for the user, on how this start was found.
        finished: there is nothing to go on with.
        new: the folder was made for this start.
    """

    folder: Path
    token: str
    position: Position = (0, 0)
    checkpoint: Path | None = None
    run_id: str | None = None
    lines: Sequence[str] = ()
    finished: bool = False
    new: bool = False


class Keeper:
    """Keeps nothing: for a run from its beginning to its end.

    Attributes:
        position: the task and the round that the run starts with.
    """

    position: Position = (0, 0)

    def reach(self, task: int, round: int) -> None:
        """All before this round is done: the place for a checkpoint, and to stop."""


NOTHING_KEPT = Keeper()


class CheckpointKeeper(Keeper):
    """Keeps the checkpoints of a run, and stops it between two rounds if it is asked to.

    The state is copied at once; a thread then writes it while the training goes on. A checkpoint stands when the
    next round ends, at the latest.

    Args:
        state: of this rank.
        schedule: tasks and rounds.
        start: where the run starts; the same on every rank.
        every: rounds from one checkpoint to the next. One stands at the end of every task in any case.
        say: shows the user a line.
        asked_to_stop: the signal that this rank has got, or 0.
    """

    def __init__(
        self,
        state: RunState,
        schedule: Schedule,
        start: Start,
        every: int = 1,
        say: Callable[[str], None] = print,
        asked_to_stop: Callable[[], int] = lambda: 0,
    ) -> None:
        self.state = state
        self.schedule = schedule
        self.checkpoints = Checkpoints(start.folder / "checkpoints")
        self.position = start.position
        self.every = every
        self._token = start.token
        self._say = say
        self._asked_to_stop = asked_to_stop
        self._fabric = state.engine.fabric
        self._writing: _Writing | None = None
        if start.checkpoint:
            state.load(start.checkpoint)

    def __enter__(self) -> CheckpointKeeper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._writing:
            self._writing.cancel()

    def reach(self, task: int, round: int) -> None:
        """All before this round is done: the place for a checkpoint, and to stop.

        Raises:
            Interrupted: some rank was asked to stop. What was done is saved.
        """
        signal = self.settle()
        if (task, round) != self.position and (signal or round % self.every == 0):
            self.position = (task, round)
            self._writing = self._write()
        if signal:
            self.settle()
            raise Interrupted(signal)

    def settle(self) -> int:
        """Wait until the last checkpoint stands or has failed; every rank calls this at the same time.

        Returns:
            The signal with which any rank was asked to stop, or 0.
        """
        failure = self._writing.wait_for_part() if self._writing else ""
        signal, failed = self._highest(self._asked_to_stop(), bool(failure))
        if failed and self._writing:
            failure = next(filter(None, gather([failure])))
            self._writing.cancel()
        elif self._writing:
            failure = self._writing.end()
        self._writing = None
        if failure and self._fabric.is_global_zero:
            shutil.rmtree(self._draft(), ignore_errors=True)  # this one alone: other ranks may have begun the next
            self._say(f"no checkpoint at {self._place()}: {failure}; {self._standing()}")
        return signal

    def clear(self) -> None:
        """Remove the checkpoints: the run has finished."""
        if self._fabric.is_global_zero:
            self.checkpoints.clear()

    def _place(self) -> Path:
        """Where the checkpoint of this position is to be."""
        task, round = self.position
        name = name_after(task, round - 1) if round else name_after(task - 1, self.schedule.rounds - 1)
        return self.checkpoints.path / name

    def _draft(self) -> Path:
        """The hidden folder that all ranks write it into."""
        place = self._place()
        return place.with_name(f".{place.name}.{self._token}")

    def _standing(self) -> str:
        """What there is to go on from without it."""
        before = self.checkpoints.all()
        return f"{before[-1].name} still stands" if before else "there is none before it"

    def _highest(self, *values: int) -> list[int]:
        """The highest of each value over the ranks."""
        tensor = torch.tensor(values, device=self._fabric.device)
        all_reduce(tensor, "max")
        highest: list[int] = tensor.tolist()
        return highest

    def _write(self) -> _Writing:
        place, draft = self._place(), self._draft()
        files = self.state.files(self.position)

        def publish_it(cancelled: Event) -> None:
            publish(draft, place, self._fabric.world_size, cancelled)
            with suppress(OSError):  # the checkpoint stands; older ones go when the next one does
                self.checkpoints.prune()

        return _Writing(
            write=lambda: write_part(draft, files, self._fabric.global_rank),
            publish=publish_it if self._fabric.is_global_zero else None,
        )


class _Writing:
    """A checkpoint being written by a thread: this rank's part, then on the first rank the whole."""

    def __init__(self, write: Callable[[], None], publish: Callable[[Event], None] | None) -> None:
        self._error: Exception | None = None
        self._part_ended, self._cancelled = Event(), Event()
        self._thread = Thread(target=self._run, args=(write, publish), name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self, write: Callable[[], None], publish: Callable[[Event], None] | None) -> None:
        try:
            write()
            self._part_ended.set()
            if publish:
                publish(self._cancelled)
        except Exception as error:
            self._error = error
        finally:
            self._part_ended.set()

    def wait_for_part(self) -> str:
        """Wait until this rank's part is written; what the disk had against it, if anything."""
        with busy():
            self._part_ended.wait()
        return self._failure()

    def end(self) -> str:
        """Wait for the rest, all ranks having written their parts; what the disk had against it, if anything."""
        with busy():
            self._thread.join(SHOWING_SECONDS)
        if self._thread.is_alive():
            self.cancel()
            return "other ranks' files do not show up; trainer.root must be on a disk that all machines share"
        return self._failure()

    def cancel(self) -> None:
        """Wait for no other rank any more."""
        self._cancelled.set()
        self._thread.join()

    def _failure(self) -> str:
        if self._error is None:
            return ""
        if not isinstance(self._error, OSError):
            raise self._error
        return f"{refusal(self._error)}; make room for the next one"
