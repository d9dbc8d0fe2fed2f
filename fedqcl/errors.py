"""The one exception that stands for a mistake the user can mend."""


class InputError(ValueError):
    """Something in the configuration or the data is wrong.

    Its message is one line that names the key or file and says what to change. The command line prints it without
    a traceback and exits with status 2.
    """
