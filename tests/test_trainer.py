from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from fedqcl.data import FederatedData
from fedqcl.errors import InputError
from fedqcl.learner import Learner
from fedqcl.methods import ER, ClientState, FedAvg, FedQCL, Method, Stats
from fedqcl.parts import Shard, Spec
from fedqcl.run.folder import RunFolder
from fedqcl.run.records import RunInfo
from fedqcl.trainer import FederatedTrainer
from tests.helpers.process import contained
from tests.helpers.toy import Normed, Toy, same, toy_learner

KEYS = {
    "average_accuracy",
    "forgetting",
    "backward_transfer",
    "last_task_accuracy",
    "learning_accuracy",
    "accuracy_matrix",
    "queue_matrix",
    "wall_seconds",
    "train_seconds",
    "client_steps",
    "costs",
    "device",
    "seed",
    "versions",
}


def data(**options: Any) -> FederatedData:
    return FederatedData(Toy(noise=150), **{"num_clients": 3, "tasks": 3, "batch_size": 5, "seed": 2, **options})


def learner() -> Learner:
    return toy_learner(FedQCL(V=4, delta=-0.1, memory=9, replay_batch=3), net=Normed)


def trainer(root: Path, **options: Any) -> FederatedTrainer:
    small = {"accelerator": "cpu", "devices": 1, "rounds": 2, "epochs": 1, "root": str(root), "console": "quiet"}
    return FederatedTrainer(**small | options)


@dataclass
class Run:
    folder: RunFolder
    result: dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    root = tmp_path_factory.mktemp("runs")
    with contained():
        result = trainer(root).fit(learner(), data())
    (path,) = root.iterdir()
    return Run(RunFolder(path), result)


def test_a_script_keeps_its_threads(tmp_path: Path) -> None:
    with contained():
        torch.set_num_threads(2)
        trainer(tmp_path, rounds=1, threads=1).fit(learner(), data(tasks=1))
        assert torch.get_num_threads() == 2


def test_the_run_folder_is_whole(run: Run) -> None:
    assert run.folder.path.name == "toy-FedQCL-seed2"
    assert {p.name for p in run.folder.path.iterdir()} == {
        "config.yaml",
        "metrics.csv",
        "clients.csv",
        "made_with.json",
        "summary.json",
        "model.ckpt",
        "plots",
    }
    pictures = list(run.folder.plots.glob("*.png"))
    assert len(pictures) >= 4
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)


def test_summary_has_every_key(run: Run) -> None:
    summary = json.loads(run.folder.summary.read_text())
    assert summary.keys() >= KEYS
    assert summary["seed"] == 2
    assert summary["device"] == "1 CPU rank of 1 thread"
    assert summary["evaluated_on"] == "test"
    assert {"python", "fedqcl", "torch", "lightning", "numpy"} <= summary["versions"].keys()
    assert 0 < summary["train_seconds"] < summary["wall_seconds"]
    matrix = np.array(summary["accuracy_matrix"])
    assert matrix.shape == (3, 3)
    assert summary["average_accuracy"] == pytest.approx(matrix[2].mean())
    assert summary["learning_accuracy"] == pytest.approx(matrix.diagonal().mean())
    assert summary["last_task_accuracy"] == matrix[2, 2]
    assert summary["backward_transfer"] == pytest.approx((matrix[2, :2] - matrix.diagonal()[:2]).mean())
    assert 0.5 < summary["average_accuracy"] <= 1  # two classes a task: better than chance
    assert [len(row) for row in summary["queue_matrix"]] == [3, 3, 3]
    assert summary["queue_matrix"][0] == [None] * 3
    assert summary["queue_matrix"][2][0] > 0


def test_fit_returns_the_summary(run: Run) -> None:
    summary = run.folder.read_summary()
    assert run.result.keys() == summary.keys()
    for key in KEYS - {"queue_matrix"}:
        assert run.result[key] == summary[key]


