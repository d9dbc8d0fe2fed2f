"""What to say when a rank ends, and the status to end with."""

from __future__ import annotations

import os
import re
import signal
import traceback

from fedqcl.engine.pulse import LostContactError
from fedqcl.errors import ClientError, InputError, first_line


def account(error: BaseException, prog: str, rank: int) -> tuple[str, int]:
    """What to print about an error, and the status to end with."""
    if isinstance(error, KeyboardInterrupt):
        return "", getattr(error, "status", 128 + signal.SIGINT)
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        line, status = verdict(rank, status)
        return line and f"{prog}: error: {line}", status
    if isinstance(error, InputError):
        return f"{prog}: error: {' '.join(str(error).split())}", 2
    cause = error.__cause__ if isinstance(error, ClientError) and error.__cause__ else error
    said = str(error) if isinstance(error, ClientError) else first_line(error)
    return f"{''.join(traceback.format_exception(cause))}{prog}: error: rank {rank}, {said}", 1


def in_short(error: LostContactError) -> str:
    """What a backend says about a connection, without its source lines and advice."""
    return re.sub(r"^(\[[^\]]*\] ?)+", "", str(error)).splitlines()[0].split(". ")[0]


def verdict(rank: int, code: int) -> tuple[str, int]:
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
