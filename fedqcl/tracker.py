"""What a run finds out about itself: times, accuracies, and one record a round."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedqcl.costs import Costs
from fedqcl.engine import Engine
from fedqcl.engine.averaging import gather
from fedqcl.engine.pulse import busy
from fedqcl.engine.replica import Report
from fedqcl.evaluate import Evaluator
from fedqcl.methods import ClientState
from fedqcl.metrics import ContinualAccuracy, average_accuracy, forgetting
from fedqcl.run.console import duration
from fedqcl.run.log import SilentLog
from fedqcl.run.records import ClientRecord, RoundRecord, State
from fedqcl.schedule import Schedule

SLOW_END = 5.0  # seconds from which on the end of a task is told; no figure has them


class Tracker:
    """Tests the global model after every round and hands the records to the log.

    Args:
        evaluator: counts right answers.
        log: where records go; silent on all ranks but the first.
        schedule: tasks and rounds.
        costs: counts what the clients send, receive and store.
        started: when the run was started, by ``time.perf_counter``; now by default.
    """

    def __init__(
        self, evaluator: Evaluator, log: SilentLog, schedule: Schedule, costs: Costs, started: float | None = None
    ) -> None:
        self.evaluator = evaluator
        self.log = log
        self.schedule = schedule
        self.costs = costs
        self.metric = ContinualAccuracy(schedule.num_tasks, sync_on_compute=False)
        self.queues: list[list[float]] = []
        self.train_seconds = 0.0
        self.client_steps = 0
        self.wall_started = time.perf_counter() if started is None else started
        self._started = self._seconds = 0.0
        self._clients: list[ClientRecord] = []
        self._traffic = (0, 0)

    def start_round(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def end_round(self, task: int, round: int, engine: Engine, reports: Sequence[Report]) -> None:
        """Stop the clock, and gather what the clients did; test the global model unless the task ends here.

        Args:
            task: the task.
            round: the round within it.
            engine: hosts the run.
            reports: what the local steps of this rank's clients came to.
        """
        done = {report.client: report for report in reports}
        mine = [_record(i, len(engine.data.shards[task][i]), state, done.get(i)) for i, state in engine.clients.items()]
        self._clients = sorted(gather(mine), key=lambda client: client.client)
        self._warn_of_faults(engine)
        self._seconds = time.perf_counter() - self._started
        self.train_seconds += self._seconds
        self.client_steps += sum(client.steps for client in self._clients)
        self._traffic = self.costs.end_round(sum(client.steps > 0 for client in self._clients))
        if not self.schedule.is_last(round):
            correct, total = self.evaluator.count(engine.server.net, task + 1)
            record = self._round_record(task, round, correct / total)
            with busy():
                self.log.round(record)

    def end_task(self, task: int, engine: Engine) -> None:
        """Test the model that the task leaves behind, on all tasks, so that the accuracy matrix is whole."""
        correct, total = self.evaluator.count(engine.server.net, self.schedule.num_tasks, newest=task)
        sent, received = self.costs.end_task()
        self._traffic = (self._traffic[0] + sent, self._traffic[1] + received)
        record = self._round_record(task, self.schedule.rounds - 1, correct / total)
        self.metric.add(correct, total, after=task)
        self._warn_of_faults(engine)
        self.queues.append(record.queue)
        seconds = time.perf_counter() - self._started - self._seconds  # since the last round
        with busy():
            self.log.round(record)
            if seconds >= SLOW_END:
                self.log.say(f"task {task + 1} took {duration(seconds)} to end, after its rounds")
            self.log.task(record, self.metric.matrix.tolist(), self.queues)

    def _warn_of_faults(self, engine: Engine) -> None:
        for line in gather(engine.faults.take_lines()):
            self.log.warn(line)

    def _round_record(self, task: int, round: int, row: Tensor) -> RoundRecord:
        matrix = torch.cat([self.metric.matrix[:task], row[None]])
        return RoundRecord(
            task=task,
            round=round,
            accuracy=[*row[: task + 1].tolist(), *[math.nan] * (len(row) - task - 1)],
            average_accuracy=float(average_accuracy(matrix)),
            forgetting=float(forgetting(matrix)),
            loss=_weighted_loss(self._clients),
            seconds=self._seconds,
            bytes_sent=self._traffic[0],
            bytes_received=self._traffic[1],
            clients=self._clients,
        )

    def summary(self) -> dict[str, Any]:
        """The run's figures: metrics as fractions, the accuracy and queue matrices, seconds and steps."""
        metrics = {name: value.tolist() for name, value in self.metric.compute().items()}
        return {
            **metrics,
            "accuracy_matrix": self.metric.matrix.tolist(),
            "queue_matrix": self.queues if any(self.queues) else None,
            "train_seconds": self.train_seconds,
            "client_steps": self.client_steps,
            "costs": self.costs.summary(),
            "wall_seconds": time.perf_counter() - self.wall_started,
        }

    def state(self) -> dict[str, Any]:
        """What has been counted so far, in plain numbers."""
        return {
            "correct": self.metric.correct.tolist(),
            "total": self.metric.total.tolist(),
            "queues": [list(row) for row in self.queues],
            "train_seconds": self.train_seconds,
            "client_steps": self.client_steps,
            "costs": self.costs.state(),
            "wall_seconds": time.perf_counter() - self.wall_started,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Go on counting from what :meth:`state` has returned."""
        for task in range(len(state["queues"])):
            correct, total = (torch.tensor(state[name][task], dtype=torch.float64) for name in ("correct", "total"))
            self.metric.add(correct, total, after=task)
        self.queues = [list(row) for row in state["queues"]]
        self.train_seconds = state["train_seconds"]
        self.client_steps = state["client_steps"]
        self.costs.load(state["costs"])
        self.wall_started -= state["wall_seconds"]


def _record(client: int, samples: int, state: ClientState, report: Report | None) -> ClientRecord:
    """A client's record; one that sat the round out took no steps and keeps its state."""
    diagnostics: State = {name: value.tolist() for name, value in state.diagnostics().items()}
    steps, loss = (report.steps, float(report.loss) / report.steps) if report else (0, math.nan)
    return ClientRecord(client, samples, steps, loss, diagnostics)


def _weighted_loss(clients: Sequence[ClientRecord]) -> float:
    """Mean loss of the clients that took steps, weighted by their samples."""
    busy = [c for c in clients if c.steps > 0]
    samples = sum(c.samples for c in busy)
    return math.fsum(c.loss * c.samples for c in busy) / samples if samples else math.nan
