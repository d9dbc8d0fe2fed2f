"""Ranks: how many, on what, and which of them this process is before they are started."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Literal

import torch
import torch.distributed as dist
from lightning.fabric import Fabric

from fedqcl.engine.slurm import Allocation, allocation, check_gpus, devices_and_nodes
from fedqcl.engine.strategy import FederatedStrategy
from fedqcl.errors import InputError


def make_fabric(
    accelerator: Literal["auto", "cpu", "cuda"],
    devices: int | Literal["auto"],
    num_nodes: int | Literal["auto"],
    precision: Literal["32-true", "bf16-mixed"],
    start_method: Literal["auto", "popen", "fork"],
    num_clients: int,
) -> Fabric:
    """Make the Fabric that will start the ranks.

    Args:
        accelerator: ``auto`` takes CUDA devices if there are any.
        devices: ranks on each machine; ``auto`` for those that Slurm has started, else for every GPU, or every core
            that this process may use, but no more than there are clients.
        num_nodes: machines; ``auto`` for those of the Slurm job, else one.
        precision: of the forward passes.
        start_method: how ranks are started; ``auto`` forks them where that is safe.
        num_clients: ``N``.

    Raises:
        InputError: devices that are not there, that Slurm has not started, or more than there are clients; or this
            process is a rank already.
    """
    if dist.is_initialized():
        raise InputError("trainer.devices: this process is a rank of an earlier run; make each run in a new process")
    cuda = accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available())
    slurm = allocation()
    devices, nodes = _ranks(cuda, devices, num_nodes, num_clients, slurm)
    if cuda:
        # Every client at work has two streams; with fewer queues than streams, some would wait for others.
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    if start_method == "auto":
        start_method = "popen" if slurm or nodes > 1 or not _can_fork() else "fork"
    alone = devices * nodes == 1
    with warnings.catch_warnings():
        # One process of a machine with Slurm is no mistake; more tasks than were started have been refused by now.
        warnings.filterwarnings("ignore", message=".*`srun` command is available")
        return Fabric(
            accelerator="cuda" if cuda else "cpu",
            devices=devices,
            num_nodes=nodes,
            precision=precision,
            strategy="auto" if alone else FederatedStrategy(start_method=start_method),
        )


def _ranks(
    cuda: bool,
    devices: int | Literal["auto"],
    num_nodes: int | Literal["auto"],
    num_clients: int,
    slurm: Allocation | None,
) -> tuple[int, int]:
    """How many ranks on each machine, and on how many machines."""
    available = torch.cuda.device_count() if cuda else _cores()
    if cuda and available == 0:
        raise InputError("trainer.accelerator: no CUDA device is visible; choose cpu, or auto")
    nodes = slurm.nodes if slurm else 1 if num_nodes == "auto" else num_nodes
    usable = max(1, min(available, num_clients // nodes))
    if slurm:
        if cuda:
            check_gpus(available, usable, slurm, chosen=devices != "auto")
        devices, nodes = devices_and_nodes(devices, num_nodes, slurm)
    if devices == "auto":
        devices = usable
    elif cuda and devices > available:
        raise InputError(f"trainer.devices: {devices} GPUs were asked for and {available} are visible")
    _check_ranks(devices * nodes, num_clients, nodes, of_slurm=slurm is not None)
    return int(devices), int(nodes)  # Lightning takes no subclass of int, which a checked number is


def _check_ranks(ranks: int, num_clients: int, nodes: int, of_slurm: bool) -> None:
    """Refuse ranks that no client could be dealt to."""
    if ranks <= num_clients:
        return
    lower = "it" if nodes == 1 else "it or trainer.num_nodes"
    if of_slurm:
        lower = "`#SBATCH --ntasks-per-node`" if nodes == 1 else "`#SBATCH --ntasks-per-node` or `#SBATCH --nodes`"
    raise InputError(
        f"trainer.devices: {ranks} ranks for {num_clients} client{'s' * (num_clients > 1)} would leave some with "
        f"nothing to do; lower {lower}, or raise data.num_clients"
    )


def cautions(fabric: Fabric) -> list[str]:
    """What slows the ranks down, a line each."""
    # Slurm binds each rank to cores of its own, which are not all that the ranks of a machine have.
    if fabric.device.type == "cuda" or not isinstance(fabric.strategy, FederatedStrategy) or allocation():
        return []
    ranks, cores = fabric.world_size // fabric.strategy.num_nodes, _cores()
    if ranks <= cores:
        return []
    return [f"trainer.devices: {ranks} CPU ranks share {cores} core{'s' * (cores > 1)}; {cores} would be as quick"]


def _cores() -> int:
    """The cores that this process may use; where the system cannot tell, those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _can_fork() -> bool:
    """Whether forked processes work here, with CUDA too, and it is this one that starts the ranks."""
    return sys.platform.startswith("linux") and "LOCAL_RANK" not in os.environ and not torch.cuda.is_initialized()


def is_first_of_machine() -> bool:
    """Whether this process is, or will be, the first rank of its machine."""
    return _all_zero("LOCAL_RANK", "SLURM_LOCALID")


def is_first() -> bool:
    """Whether this process is, or will be, the first rank of all."""
    return is_first_of_machine() and _all_zero("NODE_RANK", "GROUP_RANK", "RANK", "SLURM_PROCID")


def _all_zero(*names: str) -> bool:
    return all(int(os.environ.get(name) or 0) == 0 for name in names)


def describe(fabric: Fabric) -> str:
    """What the ranks run on, in words."""
    count = fabric.world_size
    if fabric.device.type == "cuda":
        return f"{count} x {torch.cuda.get_device_name(fabric.device)}"
    threads = torch.get_num_threads()
    return f"{count} CPU rank{'s' * (count > 1)} of {threads} thread{'s' * (threads > 1)}"
