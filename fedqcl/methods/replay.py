"""What the methods that replay stored samples share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fedqcl.methods.base import ClientState
from fedqcl.parts import Batch, Memory, Shard
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.memory import CHUNK


class ReplayState(ClientState):
    """A client with a replay memory; a group of its replay batches is one past task.

    Args:
        memory: the samples.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory

    def replay(self, task: int) -> list[Tensor]:
        """The stored samples of every past task."""
        return [self.memory.of_task(k) for k in range(task)]

    def num_stored(self) -> int:
        """All in the memory."""
        return self.memory.num_stored()


def sample_losses(net: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the current samples ``[B]`` and the replayed ones ``[G, b]``, in one forward pass."""
    return batch.split(cross_entropy(net(batch.x), batch.y, batch.columns))


def joint_loss(net: nn.Module, batch: Batch, weight: float = 1.0) -> Tensor:
    """Mean cross-entropy of the current and the replayed samples together, ``[]``.

    Args:
        net: the client's model.
        batch: the samples of the step.
        weight: what a replayed sample counts beside a current one.
    """
    current, replayed = sample_losses(net, batch)
    weights = weight * batch.present
    total = current.sum() + (weights * replayed.sum(1)).sum()
    return total / (batch.size + weights.sum() * replayed.shape[1])


def task_losses(net: nn.Module, memory: Memory, shard: Shard, newest: int, stored: int | None = None) -> Tensor:
    """Mean cross-entropy of each task's stored samples, in eval mode.

    Args:
        net: the model to measure.
        memory: where the samples are.
        shard: gives access to them.
        newest: the newest task whose classes compete in the class-incremental scenario.
        stored: how many samples there are, if known; else all places are looked at, as on a GPU to count them is to
            wait for it.

    Returns:
        ``[T]``, 0 where none is stored.
    """
    places = memory.index[:stored]
    loss = torch.zeros(len(places), device=places.device)
    with torch.no_grad(), evaluating(net):
        for start in range(0, len(places), CHUNK):
            x, y, columns = shard.samples(places[start : start + CHUNK], newest)
            loss[start : start + CHUNK] = cross_entropy(net(x), y, columns)
    tasks = torch.arange(len(memory.count), device=loss.device)
    of_task = memory.task_of_place()[: len(places), None] == tasks
    return torch.where(of_task, loss[:, None], 0.0).sum(0) / memory.count.clamp_min(1)


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Run a block in eval mode, so that it leaves BatchNorm's running statistics alone."""
    training = net.training
    net.eval()
    try:
        yield
    finally:
        net.train(training)
