"""Ranks: how many, on what, and which of them this process is before they are started."""

from __future__ import annotations

import os
from typing import Literal

import torch
from lightning.fabric import Fabric
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from fedqcl.engine.strategy import FederatedStrategy
from fedqcl.errors import InputError, first_line


def make_fabric(
    accelerator: Literal["auto", "cpu", "cuda"],
    devices: int | Literal["auto"],
    num_nodes: int,
    precision: Literal["32-true", "bf16-mixed"],
    start_method: Literal["popen", "fork", "spawn"],
    num_clients: int,
) -> Fabric:
    """Make the Fabric that will start the ranks.

    Args:
        accelerator: ``auto`` takes CUDA devices if there are any.
        devices: ranks on this machine; ``auto`` for every GPU, or every core, but no more than there are clients; under
            Slurm as many as it has started.
        num_nodes: machines.
        precision: of the forward passes.
        start_method: how ranks are started.
        num_clients: ``N``.

    Raises:
        InputError: devices that are not there, or not as many as the tasks that Slurm has started.
    """
    tasks = _slurm_tasks()
    cuda = accelerator == "cuda" or (accelerator == "auto" and torch.cuda.is_available())
    available = torch.cuda.device_count() if cuda else os.cpu_count() or 1
    if cuda and available == 0:
        raise InputError("trainer.accelerator: no CUDA device is visible; choose cpu, or auto")
    usual = max(1, tasks // num_nodes) if tasks else min(available, num_clients)
    count = usual if devices == "auto" else devices
    if tasks not in (0, count * num_nodes):
        raise InputError(
            f"trainer.devices: {count} on each of {num_nodes} machines (trainer.num_nodes) are not the {tasks} tasks "
            "that Slurm has started; make --ntasks-per-node trainer.devices, and --nodes trainer.num_nodes"
        )
    if cuda and count > available:
        raise InputError(f"trainer.devices: {count} GPUs were asked for and {available} are visible")
    alone = count * num_nodes == 1
    return Fabric(
        accelerator="cuda" if cuda else "cpu",
        devices=int(count),  # Lightning takes no subclass of int, which a checked number is
        num_nodes=int(num_nodes),
        precision=precision,
        strategy="auto" if alone else FederatedStrategy(start_method=start_method),
    )


def _slurm_tasks() -> int:
    """How many tasks Slurm has started for this job; 0 outside of Slurm, and in an interactive shell of it."""
    return int(os.environ["SLURM_NTASKS"]) if SLURMEnvironment.detect() else 0


def explain_memory(error: torch.OutOfMemoryError, device: torch.device) -> InputError:
    """What to do about a device that has no memory left."""
    room = ""
    if device.type == "cuda":
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(device))
        room = f", {free:.1f} of {total:.1f} GiB are free"
    return InputError(
        f"trainer.concurrency: {device} is out of memory{room} ({first_line(error)}); run fewer clients at once, "
        "choose other devices by CUDA_VISIBLE_DEVICES, or smaller batches"
    )


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
