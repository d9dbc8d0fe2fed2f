"""What ends a run: a mistake that the user can mend, a class, client or rank that failed, or somebody who asked."""

from __future__ import annotations

import traceback
from signal import SIGINT, Signals


class InputError(ValueError):
    """Something in the configuration or the data is wrong.

    Its message is one line that names the key or file and says what to change. The command line prints it without
    a traceback and exits with status 2.
    """


class ClientError(RuntimeError):
    """A client's step or hook raised; the message says which client, task and round, the cause what."""


class ClassError(RuntimeError):
    """A class that an option chose raised when it was made; the message says which option, the cause what."""


class RankError(RuntimeError):
    """A rank that this process had started failed.

    Args:
        message: what went wrong.
        status: the exit status of this process.

    Attributes:
        status: the exit status that the rank's failure calls for.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, and has stopped with what it had done saved.

    Args:
        signal: the number of the signal that asked.

    Attributes:
        signal: the signal.
        status: the exit status of the process.
    """

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = Signals(signal)
        self.status = 128 + signal


def account(error: BaseException, prog: str, at: str = "") -> tuple[str, int]:
    """What to print about an error that ends a process, blank for nothing, and the status to end with.

    Args:
        error: the error.
        prog: what an error's line starts with.
        at: what comes before what is neither the user's mistake nor said already.
    """
    if isinstance(error, KeyboardInterrupt):
        return "", error.status if isinstance(error, Interrupted) else 128 + SIGINT
    if isinstance(error, RankError):
        return str(error) and f"{prog}: error: {one_line(error)}", error.status
    if isinstance(error, InputError):
        return f"{prog}: error: {one_line(error)}", 2
    placed = isinstance(error, ClientError | ClassError)
    cause = error.__cause__ if placed and error.__cause__ else error
    said = one_line(error) if placed else first_line(error)
    return f"{''.join(traceback.format_exception(cause))}{prog}: error: {at}{said}", 1


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of what it says."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def one_line(error: BaseException) -> str:
    """What an exception says, without its line ends."""
    return " ".join(str(error).split())


def refusal(error: OSError) -> str:
    """What the disk had against a write."""
    return error.strerror or str(error)