def test_tables_agree_with_the_summary(run: Run) -> None:
    summary, rounds, clients = run.folder.read_summary(), run.folder.read_metrics(), run.folder.read_clients()
    assert [(r["task"], r["round"]) for r in rounds] == [(t, c) for t in (1, 2, 3) for c in (1, 2)]
    assert [(r["task"], r["round"], r["client"]) for r in clients] == [
        (t, c, i) for t in (1, 2, 3) for c in (1, 2) for i in (0, 1, 2)
    ]
    assert rounds[-1]["average_accuracy"] == pytest.approx(summary["average_accuracy"])
    assert rounds[-1]["forgetting"] == pytest.approx(summary["forgetting"])
    assert sum(r["steps"] for r in clients) == summary["client_steps"]
    assert sum(r["seconds"] for r in rounds) == pytest.approx(summary["train_seconds"])
    for row in rounds[1::2]:
        task = int(row["task"])
        for j in range(task):
            assert row[f"accuracy_{j + 1}"] == pytest.approx(summary["accuracy_matrix"][task - 1][j])
    queue = np.mean([r["queue_1"] for r in clients[-3:]])
    assert rounds[-1]["queue_1"] == pytest.approx(queue) == pytest.approx(summary["queue_matrix"][2][0])
    for row in clients:
        assert row["drift"] <= row["drift_bound"] + 1e-5


@pytest.mark.parametrize("file", ["", "model.ckpt"])
@pytest.mark.parametrize("job", ["validate", "test"])
def test_the_model_evaluates_as_the_run_did(run: Run, job: str, file: str, tmp_path: Path) -> None:
    evaluate = getattr(trainer(tmp_path), job)
    figures = evaluate(learner(), data(), str(run.folder.path / file))
    assert figures["average_accuracy"] == run.result["average_accuracy"]
    assert figures["accuracy"] == run.result["accuracy_matrix"][-1]
    assert not list(tmp_path.iterdir())


def test_the_same_run_again_has_the_same_weights(run: Run, tmp_path: Path) -> None:
    again = trainer(tmp_path, name="again").fit(learner(), data())
    assert again["accuracy_matrix"] == run.result["accuracy_matrix"]
    first, second = (torch.load(p / "model.ckpt") for p in (run.folder.path, tmp_path / "again"))
    assert first["problem"] == second["problem"]
    assert same(first["net"], second["net"])


def test_with_a_validation_share_the_test_images_are_left_alone(tmp_path: Path) -> None:
    result = trainer(tmp_path, rounds=1, name="x").fit(learner(), data(validation=0.25))
    assert result["evaluated_on"] == RunFolder(tmp_path / "x").read_made_with()["evaluated_on"] == "validation"
    path = str(tmp_path / "x")
    held_out = trainer(tmp_path).validate(learner(), data(validation=0.25), path)
    assert held_out["accuracy"] == result["accuracy_matrix"][-1]
    # 3 of 12 images of each class against 6 test images: other denominators.
    assert all((6 * a) % 1 == 0 for a in held_out["accuracy"])
    tested = trainer(tmp_path).test(learner(), data(validation=0.25), path)
    assert all((12 * a) % 1 == pytest.approx(0, abs=1e-9) for a in tested["accuracy"])
    assert tested["accuracy"] != held_out["accuracy"]


def test_a_method_without_queues(tmp_path: Path) -> None:
    result = trainer(tmp_path, rounds=1).fit(toy_learner(FedAvg()), data())
    assert result["queue_matrix"] is None
    folder = RunFolder(tmp_path / "toy-FedAvg-seed2")
    assert json.loads(folder.summary.read_text())["queue_matrix"] is None
    assert not [name for name in folder.read_clients()[0] if "queue" in name]


def test_the_config_is_written_as_it_was_given(tmp_path: Path) -> None:
    made = trainer(tmp_path, rounds=1, name="x")
    made.config_text = "seed_everything: 2\n"
    made.fit(toy_learner(FedAvg()), data())
    assert (tmp_path / "x" / "config.yaml").read_text() == "seed_everything: 2\n"


def test_a_taken_name_is_refused_before_training(run: Run) -> None:
    with pytest.raises(InputError, match=r"^trainer.name: .*already exists"):
        trainer(run.folder.path.parent, name=run.folder.path.name).fit(learner(), data())


def test_a_taken_name_is_refused_before_ranks_are_started(run: Run) -> None:
    path = run.folder.path
    with pytest.raises(InputError, match=r"^trainer.name: .*already exists"):
        trainer(path.parent, name=path.name, devices=2, start_method="fork").fit(learner(), data())


