"""How far this process has come, so that others can tell a slow rank from one that hangs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import torch
from torch import nn


class LostContactError(RuntimeError):
    """A collective failed: another rank is gone, or the connection to it."""


@dataclass
class Pulse:
    """Counts that grow while a rank works.

    Attributes:
        met: collectives this rank has come to.
        beats: forward passes and the like since the start.
        place: what it is at, in words; empty where that is no client's work.
    """

    met: int = 0
    beats: int = 0
    place: str = ""

    def start(self) -> None:
        """Start a run: the counts of all ranks must begin alike."""
        self.met = self.beats = 0
        self.place = ""

    def follow(self, net: nn.Module) -> None:
        """Let a net's forward passes count, and those of its copies."""
        net.register_forward_pre_hook(_beat)


PULSE = Pulse()
"""This process's."""


def _beat(*_: object) -> None:
    PULSE.beats += 1


@contextmanager
def busy() -> Iterator[None]:
    """Run a block that takes its time, such as a slow service or disk, and comes to an end by itself: as progress."""
    done = Event()

    def beat() -> None:
        while not done.wait(1.0):
            PULSE.beats += 1

    thread = Thread(target=beat, name="busy", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def meeting() -> Iterator[None]:
    """Run a collective.

    Raises:
        LostContactError: it failed.
    """
    PULSE.met += 1
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise LostContactError(str(error)) from error
