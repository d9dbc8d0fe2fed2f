"""Time of one client-step, by executor, past tasks, clients at once and precision.

    python benchmarks/step.py                      on one CUDA device, the table of the documentation
    python benchmarks/step.py --past 0 4 --clients 5 --precision bf16-mixed

The images are noise of CIFAR-100's shape: speed does not depend on what they show. Each row is the median of several
rounds after a first one, beside a plain eager loop in the authors' manner timed in the same process, and the time the
arithmetic alone would take at the card's peak.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from lightning.fabric import Fabric
from plain import PlainClient, plain_net
from torch.utils.flop_counter import FlopCounterMode

from fedqcl.data import Augment, FederatedData
from fedqcl.data.sources import ImageSet, Source
from fedqcl.engine import Engine
from fedqcl.learner import Learner
from fedqcl.methods import FedQCL
from fedqcl.rng import Purpose, generator

TASKS, CLASSES, B = 5, 100, 13
PEAK = {"bf16-mixed": 990e12, "32-true": 67e12}  # dense FLOP/s of an H100 or H200 SXM, by its datasheet


class Noise(Source):
    """Random images, as many and as large as CIFAR-100's."""

    def load(self) -> ImageSet:
        """Draw them."""
        rng = np.random.default_rng(0)
        x = rng.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
        y = np.arange(len(x)) % CLASSES
        return ImageSet.of(x, y, x[:CLASSES], y[:CLASSES])


def make_engine(data: FederatedData, executor: str, precision: str, clients: int, statistics_: str) -> Engine:
    """One client-round is one epoch."""
    cuda = torch.cuda.is_available()
    fabric = Fabric(accelerator="cuda" if cuda else "cpu", devices=1, precision=precision)
    fabric.launch()
    learner = Learner(FedQCL(), replay_statistics=statistics_)
    return Engine(fabric, learner, data, epochs=1, executor=executor, concurrency=clients)


def give_past(engine: Engine, past: int) -> None:
    """Let every client remember ``past`` tasks, with queues that are not empty."""
    for i, state in engine.clients.items():
        for task in range(past):
            rng = generator(0, Purpose.MEMORY, client=i, task=task)
            state.memory.store(task, engine.data.shards[task][i], rng)
        state.queue.value[:past] = 5.0


def round_of(engine: Engine, past: int, clients: int) -> Callable[[], int]:
    """A round of the first clients at task ``past``; it returns the steps taken."""

    def run() -> int:
        steps = 0
        for locals in engine.broadcast(range(clients), past):
            engine.local_steps(locals, 0)
            steps += sum(len(local.stream) for local in locals)
        return steps

    return run


def plain_round(past: int, device: torch.device, steps: int) -> Callable[[], int]:
    """Steps of the plain loop on images that are on the device already."""
    client = PlainClient(CLASSES, past, device)
    batches = [
        (torch.randn(B, 3, 32, 32, device=device), torch.randint(CLASSES, (B,), device=device)) for _ in range(past + 1)
    ]

    def run() -> int:
        for _ in range(steps):
            client.step(batches[0], batches[1:])
        return steps

    return run


def milliseconds(run: Callable[[], int], repeats: int) -> float:
    """Median time of a step, the first round left out."""
    run()
    times = []
    for _ in range(repeats):
        synchronize()
        start = time.perf_counter()
        steps = run()
        synchronize()
        times.append((time.perf_counter() - start) / steps * 1e3)
    return statistics.median(times)


def synchronize() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def flop_per_image() -> float:
    """Arithmetic of one image's forward and backward pass."""
    with FlopCounterMode(display=False) as counter:
        plain_net(CLASSES)(torch.zeros(2, 3, 32, 32)).sum().backward()
    return counter.get_total_flops() / 2


def main() -> None:
    """Time every combination and print a table and a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, nargs="+", default=[0, 2, 4])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--executor", nargs="+", default=["graphed" if torch.cuda.is_available() else "eager"])
    parser.add_argument("--precision", nargs="+", default=["bf16-mixed"] if torch.cuda.is_available() else ["32-true"])
    parser.add_argument("--statistics", nargs="+", default=["joint", "per_task"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plain-steps", type=int, default=20)
    options = parser.parse_args()
    data = FederatedData(Noise(), tasks=TASKS, alpha="iid", batch_size=B, augment=Augment(crop=4, flip=True))
    data.setup()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    card = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    print(f"{card}, torch {torch.__version__}, ms per client-step")
    flop = flop_per_image()
    plain = {
        past: milliseconds(plain_round(past, device, options.plain_steps), options.repeats) for past in options.past
    }
    for executor in options.executor:
        for precision in options.precision:
            for statistics_ in options.statistics:
                for clients in options.clients:
                    engine = make_engine(data, executor, precision, clients, statistics_)
                    for past in options.past:
                        give_past(engine, past)
                        ms = milliseconds(round_of(engine, past, clients), options.repeats)
                        floor = flop * B * (1 + past) / PEAK[precision] * 1e3
                        row = {
                            "executor": executor, "precision": precision, "statistics": statistics_,
                            "clients": clients, "past": past, "ms": round(ms, 4), "plain_ms": round(plain[past], 3),
                            "times_faster": round(plain[past] / ms, 1), "floor_ms": round(floor, 4),
                        }  # fmt: skip
                        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
