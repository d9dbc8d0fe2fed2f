from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments import SLURMEnvironment

from fedqcl.engine import FederatedStrategy
from fedqcl.engine.launch import cautions, describe, is_first, is_first_of_machine, make_fabric
from fedqcl.errors import InputError
from fedqcl.types import Count
from tests.helpers.process import contained


def fabric(accelerator: Any = "cpu", devices: Any = "auto", num_clients: int = 5, **options: Any) -> Fabric:
    return make_fabric(
        **{"num_nodes": 1, "precision": "32-true", "start_method": "fork"} | options,
        accelerator=accelerator,
        devices=devices,
        num_clients=num_clients,
    )


@pytest.mark.parametrize(("devices", "num_clients", "ranks"), [("auto", 1, 1), (1, 5, 1), (3, 3, 3), (2, 5, 2)])
def test_ranks_on_the_cpu(devices: Any, num_clients: int, ranks: int) -> None:
    made = fabric(devices=devices, num_clients=num_clients)
    assert made.world_size == ranks
    assert made.device == torch.device("cpu")
    assert isinstance(made.strategy, FederatedStrategy) == (ranks > 1)


def test_auto_takes_the_cores_but_no_more_ranks_than_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5, 7}, raising=False)
    assert [fabric(num_clients=n).world_size for n in (1, 3, 4, 9)] == [1, 3, 4, 4]


def test_auto_takes_the_cores_of_the_machine_where_nobody_says_which_may_be_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert fabric(num_clients=9).world_size == 3


def test_auto_is_the_cpu_where_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert fabric("auto", devices=1).device == torch.device("cpu")


def test_one_process_where_slurm_is_installed_is_no_matter_for_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.warns(UserWarning, match="srun"):
        SLURMEnvironment.detect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        fabric()
        assert list(warnings.filters) == filters


def test_gpus_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InputError, match=r"^trainer\.accelerator: no CUDA device is visible; choose cpu, or auto$"):
        fabric("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(InputError, match=r"^trainer\.devices: 3 GPUs were asked for and 2 are visible$"):
        fabric("cuda", devices=3)


@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_more_ranks_than_clients(accelerator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 100)
    said = r"^trainer\.devices: 99 ranks for 5 clients would leave some with nothing to do; lower it, or raise data\."
    with pytest.raises(InputError, match=said):
        fabric(accelerator, devices=99)
    with pytest.raises(
        InputError, match=r"^trainer\.devices: 6 ranks for 5 .*; lower it or trainer\.num_nodes, or raise"
    ):
        fabric(accelerator, devices=3, num_nodes=2)


def test_auto_takes_no_more_ranks_than_clients_on_several_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert [fabric(num_clients=n, num_nodes=2).world_size for n in (2, 5, 20)] == [2, 4, 16]
    with pytest.raises(InputError, match=r"^trainer\.devices: 2 ranks for 1 client would "):
        fabric(num_clients=1, num_nodes=2)


def test_more_ranks_than_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)

    def said(devices: int, num_nodes: int = 1) -> list[str]:
        return cautions(fabric(devices=devices, num_nodes=num_nodes))

    assert said(3) == ["trainer.devices: 3 CPU ranks share 2 cores; 2 would be as quick"]
    assert said(1) == said(2) == said(2, num_nodes=2) == []
    made = fabric(devices=3)
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    assert cautions(made) == []


def test_a_gpu_gets_a_queue_for_every_stream_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedqcl.engine.launch.Fabric", lambda **options: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    fabric("cuda")
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "8"
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    fabric()
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in os.environ
    fabric("cuda")
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == "32"


def test_lightning_gets_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("fedqcl.engine.launch.Fabric", lambda **options: given.update(options))
    fabric(devices=Count(2), num_nodes=Count(1))
    assert type(given["devices"]) is type(given["num_nodes"]) is int


@pytest.mark.parametrize(("tasks", "devices", "ranks"), [("2", "auto", 2), ("2", 2, 2), ("1", 4, 0), ("4", 2, 0)])
def test_under_slurm_there_are_as_many_ranks_as_tasks(
    tasks: str, devices: Any, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("PROCID", "LOCALID", "NODEID", "STEP_ID")
    for name, value in {"NTASKS": tasks, "JOB_NAME": "train", **dict.fromkeys(names, "0")}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", tasks)
    if ranks:
        assert fabric(devices=devices).world_size == ranks
        return
    with pytest.raises(
        InputError, match=rf"^trainer\.devices: {devices} were asked for and Slurm has started {tasks} on each"
    ):
        fabric(devices=devices)


@pytest.mark.parametrize("devices", [1, 2])
def test_a_rank_of_an_earlier_run_is_refused(devices: int) -> None:
    with contained():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        with pytest.raises(InputError, match=r"^trainer\.devices: this process is a rank of an earlier run; "):
            fabric(devices=devices)


def test_in_an_interactive_job_slurm_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_JOB_NAME", "interactive")
    assert fabric(devices=2).world_size == 2


def test_several_machines_of_one_rank_are_a_group() -> None:
    assert isinstance(fabric(devices=1, num_nodes=2).strategy, FederatedStrategy)


def test_ranks_of_one_machine_are_forked_unless_somebody_else_starts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(**options: Any) -> str:
        strategy = fabric(devices=2, start_method="auto", **options).strategy
        assert isinstance(strategy, FederatedStrategy)
        return strategy.start_method

    monkeypatch.setattr(sys, "platform", "linux")
    assert started() == "fork"
    assert started(num_nodes=2) == "popen"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert started() == "popen"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert started() == "popen"
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert started() == "popen"


def test_precision_is_that_of_the_forward_passes() -> None:
    with fabric(devices=1, precision="bf16-mixed").autocast():
        assert torch.nn.functional.linear(torch.ones(1, 2), torch.ones(1, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("environment", "of_machine", "of_all"),
    [
        ({}, True, True),
        ({"LOCAL_RANK": "0", "NODE_RANK": "0"}, True, True),
        ({"LOCAL_RANK": "1"}, False, False),
        ({"LOCAL_RANK": "0", "NODE_RANK": "1"}, True, False),
        ({"LOCAL_RANK": "0", "GROUP_RANK": "1", "RANK": "4"}, True, False),  # torchrun
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0"}, True, True),
        ({"SLURM_PROCID": "2", "SLURM_LOCALID": "0"}, True, False),
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1"}, False, False),
        ({"LOCAL_RANK": ""}, True, True),
    ],
)
def test_which_rank_this_process_will_be(
    environment: dict[str, str], of_machine: bool, of_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "RANK", "SLURM_PROCID", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (is_first_of_machine(), is_first()) == (of_machine, of_all)


def test_description() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert describe(fabric(devices=1)) == "1 CPU rank of 1 thread"
        torch.set_num_threads(2)
        assert describe(fabric(devices=3)) == "3 CPU ranks of 2 threads"
    finally:
        torch.set_num_threads(threads)
