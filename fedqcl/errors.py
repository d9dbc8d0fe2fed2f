"""What ends a run: a mistake that the user can mend, a client or a rank that failed, or somebody who asked."""

from signal import Signals


class InputError(ValueError):
    """Something in the configuration or the data is wrong.

    Its message is one line that names the key or file and says what to change. The command line prints it without
    a traceback and exits with status 2.
    """


class ClientError(RuntimeError):
    """A client's step or hook raised; the message says which client, task and round, the cause what."""


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


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of what it says."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
