"""DER and DER++ (Buzzega et al., 2020; aimagelab/mammoth ``models/derpp.py``) on every client, averaged by FedAvg."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import ReplayState, evaluating
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.logits import LogitMemory, columns_at_storage
from fedqcl.parts.losses import cross_entropy
from fedqcl.types import Count, NonNegative


class LogitState(ReplayState):
    """A client's samples and their logits, drawn from all past tasks together.

    Args:
        memory: the samples.
        draws: how many independent replay batches a step gets.
    """

    memory: LogitMemory

    def __init__(self, memory: LogitMemory, draws: int) -> None:
        super().__init__(memory)
        self.draws = draws

    def replay(self, task: int) -> list[Tensor]:
        """Everything stored, once for each draw, once there is a past task."""
        return [torch.cat(super().replay(task))] * self.draws if task > 0 else []


class DERpp(Method):
    """Replayed samples keep their logits and, in a second draw, their labels.

    A step minimises ``CE(current) + alpha * MSE(logits, stored logits) + beta * CE(replayed)``, each a mean. The
    memory is balanced over tasks and filled when a task ends, with the logits of the global model at that moment. (In
    the authors' code it is a reservoir filled while training, with the logits of the model in training.)

    Args:
        alpha: weight of the logits. The authors' best for ``M = 500`` are 0.2 for CIFAR-10 and TinyImageNet, 0.1 for
            CIFAR-100; Fed-Mammoth has 0.5.
        beta: weight of the labels; with 0 there is no second draw, and the method is DER.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples in each draw of a step.
        ce_scope: the columns that compete for the current samples in the class-incremental scenario: the ``current``
            task's, or all ``seen``. Replayed samples compete among all seen.
        logit_scope: the columns in which logits are compared in the class-incremental scenario. ``all_now_seen``: also
            those of tasks after the sample's own, whose stored logits are untrained; ``seen_at_storage``: not those.
    """

    def __init__(
        self,
        alpha: NonNegative = 0.2,
        beta: NonNegative = 0.5,
        memory: Count = 500,
        replay_batch: Count = 13,
        ce_scope: Literal["current", "seen"] = "current",
        logit_scope: Literal["all_now_seen", "seen_at_storage"] = "all_now_seen",
    ) -> None:
        self.alpha = alpha
        self.beta = beta
        self.memory = memory
        self.replay_batch = replay_batch
        self.ce_scope = ce_scope
        self.logit_scope = logit_scope

    def client_state(self, spec: Spec) -> LogitState:
        """An empty memory."""
        memory = LogitMemory(self.memory, spec.num_tasks, spec.num_classes)
        return LogitState(memory, draws=2 if self.beta > 0 else 1)

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Cross-entropy of the current samples, the first draw's logits and the second draw's labels, ``[]``."""
        logits = net(batch.x)
        current, _ = batch.split(cross_entropy(logits, batch.y, batch.competing(self.ce_scope)))
        _, replayed = batch.split(cross_entropy(logits, batch.y, batch.columns))
        compared = columns_at_storage(batch) if self.logit_scope == "seen_at_storage" else batch.columns
        distances = cast(LogitState, client).memory.distances(logits, batch, compared)
        matching = (batch.present * distances.mean(1))[:1].sum()
        labels = (batch.present * replayed.mean(1))[1:].sum()
        return current.mean() + self.alpha * matching + self.beta * labels

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Store a share of the finished task, and what the global model makes of it."""
        memory = cast(LogitState, client).memory
        memory.store(shard.task, shard.index, shard.memory_generator())
        with evaluating(net):
            memory.remember(net, shard)
        return {}


class DER(DERpp):
    """DER++ without labels: replayed samples keep their logits.

    Args:
        alpha: weight of the logits. The authors' best for ``M = 500`` are 0.3 for CIFAR-10 and CIFAR-100, 0.1 for
            TinyImageNet; Fed-Mammoth has 0.5.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples in a step.
        ce_scope: as in :class:`DERpp`.
        logit_scope: as in :class:`DERpp`.
    """

    def __init__(
        self,
        alpha: NonNegative = 0.3,
        memory: Count = 500,
        replay_batch: Count = 13,
        ce_scope: Literal["current", "seen"] = "current",
        logit_scope: Literal["all_now_seen", "seen_at_storage"] = "all_now_seen",
    ) -> None:
        super().__init__(alpha, 0.0, memory, replay_batch, ce_scope, logit_scope)
