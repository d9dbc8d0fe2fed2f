"""The command line: ``fedqcl fit``, ``validate`` and ``test``."""

from fedqcl.cli.main import main

__all__ = ["main"]
