"""Reads a ``.wandb`` file: protocol buffers in blocks of a LevelDB log. For tests; W&B offers no reader of its own."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

FILE_HEADER = 7  # ":W&B", two bytes of magic, one of version
CHUNK_HEADER = struct.Struct("<IHB")  # checksum, length, kind
BLOCK = 32 * 1024
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class WandbFile:
    """What a run logged.

    Attributes:
        run: its ``run_id``, ``run_group``, ``job_type``, ``display_name``, ``project`` and ``tags``.
        history: one dictionary a call of ``log``.
        axes: the step metric of each defined metric.
    """

    run: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    preempted: bool = False
    exit_code: int | None = None


def read(path: Path) -> WandbFile:
    """Everything in one file."""
    content = WandbFile()
    for message in _messages(path.read_bytes()):
        record = Record.FromString(message)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            names = ("run_id", "run_group", "job_type", "display_name", "project")
            content.run = {name: getattr(record.run, name) for name in names}
            content.run["tags"] = list(record.run.tags)
            content.config.update(_items(record.run.config.update))
        elif kind == "config":
            content.config.update(_items(record.config.update))
        elif kind == "history":
            content.history.append(_items(record.history.item))
        elif kind == "summary":
            content.summary.update(_items(record.summary.update))
        elif kind == "metric":
            content.axes[record.metric.name or record.metric.glob_name] = record.metric.step_metric
        elif kind == "preempting":
            content.preempted = True
        elif kind == "exit":
            content.exit_code = record.exit.exit_code
    return content


def _items(items: Iterable[Any]) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages, put together from chunks that never cross the end of a block."""
    assert data.startswith(b":W&B")
    position, message = FILE_HEADER, b""
    while position + CHUNK_HEADER.size <= len(data):
        room = BLOCK - position % BLOCK
        if room < CHUNK_HEADER.size:  # too little for a chunk: padding
            position += room
            continue
        _, length, kind = CHUNK_HEADER.unpack_from(data, position)
        if kind == 0:  # padding that a writer left when it flushed
            position += room
            continue
        start = position + CHUNK_HEADER.size
        message = (b"" if kind in {FULL, FIRST} else message) + data[start : start + length]
        if kind in {FULL, LAST}:
            yield message
        position = start + length
