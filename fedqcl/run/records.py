"""What a run reports: plain records, written once a round, that the run folder, the console and W&B share.

Tasks, rounds and clients count from 0 here; whatever is printed or written counts tasks and rounds from 1. A
value that does not exist, such as the accuracy on a task not yet seen, is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

State: TypeAlias = dict[str, float | list[float]]
Matrix: TypeAlias = Sequence[Sequence[float]]


@dataclass(frozen=True)
class ClientRecord:
    """What one client did in a round.

    Attributes:
        client: the client's id.
        samples: images in its shard of the task.
        steps: local SGD steps; 0 if it sat the round out.
        loss: mean training loss over its steps; NaN if it had none.
        state: the method's diagnostics, each a number or a list with one a task, such as FedQCL's ``queue``.
    """

    client: int
    samples: int
    steps: int
    loss: float
    state: State = field(default_factory=dict)


@dataclass(frozen=True)
class RoundRecord:
    """One communication round.

    Attributes:
        task: the task being learned.
        round: the round within the task.
        accuracy: of the global model on each of the T tasks, fractions; NaN for a task not yet seen.
        average_accuracy: mean over the tasks seen, a fraction.
        forgetting: as a fraction; NaN in the first task.
        loss: mean of the clients' training losses, weighted by their samples.
        seconds: spent training, evaluation excluded.
        bytes_sent: from the clients to the server, all together; with what a task's end takes in its last round.
        bytes_received: from the server to the clients, likewise.
        clients: the clients, those included that sat the round out and keep their state.
    """

    task: int
    round: int
    accuracy: list[float]
    average_accuracy: float
    forgetting: float
    loss: float
    seconds: float
    bytes_sent: int
    bytes_received: int
    clients: list[ClientRecord]

    @cached_property
    def state(self) -> State:
        """Each diagnostic's mean over the clients that have a value for it."""
        names = dict.fromkeys(name for client in self.clients for name in client.state)
        return {name: _mean([c.state[name] for c in self.clients if name in c.state]) for name in names}

    @property
    def queue(self) -> list[float]:
        """Mean queue of each task over the clients [T]; empty if the method has none."""
        queue = self.state.get("queue", [])
        return queue if isinstance(queue, list) else [queue]

    @property
    def active(self) -> list[ClientRecord]:
        """The clients that took part."""
        return [client for client in self.clients if client.steps > 0]


@dataclass(frozen=True)
class RunInfo:
    """What is run, known before the first round.

    Attributes:
        name: the run's name, its folder's too.
        dataset: short name of the data set.
        method: name of the method.
        seed: the one seed everything is drawn from.
        num_clients: N.
        tasks: the class names of each task.
        rounds: C, communication rounds a task.
        devices: what it runs on, in words.
        config: the whole configuration, nested as in its file.
        split: one line on how heterogeneous the clients' shards are.
        versions: of Python and the libraries, by name.
        scenario: ``task`` (incremental): the task of an image is known when it is classified; ``class``
            (incremental): it is not.
        memory: how much of a GPU's memory the run takes, in words; None on the CPU.
        evaluated_on: the images it is tested on: ``test`` or ``validation``, which are held out from training.
    """

    name: str
    dataset: str
    method: str
    seed: int
    num_clients: int
    tasks: list[list[str]]
    rounds: int
    devices: str
    config: dict[str, Any]
    split: str
    versions: dict[str, str]
    scenario: str = "task"
    memory: str | None = None
    evaluated_on: str = "test"


class Logger(Protocol):
    """Follows a run beside the run folder and the console."""

    @property
    def run_id(self) -> str | None:
        """By which the logger's run can be gone on with; None if it cannot."""

    def start(self, info: RunInfo, folder: Path, run_id: str | None = None, say: Callable[[str], None] = print) -> None:
        """Before the first round, or before the next one of a run that is gone on with.

        Args:
            info: what is run.
            folder: the run's folder.
            run_id: continues the run that had it.
            say: shows the user a line.
        """

    def round(self, record: RoundRecord) -> None:
        """After a round."""

    def task(self, record: RoundRecord, matrix: Matrix, queues: Matrix) -> None:
        """After a task: its last round, the accuracy matrix so far [T, T], and the mean queues after each task."""

    def finish(self, summary: dict[str, Any]) -> None:
        """After the last task."""

    def stop(self) -> None:
        """In the place of ``finish`` when the run has been asked to stop, and may be gone on with."""

    def fail(self) -> None:
        """In the place of ``finish`` when the run fails."""


def mean(values: Iterable[float]) -> float:
    """Mean, NaN left out; summed exactly, so that the order does not matter. NaN if nothing is left."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _mean(values: Sequence[float | list[float]]) -> float | list[float]:
    if isinstance(values[0], list):
        return [mean(column) for column in zip(*cast(list[list[float]], values), strict=True)]
    return mean(cast(list[float], values))
