from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from fedqcl.kernels import Launcher


class Kernel:
    """In the place of one of Triton's: notes what is asked of it, and by which thread."""

    def __init__(self, error: Exception | None = None) -> None:
        self.launched: list[tuple[Any, ...]] = []
        self.compiled: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()
        self.started = 0
        self.error = error

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args, **options: self.launched.append((grid, args, options))

    def warmup(self, *args: Any, grid: tuple[int, ...], **options: Any) -> Kernel:
        if self.error:
            raise self.error
        self.threads.add(threading.get_ident())
        self.compiled.append((grid, args, options))
        return self

    @property
    def run(self) -> None:
        self.started += 1


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)


def test_a_kernel_is_launched() -> None:
    kernel = Kernel()
    Launcher()(kernel, (3,), 1, BLOCK=4)
    assert kernel.launched == [((3,), (1,), {"BLOCK": 4})]
    assert kernel.compiled == []


def test_kernels_are_compiled_once_each_in_other_threads_and_not_run() -> None:
    kernel, launch = Kernel(), Launcher()
    wide, narrow = torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16)
    with launch.compiling():
        launch(kernel, (3,), wide, rows=5, BLOCK=4)
        launch(kernel, (4,), wide, rows=6, BLOCK=4)
        launch(kernel, (3,), wide, rows=5, BLOCK=8)
        launch(kernel, (3,), narrow, rows=5, BLOCK=4)
        for pair in ((wide, narrow), (narrow, wide)):
            launch(kernel, (3,), pair, rows=5, BLOCK=4)
        # As from a backward pass.
        other = threading.Thread(target=launch, args=(kernel, (3,), narrow), kwargs={"BLOCK": 16})
        other.start()
        other.join()
    assert len(kernel.compiled) == kernel.started == 6
    assert threading.get_ident() not in kernel.threads
    assert kernel.launched == []
    launch(kernel, (3,), wide, rows=5, BLOCK=4)
    assert len(kernel.launched) == 1


def test_what_comes_before_the_first_kernel_is_done_in_the_background_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, done = threading.Event(), threading.Event()

    def rehearse(device: torch.device) -> None:
        go.wait(10)
        done.set()
        raise OSError("no compiler")

    monkeypatch.setattr("fedqcl.kernels._rehearse", rehearse)
    launch = Launcher()
    launch.rehearse(torch.device("cuda", 0))
    assert not done.is_set()
    go.set()
    with launch.compiling():
        assert done.is_set()


def test_a_kernel_that_cannot_be_compiled_is_told_of() -> None:
    launch = Launcher()
    with pytest.raises(ValueError, match="no such"), launch.compiling():
        launch(Kernel(ValueError("no such")), (1,))
    kernel = Kernel()
    launch(kernel, (1,))
    assert len(kernel.launched) == 1
