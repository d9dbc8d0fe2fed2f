"""Whole runs from command to exit, beside what a plain eager loop would take for the same steps.

    python benchmarks/run.py --config cifar100.yaml
    python benchmarks/run.py --seeds 0 1 2 --config cifar100.yaml --model.replay_statistics per_task

What follows the options of this script goes to ``fedqcl fit``. Each run prints a line of JSON: seconds from command to
exit, of these in training, accuracy, forgetting and memory; the seconds that a plain loop in the authors' manner would
need for its steps, from steps timed here on the same card right after; and the time the arithmetic alone would take at
the card's peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from step import PEAK, B, flop_per_image, milliseconds, plain_round

from fedqcl.run.folder import RunFolder

FIGURES = (
    "average_accuracy", "forgetting", "last_task_accuracy", "train_seconds", "client_steps", "device",
    "memory_estimate", "memory_peak", "queue_matrix", "seed", "versions",
)  # fmt: skip


def run(words: list[str], seed: int, root: Path) -> dict[str, Any]:
    """One run as a user starts it; its figures."""
    name = f"seed{seed}-{time.time_ns()}"
    command = [sys.executable, "-m", "fedqcl", "fit", *words]
    start = time.perf_counter()
    subprocess.run(
        [*command, "--seed_everything", str(seed), "--trainer.root", str(root), "--trainer.name", name],
        check=True,
        stdout=sys.stderr,
    )
    seconds = time.perf_counter() - start
    summary = RunFolder(root / name).read_summary()
    steps = steps_per_task(RunFolder(root / name))
    return {
        "command": " ".join(["fedqcl fit", *words]),
        "seconds": round(seconds, 1),
        **{key: summary[key] for key in FIGURES},
        "steps_per_task": steps,
    }


def steps_per_task(folder: RunFolder) -> list[int]:
    """Client-steps taken in each task."""
    steps: dict[int, int] = {}
    for row in folder.read_clients():
        steps[int(row["task"])] = steps.get(int(row["task"]), 0) + int(row["steps"])
    return [steps[task] for task in sorted(steps)]


def compare(row: dict[str, Any], plain: list[float], precision: str, replays: bool) -> dict[str, Any]:
    """How the run stands beside the plain loop and the floor; batches are :data:`B`, and as many of each past task."""
    steps = row["steps_per_task"]
    batches = [1 + past * replays for past in range(len(steps))]
    slow = sum(n * plain[past * replays] for past, n in enumerate(steps)) / 1e3
    floor = sum(n * k for n, k in zip(steps, batches, strict=True)) * B * flop_per_image() / PEAK[precision]
    return {
        "plain_seconds": round(slow),
        "times_faster": round(slow / row["seconds"], 1),
        "floor_seconds": round(floor, 1),
        "share_of_peak": round(floor / row["train_seconds"], 3),
    }


def main() -> None:
    """Run every seed and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--precision", choices=list(PEAK), default="bf16-mixed", help="whose peak is the floor")
    parser.add_argument("--no-replay", action="store_true", help="the method replays nothing: FedAvg")
    parser.add_argument("--root", type=Path, default=None, help="where run folders go; a temporary folder by default")
    options, words = parser.parse_known_args()
    root = options.root or Path(tempfile.mkdtemp())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for seed in options.seeds:
        row = run(words, seed, root)
        plain = [milliseconds(plain_round(past, device, 20), 3) for past in range(len(row["steps_per_task"]))]
        row |= compare(row, plain, options.precision, not options.no_replay)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
