from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from fedqcl.checkpoint.keeper import CheckpointKeeper, Start
from fedqcl.checkpoint.state import read_run
from fedqcl.errors import Interrupted
from fedqcl.methods import FedAvg
from fedqcl.schedule import Schedule
from tests.checkpoint.test_state import state
from tests.run.test_writing import no_file_above

SCHEDULE = Schedule(num_tasks=3, rounds=4, num_clients=3, participation=1.0, seed=0)


class Kept:
    """A keeper of a run without training, and what it said."""

    def __init__(self, folder: Path, position: tuple[int, int] = (0, 0), **options: Any) -> None:
        self.said: list[str] = []
        self.path = folder / "checkpoints"
        self.signal = 0
        self.keeper = CheckpointKeeper(
            state(FedAvg()), SCHEDULE, Start(folder, "abc", position), say=self.said.append,
            asked_to_stop=lambda: self.signal, **options,
        )  # fmt: skip

    def run(self) -> None:
        """Reach every round, and the end."""
        for task, rounds in SCHEDULE.rest(self.keeper.position):
            for round in rounds:
                self.keeper.reach(task, round)
        self.keeper.reach(3, 0)
        self.keeper.settle()

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []


@pytest.mark.parametrize(
    ("every", "written"),
    [
        (1, [(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]),
        (2, [(0, 2), (1, 0), (1, 2), (2, 0), (2, 2), (3, 0)]),
        (3, [(0, 3), (1, 0), (1, 3), (2, 0), (2, 3), (3, 0)]),
        (99, [(1, 0), (2, 0), (3, 0)]),
    ],
)
def test_when_a_checkpoint_is_due(
    every: int, written: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, positions = Kept(tmp_path, every=every), []
    files = kept.keeper.state.files
    monkeypatch.setattr(kept.keeper.state, "files", lambda position: positions.append(position) or files(position))
    kept.run()
    assert positions == written
    assert len(kept.names()) == 2
    assert kept.names()[-1] == "task-03-round-04"
    assert read_run(kept.path / "task-03-round-04")["position"] == [3, 0]
    kept.keeper.clear()
    assert not kept.path.exists()


def test_nothing_is_written_where_the_run_starts(tmp_path: Path) -> None:
    kept = Kept(tmp_path, position=(1, 2))
    kept.keeper.reach(1, 2)
    kept.keeper.settle()
    assert kept.names() == []


def test_a_stop_is_saved_even_if_no_checkpoint_is_due(tmp_path: Path) -> None:
    kept = Kept(tmp_path, every=9)
    kept.keeper.reach(0, 0)
    kept.signal = signal.SIGUSR1
    with pytest.raises(Interrupted) as stop:
        kept.keeper.reach(0, 1)
    assert stop.value.signal == signal.SIGUSR1
    assert kept.names() == ["task-01-round-01"]


def test_a_stop_before_anything_is_done(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.signal = signal.SIGTERM
    with pytest.raises(Interrupted):
        kept.keeper.reach(0, 0)
    assert kept.names() == []


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    kept.keeper.reach(0, 1)
    kept.keeper.settle()
    begun = kept.path / ".task-01-round-04.by-another-rank"  # which may be ahead by then
    begun.mkdir()

    def full(content: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        kept.keeper.reach(0, 2)
        kept.keeper.reach(0, 3)
        kept.keeper.settle()
    line = "no checkpoint at {}: No space left on device; make room for the next one; task-01-round-01 still stands"
    assert kept.said == [line.format(kept.path / name) for name in ("task-01-round-02", "task-01-round-03")]
    assert sorted(path.name for path in kept.path.iterdir()) == [begun.name, "task-01-round-01"]
    begun.rmdir()
    kept.keeper.reach(1, 0)
    kept.keeper.settle()
    assert kept.names() == ["task-01-round-01", "task-01-round-04"]
    assert len(kept.said) == 2


def test_a_first_checkpoint_that_does_not_fit(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with no_file_above(100):
        kept.keeper.reach(0, 1)
        kept.keeper.settle()
    assert kept.said == [
        f"no checkpoint at {kept.path / 'task-01-round-01'}: File too large; make room for the next one; there is none "
        "before it"
    ]
    assert kept.names() == []


def test_a_mistake_in_the_program_is_not_taken_for_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    monkeypatch.setattr(kept.keeper.state, "files", lambda position: {"run.pt": lambda: None})
    kept.keeper.reach(0, 1)
    with pytest.raises(AttributeError, match="local object"):
        kept.keeper.settle()
