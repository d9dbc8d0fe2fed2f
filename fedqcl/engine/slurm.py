"""Ranks that Slurm starts: how many, and what to change where the script and the options do not agree."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment

from fedqcl.errors import InputError


class Allocation(NamedTuple):
    """What Slurm has started.

    Attributes:
        devices: ranks on each machine.
        nodes: machines.
    """

    devices: int
    nodes: int


def allocation() -> Allocation | None:
    """What Slurm has started; None outside a job, and in an interactive one, where ranks are started as elsewhere.

    Raises:
        InputError: ranks that ``srun`` has not started, or that are not the same number on every machine.
    """
    if "SLURM_NTASKS" not in os.environ or SLURMEnvironment.job_name() in ("bash", "interactive"):
        return None
    tasks, nodes = int(os.environ["SLURM_NTASKS"]), int(os.environ.get("SLURM_NNODES") or 1)
    if tasks == 1:
        return Allocation(1, nodes)
    if "SLURM_STEP_ID" not in os.environ:
        raise InputError(f"Slurm: {tasks} tasks are to be started, and none was; write `srun fedqcl` in the script")
    each = os.environ.get("SLURM_NTASKS_PER_NODE")
    if each is None:
        raise InputError(
            f"Slurm: nothing says how many of {tasks} tasks are on each of {nodes} nodes; replace `#SBATCH "
            f"--ntasks={tasks}` by `#SBATCH --ntasks-per-node={max(1, tasks // nodes)}`"
        )
    if int(each) * nodes != tasks:
        raise InputError(
            f"Slurm: {tasks} tasks are not {each} on each of {nodes} nodes; remove `#SBATCH --ntasks={tasks}`, keep "
            f"`#SBATCH --nodes={nodes}` and `#SBATCH --ntasks-per-node={each}`"
        )
    return Allocation(int(each), nodes)


def devices_and_nodes(
    devices: int | Literal["auto"], num_nodes: int | Literal["auto"], slurm: Allocation
) -> tuple[int, int]:
    """Devices on each machine and machines: those of the allocation, as there can be no others.

    Raises:
        InputError: others were asked for.
    """
    if devices not in ("auto", slurm.devices):
        raise InputError(
            f"trainer.devices: {devices} were asked for and Slurm has started {slurm.devices} on each node; write "
            f"`#SBATCH --ntasks-per-node={devices}`, or leave trainer.devices out"
        )
    if num_nodes not in ("auto", slurm.nodes):
        raise InputError(
            f"trainer.num_nodes: {num_nodes} were asked for and Slurm has given {slurm.nodes}; write "
            f"`#SBATCH --nodes={num_nodes}`, or leave trainer.num_nodes out"
        )
    return slurm


def check_gpus(visible: int, usable: int, slurm: Allocation, chosen: bool) -> None:
    """Check that each rank of a machine has a GPU, and that none lies idle unless that was chosen.

    Args:
        visible: GPUs that a rank sees; it takes the one with its number on the machine.
        usable: how many of them the run could use.
        slurm: the allocation.
        chosen: whether ``trainer.devices`` was given.

    Raises:
        InputError: too few GPUs, or too many.
    """
    if visible < slurm.devices:
        raise InputError(
            f"Slurm: {slurm.devices} tasks on each node see {visible} GPU{'s' * (visible != 1)}; write `#SBATCH "
            f"--gres=gpu:{slurm.devices}`, without --gpus-per-task or --gpu-bind, which show each task its own alone"
        )
    if usable > slurm.devices and not chosen:
        raise InputError(
            f"Slurm: {slurm.devices} of {usable} GPUs on each node would be used; write `#SBATCH --ntasks-per-node="
            f"{usable}`, or give --trainer.devices {slurm.devices} to leave the others idle"
        )
