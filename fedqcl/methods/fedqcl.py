"""FedQCL: replay whose weight is a queue of forgetting (the paper's drift-plus-penalty objective)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import ReplayState, sample_losses, task_losses
from fedqcl.parts import Batch, Memory, Queue, Shard, Spec
from fedqcl.types import Count, Positive, Real


class QueueState(ReplayState):
    """A client's memory and, for every past task, a virtual queue."""

    def __init__(self, memory: Memory, queue: Queue) -> None:
        super().__init__(memory)
        self.queue = queue

    def sit_out(self) -> None:
        """The queues stay as they are, and so does the Lyapunov function."""
        self.queue.drift.zero_()
        self.queue.drift_bound.zero_()

    def diagnostics(self) -> Mapping[str, Tensor]:
        """Queues of the past tasks, the Lyapunov function, its last drift and Lemma 1's bound of it."""
        past = self.memory.count > 0
        return {
            "queue": torch.where(past, self.queue.value, torch.nan),
            "lyapunov": self.queue.lyapunov(),
            "drift": self.queue.drift,
            "drift_bound": self.queue.drift_bound,
        }


class FedQCL(Method):
    """Federated queue-regulated continual learning.

    A step minimises ``V * current loss + sum_k Q_k * replay loss_k`` (paper, equation 8). After the local steps of
    every round ``Q_k`` grows by what the replay loss of task ``k`` rose over the model at the task's start, less
    ``delta`` (equation 4).

    Args:
        V: weight of the current task: large favours plasticity. With plain SGD it also scales the learning rate.
        delta: rise of the replay loss that is tolerated in a round, in the units of ``queue_loss``; may be negative.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples of every past task in a step.
        queue_loss: the replay loss as the queues measure it. ``batches``: the mean cross-entropy of a task's stored
            samples times the number of batches they fill (the scale of the authors' code, which sums over batches);
            ``mean``: the mean itself, as the paper writes it.
    """

    def __init__(
        self,
        V: Positive = 200.0,
        delta: Real = 1.0,
        memory: Count = 500,
        replay_batch: Count = 13,
        queue_loss: Literal["batches", "mean"] = "batches",
    ) -> None:
        self.V = V
        self.delta = delta
        self.memory = memory
        self.replay_batch = replay_batch
        self.queue_loss = queue_loss

    def client_state(self, spec: Spec) -> QueueState:
        """An empty memory and empty queues."""
        return QueueState(Memory(self.memory, spec.num_tasks), Queue(spec.num_tasks))

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Drift plus penalty, less its constant terms: ``V * current + sum_k Q_k * replay_k``, ``[]``."""
        Q = cast(QueueState, client).queue.value[: batch.groups]
        current, replayed = sample_losses(net, batch)
        return self.V * current.mean() + (Q * batch.present * replayed.mean(1)).sum()

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Update the queues by what the client's own model has forgotten (equation 4)."""
        state = cast(QueueState, client)
        state.queue.update(self._replay_loss(net, state, shard), self.delta, past=state.memory.count > 0)
        return {}

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Store a share of the finished task, and measure what the next one's forgetting is measured from."""
        state = cast(QueueState, client)
        state.memory.store(shard.task, shard.index, shard.memory_generator())
        state.queue.reference.copy_(self._replay_loss(net, state, shard))
        return {}

    def _replay_loss(self, net: nn.Module, state: QueueState, shard: Shard) -> Tensor:
        mean = task_losses(net, state.memory, shard)
        return mean if self.queue_loss == "mean" else mean * state.memory.count / self.replay_batch
