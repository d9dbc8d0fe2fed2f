"""The benchmark of all methods: what it would run, and the tables it makes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedqcl.cli.configs import read_config, shipped_folder
from fedqcl.cli.lightning import FederatedCLI
from tests.helpers.methods import shipped_methods
from tests.helpers.process import REPOSITORY


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_methods", REPOSITORY / "benchmarks" / "methods.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_method_has_its_run(benchmark: ModuleType) -> None:
    methods = {cls.__name__ for cls in shipped_methods()} - {"FedQCLAuthors"}
    assert set(benchmark.METHODS) == methods
    task, class_ = ([run.what for run in benchmark.planned("fair", "cifar100", s, 0)] for s in ("task", "class"))
    assert sorted(task) == sorted({*methods, "joint", "independent"})
    assert set(class_) == set(task) - {"FOT"}


@pytest.mark.parametrize(
    ("plan", "data", "scenario"), [("fair", "tinyimagenet", "class"), ("authors", "cifar100", "task")]
)
def test_every_run_parses_as_it_is_named(benchmark: ModuleType, plan: str, data: str, scenario: str) -> None:
    names = set()
    for run in benchmark.planned(plan, data, scenario, 3):
        cli = FederatedCLI("fit", run.words)
        assert cli.datamodule.seed == 3
        assert cli.datamodule.scenario == scenario
        names.add(run.name)
        method = type(cli.model.method).__name__
        if plan == "fair":
            assert method == {"joint": "FedAvg", "independent": "FedAvg"}.get(run.what, run.what)
            assert cli.model.make_optimizer(cli.model._make_net(3, 2)).defaults["lr"] == 1.1
        else:
            assert method == ("FedAvg" if run.what.startswith("FedAvg") else "FedQCLAuthors")
    assert len(names) == len(list(benchmark.planned(plan, data, scenario, 3)))


def test_every_peculiarity_is_taken_back_once(benchmark: ModuleType) -> None:
    preset = read_config(shipped_folder() / "presets/authors.yaml")
    method = preset["model"]["method"]["init_args"]
    keys = {f"trainer.{key}" for key in preset["trainer"]} | {f"model.method.{key}" for key in method}
    keys |= {"data.equalise", "data.sampling", "data.augment.frozen"}
    assert {option.partition("=")[0] for option in benchmark.TAKEN_BACK} == keys - {
        "trainer.precision",
        "model.method.skip_first_task",
    }


def test_what_is_done_is_not_done_again(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = ["data.source=Digits", "data.augment=null", "trainer.accelerator=cpu", "trainer.precision=32-true"]
    small = ["model.net=SmallResNet", "trainer.rounds=1", "trainer.epochs=1", "model.optimizer.lr=0.1"]
    words = ["fair", "cifar10", "--results", str(tmp_path), "--scenarios", "task", "--only", "FedQCL"]
    words += ["--", *(f"--{option}" for option in digits + small)]
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    benchmark.main(words)
    (file,) = tmp_path.iterdir()
    assert file.name == "fair-cifar10-task-FedQCL-0.json"
    before = file.stat().st_mtime_ns
    benchmark.main(words)
    assert file.stat().st_mtime_ns == before
    capsys.readouterr()
    benchmark.main(["table", "cifar10", "--results", str(tmp_path)])
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("| FedQCL"))
    summary: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    cells = row.split(" | ")
    assert cells[1] == f"{100 * summary['average_accuracy']:.1f}"
    assert cells[5:7] == ["85.71", "0.05"]
    assert row.endswith("| 13 26 39 52 65 |")


def test_several_seeds_are_averaged(benchmark: ModuleType) -> None:
    runs = [{"forgetting": value} for value in (0.1, 0.2, 0.3)]
    assert benchmark._mean(runs, "forgetting", 1, 2) == "0.20 ± 0.10"
