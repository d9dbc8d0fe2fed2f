"""Folders of made-up runs, of the shape that real ones have: quick to write, a thousand of them too."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fedqcl.cli.configs import find_config, find_experiment, read_config, read_experiment
from fedqcl.run import RunFolder
from fedqcl.sweep import Experiment, Planned
from fedqcl.sweep.known import mark


def write_runs(root: Path, name: str, overrides: Sequence[str] = ()) -> list[Path]:
    """Write every run of a shipped experiment."""
    experiment = Experiment(name, read_experiment(find_experiment(name)), overrides)
    return [write_run(root / name / planned.name, experiment, planned) for planned in experiment.runs()]


def write_run(path: Path, experiment: Experiment, planned: Planned) -> Path:
    path.mkdir(parents=True)
    folder = RunFolder(path)
    config = _config(planned)
    folder.config.write_text(yaml.safe_dump(config), encoding="utf-8")
    method = config["model"]["method"]["class_path"]
    folder.write_summary(made_up_summary(method, int(config["data"]["tasks"]), config["seed_everything"], planned.name))
    mark(folder, experiment, planned)
    return path


def _config(planned: Planned) -> dict[str, Any]:
    """The base config with the run's options, as ``config.yaml`` would have them."""
    config = read_config(find_config(planned.configs[0]))
    for key, value in sorted(planned.options.items(), key=lambda item: item[0].count(".")):
        group, *names = key.split(".")
        if not names:
            config[group] = value
        elif len(names) == 1 and isinstance(config[group].get(names[0]), dict):
            config[group][names[0]] = {"class_path": f"fedqcl.{value}", "init_args": {}}
        elif len(names) == 1:
            config[group][names[0]] = yaml.safe_load(str(value))
        else:
            config[group][names[0]]["init_args"][names[1]] = value
    return config


def made_up_summary(method: str, tasks: int, seed: int, name: str) -> dict[str, Any]:
    rng = random.Random(f"{name}")
    skill = 0.5 + 0.4 * random.Random(method).random()
    drop = 0.3 * random.Random(f"{method}-drop").random()
    matrix = [
        [skill - drop * (1 - 0.7 ** (i - j)) + rng.uniform(-0.03, 0.03) if j <= i else 0.1 for j in range(tasks)]
        for i in range(tasks)
    ]
    queues = [[(3 + rng.random() * 5) / (i - j) if j < i else float("nan") for j in range(tasks)] for i in range(tasks)]
    diagonal = [matrix[j][j] for j in range(tasks)]
    return {
        "average_accuracy": sum(matrix[-1]) / tasks,
        "forgetting": sum(max(row[j] for row in matrix[j:-1]) - matrix[-1][j] for j in range(tasks - 1)) / (tasks - 1),
        "backward_transfer": -drop,
        "last_task_accuracy": diagonal[-1],
        "learning_accuracy": sum(diagonal) / tasks,
        "accuracy_matrix": matrix,
        "queue_matrix": queues if method.endswith("FedQCL") else None,
        "train_seconds": 100 + 50 * rng.random(),
        "client_steps": 191_000,
        "wall_seconds": 180 + 20 * rng.random(),
        "seed": seed,
        "versions": {"python": "3.11"},
    }
