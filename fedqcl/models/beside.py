"""Work that runs beside the rest of a backward pass, on a CUDA stream of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


class Beside:
    """A stream beside another one.

    Args:
        main: the stream whose work goes on.
    """

    def __init__(self, main: torch.cuda.Stream) -> None:
        self.main = main
        self.stream = torch.cuda.Stream(main.device, priority=main.priority)
        self._in_use: list[Tensor] = []

    @contextmanager
    def work(self, *reads: Tensor) -> Iterator[None]:
        """Run what is inside beside the main stream, after all that is on it now.

        Args:
            reads: tensors of the main stream that it reads, kept until :meth:`join`, lest their memory be used again.
        """
        self._in_use += reads
        self.stream.wait_stream(self.main)
        with torch.cuda.stream(self.stream):
            yield

    def join(self) -> None:
        """Let the main stream wait for what was run beside it."""
        if self._in_use:
            self.main.wait_stream(self.stream)
            self._in_use.clear()


@cache
def _beside(main: torch.cuda.Stream) -> Beside:
    return Beside(main)


def beside_current() -> Beside:
    """The stream beside the current one, always the same."""
    return _beside(torch.cuda.current_stream())
