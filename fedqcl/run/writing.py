"""Writing a run's files: whole or not at all, and what to say if the disk refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedqcl.errors import InputError

# torch.save makes a RuntimeError of whatever the disk has against it, in words of where in PyTorch that was noticed.
OF_TORCH_SAVE = ("writ", "inline_container", "iostream")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Run a block that writes a file, or files below a folder.

    Raises:
        InputError: the system refuses, such as a full disk.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        why = refusal(error)
        if not why:
            raise
    else:
        return
    raise InputError(f"trainer.root: cannot write {path}: {why}; make room or choose another root")


def refusal(error: Exception) -> str:
    """What the disk had against a write; nothing if the error is of another kind."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, RuntimeError) and any(word in str(error) for word in OF_TORCH_SAVE):
        return "no space left, or another failure of the disk"
    return ""


def replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
