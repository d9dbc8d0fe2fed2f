"""Runs that are asked to stop on the way, and what must be the same in their files when they have been gone on with.

``python -m tests.helpers.stopped ROOT DEVICES...`` runs one small problem as a whole, and once more with a stop, each
part on another number of ranks. In a process of its own, as ranks are forked from it and leave their traces in its
environment.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedqcl.data import Augment, FederatedData
from fedqcl.errors import Interrupted
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL, Method
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import RoundRecord
from fedqcl.trainer import FederatedTrainer
from tests.helpers.process import contained
from tests.helpers.small import draw_no_pictures, small_net, small_trainer
from tests.helpers.toy import Toy, toy_learner


class Tripwire:
    """A logger that does something when a round is reported, by default sends its own process a signal.

    Args:
        task: the task, from 0.
        round: the round.
        act: what to do; given the record.
    """

    run_id = None

    def __init__(self, task: int, round: int, act: Callable[[RoundRecord], object] | None = None) -> None:
        self.place = (task, round)
        self.act = act or (lambda record: os.kill(os.getpid(), signal.SIGTERM))

    def round(self, record: RoundRecord) -> None:
        if (record.task, record.round) == self.place:
            self.act(record)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def small_data(**options: Any) -> FederatedData:
    """Three clients, one of them without samples of some task."""
    options = {"num_clients": 3, "tasks": 3, "alpha": 0.05, "batch_size": 8, "seed": 1, **options}
    return FederatedData(Toy(per_class=8, noise=150), augment=Augment(crop=1, flip=True), **options)


def small_learner(method: Method | None = None) -> Learner:
    return toy_learner(method or FedQCL(V=2, delta=-0.5, memory=9, replay_batch=3), net=small_net)


def fit(trainer: FederatedTrainer, ckpt_path: str | None = None, **parts: Any) -> dict[str, Any]:
    """A small run, or the rest of one."""
    with contained():
        learner = parts.get("learner") or small_learner()
        return trainer.fit(learner, parts.get("data") or small_data(), ckpt_path)


def stopped(
    trainer: FederatedTrainer, task: int, round: int, ckpt_path: str | None = None, **parts: Any
) -> Interrupted:
    """A small run up to a round, at whose end it is asked to stop."""
    trainer.logger = Tripwire(task, round)  # type: ignore[assignment]
    with pytest.raises(Interrupted) as stop:
        fit(trainer, ckpt_path, **parts)
    return stop.value


def outcome(path: Path) -> dict[str, Any]:
    """All that must be the same in a run's folder: everything but times and devices."""
    folder = RunFolder(path)
    unlike = {"device", "train_seconds", "wall_seconds"}
    return {
        "files": sorted(p.name for p in path.iterdir() if p.name != "plots"),
        "model": folder.checkpoint.read_bytes(),
        "clients": folder.clients.read_text(),
        "metrics": repr([{k: v for k, v in row.items() if k != "seconds"} for row in folder.read_metrics()]),
        "summary": {k: v for k, v in folder.read_summary().items() if k not in unlike},
    }


def main(root: Path, *devices: int) -> None:
    fit(small_trainer(root, name="whole"))
    first, *others = devices
    stopped(small_trainer(root, name="stopped", devices=first), 0, 1)
    for stop, count in enumerate(others[:-1]):
        stopped(small_trainer(root, devices=count), 1, stop, ckpt_path=str(root / "stopped"))
    fit(small_trainer(root, devices=others[-1]), ckpt_path=str(root / "stopped"))


if __name__ == "__main__":
    draw_no_pictures()
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
