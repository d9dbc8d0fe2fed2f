"""Ranks that share a process group and no gradients."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.utilities.distributed import _destroy_dist_connection
from torch import nn
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.rendezvous import rendezvous

from fedqcl.engine.launcher import ForkLauncher, ScriptLauncher, die_with_launcher
from fedqcl.engine.pulse import meeting

JOIN_TIMEOUT = timedelta(minutes=30)
# A rank may wait long for one that has more to do; whether that one hangs is the guard's business.
COLLECTIVE_TIMEOUT = timedelta(hours=6)


class FederatedStrategy(DDPStrategy):
    """DDP's launch and process group without its wrapper, which would average gradients between clients.

    The ranks of one machine find each other on its loopback interface, where no other machine can connect.

    Attributes:
        store: what the ranks share besides tensors; None before they have joined.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._backward_sync_control = None
        self.store: Store | None = None

    @property
    def start_method(self) -> str:
        """How ranks are started."""
        return self._start_method

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Leave the module as it is."""
        return module

    def _configure_launcher(self) -> None:
        assert self.cluster_environment is not None
        if self._start_method == "popen":
            self._launcher = ScriptLauncher(self.cluster_environment, self.num_processes, self.num_nodes)
        else:
            self._launcher = ForkLauncher(self, start_method="fork")

    def _setup_distributed(self) -> None:
        die_with_launcher(self._start_method)
        self._set_world_ranks()
        self._process_group_backend = self._get_process_group_backend()
        if self.num_nodes == 1:
            _stay_on_loopback()
        if self._process_group_backend == "nccl":  # it complains of a group that is not destroyed
            atexit.register(_destroy_dist_connection)
        with meeting():
            self.store = self._join()
            dist.init_process_group(
                self._process_group_backend,
                store=self.store,
                rank=self.global_rank,
                world_size=self.world_size,
                timeout=COLLECTIVE_TIMEOUT,
                device_id=None if self.root_device.type == "cpu" else self.root_device,
            )

    def _join(self) -> Store:
        """Meet the other ranks."""
        environment = self.cluster_environment
        assert environment is not None
        rank, size = self.global_rank, self.world_size
        os.environ["MASTER_ADDR"] = environment.main_address
        os.environ["MASTER_PORT"] = str(environment.main_port)
        if self.num_nodes > 1 or isinstance(environment, TorchElasticEnvironment):
            store: Store = next(rendezvous("env://", rank, size, timeout=JOIN_TIMEOUT))[0]
            return store
        listener = socket.create_server(("127.0.0.1", environment.main_port)).detach() if rank == 0 else None
        return TCPStore("127.0.0.1", environment.main_port, size, rank == 0, JOIN_TIMEOUT, master_listen_fd=listener)


def _stay_on_loopback() -> None:
    """Let the backends listen where no other machine can connect, unless the user has chosen an interface."""
    name = "lo0" if sys.platform == "darwin" else "lo"
    for backend in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{backend}_SOCKET_IFNAME", name)
