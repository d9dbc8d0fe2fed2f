"""A small run as the trainer would report it: made up, but of the right shape."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from fedqcl.run import ClientRecord, RoundRecord, RunInfo


def run_info(tasks: int = 4, rounds: int = 3, clients: int = 5, **changes: object) -> RunInfo:
    fields: dict[str, object] = {
        "name": "digits-fedqcl-0",
        "dataset": "digits",
        "method": "FedQCL",
        "seed": 0,
        "num_clients": clients,
        "tasks": [[str(2 * task), str(2 * task + 1)] for task in range(tasks)],
        "rounds": rounds,
        "devices": "cpu, 2 processes",
        "config": {
            "seed_everything": 0,
            "model": {"method": {"class_path": "fedqcl.methods.FedQCL", "init_args": {"V": 20.0, "delta": 1.0}}},
            "data": {"num_clients": clients, "alpha": 10.0, "source": {"init_args": {"api_key": "hush"}}},
        },
        "split": "Dirichlet alpha 10: 2.0 of 2 classes a client, shards of 41 / 57 / 73 images",
        "versions": {"python": "3.11", "torch": "2.14.1"},
    }
    return RunInfo(**{**fields, **changes})  # type: ignore[arg-type]


def run_records(
    tasks: int = 4, rounds: int = 3, clients: int = 5, queues: bool = True, participants: int | None = None
) -> Iterator[RoundRecord]:
    """Every round of the run, with forgetting that the queues answer."""
    rng = random.Random(0)
    best = [0.0] * tasks
    queue = [[0.0] * tasks for _ in range(clients)]
    for task in range(tasks):
        for round_ in range(rounds):
            progress = (round_ + 1) / rounds
            accuracy = [math.nan] * tasks
            for j in range(task + 1):
                age = task - j
                learned = 0.5 + 0.45 * math.sqrt(progress) if age == 0 else 0.93 - 0.25 * (1 - 0.75**age) * progress
                accuracy[j] = min(learned + rng.uniform(-0.02, 0.02), 1.0)
                best[j] = max(best[j], accuracy[j]) if age == 0 else best[j]
            active = rng.sample(range(clients), participants or clients)
            records = []
            for client in range(clients):
                past = [queue[client][j] if j < task else math.nan for j in range(tasks)]
                if client in active:
                    past[:task] = [max(past[j] + rng.uniform(-0.3, 1.5) / (task - j), 0.0) for j in range(task)]
                    queue[client][:task] = past[:task]
                energy = 0.5 * math.fsum(q * q for q in past[:task])
                state: dict[str, float | list[float]] = {}
                if queues:
                    state = {"queue": past, "lyapunov": energy, "drift": 0.1 * energy, "drift_bound": 0.2 * energy}
                samples = 57 + 4 * client
                steps, loss = (5 * math.ceil(samples / 13), 0.9 - 0.5 * progress) if client in active else (0, math.nan)
                records.append(ClientRecord(client, samples, steps, loss, state))
            seen = accuracy[: task + 1]
            yield RoundRecord(
                task=task,
                round=round_,
                accuracy=accuracy,
                average_accuracy=math.fsum(seen) / len(seen),
                forgetting=math.fsum(best[j] - accuracy[j] for j in range(task)) / task if task else math.nan,
                loss=0.9 - 0.5 * progress,
                seconds=0.8 + 0.1 * round_,
                bytes_sent=len(active) * 320_000,
                bytes_received=len(active) * 320_000,
                clients=records,
            )


def accuracy_matrix(records: list[RoundRecord]) -> list[list[float]]:
    """Accuracies after each task [T, T]; NaN above the diagonal and below the last finished task."""
    rows = {record.task: record.accuracy for record in records}
    T = len(records[0].accuracy)
    return [rows.get(task, [math.nan] * T) for task in range(T)]


def run_summary(records: list[RoundRecord], **more: object) -> dict[str, object]:
    last = records[-1]
    return {
        "average_accuracy": last.average_accuracy,
        "forgetting": last.forgetting,
        "backward_transfer": -last.forgetting,
        "last_task_accuracy": last.accuracy[-1],
        "learning_accuracy": 0.95,
        "accuracy_matrix": accuracy_matrix(records),
        "wall_seconds": 306.2,
        "seed": 0,
        "versions": {"python": "3.11"},
        **more,
    }
