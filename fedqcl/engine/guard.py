"""One rank's failure ends the whole job, and what went wrong first is the last thing shown.

A rank that fails says so itself, leaves a note for the others and ends its process. The others notice by a collective
that breaks off, find the note and end in silence. A rank that was killed cannot say anything: the process that started
it does. One that hangs is found by the counts that every rank publishes.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from lightning.fabric import Fabric
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from fedqcl.engine.launcher import GRACE_SECONDS, ScriptLauncher
from fedqcl.engine.pulse import PULSE, LostContactError
from fedqcl.engine.strategy import FederatedStrategy
from fedqcl.errors import RankError, account

Job = Callable[[Fabric], Any]

NOTE_SECONDS = 5.0
# So long the process that waits for all ranks has to find the one that has ended.
FIND_SECONDS = 1.0
PULSE_SECONDS = 1.0


def launch(fabric: Fabric, job: Job, prog: str, timeout: float) -> Any:
    """Run a job on every rank.

    A rank that fails ends its process, as there is no leaving a broken process group in good order.

    Args:
        fabric: not launched yet.
        job: what each rank runs.
        prog: what error messages start with.
        timeout: seconds without progress after which a rank that others wait for counts as hung.

    Returns:
        What the job returned on the first rank.

    Raises:
        RankError: a rank failed, and this process is none itself.
    """
    strategy = fabric.strategy
    if not isinstance(strategy, FederatedStrategy):
        return fabric.launch(job)
    on_rank = partial(_on_rank, job=job, prog=prog, timeout=timeout)
    if isinstance(strategy.launcher, ScriptLauncher):
        return _as_rank(fabric, strategy, strategy.launcher, prog, on_rank)
    return _as_parent(fabric, on_rank, Word(strategy.start_method))


def _as_rank(fabric: Fabric, strategy: FederatedStrategy, launcher: ScriptLauncher, prog: str, on_rank: Job) -> Any:
    """Run in a process that is a rank itself, and may have started the others."""
    launcher.on_end = lambda rank, code: Member(strategy, prog).bury(rank, code)
    try:
        result = fabric.launch(on_rank)
    except BaseException as error:  # before the rank had joined
        Member(strategy, prog).end(error)
    launcher.on_end = None
    return result


def _as_parent(fabric: Fabric, on_rank: Callable[..., Any], word: Word) -> Any:
    """Run in a process that starts all ranks and waits for them."""
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)
    others = set(multiprocessing.active_children())
    try:
        return fabric.launch(on_rank, word=word)
    except BaseException as error:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        if isinstance(error, ProcessExitedException):
            line, status = _verdict(error.error_index, error.exit_code)
            raise RankError("" if word.given else line, status) from None
        if isinstance(error, ProcessRaisedException):  # before the rank had joined
            last = str(error).strip().splitlines()[-1]
            raise RankError(f"rank {error.error_index}: {last}", status=1) from error
        raise


def _on_rank(fabric: Fabric, job: Job, prog: str, timeout: float, word: Word | None = None) -> Any:
    assert isinstance(fabric.strategy, FederatedStrategy)
    member = Member(fabric.strategy, prog, word)
    PULSE.start()
    over = threading.Event()
    thread = threading.Thread(target=member.watch, args=(over, timeout), daemon=True)
    thread.start()
    try:
        return job(fabric)
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code and multiprocessing.parent_process()):
            member.end(error)
        return None  # the parent waits for a result
    finally:
        over.set()
        thread.join(PULSE_SECONDS)


class Word:
    """What is wrong, said by one of several forked ranks; the process that started them knows whether one has.

    Args:
        start_method: how the ranks are started.
    """

    def __init__(self, start_method: str) -> None:
        context = multiprocessing.get_context(start_method)
        self._lock = context.Lock()
        self._given = context.Event()

    @property
    def given(self) -> bool:
        """Whether a rank has said it."""
        return self._given.is_set()

    def give(self, text: str) -> None:
        """Print, unless another rank has; not before it is through, as the first rank to end is the end of all."""
        with self._lock:
            if not self.given:
                sys.stderr.write(f"{text}\n")
                sys.stderr.flush()
                self._given.set()


class Member:
    """A rank, as far as it is one of several.

    Args:
        strategy: of the rank.
        prog: what error messages start with.
        word: that of all ranks, if they are forked.
    """

    def __init__(self, strategy: FederatedStrategy, prog: str, word: Word | None = None) -> None:
        self.strategy = strategy
        self.prog = prog
        self.word = word
        self.rank = strategy.global_rank

    def end(self, error: BaseException) -> NoReturn:
        """End this process for an error: tell it, unless it only follows from another rank's."""
        if isinstance(error, LostContactError):
            status = self._read_note(0.0 if self.word else NOTE_SECONDS)
            if status is None and self.word:
                self._wait_for_the_end()
            elif status is None:
                self._say(f"{self.prog}: error: rank {self.rank} lost contact with the others ({_short(error)})")
            self._leave(status or 1)
        text, status = self._account(error)
        self._note(status)
        if text:
            self._say(text)
        self._leave(status)

    def _account(self, error: BaseException) -> tuple[str, int]:
        """What to print about an error, and the status to end with."""
        if isinstance(error, SystemExit):
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
            line, status = _verdict(self.rank, status)
            error = RankError(f"{line}: {error.code}" if isinstance(error.code, str) else line, status)
        return account(error, self.prog, at=f"rank {self.rank}, ")

    def bury(self, rank: int, code: int) -> None:
        """End the job after another rank's process has ended, as the process that started it."""
        line, status = _verdict(rank, code)
        if self._read_note() is None:
            self._note(status)
            if line:
                self._say(f"{self.prog}: error: {line}{self._place_of(rank)}")
        # By itself the main thread ends in better order, if it is not too busy to notice.
        time.sleep(GRACE_SECONDS)
        self._leave(status)

    def watch(self, over: threading.Event, timeout: float) -> None:
        """Publish how far this rank has come; on the first rank, look for one that hangs."""
        store = self.strategy.store
        assert store is not None
        seen: dict[int, str] = {}
        still = [0.0] * self.strategy.world_size
        try:
            while not over.wait(PULSE_SECONDS):
                store.set(f"fedqcl/pulse/{self.rank}", f"{PULSE.met} {PULSE.beats} {PULSE.place}")
                for rank, pulse in self._pulses().items() if self.rank == 0 else ():
                    still[rank] = 0.0 if seen.get(rank) != pulse else still[rank] + PULSE_SECONDS
                    seen[rank] = pulse
                self._end_if_one_hangs(seen, still, timeout)
        except RuntimeError:  # the store is gone, and with it the first rank
            if not over.wait(NOTE_SECONDS):
                self._leave(1)

    def _pulses(self) -> dict[int, str]:
        store = self.strategy.store
        assert store is not None
        keys = {rank: f"fedqcl/pulse/{rank}" for rank in range(self.strategy.world_size)}
        return {rank: store.get(key).decode() for rank, key in keys.items() if store.check([key])}

    def _end_if_one_hangs(self, pulses: dict[int, str], still: list[float], timeout: float) -> None:
        met = {rank: int(pulse.split()[0]) for rank, pulse in pulses.items()}
        # Before its first collective a rank may be loading images; the backend's own time limit is for that.
        late = [rank for rank in met if 0 < met[rank] < max(met.values()) and still[rank] >= timeout]
        if not late:
            return
        who = ", ".join(f"rank {rank}{self._place_of(rank)}" for rank in late)
        self._note(1)
        self._say(
            f"{self.prog}: error: {who} made no progress for {timeout:g} s while others wait; trainer.timeout may be "
            "too short, or it hangs"
        )
        self._leave(1)

    def _place_of(self, rank: int) -> str:
        """What a rank was at when it was last heard of."""
        pulse = self._pulses().get(rank, "").split(maxsplit=2) if self.strategy.store else []
        return f" (at {pulse[2]})" if len(pulse) == 3 else ""

    def _note(self, status: int) -> None:
        """Tell the others that this rank has failed; not if all leave with a good status, as after a signal."""
        if self.strategy.store is not None and status:
            with suppress(RuntimeError):  # the store is gone, and with it the first rank
                self.strategy.store.compare_set("fedqcl/failed", "", str(status))

    def _read_note(self, seconds: float = 0.0) -> int | None:
        """The status that the first rank to fail ended with; None if none has left a note in the time.

        If the store is gone, so is the first rank, and this one is likely to be ended in the time.
        """
        store, end = self.strategy.store, time.monotonic() + seconds
        while True:
            with suppress(RuntimeError):  # as above
                if store is not None and store.check(["fedqcl/failed"]):
                    return int(store.get("fedqcl/failed"))
            if time.monotonic() >= end:
                return None
            time.sleep(NOTE_SECONDS / 100)

    def _say(self, text: str) -> None:
        """Print, unless another rank has."""
        if self.word:
            self.word.give(text)
            return
        first = True
        with suppress(RuntimeError):  # as above
            first = self.strategy.store is None or self.strategy.store.add("fedqcl/said", 1) == 1
        if first:
            sys.stderr.write(f"{text}\n")

    def _wait_for_the_end(self) -> None:
        """Let the process that waits for all ranks find the one that ended without a note.

        Were this one to end as soon, it would be taken for the cause.
        """
        time.sleep(FIND_SECONDS)

    def _leave(self, status: int) -> NoReturn:
        if isinstance(self.strategy.launcher, ScriptLauncher):
            self.strategy.launcher.kill(GRACE_SECONDS / 10)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


def _short(error: LostContactError) -> str:
    """What a backend says about a connection, without its source lines and advice."""
    return re.sub(r"^(\[[^\]]*\] ?)+", "", str(error)).splitlines()[0].split(". ")[0]


def _verdict(rank: int, code: int) -> tuple[str, int]:
    """What to say about a rank that ended without a word, and the status to end with.

    There is nothing to say about one that was asked to stop, whether or not it is to be started again.
    """
    if code in (0, os.EX_TEMPFAIL) or code > 128:
        return "", code
    if code > 0:
        return f"rank {rank} ended with status {code}", code
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
    return f"rank {rank} was killed by {name}{hint}", 128 - code
