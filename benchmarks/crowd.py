"""Many clients on one GPU: time of a client-step and memory, against ten clients.

    python benchmarks/crowd.py

A thousand clients of whom 5 % take part in a round, and ten who all do, every client with as many images and steps, and
as many at work at once. Whole rounds of Algorithm 1 are timed: seating, local steps, queues and aggregation.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch
from lightning.fabric import Fabric
from step import Noise, synchronize

from fedqcl import loop
from fedqcl.data import Augment, FederatedData
from fedqcl.engine import Engine
from fedqcl.engine.memory import peak_memory
from fedqcl.engine.replica import Report
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL
from fedqcl.schedule import Schedule

ROUNDS, IMAGES, CONCURRENCY = 6, 400, 5


class Stopwatch:
    """In the place of a run's tracker: milliseconds a client-step of every round, by task."""

    def __init__(self) -> None:
        self.rounds: list[list[float]] = [[]]

    def start_round(self) -> None:
        """Start the clock."""
        synchronize()
        self.started = time.perf_counter()

    def end_round(self, task: int, round: int, engine: Engine, reports: Sequence[Report]) -> None:
        """Stop it."""
        synchronize()
        steps = sum(report.steps for report in reports)
        self.rounds[-1].append((time.perf_counter() - self.started) / steps * 1e3)

    def end_task(self, task: int, engine: Engine) -> None:
        """Start the next task's list."""
        self.rounds.append([])


def measure(num_clients: int, participation: float) -> dict[str, object]:
    """Two tasks, the second with replay; the median round of each, its first, with the captures, left out."""
    data = FederatedData(Noise(), num_clients=num_clients, tasks=2, alpha="iid", augment=Augment(crop=4, flip=True))
    data.setup()
    rng = np.random.default_rng(0)
    data.shards = [
        [rng.choice(np.concatenate(task), IMAGES, replace=False) for _ in range(num_clients)] for task in data.shards
    ]
    fabric = Fabric(accelerator="auto", devices=1, precision="bf16-mixed")
    torch.cuda.reset_peak_memory_stats()
    learner = Learner(FedQCL())
    engine = Engine(fabric, learner, data, epochs=5, concurrency=CONCURRENCY)
    watch = Stopwatch()
    loop.fit(learner.method, engine, Schedule(2, ROUNDS, num_clients, participation, 0), watch)  # type: ignore[arg-type]
    return {
        "clients": num_clients,
        "participation": participation,
        "ms_per_client_step": [round(statistics.median(task[1:]), 4) for task in watch.rounds[:2]],
        "memory_gib": round((peak_memory(fabric.device) or 0) / 2**30, 2),
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    """Print a line of JSON for each."""
    for num_clients, participation in ((10, 1.0), (1000, 0.05)):
        print(json.dumps(measure(num_clients, participation)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
