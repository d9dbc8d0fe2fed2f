"""All methods on one data set, and what the authors' code makes of it: runs, and the tables made of them.

    python benchmarks/methods.py fair cifar100 --results benchmarks/results/NAME
    python benchmarks/methods.py authors cifar100 --results benchmarks/results/NAME --only FedQCL FedAvg
    python benchmarks/methods.py table cifar100 --results benchmarks/results/NAME

Runs are spread over the visible GPUs, one on each at a time. What has its ``RUN.json`` among the results is done. Words
after ``--`` go to every run, such as ``-- --data.source Npz --data.source.path cifar100.npz``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedqcl.report.paper import printed_in

DATA = ("cifar10", "cifar100", "tinyimagenet")
SCENARIOS = {
    "task": [],
    "class": ["--data.scenario=class", "--data.alpha=1e5"],
    "class-0.1": ["--data.scenario=class", "--data.alpha=0.1"],
}
METHODS = [
    "FedAvg", "FedProx", "FedProto", "EWC", "LwF", "ER", "DER", "DERpp", "CCVR", "FOT", "BI", "ConstantReplay",
    "FedQCL",
]  # fmt: skip
# The DER authors' best for a memory of 500.
OPTIONS = {
    ("DER", "cifar10"): ["--model.method.alpha=0.3"],
    ("DER", "cifar100"): ["--model.method.alpha=0.3"],
    ("DER", "tinyimagenet"): ["--model.method.alpha=0.1"],
    ("DERpp", "cifar10"): ["--model.method.alpha=0.2", "--model.method.beta=0.5"],
    ("DERpp", "cifar100"): ["--model.method.alpha=0.1", "--model.method.beta=0.5"],
    ("DERpp", "tinyimagenet"): ["--model.method.alpha=0.2", "--model.method.beta=0.5"],
}
# What presets/authors.yaml says, the other way.
TAKEN_BACK = [
    "trainer.weighting=task",
    "trainer.personal=nothing",
    "trainer.evaluation=server",
    "model.method.batch_means=false",
    "model.method.train_mode=false",
    "model.method.pollute=false",
    "model.method.trim_before_queue=false",
    "data.equalise=false",
    "data.sampling=shuffled",
    "data.augment.frozen=false",
]
# Which of the paper's tables has the figures of a data set and scenario.
PAPER = {
    ("cifar10", "task"): "Table 1, Split-CIFAR-10",
    ("cifar100", "task"): "Table 1, Split-CIFAR-100",
    ("tinyimagenet", "task"): "Table 1, Split-TinyImageNet",
    ("cifar100", "class"): "Table 4, alpha 1e5",
    ("cifar100", "class-0.1"): "Table 4, alpha 0.1",
}


class Run(NamedTuple):
    """One ``fedqcl fit``.

    Attributes:
        plan: ``fair`` or ``authors``.
        data: the data set's config.
        scenario: a key of :data:`SCENARIOS`.
        what: the method, or what else is special about it.
        seed: its seed.
        words: what follows ``fedqcl fit``.
    """

    plan: str
    data: str
    scenario: str
    what: str
    seed: int
    words: list[str]

    @property
    def name(self) -> str:
        """Of its folder and its file."""
        return "-".join(map(str, self[:5])).replace("=", "-")


def planned(plan: str, data: str, scenario: str, seed: int) -> Iterator[Run]:
    """All runs of one scenario."""
    base = [f"--config={data}.yaml", f"--config=presets/{plan}{f'/{data}' if plan == 'fair' else ''}.yaml"]
    fixed = [f"--seed_everything={seed}", *SCENARIOS[scenario]]

    def run(what: str, *words: str) -> Run:
        return Run(plan, data, scenario, what, seed, [*base, *words, *fixed])

    if plan == "authors":
        yield run("FedQCL")
        yield run("FedAvg", "--model.method=FedAvg")
        yield run("FedAvg-fair-lr", f"--config=presets/fair/{data}.yaml", "--model.method=FedAvg")
        for option in TAKEN_BACK:
            yield run(f"FedQCL-{option}", f"--{option}")
        return
    for control in ("joint", "independent"):
        yield run(control, f"--config=presets/{control}.yaml")
    for method in METHODS:
        if not (method == "FOT" and scenario != "task"):
            yield run(method, f"--model.method={method}", *OPTIONS.get((method, data), ()))


def make(runs: list[Run], results: Path, extra: list[str]) -> None:
    """Make the runs that are not done, one on each GPU at a time."""
    results.mkdir(parents=True, exist_ok=True)
    waiting: queue.SimpleQueue[Run] = queue.SimpleQueue()
    for run in runs:
        if not (results / f"{run.name}.json").exists():
            waiting.put(run)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    cards = visible.split(",") if visible else [str(card) for card in range(torch.cuda.device_count())] or [""]

    def work(card: str) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                make_one(waiting.get_nowait(), card, results, extra)

    with ThreadPoolExecutor(len(cards)) as workers:
        list(workers.map(work, cards))


def make_one(run: Run, card: str, results: Path, extra: list[str]) -> None:
    """Make one run, and keep its summary."""
    root = Path(tempfile.mkdtemp())
    words = [*run.words, *extra, f"--trainer.root={root}", "--trainer.name=run", "--trainer.devices=1"]
    command = [sys.executable, "-m", "fedqcl", "fit", *words, "--trainer.logger=null", "--quiet"]
    done = subprocess.run(command, env={**environ, "CUDA_VISIBLE_DEVICES": card}, capture_output=True, text=True)
    if done.returncode == 0:
        summary = json.loads((root / "run" / "summary.json").read_text(encoding="utf-8"))
        kept = {**run._asdict(), "extra": extra, **summary}
        (results / f"{run.name}.json").write_text(json.dumps(kept) + "\n", encoding="utf-8")
        print(f"{run.name}: {summary['average_accuracy']:.4f} in {summary['wall_seconds']:.0f} s", flush=True)
    else:
        print(f"{run.name}: failed\n{done.stderr[-2000:]}", flush=True)
    shutil.rmtree(root)


def tables(data: str, results: Path) -> str:
    """Markdown: what came out beside the paper's figures, and what it cost."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))]
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for run in found:
        if run["data"] == data:
            groups.setdefault((run["plan"], run["scenario"]), {}).setdefault(run["what"], []).append(run)
    return "\n".join(line for key, group in groups.items() for line in _table(data, *key, group))


