"""Experience replay (Chaudhry et al., 2019; aimagelab/mammoth ``models/er.py``) on every client, averaged by FedAvg."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import ReplayState, joint_loss
from fedqcl.parts import Batch, Memory, Shard, Spec
from fedqcl.types import Count, NonNegative


class WholeMemory(ReplayState):
    """A client whose replay batches are drawn from all past tasks together."""

    def replay(self, task: int) -> list[Tensor]:
        """One group: everything stored, once there is a past task."""
        return [torch.cat(super().replay(task))] if task > 0 else []


class ER(Method):
    """One mean over the current and the replayed samples, these drawn from a task-balanced memory.

    Args:
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples in a step.
        weight: what a replayed sample counts beside a current one.
    """

    def __init__(self, memory: Count = 500, replay_batch: Count = 13, weight: NonNegative = 1.0) -> None:
        self.memory = memory
        self.replay_batch = replay_batch
        self.weight = weight

    def client_state(self, spec: Spec) -> WholeMemory:
        """An empty memory."""
        return WholeMemory(Memory(self.memory, spec.num_tasks))

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Weighted mean of the cross-entropy over all samples of the step, ``[]``."""
        return joint_loss(net, batch, self.weight)

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Store a share of the finished task."""
        cast(WholeMemory, client).memory.store(shard.task, shard.index, shard.memory_generator())
        return {}
