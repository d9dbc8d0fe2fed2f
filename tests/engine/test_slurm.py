from __future__ import annotations

import re

import pytest
import torch

from fedqcl.engine.launch import make_fabric
from fedqcl.engine.slurm import Allocation, allocation, check_gpus, devices_and_nodes
from fedqcl.errors import InputError


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NTASKS", "NNODES", "NTASKS_PER_NODE", "STEP_ID", "JOB_NAME"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)


def job(monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    for name, value in {"JOB_NAME": "fedqcl", "STEP_ID": 0, **variables}.items():
        if value is not None:
            monkeypatch.setenv(f"SLURM_{name}", str(value))


def refused(message: str) -> object:
    return pytest.raises(InputError, match=f"^{re.escape(message)}$")


def test_outside_a_job_there_is_no_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocation() is None
    job(monkeypatch, NTASKS=4, NNODES=2, JOB_NAME="interactive", STEP_ID=None)
    assert allocation() is None


@pytest.mark.parametrize(("tasks", "nodes", "each"), [(1, 1, 1), (1, 1, None), (2, 2, 1), (8, 2, 4)])
def test_what_slurm_has_started(monkeypatch: pytest.MonkeyPatch, tasks: int, nodes: int, each: int | None) -> None:
    job(monkeypatch, NTASKS=tasks, NNODES=nodes, NTASKS_PER_NODE=each)
    assert allocation() == (each or 1, nodes)


def test_one_task_of_a_script_needs_no_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=1, NNODES=1, STEP_ID=None)
    assert allocation() == (1, 1)


def test_tasks_that_nobody_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=4, NNODES=2, NTASKS_PER_NODE=2, STEP_ID=None)
    with refused("Slurm: 4 tasks are to be started, and none was; write `srun fedqcl` in the script"):
        allocation()


def test_tasks_without_a_number_on_each_node(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=4, NNODES=2)
    with refused(
        "Slurm: nothing says how many of 4 tasks are on each of 2 nodes; replace `#SBATCH --ntasks=4` by `#SBATCH "
        "--ntasks-per-node=2`"
    ):
        allocation()


def test_tasks_that_are_not_nodes_times_tasks_on_each(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=3, NNODES=2, NTASKS_PER_NODE=2)
    with refused(
        "Slurm: 3 tasks are not 2 on each of 2 nodes; remove `#SBATCH --ntasks=3`, keep `#SBATCH --nodes=2` and "
        "`#SBATCH --ntasks-per-node=2`"
    ):
        allocation()


def test_devices_and_nodes_are_the_allocation_s() -> None:
    assert devices_and_nodes("auto", "auto", Allocation(4, 2)) == (4, 2)
    assert devices_and_nodes(4, 2, Allocation(4, 2)) == (4, 2)
    with refused(
        "trainer.devices: 8 were asked for and Slurm has started 4 on each node; write `#SBATCH "
        "--ntasks-per-node=8`, or leave trainer.devices out"
    ):
        devices_and_nodes(8, "auto", Allocation(4, 2))
    with refused(
        "trainer.num_nodes: 3 were asked for and Slurm has given 2; write `#SBATCH --nodes=3`, or "
        "leave trainer.num_nodes out"
    ):
        devices_and_nodes("auto", 3, Allocation(4, 2))


def test_every_rank_has_a_gpu_and_none_is_idle_unasked() -> None:
    check_gpus(4, 4, Allocation(4, 1), chosen=False)
    check_gpus(8, 5, Allocation(5, 1), chosen=False)  # five clients
    check_gpus(8, 8, Allocation(1, 1), chosen=True)
    with refused(
        "Slurm: 4 tasks on each node see 1 GPU; write `#SBATCH --gres=gpu:4`, without --gpus-per-task or "
        "--gpu-bind, which show each task its own alone"
    ):
        check_gpus(1, 1, Allocation(4, 1), chosen=True)
    with refused(
        "Slurm: 1 of 8 GPUs on each node would be used; write `#SBATCH --ntasks-per-node=8`, or give "
        "--trainer.devices 1 to leave the others idle"
    ):
        check_gpus(8, 8, Allocation(1, 1), chosen=False)


def test_a_fabric_of_the_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=1, NNODES=1, NTASKS_PER_NODE=1, PROCID=0, LOCALID=0, NODEID=0)
    assert make_fabric("cpu", "auto", "auto", "32-true", "popen", num_clients=5).world_size == 1
    with pytest.raises(InputError, match=r"trainer\.devices: 2 were asked for and Slurm has started 1 on each node"):
        make_fabric("cpu", 2, "auto", "32-true", "popen", num_clients=5)


def test_more_tasks_than_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    job(monkeypatch, NTASKS=8, NNODES=2, NTASKS_PER_NODE=4, PROCID=0, LOCALID=0, NODEID=0)
    with refused(
        "trainer.devices: 8 ranks for 5 clients would leave some with nothing to do; lower `#SBATCH --ntasks-per-node` "
        "or `#SBATCH --nodes`, or raise data.num_clients"
    ):
        make_fabric("cpu", "auto", "auto", "32-true", "popen", num_clients=5)
    # Nor are that many asked for, to leave no GPU idle.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    job(monkeypatch, NTASKS=2, NNODES=2, NTASKS_PER_NODE=1)
    with refused(
        "Slurm: 1 of 2 GPUs on each node would be used; write `#SBATCH --ntasks-per-node=2`, or give "
        "--trainer.devices 1 to leave the others idle"
    ):
        make_fabric("cuda", "auto", "auto", "32-true", "popen", num_clients=5)
