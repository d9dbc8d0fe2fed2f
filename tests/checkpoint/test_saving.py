from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch

from fedqcl.checkpoint.saving import save
from tests.run.test_writing import no_file_above


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    save({"a": torch.arange(3), "b": [1, "x", None]}, tmp_path / "x.pt")
    loaded = torch.load(tmp_path / "x.pt", weights_only=True, mmap=True)
    assert loaded["a"].tolist() == [0, 1, 2]
    assert loaded["b"] == [1, "x", None]


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_what_the_disk_refuses_is_told_of(tmp_path: Path, size: int) -> None:
    with no_file_above(size), pytest.raises(OSError, match="File too large") as caught:
        save(torch.zeros(100_000), tmp_path / "x.pt")
    assert caught.value.errno == errno.EFBIG
