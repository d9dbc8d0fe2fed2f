"""The exceptions that concern a user: a mistake to mend, and a run that was asked to stop."""

from signal import Signals


class InputError(ValueError):
    """Something in the configuration or the data is wrong.

    Its message is one line that names the key or file and says what to change. The command line prints it without
    a traceback and exits with status 2.
    """


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
