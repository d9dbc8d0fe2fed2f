"""The command line: ``fedqcl fit``, ``validate``, ``test``, ``sweep`` and ``report``."""

from fedqcl.cli.main import main

__all__ = ["main"]
