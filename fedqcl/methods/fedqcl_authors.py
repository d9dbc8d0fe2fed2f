"""FedQCL with its queues as the authors' code measures them, each difference from :class:`FedQCL` an option."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, cast

import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Stats
from fedqcl.methods.fedqcl import FedQCL, QueueState
from fedqcl.methods.replay import evaluating
from fedqcl.parts import Memory, Queue, Shard, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.types import Count, NonNegative, Positive, Real


class AuthorsState(QueueState):
    """A client that also knows the reference losses of what it will have left of each task at the next task's end.

    Args:
        memory: the samples.
        queue: the queues.
        V: of every client in turn, or of all.

    Attributes:
        trimmed_reference: ``[T]`` float32 buffer.
    """

    trimmed_reference: Tensor

    def __init__(self, memory: Memory, queue: Queue, V: float | list[float]) -> None:
        super().__init__(memory, queue, V)
        self.register_buffer("trimmed_reference", torch.zeros_like(queue.reference))


class FedQCLAuthors(FedQCL):
    """FedQCL whose queues are measured as in the authors' code; with all options false it is :class:`FedQCL`.

    Args:
        V: weight of the current task, as in :class:`FedQCL`.
        delta: rise of the replay loss that is tolerated in a round, in the scale of the sum over batches.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples of every past task in a step.
        logit_matching: as in :class:`FedQCL`.
        normalise: as in :class:`FedQCL`, so that a learning rate that goes with it means the same here.
        batch_means: the replay loss is the sum of the batches' means, in which a last, smaller batch counts as much as
            a full one; otherwise the mean times the number of batches.
        train_mode: the model just trained is measured in training mode, each batch normalised by its own statistics,
            and the reference model in eval mode; otherwise both are in eval mode.
        pollute: measuring in training mode also moves the model's running statistics, which it is tested with.
        trim_before_queue: in a task's last round the memory is first trimmed to what the next task will find.
        skip_first_task: nothing of the first task is stored, as happens in their code with one round a task.
    """

    def __init__(
        self,
        V: Positive | list[Positive] = 200.0,
        delta: Real = 1.0,
        memory: Count = 500,
        replay_batch: Count = 13,
        logit_matching: NonNegative = 0.5,
        normalise: Literal["none", "V", "V+sumQ"] = "none",
        batch_means: bool = True,
        train_mode: bool = True,
        pollute: bool = True,
        trim_before_queue: bool = True,
        skip_first_task: bool = False,
    ) -> None:
        super().__init__(V, delta, memory, replay_batch, normalise=normalise, logit_matching=logit_matching)
        self.batch_means = batch_means
        self.train_mode = train_mode
        self.pollute = pollute
        self.trim_before_queue = trim_before_queue
        self.skip_first_task = skip_first_task

    def client_state(self, spec: Spec) -> AuthorsState:
        """An empty memory and empty queues."""
        state = super().client_state(spec)
        return AuthorsState(state.memory, state.queue, self.V)

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """As in FedQCL, in the net's mode that was chosen."""
        state = cast(AuthorsState, client)
        if self.trim_before_queue and shard.last_round:
            self._trim(state.memory)
            state.queue.reference.copy_(state.trimmed_reference)
        with self._measuring(net):
            return super().client_round(net, shard, client, server)

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """As in FedQCL; and measure what the queues of the next task's last round are measured from."""
        if self.skip_first_task and shard.task == 0:
            return {}
        with evaluating(net):
            super().client_task(net, shard, client, server)
            state = cast(AuthorsState, client)
            smaller = copy.deepcopy(state.memory)
            self._trim(smaller)
            state.trimmed_reference.copy_(self.next_loss(net, smaller, shard))
        return {}

    def replay_loss(
        self, net: nn.Module, memory: Memory, shard: Shard, newest: int, stored: int | None = None
    ) -> Tensor:
        """Batch by batch, in the mode that the net is in."""
        if not self.batch_means and not net.training:
            return super().replay_loss(net, memory, shard, newest, stored)
        total = torch.zeros(len(memory.count), device=memory.index.device)
        for task in range(len(total)):
            for part in memory.of_task(task).split(self.replay_batch):
                x, y, columns = shard.samples(part, newest)
                loss = cross_entropy(net(x), y, columns).sum()
                total[task] += loss / (max(1, len(part)) if self.batch_means else self.replay_batch)
        return total

    def _trim(self, memory: Memory) -> None:
        """Leave of every stored task what there is room for when there is one more."""
        memory.trim(self.memory // (int((memory.count > 0).sum()) + 1))

    @contextmanager
    def _measuring(self, net: nn.Module) -> Iterator[None]:
        """Run a block in the net's mode that was chosen; running statistics move only if they are to."""
        if not self.train_mode:
            with evaluating(net):
                yield
            return
        before = [] if self.pollute else [(value, value.clone()) for value in net.buffers()]
        yield
        for value, old in before:
            value.copy_(old)
