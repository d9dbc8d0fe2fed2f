"""Runs jobs in processes of their own, one on each slot at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar, cast

from fedqcl.orphans import die_with

T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """A run to be made.

    Attributes:
        name: its name.
        words: what follows ``fedqcl fit``.
        log: what the run prints is added to it.
    """

    name: str
    words: tuple[str, ...]
    log: Path

    def last_line(self) -> str:
        """The last thing the run printed."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n") if self.log.is_file() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def apart(question: Callable[[], T]) -> T:
    """The answer to a question that leaves traces in the process that asks, found out in another one.

    Once it has been asked how many GPUs there are, CUDA refuses to work in processes that this one forks and that have
    ranks of their own.

    Args:
        question: a function of a module.
    """
    with ProcessPoolExecutor(1, mp_context=_context()) as pool:
        return pool.submit(question).result()


def _context() -> Any:
    return multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


def run_jobs(
    fit: Callable[[list[str]], int], jobs: Sequence[Job], slots: Sequence[str | None]
) -> Iterator[tuple[Job, int]]:
    """Run jobs, and yield each with its exit status when it ends.

    On Linux they are forked, which saves seconds of imports; so this process must not have used CUDA. None outlives
    it.

    Args:
        fit: does ``fedqcl fit``; a function of a module.
        jobs: started in this order.
        slots: what runs at the same time: for each the GPU it is on, None for the CPU.
    """
    waiting, free = list(jobs), list(slots)
    running: dict[int, tuple[Any, Job, str | None]] = {}
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        while waiting or running:
            while waiting and free:
                job, slot = waiting.pop(0), free.pop(0)
                process = _context().Process(target=_work, args=(fit, job, slot, os.getpid()))
                process.start()
                running[process.sentinel] = (process, job, slot)
            for sentinel in wait(list(running)):
                process, job, slot = running.pop(cast(int, sentinel))
                process.join()
                free.append(slot)
                yield job, process.exitcode
    except (KeyboardInterrupt, SystemExit):
        print("stopping once what runs is saved: the same command goes on with it", file=sys.stderr, flush=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        for process, _, _ in running.values():
            process.terminate()
            process.join()


def _leave(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


def _work(fit: Callable[[list[str]], int], job: Job, gpu: str | None, parent: int) -> None:
    """The whole life of a job's process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    raise SystemExit(fit(list(job.words)))
