"""FedQCL: replay whose weight is a queue of forgetting (the paper's drift-plus-penalty objective)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import torch
from torch import Tensor, nn

from fedqcl.errors import InputError
from fedqcl.methods.base import ClientState, Method, Stats
from fedqcl.methods.replay import ReplayState, evaluating, task_losses
from fedqcl.parts import Batch, Memory, Queue, Shard, Spec
from fedqcl.parts.logits import LogitMemory, columns_at_storage
from fedqcl.parts.losses import cross_entropy
from fedqcl.types import Count, NonNegative, Positive, Real


class QueueState(ReplayState):
    """A client's memory and, for every past task, a virtual queue.

    Args:
        memory: the samples.
        queue: the queues.
        V: of every client in turn, or of all.

    Attributes:
        V: the client's own, ``[]`` float32 buffer.
    """

    V: Tensor

    def __init__(self, memory: Memory, queue: Queue, V: float | list[float]) -> None:
        super().__init__(memory)
        self.queue = queue
        self._all = V
        self.register_buffer("V", torch.tensor(V[0] if isinstance(V, list) else V))

    def start(self, client: int, net: nn.Module) -> None:
        """Take the client's own ``V``."""
        if isinstance(self._all, list):
            self.V.fill_(self._all[client])

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

    In the class-incremental scenario the replayed samples also keep the logits that the global model gave them at the
    end of their task: a penalty beside the current loss, so ``V`` times as much.

    Args:
        V: weight of the current task: large favours plasticity. With plain SGD it also scales the learning rate. A
            list gives every client its own.
        delta: rise of the replay loss that is tolerated in a round, in the units of ``queue_loss``; may be negative.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples of every past task in a step.
        queue_loss: the replay loss as the queues measure it. ``batches``: the mean cross-entropy of a task's stored
            samples times the number of batches they fill (the scale of the authors' code, which sums over batches);
            ``mean``: the mean itself, as the paper writes it.
        queue_scope: the classes among which the queues measure in the class-incremental scenario: all ``seen``, the
            current ones included, so that what these take from the past ones counts as forgetting; or those of ``past``
            tasks alone, which the model at the task's start knew as well. That hides most of what is forgotten there,
            and leaves the queues empty.
        initial_queue: what a task's queue starts with when the task ends.
        normalise: what the objective is divided by: nothing; ``V``, so that the learning rate is that of other methods;
            or ``V+sumQ``, so that it is a weighted mean.
        logit_matching: weight of the logits beside the current loss in the class-incremental scenario; the
            task-incremental method has no such term.
        quadratic_drift: whether to minimise Lemma 1's other term as well, ``1/2 sum_k (replay_k - reference_k -
            delta)^2``, which the paper drops. It draws the replay loss to ``reference + delta`` from below as well; in
            the class-incremental scenario it also counts what the current classes take from the past ones.
    """

    def __init__(
        self,
        V: Positive | list[Positive] = 200.0,
        delta: Real = 1.0,
        memory: Count = 500,
        replay_batch: Count = 13,
        queue_loss: Literal["batches", "mean"] = "batches",
        queue_scope: Literal["seen", "past"] = "seen",
        initial_queue: NonNegative = 0.0,
        normalise: Literal["none", "V", "V+sumQ"] = "none",
        logit_matching: NonNegative = 0.5,
        quadratic_drift: bool = False,
    ) -> None:
        self.V = V
        self.delta = delta
        self.memory = memory
        self.replay_batch = replay_batch
        self.queue_loss = queue_loss
        self.queue_scope = queue_scope
        self.initial_queue = initial_queue
        self.normalise = normalise
        self.logit_matching = logit_matching
        self.quadratic_drift = quadratic_drift

    def check(self, spec: Spec, num_clients: int) -> None:
        """Refuse a list of ``V`` that is not one for each client."""
        if isinstance(self.V, list) and len(self.V) != num_clients:
            raise InputError(
                f"model.method.V: lists {len(self.V)} values and data.num_clients is {num_clients}; give one number, "
                "or one for each client"
            )

    def client_state(self, spec: Spec) -> QueueState:
        """An empty memory and empty queues."""
        memory = Memory(self.memory, spec.num_tasks)
        if spec.scenario == "class" and self.logit_matching > 0:
            memory = LogitMemory(self.memory, spec.num_tasks, spec.num_classes)
        return QueueState(memory, Queue(spec.num_tasks), self.V)

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Drift plus penalty, less its constant terms: ``V * current + sum_k Q_k * replay_k``, ``[]``."""
        state = cast(QueueState, client)
        logits = net(batch.x)
        current, replayed = batch.split(cross_entropy(logits, batch.y, batch.columns))
        penalty, replay = current.mean(), replayed.mean(1)
        if isinstance(state.memory, LogitMemory) and batch.groups > 0:
            distances = state.memory.distances(logits, batch, columns_at_storage(batch))
            penalty = penalty + self.logit_matching * (batch.present * distances.mean(1)).mean()
        Q = batch.present * state.queue.value[: batch.groups]
        drift = Q * replay
        if self.quadratic_drift:
            drift = drift + batch.present * self._quadratic(state, replay)
        objective = state.V * penalty + drift.sum()
        if self.normalise == "none":
            return objective
        return objective / (state.V if self.normalise == "V" else state.V + Q.sum())

    def _quadratic(self, state: QueueState, replay: Tensor) -> Tensor:
        """Lemma 1's quadratic term of each past task, ``[G]``, in the unit that the replay loss has beside it."""
        count, reference = (values[: len(replay)] for values in (state.memory.count, state.queue.reference))
        unit = self._as_queued(torch.ones_like(replay), count.clamp_min(1))
        return 0.5 * (unit * replay - reference - self.delta).square() / unit

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Update the queues by what the client's own model has forgotten (equation 4)."""
        state = cast(QueueState, client)
        newest = shard.task - (self.queue_scope == "past")
        loss = self.replay_loss(net, state.memory, shard, newest, shard.stored)
        state.queue.update(loss, self.delta, past=state.memory.count > 0)
        return {}

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Store a share of the finished task, and measure what the next one's forgetting is measured from."""
        state = cast(QueueState, client)
        state.memory.store(shard.task, shard.index, shard.memory_generator())
        if isinstance(state.memory, LogitMemory):
            with evaluating(net):
                state.memory.remember(net, shard)
        if len(shard):
            state.queue.value[shard.task] = self.initial_queue
        state.queue.reference.copy_(self.next_loss(net, state.memory, shard))
        return {}

    def next_loss(self, net: nn.Module, memory: Memory, shard: Shard) -> Tensor:
        """The replay loss of each task, ``[T]``, as a task ends: among the classes that the next one's queues count."""
        newest = min(shard.task + (self.queue_scope == "seen"), len(memory.count) - 1)
        return self.replay_loss(net, memory, shard, newest, memory.num_stored())

    def replay_loss(
        self, net: nn.Module, memory: Memory, shard: Shard, newest: int, stored: int | None = None
    ) -> Tensor:
        """The replay loss of each task as the queues measure it, ``[T]``.

        Args:
            net: the model to measure.
            memory: the client's.
            shard: gives access to its samples.
            newest: the newest task whose classes compete in the class-incremental scenario.
            stored: how many samples the memory holds, if known.
        """
        return self._as_queued(task_losses(net, memory, shard, newest, stored), memory.count)

    def _as_queued(self, mean: Tensor, count: Tensor) -> Tensor:
        """The mean loss of so many stored samples of each task in the queues' unit."""
        return mean if self.queue_loss == "mean" else mean * count / self.replay_batch
