"""What a run finds out about itself: times, accuracies, and one record a round."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import torch

from fedqcl.engine import Engine
from fedqcl.engine.averaging import gather
from fedqcl.engine.replica import Report
from fedqcl.evaluate import Evaluator
from fedqcl.methods import ClientState
from fedqcl.metrics import ContinualAccuracy, average_accuracy, forgetting
from fedqcl.run.log import RunLog
from fedqcl.run.records import ClientRecord, RoundRecord, State
from fedqcl.schedule import Schedule


class Tracker:
    """Tests the global model after every round and hands the records to the log.

    Args:
        evaluator: counts right answers.
        log: where records go; silent on all ranks but the first.
        schedule: tasks and rounds.
        bytes_per_client: what one client sends in a round, and receives.
    """

    def __init__(self, evaluator: Evaluator, log: RunLog, schedule: Schedule, bytes_per_client: int) -> None:
        self.evaluator = evaluator
        self.log = log
        self.schedule = schedule
        self.bytes_per_client = bytes_per_client
        self.metric = ContinualAccuracy(schedule.num_tasks, sync_on_compute=False)
        self.queues: list[list[float]] = []
        self.train_seconds = 0.0
        self.client_steps = 0
        self._started = 0.0

    def start_round(self) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def end_round(self, task: int, round: int, engine: Engine, reports: Sequence[Report]) -> None:
        """Stop the clock, test the global model and record the round.

        After a task's last round all tasks are tested, so that the accuracy matrix is whole; else those seen so far.
        """
        done = {report.client: report for report in reports}
        mine = [_record(i, len(engine.data.shards[task][i]), state, done.get(i)) for i, state in engine.clients.items()]
        clients = sorted(gather(mine), key=lambda c: c.client)
        seconds = time.perf_counter() - self._started
        self.train_seconds += seconds
        self.client_steps += sum(c.steps for c in clients)
        last = round == self.schedule.rounds - 1
        correct, total = self.evaluator.count(engine.server.net, self.schedule.num_tasks if last else task + 1)
        row = correct / total
        matrix = torch.cat([(self.metric.correct / self.metric.total)[:task], row[None]])
        if last:
            self.metric.add(correct, total, after=task)
        row[task + 1 :] = torch.nan
        traffic = self.bytes_per_client * sum(c.steps > 0 for c in clients)
        self._record = RoundRecord(
            task=task,
            round=round,
            accuracy=row.tolist(),
            average_accuracy=float(average_accuracy(matrix)),
            forgetting=float(forgetting(matrix)),
            loss=_weighted_loss(clients),
            seconds=seconds,
            bytes_sent=traffic,
            bytes_received=traffic,
            clients=clients,
        )
        self.log.round(self._record)

    def end_task(self, task: int) -> None:
        """Record the task's accuracies and queues."""
        self.queues.append(self._record.queue)
        self.log.task(self._record, self.metric.compute()["accuracy_matrix"].tolist())

    def summary(self) -> dict[str, Any]:
        """The run's figures: metrics as fractions, the accuracy and queue matrices, seconds and steps."""
        metrics = {name: value.tolist() for name, value in self.metric.compute().items()}
        return {
            **metrics,
            "queue_matrix": self.queues if any(self.queues) else None,
            "train_seconds": self.train_seconds,
            "client_steps": self.client_steps,
        }


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
