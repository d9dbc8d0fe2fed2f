"""Writing what ``torch.load`` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def save(content: Any, path: Path) -> None:
    """Write tensors, numbers, words and containers of them into a file.

    The file is opened here, for what the disk refuses to be told of as ever. Of a path that it is given, PyTorch makes
    errors of another kind, and some versions (2.8) leave half a file without a word.

    Args:
        content: what to write.
        path: where to.

    Raises:
        OSError: the disk refuses.
    """
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:  # as PyTorch then cannot end the file either
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
