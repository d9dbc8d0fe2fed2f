from __future__ import annotations

import json
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from fedqcl.checkpoint.directory import Checkpoints, flaw, is_checkpoint, name_after, publish, write_part


def written(path: Path, files: int = 1) -> Path:
    """A checkpoint of one rank."""
    draft = path.with_name(f".{path.name}.abc")
    write_part(draft, {f"client-{i}.pt": {"x": torch.full((5,), i)} for i in range(files)}, rank=0)
    publish(draft, path, 1, Event())
    return path


def test_names_count_from_one() -> None:
    assert name_after(0, 4) == "task-01-round-05"
    assert is_checkpoint(Path("runs/x/checkpoints/task-01-round-05"))
    assert not is_checkpoint(Path("runs/x/checkpoints/.task-01-round-05.abc"))


def test_nothing_has_a_name_before_all_parts_are_there(tmp_path: Path) -> None:
    draft, target = tmp_path / ".task-01-round-01.abc", tmp_path / "task-01-round-01"
    write_part(draft, {"a.pt": 1}, rank=0)
    thread = Thread(target=publish, args=(draft, target, 2, Event()))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    assert not target.exists()
    write_part(draft, {"b.pt": 2}, rank=1)
    thread.join(10)
    assert sorted(path.name for path in target.iterdir()) == ["a.pt", "b.pt", "manifest.json"]
    assert list(json.loads((target / "manifest.json").read_text())) == ["a.pt", "b.pt"]
    assert flaw(target) == ""
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_a_part_that_will_not_come_is_not_waited_for(tmp_path: Path) -> None:
    draft, target, cancelled = tmp_path / ".task-01-round-01.abc", tmp_path / "task-01-round-01", Event()
    write_part(draft, {"a.pt": 1}, rank=0)
    cancelled.set()
    publish(draft, target, 2, cancelled)
    assert not target.exists()
    Checkpoints(tmp_path).remove_drafts()
    assert list(tmp_path.iterdir()) == []


def test_every_byte_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "task-01-round-01", files=2)
    for file in path.glob("*.pt"):
        content = file.read_bytes()
        for place in range(0, len(content), 101):
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            assert flaw(path) == f"{file.name} has changed"
            file.write_bytes(content[:place])
            assert flaw(path) == f"{file.name} has changed"
        file.write_bytes(content)
        assert flaw(path) == ""


@pytest.mark.parametrize("content", ["", "{}", "[]", "5", "null", '{"a.pt": 5}', '{"client-0.pt"', "[[]]", "\x00"])
def test_a_damaged_manifest(content: str, tmp_path: Path) -> None:
    path = written(tmp_path / "task-01-round-01")
    (path / "manifest.json").write_text(content)
    assert flaw(path) != ""


def test_a_file_more_or_less(tmp_path: Path) -> None:
    path = written(tmp_path / "task-01-round-01", files=2)
    torch.save(1, path / "client-7.pt")
    assert flaw(path) == "client-7.pt has changed"
    (path / "client-7.pt").unlink()
    (path / "client-1.pt").unlink()
    assert flaw(path) == "client-1.pt is missing"


def test_the_newest_whole_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.newest_whole() == (None, [])
    # By number and not by letter.
    paths = [written(tmp_path / name) for name in ("task-09-round-20", "task-10-round-03", "task-100-round-01")]
    written(tmp_path / "other")
    assert checkpoints.all() == paths
    assert checkpoints.newest_whole() == (paths[2], [])
    assert checkpoints.newest_whole(up_to="task-10-round-03") == (paths[1], [])
    (paths[2] / "client-0.pt").unlink()
    line = "checkpoint task-100-round-01 is damaged (client-0.pt is missing)"
    assert checkpoints.newest_whole() == (paths[1], [line])
    (paths[1] / "manifest.json").unlink()
    (paths[0] / "manifest.json").write_text("x")
    newest, lines = checkpoints.newest_whole()
    assert newest is None
    assert len(lines) == 3


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for round in range(1, 5):
        written(tmp_path / f"task-01-round-0{round}")
        checkpoints.prune()
    assert [path.name for path in checkpoints.all()] == ["task-01-round-03", "task-01-round-04"]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_comes_later_is_removed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    paths = [written(tmp_path / f"task-01-round-0{round}") for round in range(1, 5)]
    write_part(tmp_path / ".task-01-round-05.abc", {"a.pt": 1}, rank=1)
    checkpoints.keep_up_to(paths[1])
    assert sorted(tmp_path.iterdir()) == paths[:2]
    checkpoints.keep_up_to(None)
    assert list(tmp_path.iterdir()) == []
    checkpoints.clear()
    assert not tmp_path.exists()
    checkpoints.clear()
