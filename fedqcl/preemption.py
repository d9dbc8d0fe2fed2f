"""Being asked to stop: signals are noted when they come, and acted on between two rounds."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, TracebackType

REQUEUE = signal.SIGUSR1
SIGNALS = (signal.SIGINT, signal.SIGTERM, REQUEUE)
# Two signals this close together are one: a terminal and a launcher may both pass the same one on.
ONE_SIGNAL_SECONDS = 1.0
# So long the other ranks stay when all end at once: the first has to say why, and ends when one of them does.
AFTER_FIRST_SECONDS = 2.0

Handler = Callable[[int, FrameType | None], None]

_early: list[int] = []


@contextlib.contextmanager
def requeue_noted() -> Iterator[None]:
    """Note being asked for a requeue before the training has begun; the :class:`Interruption` there then finds it.

    A job may be signalled while it still loads its libraries or its images. That would end it, and not requeue it.
    """
    before = _handle(lambda signum, frame: _early.append(signum), [REQUEUE])
    try:
        yield
    finally:
        _put_back(before)
        _early.clear()


class Interruption:
    """Notes signals for the time of a ``with`` block.

    A second signal ends the process at once, and so does the first when the grace time has passed. A thread sees to
    that: Python runs no handler while the main thread waits for other ranks in a collective.

    Args:
        grace: seconds from the first signal to the end of the process, whatever it does.
        say: shows the user a line.
        at_once: called with the first signal before the process ends so; a status to end with in place of the usual.
        first: whether this is the first rank, which says so when it ends at once.
        standing: what the first rank says then of what is left of the run.

    Attributes:
        signal: the first signal, 0 before it.
    """

    def __init__(
        self,
        grace: float,
        say: Callable[[str], None] = print,
        at_once: Callable[[int], int] = lambda signum: 0,
        first: bool = True,
        standing: Callable[[], str] = lambda: "nothing is saved",
    ) -> None:
        self.grace = grace
        self.say = say
        self.at_once = at_once
        self.first = first
        self.standing = standing
        self.signal = 0

    def __enter__(self) -> Interruption:
        self._previous = _handle(self._note)
        if self._previous:
            self._here, self._there = socket.socketpair()
            self._there.setblocking(False)
            self._wakeup = signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._watch, name="signals", daemon=True).start()
            if _early:
                signal.raise_signal(_early[0])
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._previous:
            signal.set_wakeup_fd(self._wakeup)
            _put_back(self._previous)
            self._there.close()  # ends the thread

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.signal = self.signal or signum

    def _watch(self) -> None:
        first = 0.0
        while True:
            self._here.settimeout(max(1e-3, first + self.grace - time.monotonic()) if first else None)
            try:
                received = self._here.recv(1)
            except TimeoutError:
                self._leave(f"could not stop within {self.grace:g} s")
            if not received:
                self._here.close()
                return
            if received[0] not in SIGNALS:
                continue
            self._note(received[0], None)
            if not first:
                first = time.monotonic()
                with contextlib.suppress(OSError, ValueError):  # nobody may be listening any more
                    self.say(f"{self._name()}: stopping when this round ends; a second one stops it at once")
            elif time.monotonic() - first > ONE_SIGNAL_SECONDS:
                self._leave("asked twice")

    def _name(self) -> str:
        return signal.Signals(self.signal).name

    def _leave(self, why: str) -> None:
        if self.first:
            self._say_at_once(f"fedqcl: ended by {self._name()}, {why}: {self.standing()}\n")
        else:
            time.sleep(AFTER_FIRST_SECONDS)
        os._exit(self.at_once(self.signal) or 128 + self.signal)

    @staticmethod
    def _say_at_once(line: str) -> None:
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # a progress bar hides the cursor
        os.write(sys.stderr.fileno(), line.encode())


@contextlib.contextmanager
def passed_on() -> Iterator[None]:
    """Pass signals on to the ranks, where this process has forked them and only waits for them."""

    def pass_on(signum: int, frame: FrameType | None) -> None:
        children = multiprocessing.active_children()
        for child in children:
            if child.pid:
                os.kill(child.pid, signum)
        if not children:
            signal.signal(signum, previous[signum])
            signal.raise_signal(signum)
            signal.signal(signum, pass_on)

    previous = _handle(pass_on)
    try:
        yield
    finally:
        _put_back(previous)


def requeue() -> bool:
    """Have Slurm start this job, or this task of an array, again; False if that cannot be asked from here."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if array else os.environ.get("SLURM_JOB_ID")
    if not job or not shutil.which("scontrol"):
        return False
    return subprocess.run(["scontrol", "requeue", job], check=False).returncode == 0


def _handle(handler: Handler, signals: Iterable[signal.Signals] = SIGNALS) -> dict[int, signal._HANDLER]:
    """Set a handler for signals, by default all of ours; those before it, or none if this thread may not set any.

    What whoever started the process has had it ignore, as shells do with SIGINT in the background, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    wanted = [signum for signum in signals if signal.getsignal(signum) != signal.SIG_IGN]
    return {signum: signal.signal(signum, handler) for signum in wanted}


def _put_back(handlers: dict[int, signal._HANDLER]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, handler)
