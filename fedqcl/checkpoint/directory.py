"""Checkpoints as files: a folder each, that is whole or has no name.

All ranks write their own files into a hidden folder. The first one waits for the others, joins their checksums in a
manifest, and only then gives the folder its name. So no process that is killed leaves half a checkpoint, and what
happens to a file later is found out by the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

from fedqcl.checkpoint.saving import save

MANIFEST = "manifest.json"
KEPT = 2
LOOK_EVERY = 0.005
_NAME = re.compile(r"task-(\d+)-round-(\d+)")


def name_after(task: int, round: int) -> str:
    """The name of the checkpoint after a round; both count from 1 in it."""
    return f"task-{task + 1:02d}-round-{round + 1:02d}"


def is_checkpoint(path: Path) -> bool:
    """Whether a path is named like a checkpoint."""
    return _NAME.fullmatch(path.name) is not None


class Checkpoints:
    """The checkpoints of a run.

    Args:
        path: the folder they are in; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Path]:
        """All that have a name, oldest first."""
        found = self.path.glob("task-*") if self.path.is_dir() else []
        return sorted(filter(is_checkpoint, found), key=lambda path: [int(n) for n in re.findall(r"\d+", path.name)])

    def newest_whole(self, up_to: str = "") -> tuple[Path | None, list[str]]:
        """The newest checkpoint without a flaw, and a line on each newer one that has one.

        Args:
            up_to: the name of the newest one to look at.
        """
        paths = self.all()
        names = [path.name for path in paths]
        lines: list[str] = []
        for path in reversed(paths[: names.index(up_to) + 1 if up_to else None]):
            found = flaw(path)
            if not found:
                return path, lines
            lines.append(f"checkpoint {path.name} is damaged ({found})")
        return None, lines

    def keep_up_to(self, newest: Path | None) -> None:
        """Remove all checkpoints after one, or all there are, and whatever was never finished."""
        self.remove_drafts()
        paths = self.all()
        for path in paths[paths.index(newest) + 1 if newest else 0 :]:
            _remove(path)

    def remove_drafts(self) -> None:
        """Remove what was never finished, or not wholly removed."""
        for leftover in self.path.glob(".task-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def prune(self) -> None:
        """Remove all but the newest ones."""
        for path in self.all()[:-KEPT]:
            _remove(path)

    def clear(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.path, ignore_errors=True)


def write_part(draft: Path, files: Mapping[str, Any], rank: int) -> None:
    """Write one rank's files of a checkpoint, to the disk itself.

    Args:
        draft: the hidden folder that all ranks write into.
        files: tensors, numbers, words and containers of them, by file name.
        rank: whose files they are.
    """
    draft.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        save(content, draft / name)
    _write_json(draft / _part(rank), {name: _digest(draft / name) for name in files})


def publish(draft: Path, target: Path, ranks: int, cancelled: Event) -> None:
    """Wait for all ranks' parts, then give the checkpoint its name.

    Args:
        draft: the hidden folder.
        target: what it becomes.
        ranks: how many parts there are.
        cancelled: set if a part will not come.
    """
    parts = [draft / _part(rank) for rank in range(ranks)]
    while not all(part.exists() for part in parts):
        if cancelled.wait(LOOK_EVERY):
            return
    files: dict[str, str] = {}
    for part in parts:
        files |= json.loads(part.read_text(encoding="utf-8"))
        part.unlink()
    _write_json(draft / MANIFEST, dict(sorted(files.items())))
    _sync(draft)
    draft.rename(target)
    _sync(target.parent)


def flaw(checkpoint: Path) -> str:
    """What is wrong with a checkpoint, in words; nothing if all its files are as they were written."""
    try:
        files = dict(json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8")))
        changed = [name for name, digest in files.items() if _digest(checkpoint / name) != digest]
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, TypeError) as error:
        return f"{MANIFEST} cannot be read: {type(error).__name__}"
    changed += sorted({path.name for path in checkpoint.glob("*.pt")} - files.keys())
    if not files:
        return f"{MANIFEST} is empty"
    return f"{changed[0]} has changed" if changed else ""


def _part(rank: int) -> str:
    return f"part-{rank}.json"


def _write_json(path: Path, content: Mapping[str, str]) -> None:
    """Write a file beside, to the disk, and give it its name."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(content, indent=0), encoding="utf-8")
    _sync(temporary)
    temporary.replace(path)


def _digest(path: Path) -> str:
    """A file's sha256, what the disk holds of it made sure of."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Make the disk hold a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a checkpoint, its name first, so that no part of it keeps one."""
    hidden = path.with_name(f".{path.name}.old")
    path.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
