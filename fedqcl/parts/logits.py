"""A replay memory that also knows what the model said when a task ended."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedqcl.parts.batch import Batch
from fedqcl.parts.memory import CHUNK, Memory
from fedqcl.parts.shard import Shard


class LogitMemory(Memory):
    """A memory with the logits of each stored sample under the model at the end of its task.

    Args:
        M: places in all.
        num_tasks: ``T``.
        num_classes: ``K``.

    Attributes:
        logits: ``[M, K]`` float32 buffer, in the order of ``index``; of no meaning where the place is empty.
    """

    logits: Tensor

    def __init__(self, M: int, num_tasks: int, num_classes: int) -> None:
        super().__init__(M, num_tasks)
        self.register_buffer("logits", torch.zeros(M, num_classes))

    def store(self, task: int, candidates: np.ndarray, rng: np.random.Generator) -> None:
        """As :meth:`Memory.store`; logits follow their samples, and those of the new ones wait for :meth:`remember`."""
        before = self.index.clone()
        super().store(task, candidates, rng)
        self._follow(before)

    def trim(self, size: int) -> None:
        """As :meth:`Memory.trim`; logits follow their samples."""
        before = self.index.clone()
        super().trim(size)
        self._follow(before)

    def _follow(self, before: Tensor) -> None:
        """Bring the logits to where their samples have gone."""
        order = before.argsort()
        places = torch.searchsorted(before[order], self.index).clamp_max(len(before) - 1)
        self.logits.copy_(self.logits[order[places]])

    def remember(self, net: nn.Module, shard: Shard) -> None:
        """Keep the logits of the samples just stored.

        Args:
            net: the model whose logits to keep, in eval mode.
            shard: the task that ended.
        """
        new, logits = self.of_task(shard.task), self.logits[self.places(shard.task)]
        for start in range(0, len(new), CHUNK):
            logits[start : start + CHUNK] = net(shard.samples(new[start : start + CHUNK])[0])

    def distances(self, logits: Tensor, batch: Batch, columns: Tensor) -> Tensor:
        """Mean squared difference of each replayed sample's logits and its stored ones.

        Shapes depend on no value, so that a step can be captured. A sample that is not stored, a stand-in, is compared
        with another's logits and must get no weight.

        Args:
            logits: of the whole batch, ``[n, K]``.
            batch: the step's samples.
            columns: which columns to compare, ``[n, K]`` bool.

        Returns:
            ``[G, b]``, each the mean over the sample's columns.
        """
        stored = self.logits[_places(batch.index, self.index)]
        squares = torch.where(columns, logits - stored, 0.0).square()
        _, replayed = batch.split(squares.sum(1) / columns.sum(1))
        return replayed


def columns_at_storage(batch: Batch) -> Tensor:
    """Of the columns that compete for each sample, those that did when its own task ended: ``[n, K]`` bool."""
    column = torch.arange(batch.own.shape[1], device=batch.own.device)
    newest = (batch.own * column).amax(1, keepdim=True)
    return batch.columns & (column <= newest)


def _places(index: Tensor, stored: Tensor) -> Tensor:
    """Where each index stands among the stored ones, ``[n]`` int64; 0 if it does not."""
    return (index[:, None] == stored).int().argmax(1)