def test_mistakes_in_the_data_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data.tasks: "):
        trainer(tmp_path).fit(learner(), data(tasks=7))
    assert not list(tmp_path.iterdir())


class Picky(FedAvg):
    """Has no meaning in one of the scenarios."""

    def check(self, spec: Spec, num_clients: int) -> None:
        if spec.scenario == "class":
            raise InputError(f"data.scenario: {spec.num_tasks} tasks of known classes only; choose task")


def test_a_V_for_other_clients_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model\.method\.V: lists 2 values and data\.num_clients is 3; give"):
        trainer(tmp_path).fit(toy_learner(FedQCL(V=[1.0, 2.0])), data())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("devices", [1, 2])
def test_a_problem_that_the_method_refuses_leaves_nothing_behind(devices: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, devices=devices, start_method="fork", rounds=1)
    with pytest.raises(InputError, match=r"^data.scenario: 3 tasks of known classes only; choose task$"):
        made.fit(toy_learner(Picky()), data(scenario="class"))
    assert not list(tmp_path.iterdir())


def test_a_problem_that_the_method_accepts_is_run(tmp_path: Path) -> None:
    trainer(tmp_path, rounds=1).fit(toy_learner(Picky()), data())
    assert (tmp_path / "toy-Picky-seed2" / "summary.json").exists()


def test_a_run_that_diverges_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model: training diverged"):
        trainer(tmp_path, name="x").fit(toy_learner(FedAvg(), lr=1e30), data())
    assert RunFolder(tmp_path / "x").read_summary() == {}


class Starved(FedAvg):
    def client_round(self, *_: Any) -> Any:
        raise torch.OutOfMemoryError("no room. GPU 0 has 2 GiB\nfor 2 GiB")


def test_a_device_without_memory_is_one_line(tmp_path: Path) -> None:
    line = r"^trainer\.concurrency: cpu is out of memory \(OutOfMemoryError: no room\); run fewer clients at once"
    with pytest.raises(InputError, match=line):
        trainer(tmp_path, on_client_error="skip").fit(toy_learner(Starved()), data())


class Choosy(FedAvg):
    """Refuses every net, once it is on the rank."""

    def server_state(self, spec: Spec, net: nn.Module) -> nn.Module:
        raise InputError("model.net: not this one")


