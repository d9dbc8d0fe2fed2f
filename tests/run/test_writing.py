from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fedqcl.checkpoint.saving import save
from fedqcl.errors import InputError
from fedqcl.run.folder import RunFolder
from fedqcl.run.log import RunLog
from fedqcl.run.writing import writing
from tests.run.fake_run import run_info, run_records


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """The system refuses to make a file larger, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_the_system_refuses_is_one_line() -> None:
    line = r"^trainer\.root: cannot write runs/x: No space left on device; make room or choose another root$"
    with pytest.raises(InputError, match=line), writing(Path("runs/x")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_model_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    with pytest.raises(InputError, match=r"^trainer\.root: cannot write .*model\.ckpt: File too"):  # noqa: SIM117
        with writing(path), no_file_above(1000):
            save(torch.zeros(100_000), path)


def test_other_errors_pass() -> None:
    with pytest.raises(RuntimeError, match=r"^something else$"), writing(Path("x")):
        raise RuntimeError("something else")
    with pytest.raises(KeyError), writing(Path("x")):
        raise KeyError("x")


def test_what_a_run_was_made_with_does_not_fit(tmp_path: Path) -> None:
    with no_file_above(2), pytest.raises(InputError, match=r"^trainer\.root: cannot write .*made_with\.json: "):
        RunFolder(tmp_path).write_made_with({"config": {"a": 1}})
    assert RunFolder(tmp_path).read_made_with() == {}


def test_a_round_that_does_not_fit_leaves_the_rounds_before(tmp_path: Path) -> None:
    first, second, *_ = run_records()
    log = RunLog(RunFolder(tmp_path))
    log.console.start(run_info(), tmp_path)
    log.round(first)
    metrics, size = (tmp_path / "metrics.csv").read_bytes(), (tmp_path / "metrics.csv").stat().st_size
    with no_file_above(size + 10), pytest.raises(InputError, match=rf"^trainer\.root: cannot write {tmp_path}"):
        log.round(second)
    assert (tmp_path / "metrics.csv").read_bytes() == metrics
    log.round(second)
    assert [row["round"] for row in RunFolder(tmp_path).read_metrics()] == [1, 2]