def _table(data: str, plan: str, scenario: str, group: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    table = PAPER.get((data, scenario))
    paper = printed_in(table) if table else {}
    devices = sorted({run["device"] for runs in group.values() for run in runs})
    yield f"\n`{plan}`, {data}, scenario {scenario}, on {', '.join(devices)}\n"
    yield (
        "| what | accuracy % | forgetting | learning % | last task % | paper: accuracy % | forgetting | seconds "
        "| sent, received a round MB | at a task's end MB | stored MB | images a step |"
    )
    yield "|---|" + "--:|" * 10 + "---|"
    order = {name: place for place, name in enumerate(["independent", *METHODS, "joint"])}
    for what, runs in sorted(group.items(), key=lambda item: order.get(item[0], -1)):
        costs, printed = runs[0]["costs"], paper.get(what.split("-")[0])
        mega = [
            f"{costs[f'bytes_{way}_per_{when}'] / 1e6:.1f}"
            for when in ("round", "task")
            for way in ("sent", "received")
        ]
        cells = [
            what,
            _mean(runs, "average_accuracy", 100, 1),
            _mean(runs, "forgetting", 1, 3),
            _mean(runs, "learning_accuracy", 100, 1),
            _mean(runs, "last_task_accuracy", 100, 1),
            *([f"{printed.average_accuracy:.2f}", f"{printed.forgetting:g}"] if printed else ["", ""]),
            _mean(runs, "wall_seconds", 1, 0),
            ", ".join(mega[:2]),
            ", ".join(mega[2:]),
            f"{costs['client_storage_bytes'] / 1e6:.1f}",
            " ".join(map(str, costs["gradient_images_per_step"])),
        ]
        yield f"| {' | '.join(cells)} |"


def _mean(runs: list[dict[str, Any]], key: str, scale: float, digits: int) -> str:
    values = [scale * run[key] for run in runs]
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def main(words: list[str]) -> None:
    """Run a plan, or print its tables."""
    own = words[: words.index("--")] if "--" in words else words
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", choices=["fair", "authors", "table"])
    parser.add_argument("data", choices=DATA)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=["task", "class"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--only", nargs="+", help="methods, controls, or what else a run's name has")
    given = parser.parse_args(own)
    if given.plan == "table":
        print(tables(given.data, given.results))
        return
    scenarios = ["task"] if given.plan == "authors" else given.scenarios
    runs = [
        run
        for seed in given.seeds
        for scenario in scenarios
        for run in planned(given.plan, given.data, scenario, seed)
        if not given.only or run.what in given.only
    ]
    make(runs, given.results, words[len(own) + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
