"""Everything random about one client's round, drawn before the round starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedqcl.data.augment import Augment, Views
from fedqcl.data.pool import Pool
from fedqcl.parts import Batch
from fedqcl.rng import Purpose, generator


@dataclass(frozen=True)
class Stream:
    """The samples of ``S`` local steps, ``n = B + G * b`` in each.

    Attributes:
        index: positions in the pool, ``[S, n]`` int64: the current batch, then ``b`` of each replay group.
        views: how each is augmented, ``[S, n]``; None for no augmentation.
        present: ``[G]`` float32, 1 where the client has samples of the group.
        size: ``B``.
        task: the current task.
    """

    index: Tensor
    views: Views | None
    present: Tensor
    size: int
    task: int

    def __len__(self) -> int:
        """``S``, the number of steps."""
        return len(self.index)

    @property
    def parts(self) -> tuple[int, ...]:
        """Sizes of the current batch and of each replay group, ``(B, b, b, ...)``."""
        groups = len(self.present)
        return (self.size, *[(self.index.shape[1] - self.size) // groups] * groups) if groups else (self.size,)

    def to(self, device: torch.device) -> Stream:
        """A copy on a device."""
        return Stream(
            self.index.to(device, non_blocking=True),
            None if self.views is None else self.views.to(device),
            self.present.to(device, non_blocking=True),
            self.size,
            self.task,
        )

    def batch(self, pool: Pool, step: int) -> Batch:
        """Gather one step's batch from a pool on the same device."""
        index = self.index[step]
        images = pool.look(index, None if self.views is None else self.views[step])
        return pool.batch(images, index, self.task, self.size, self.present)


@dataclass(frozen=True)
class Sampler:
    """Draws streams; all clients share one.

    Attributes:
        seed: the run's seed.
        batch_size: ``B``.
        replay_batch: ``b``, above 0 if there are replay groups.
        epochs: ``R``, local epochs of a round.
        augment: how images are augmented; None for not at all.
        labels: the pool's class columns, for batches in which all classes are equally likely; None for plain shuffles.
    """

    seed: int
    batch_size: int
    replay_batch: int
    epochs: int
    augment: Augment | None
    labels: np.ndarray | None = None

    def draw(self, client: int, task: int, round: int, shard: np.ndarray, groups: list[Tensor]) -> Stream:
        """Draw a client's round.

        The epochs follow one another without a gap: the round's batches are cut from ``R`` shuffles of the shard laid
        end to end, and the last batch is filled up from as many more as it takes. So there are ``ceil(R n / B)``
        steps, every batch has ``B`` samples, and no sample is left out. Class-balanced, there are ``R floor(n / B)``
        steps, but at least one, and every sample is drawn anew from all.

        Args:
            client: client id; with ``task`` and ``round`` the key of the draw.
            task: the current task.
            round: the round within the task.
            shard: the client's samples of the task, ``[n]`` int64, not empty.
            groups: the stored samples of each replay group, ``[m]`` int64 each. One without samples gets stand-ins
                from the shard.
        """

        def rng(purpose: Purpose) -> np.random.Generator:
            return generator(self.seed, purpose, client=client, task=task, round=round)

        current = self._current(shard, rng(Purpose.BATCHES))
        steps, columns = len(current), [current]
        replay = rng(Purpose.REPLAY)
        for group in groups:
            source = group.numpy() if len(group) else shard
            columns.append(cycle(source, steps * self.replay_batch, replay).reshape(steps, -1))
        index = torch.from_numpy(np.concatenate(columns, axis=1))
        fresh = self.augment if self.augment and not self.augment.frozen else None
        views = fresh.draw(tuple(index.shape), rng(Purpose.AUGMENT)) if fresh else None
        present = torch.tensor([float(len(group) > 0) for group in groups])
        return Stream(index, views, present, self.batch_size, task)

    def _current(self, shard: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The current task's samples in each step, ``[S, B]``."""
        if self.labels is None:
            steps = -(-self.epochs * len(shard) // self.batch_size)
            return cycle(shard, steps * self.batch_size, rng).reshape(steps, -1)
        steps = max(1, self.epochs * (len(shard) // self.batch_size))
        _, y, count = np.unique(self.labels[shard], return_inverse=True, return_counts=True)
        return rng.choice(shard, (steps, self.batch_size), p=1 / (count[y] * len(count)))


def cycle(items: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """The first ``count`` of as many shuffles of ``items``, laid end to end, as that takes."""
    passes = -(-count // len(items))
    return rng.permuted(np.tile(items, (passes, 1)), axis=1).reshape(-1)[:count]