def test_a_mistake_found_on_the_rank_leaves_the_name_free(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^model\.net: not this one"):
        trainer(tmp_path, name="mine").fit(toy_learner(Choosy()), data())
    assert trainer(tmp_path, name="mine").fit(toy_learner(FedAvg()), data())


def test_a_mistake_found_on_the_rank_takes_nothing_of_a_run_that_was_there(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, "mine", "")
    with pytest.raises(InputError, match=r"^model\.net: not this one"):
        trainer(tmp_path).fit(toy_learner(Choosy()), data(), ckpt_path=str(run.path))
    assert run.config.is_file()


class Unlucky(FedAvg):
    """Client 0 raises in the second round, client 1 diverges in the third."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = [0, 0, 0]

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        self.rounds[shard.client] += 1
        if (shard.client, self.rounds[0]) == (0, 2):
            raise ValueError("no luck")
        bad = (shard.client, self.rounds[1]) == (1, 3)
        return {"n": torch.tensor(float("nan") if bad else 1.0)}


def test_a_run_that_was_measured_on_its_clients_models_is_tested_on_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_clients = trainer(tmp_path, name="x", personal="model", evaluation="clients")
    with contained():
        of_clients.fit(learner(), data())
    capsys.readouterr()
    of_clients.test(learner(), data(), str(tmp_path / "x"))
    warning = "warning: this is the global model; the run was measured on those of its clients"
    assert capsys.readouterr().out.startswith(warning)


def test_clients_left_out_are_named_and_take_no_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"on_client_error": "skip", "on_nonfinite": "drop", "rounds": 3, "name": "x"}
    trainer(tmp_path, **options).fit(toy_learner(Unlucky()), data(alpha="iid"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert lines == [
        "warning: client 0, task 1, round 2: left out, ValueError: no luck",
        "warning: client 1, task 1, round 3: left out, its update is not finite",
    ]
    rows = RunFolder(tmp_path / "x").read_clients()
    idle = [(row["task"], row["round"], row["client"]) for row in rows if row["steps"] == 0]
    assert idle == [(1, 2, 0), (1, 3, 1)]
    assert all(np.isfinite(row["loss"]) for row in RunFolder(tmp_path / "x").read_metrics())


class Follower:
    """A logger that notes what it is told."""

    run_id = None

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: self.told.append(name)


def test_a_logger_follows_the_run(tmp_path: Path) -> None:
    follower = Follower()
    trainer(tmp_path, rounds=2, logger=follower).fit(toy_learner(FedAvg()), data())
    assert follower.told == ["start", *["round", "round", "task"] * 3, "finish"]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_a_logger_is_told_the_scenario(scenario: Literal["task", "class"], tmp_path: Path) -> None:
    class Reader(Follower):
        def start(self, info: RunInfo, *_: Any, **__: Any) -> None:
            self.info = info

    reader = Reader()
    trainer(tmp_path, rounds=1, logger=reader).fit(toy_learner(FedAvg()), data(scenario=scenario))
    assert reader.info.scenario == scenario


def test_a_logger_is_told_of_a_failure(tmp_path: Path) -> None:
    follower = Follower()
    with pytest.raises(InputError, match="diverged"):
        trainer(tmp_path, logger=follower).fit(toy_learner(FedAvg(), lr=1e30), data())
    assert follower.told == ["start", "fail"]


def test_graphs_are_for_cuda(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^trainer.executor: "):
        trainer(tmp_path, executor="graphed").fit(toy_learner(FedAvg()), data())
    assert not list(tmp_path.iterdir())


def test_clients_that_keep_all_images_need_no_memory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^data\.cumulative: .*ER would store them as the current task's; choose"):
        trainer(tmp_path).fit(toy_learner(ER()), data(cumulative=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"tasks": 2}, {"scenario": "class"}])
def test_a_run_of_another_problem_is_refused(options: dict[str, Any], run: Run, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^ckpt_path: .*was trained on"):
        trainer(tmp_path).test(learner(), data(**options), str(run.folder.path))


METHODS = [FedQCL(V=1, delta=-0.5, memory=18, replay_batch=3), ER(memory=18, replay_batch=3), FedAvg("seen")]


@pytest.fixture(scope="module", params=METHODS, ids=lambda method: type(method).__name__)
def class_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Method, Run]:
    """A class-incremental run on images that are easy to tell apart."""
    root = tmp_path_factory.mktemp("runs")
    with contained():
        result = trainer(root, rounds=4, epochs=4).fit(toy_learner(request.param), class_data())
    (path,) = root.iterdir()
    return request.param, Run(RunFolder(path), result)


def class_data() -> FederatedData:
    return FederatedData(Toy(), num_clients=3, tasks=3, batch_size=5, scenario="class", seed=2)


def test_class_incremental_runs(class_run: tuple[Method, Run], tmp_path: Path) -> None:
    method, run = class_run
    matrix = np.array(run.result["accuracy_matrix"])
    assert (matrix[np.triu_indices(3, 1)] == 0).all()  # classes to come are never predicted
    assert matrix.diagonal().min() > 0.8
    # Without replay the newer classes drive out the first.
    assert matrix[2, 0] < 0.2 if isinstance(method, FedAvg) else matrix[2, 0] > 0.7
    figures = trainer(tmp_path).test(toy_learner(method), class_data(), str(run.folder.path))
    assert figures["accuracy"] == matrix[2].tolist()


def test_class_incremental_queues(class_run: tuple[Method, Run]) -> None:
    method, run = class_run
    queues = run.folder.read_summary()["queue_matrix"]
    if not isinstance(method, FedQCL):
        assert queues is None
        return
    assert [[value is not None for value in row] for row in queues] == [[k < t for k in range(3)] for t in range(3)]
    assert queues[1][0] > 0
    for row in run.folder.read_clients():
        assert row["drift"] <= row["drift_bound"] + 1e-4


def test_what_a_fit_leaves_behind_is_put_right() -> None:
    """Else a later process would take itself for one rank of many."""
    before = dict(os.environ)
    with contained():
        os.environ.update(LOCAL_RANK="1", WORLD_SIZE="2")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
    assert dict(os.environ) == before
