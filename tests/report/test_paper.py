from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedqcl.report.paper import METHODS, complexity, printed
from fedqcl.report.runs import Run

SETTINGS: dict[str, Any] = {
    "trainer": {"rounds": 10, "epochs": 5},
    "data": {"tasks": 5, "alpha": 10.0, "num_clients": 5, "batch_size": 13, "scenario": "task"},
}


def run(source: str, method: str, options: dict[str, Any] | None = None, **data: Any) -> Run:
    config = {
        "trainer": SETTINGS["trainer"],
        "data": {**SETTINGS["data"], "source": {"class_path": f"x.{source}"}, **data},
        "model": {"method": {"class_path": f"x.{method}", "init_args": options or {}}},
    }
    return Run(Path("x"), yaml.safe_dump(config), {})


def test_the_paper_s_figures_are_of_test_images() -> None:
    on_test = run("CIFAR10", "FedAvg")
    assert printed(Run(on_test.path, on_test.text, {"evaluated_on": "test"}))
    assert printed(Run(on_test.path, on_test.text, {"evaluated_on": "validation"})) is None


FEDQCL = {"V": 200.0, "delta": 1.0, "memory": 500, "replay_batch": 13, "queue_loss": "batches"}


def test_the_paper_s_figures_stand_beside_its_settings() -> None:
    assert printed(run("CIFAR100", "FedQCL", FEDQCL)) == (54.52, 0.84, 0.05, 0.004)
    assert printed(run("CIFAR10", "FedAvg")) == (70.21, 0.75, 0.12, 0.006)
    assert printed(run("TinyImageNet", "FOT", tasks=10)) == (28.22, 0.09, 0.001, 0.0007)
    class_incremental = printed(run("CIFAR100", "FedQCL", FEDQCL, scenario="class", alpha=100000.0))
    assert class_incremental
    assert class_incremental[::2] == (24.92, 0.11)
    assert math.isnan(class_incremental.accuracy_std)


def test_the_authors_way_of_measuring_queues_is_the_paper_s_method() -> None:
    found = printed(run("CIFAR100", "FedQCLAuthors", FEDQCL))
    assert found
    assert found.average_accuracy == 54.52


def test_images_from_a_file_count_by_their_name() -> None:
    own = run("Npz", "FedAvg")
    assert printed(own) is None
    found = printed(Run(own.path, own.text, {"dataset": "cifar100"}))
    assert found
    assert found.average_accuracy == 29.1


@pytest.mark.parametrize(
    "other",
    [
        run("CIFAR100", "FedQCL", {**FEDQCL, "V": 20.0}),
        run("CIFAR100", "FedQCL", {**FEDQCL, "memory": 200}),
        run("CIFAR100", "FedQCL", FEDQCL, alpha=0.001),
        run("CIFAR100", "Mine"),
        run("Digits", "FedAvg"),
        run("CIFAR100", "FOT", scenario="class", alpha=0.1),
    ],
)
def test_the_paper_prints_nothing_for_other_settings(other: Run) -> None:
    assert printed(other) is None


def test_the_complexity_of_eight_methods() -> None:
    formulas = complexity()
    assert len(formulas) == 8
    assert set(formulas) < set(METHODS)
    assert all(set(parts) == {"storage", "computation", "traffic", "boundary"} for parts in formulas.values())
    assert formulas["FedQCL"]["computation"] == "(B + K B_m) d"
