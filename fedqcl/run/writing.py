"""A run's files that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedqcl.errors import InputError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Run a block that writes a file, or files below a folder.

    Raises:
        InputError: the system refuses, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
    except RuntimeError as error:  # how torch.save tells of it
        if "writ" not in str(error) and "inline_container" not in str(error):
            raise
        why = "no space left, or another failure of the disk"
    else:
        return
    raise InputError(f"trainer.root: cannot write {path}: {why}; make room or choose another root")
