"""Writing a run's files: whole or not at all, and what to say if the disk refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedqcl.errors import InputError, refusal


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Run a block that writes a file, or files below a folder.

    Raises:
        InputError: the system refuses, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        why = refusal(error)
    else:
        return
    raise InputError(f"trainer.root: cannot write {path}: {why}; make room or choose another root")


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
