"""The replay memory of one client, kept as indices into its own data."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

# Stored samples that go through a model at once.
CHUNK = 500


def quotas(M: int, available: list[int]) -> list[int]:
    """Share ``M`` places among tasks, oldest first.

    Every task gets the same number as far as it has that many samples. What is over (the remainder of the division,
    or what a small task leaves) goes to the newest task that can use it, then the next newest.

    Args:
        M: places in all, 0 or more.
        available: how many samples each task could fill places with.

    Returns:
        Places of each task; their sum is ``min(M, sum(available))``.

    Example:
        >>> quotas(500, [2000, 2000, 2000])
        [166, 166, 168]
        >>> quotas(500, [40, 2000, 2000])
        [40, 230, 230]
    """
    low, high = 0, M
    while low < high:
        level = (low + high + 1) // 2
        if sum(min(level, n) for n in available) <= M:
            low = level
        else:
            high = level - 1
    share = [min(low, n) for n in available]
    spare = M - sum(share)
    for k in reversed(range(len(available))):
        extra = min(spare, available[k] - share[k])
        share[k] += extra
        spare -= extra
    return share


class Memory(nn.Module):
    """At most ``M`` samples, shared equally by the tasks seen (the paper's balanced memory).

    A task's samples are a random subset drawn when the task ends; when a later task needs room, each older one keeps
    the first of its own. Only indices are stored: the images stay where the client has them.

    Args:
        M: places in all.
        num_tasks: ``T``.

    Attributes:
        index: ``[M]`` int64 buffer, samples task by task; -1 marks an empty place.
        count: ``[T]`` int64 buffer, samples of each task.
    """

    index: Tensor
    count: Tensor

    def __init__(self, M: int, num_tasks: int) -> None:
        super().__init__()
        self.register_buffer("index", torch.full((M,), -1, dtype=torch.int64))
        self.register_buffer("count", torch.zeros(num_tasks, dtype=torch.int64))

    def num_stored(self) -> int:
        """How many samples there are. Looks at values."""
        return int(self.count.sum())

    def places(self, task: int) -> slice:
        """Where one task's samples stand. Looks at values."""
        start = int(self.count[:task].sum())
        return slice(start, start + int(self.count[task]))

    def of_task(self, task: int) -> Tensor:
        """The stored indices of one task, ``[count[task]]`` int64, in place."""
        return self.index[self.places(task)]

    def task_of_place(self) -> Tensor:
        """The task of each place, ``[M]`` int64; ``T`` where the place is empty. Needs no look at the values."""
        places = torch.arange(len(self.index), device=self.index.device)
        return torch.searchsorted(self.count.cumsum(0), places, right=True)

    def store(self, task: int, candidates: np.ndarray, rng: np.random.Generator) -> None:
        """Keep a random subset of a finished task, trimming the older ones to make room.

        Args:
            task: the task that ended; no later one may be stored already.
            candidates: indices of the client's samples of that task, ``[n]`` int64.
            rng: decides which are kept.
        """
        kept = [self.of_task(k) for k in range(task)]
        chosen = torch.from_numpy(rng.permutation(candidates)).to(self.index)
        share = quotas(len(self.index), [len(k) for k in kept] + [len(chosen)])
        stored = torch.cat([k[:n] for k, n in zip([*kept, chosen], share, strict=True)])
        self.index.fill_(-1)
        self.index[: len(stored)] = stored
        self.count[: task + 1] = torch.tensor(share, dtype=torch.int64)

    def trim(self, size: int) -> None:
        """Keep the first ``size`` samples of every task at most."""
        stored = torch.cat([self.of_task(k)[:size] for k in range(len(self.count))])
        self.index.fill_(-1)
        self.index[: len(stored)] = stored
        self.count.clamp_(max=size)
