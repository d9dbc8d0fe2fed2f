"""The run folder: one place that knows its files' names and formats."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedqcl.errors import InputError
from fedqcl.run.config import parse_config
from fedqcl.run.records import RoundRecord, State
from fedqcl.run.shape import check_places
from fedqcl.run.table import append_rows, read_rows
from fedqcl.run.writing import replace, writing

STALE_SECONDS = 3600.0


class RunFolder:
    """A run's files.

    ``metrics.csv`` has a row a round and ``clients.csv`` one per round and client. Tasks and rounds count from 1,
    accuracies and forgetting are fractions, an unknown value is blank, and numbers are written in full, so that
    equal runs give equal files but for their ``seconds``. A diagnostic of the method has a column, or one a task
    (``queue_1`` ... ``queue_T``).

    Args:
        path: the folder; it must exist.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.csv"
        self.clients = self.path / "clients.csv"
        self.summary = self.path / "summary.json"
        self.checkpoint = self.path / "model.ckpt"
        self.checkpoints = self.path / "checkpoints"
        self.plots = self.path / "plots"
        self.places = self.path / "sweep.json"
        self.made_with = self.path / "made_with.json"

    @classmethod
    def create(cls, root: Path | str, name: str | None, default_name: str, config: str = "") -> RunFolder:
        """Make a new folder below ``root``; of several processes that ask for one name, one gets it.

        The folder is there with its ``config.yaml`` or not at all.

        Args:
            root: the folder of all runs, made if missing.
            name: the run's name; it must be free.
            default_name: used without a ``name``; taken already, ``-2``, ``-3``, ... is appended.
            config: what ``config.yaml`` is to hold.

        Raises:
            InputError: if ``name`` is taken or no plain folder name, or the folder cannot be made.
        """
        if name is not None and (name in {"", ".", ".."} or Path(name).name != name):
            raise InputError(f"trainer.name: {name!r} is no plain folder name; trainer.root says where runs are kept")
        for candidate in [name] if name is not None else numbered(default_name):
            path = Path(root, candidate)
            if path.exists():
                continue
            try:
                if _make(path, config):
                    return cls(path)
            except (FileExistsError, NotADirectoryError):
                raise InputError(f"trainer.root: {path.parent} is not a folder; choose another root") from None
            except OSError as error:
                raise InputError(f"trainer.root: cannot make {path}: {error.strerror}; choose another root") from None
        raise InputError(f"trainer.name: {Path(root, str(name))} already exists; choose another name or remove it")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run, so that no other process works on it; the system lets go when this one ends.

        Raises:
            InputError: another process holds it, or it cannot be written.
        """
        try:
            descriptor = os.open(self.config, os.O_RDWR)  # some file systems lock nothing that is open for reading
        except OSError as error:
            raise InputError(f"ckpt_path: {self.config} cannot be written: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"ckpt_path: another process is at work on {self.path}; wait until it ends") from None
            except OSError:
                pass  # a file system without locks
            yield

    def discard(self) -> None:
        """Remove the folder of a run that does not begin."""
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end; without a ``summary.json`` that can be read it has to be repeated."""
        with contextlib.suppress(OSError, ValueError):
            return bool(self.read_summary())
        return False

    def read_config(self) -> Any:
        """What ``config.yaml`` holds; None if it cannot be read."""
        try:
            return parse_config(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            return None

    def tables(self) -> dict[str, str]:
        """What the tables hold so far, by file name."""
        files = (self.metrics, self.clients)
        return {path.name: path.read_text(encoding="utf-8") for path in files if path.exists()}

    def put_back(self, tables: Mapping[str, str]) -> None:
        """Have the tables hold again what :meth:`tables` has returned, and nothing if that has none of them."""
        for path in (self.metrics, self.clients):
            if path.name in tables:
                replace(path, tables[path.name])
            else:
                path.unlink(missing_ok=True)

    def write_round(self, record: RoundRecord) -> None:
        """Append a round to ``metrics.csv`` and its clients to ``clients.csv``."""
        place = {"task": record.task + 1, "round": record.round + 1}
        row: State = {
            **place,
            "accuracy": record.accuracy,
            "average_accuracy": record.average_accuracy,
            "forgetting": record.forgetting,
            "loss": record.loss,
            **record.state,
            "seconds": record.seconds,
            "bytes_sent": record.bytes_sent,
            "bytes_received": record.bytes_received,
        }
        append_rows(self.metrics, [row])
        clients: list[State] = [
            {**place, "client": c.client, "samples": c.samples, "steps": c.steps, "loss": c.loss, **c.state}
            for c in record.clients
        ]
        append_rows(self.clients, clients)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, whole or not at all; NaN and infinity become null."""
        lines = (f"  {json.dumps(key)}: {_json(value)}" for key, value in summary.items())
        replace(self.summary, "{\n" + ",\n".join(lines) + "\n}\n")

    def read_metrics(self) -> list[dict[str, float]]:
        """The rows of ``metrics.csv``; blank is NaN."""
        return read_rows(self.metrics)

    def read_clients(self) -> list[dict[str, float]]:
        """The rows of ``clients.csv``; blank is NaN."""
        return read_rows(self.clients)

    def read_summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds; empty if the run has not ended.

        Raises:
            ValueError: it is damaged.
        """
        return _read_object(self.summary)

    def write_made_with(self, made_with: Mapping[str, Any]) -> None:
        """Write ``made_with.json``: what the results depend on, in plain numbers and words, to compare others with.

        Raises:
            InputError: the disk refuses.
        """
        with writing(self.made_with):
            replace(self.made_with, json.dumps(made_with) + "\n")

    def read_made_with(self) -> dict[str, Any]:
        """What ``made_with.json`` holds; empty if there is none that can be read."""
        with contextlib.suppress(OSError, ValueError):
            return _read_object(self.made_with)
        return {}

    def write_places(self, places: Mapping[str, Any]) -> None:
        """Write ``sweep.json``: by experiment, its title and views and where in its grid the run lies."""
        replace(self.places, json.dumps(places, indent=2) + "\n")

    def read_places(self) -> dict[str, Any]:
        """What ``sweep.json`` holds; empty if the run is of no sweep.

        Raises:
            ValueError: it is damaged.
        """
        places = _read_object(self.places)
        check_places(places)
        return places


def numbered(name: str) -> Iterator[str]:
    """The name, then ``name-2``, ``name-3``, ... without end, to take the first that is free."""
    yield name
    yield from (f"{name}-{number}" for number in itertools.count(2))


def _make(path: Path, config: str) -> bool:
    """Make a folder that has its config from the first moment on; False if another process was quicker."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale_drafts(path.parent)
    draft.mkdir()
    (draft / "config.yaml").write_text(config, encoding="utf-8")
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not path.exists():
            raise
        return False
    return True


def _remove_stale_drafts(root: Path) -> None:
    """Remove the drafts of runs that were killed as they made their folder; one that is being made is left alone."""
    for draft in root.glob(f".*.{'[0-9a-f]' * 8}"):
        with contextlib.suppress(OSError):
            age = time.time() - draft.stat().st_mtime
            if age > STALE_SECONDS and {path.name for path in draft.iterdir()} <= {"config.yaml"}:
                shutil.rmtree(draft)


def _read_object(path: Path) -> dict[str, Any]:
    """What a JSON file holds; empty if there is none."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return content


def _json(value: Any) -> str:
    """JSON on one line, a matrix with a line a row."""
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        return "[\n    " + ",\n    ".join(map(_json, value)) + "\n  ]"
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False)


def _finite(value: Any) -> Any:
    """The value with null in the place of a number JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
