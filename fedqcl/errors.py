"""What ends a run: a mistake that the user can mend, or a client that failed."""


class InputError(ValueError):
    """Something in the configuration or the data is wrong.

    Its message is one line that names the key or file and says what to change. The command line prints it without
    a traceback and exits with status 2.
    """


class ClientError(RuntimeError):
    """A client's step or hook raised; the message says which client, task and round, the cause what."""


def first_line(error: BaseException) -> str:
    """An exception's type and the first line of what it says."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
