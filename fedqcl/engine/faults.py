"""What becomes of a client that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch

from fedqcl.engine.pulse import PULSE
from fedqcl.engine.replica import Replica, moment
from fedqcl.errors import ClientError, InputError, first_line


class Faults:
    """Says where something failed, and either ends the run or leaves the client out of the round.

    Args:
        on_client_error: what to do if a client's step or hook raises.
        on_nonfinite: what to do if a client brings infinite or undefined numbers.
    """

    def __init__(
        self, on_client_error: Literal["raise", "skip"] = "raise", on_nonfinite: Literal["raise", "drop"] = "raise"
    ) -> None:
        self.skips = on_client_error == "skip"
        self.drops = on_nonfinite == "drop"
        self._lines: list[str] = []
        self._skipped: list[str] = []

    @contextmanager
    def watching(self, local: Replica) -> Iterator[None]:
        """Run a block for one client: what it raises is told with client, task and round, or ends with the block.

        A user's mistake, a device that is broken and one without memory end the run in any case.

        Raises:
            ClientError: what the block raised, as its cause; or the block left the program as if all were done.
            InputError: the block's.
        """
        PULSE.place = local.place
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except InputError as error:
            raise InputError(f"{error} ({local.place})") from error
        except SystemExit as left:
            if not left.code:
                raise ClientError(f"{local.place}: left in the middle of the run") from left
            raise
        except Exception as error:
            if not self.skips or _is_beyond_the_client(error):
                raise ClientError(f"{local.place}: {first_line(error)}") from error
            local.failed = True
            self._lines.append(f"{local.place}: left out, {first_line(error)}")
            self._skipped.append(f"{local.place}: {first_line(error)}")
        PULSE.place = ""

    def take_skipped(self) -> list[str]:
        """What this rank's clients that were left out for an error raised since the last call."""
        skipped, self._skipped = self._skipped, []
        return skipped

    def without_update(self, skipped: Sequence[str]) -> None:
        """Note a round, or a task's end, in which no client has brought anything of use.

        Args:
            skipped: what clients of all ranks raised in it.

        Raises:
            ClientError: several did, so that it will not be the clients' fault.
        """
        if len(skipped) > 1:
            raise ClientError(f"{skipped[0]}; and all other clients fail, too")

    def diverged(self, clients: Sequence[int], task: int, round: int) -> None:
        """Note that clients' updates are not finite.

        Raises:
            InputError: if that is to end the run.
        """
        if clients and not self.drops:
            who = f"client{'s' * (len(clients) > 1)} {', '.join(map(str, clients))}"
            raise InputError(
                f"model: training diverged, {who}, {moment(task, round)}: the update is not finite; lower the learning "
                "rate or V, or leave such clients out by trainer.on_nonfinite: drop"
            )

    def drop(self, client: int, task: int, round: int) -> None:
        """Note that this rank's client was left out for an update that is not finite."""
        self._lines.append(f"client {client}, {moment(task, round)}: left out, its update is not finite")

    def take_lines(self) -> list[str]:
        """The lines about clients of this rank that were left out since the last call."""
        lines, self._lines = self._lines, []
        return lines


def _is_beyond_the_client(error: Exception) -> bool:
    """Whether the next client would fare no better: no memory is left, or the device has stopped working."""
    return isinstance(error, MemoryError) or "CUDA error" in str(error)
