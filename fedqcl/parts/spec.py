"""The problem as nets and methods see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Spec:
    """Sizes of a continual problem whose classes are numbered by task: task 0 has columns 0, 1, ..., task 1 the next.

    Attributes:
        channels: image channels.
        size: image height and width in pixels.
        classes: ``K_t``, the number of classes of each task.
        scenario: ``task`` (incremental): an image's task is known, and its classes alone compete; ``class``
            (incremental): all classes seen so far compete.

    Example:
        >>> spec = Spec(channels=3, size=(32, 32), classes=(2, 1))
        >>> spec.task_of_column()
        tensor([0, 0, 1])
        >>> spec.seen()
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """

    channels: int
    size: tuple[int, int]
    classes: tuple[int, ...]
    scenario: Literal["task", "class"] = "task"

    @property
    def num_tasks(self) -> int:
        """``T``."""
        return len(self.classes)

    @property
    def num_classes(self) -> int:
        """``K``, all tasks together: the width of the output layer."""
        return sum(self.classes)

    def task_of_column(self) -> Tensor:
        """The task that each output column belongs to: ``[K]`` int64."""
        return torch.repeat_interleave(torch.arange(self.num_tasks), torch.tensor(self.classes))

    def head(self) -> Tensor:
        """Row ``c``: the columns of class ``c``'s own task. ``[K, K]`` bool."""
        task = self.task_of_column()
        return task[:, None] == task[None, :]

    def seen(self) -> Tensor:
        """Row ``t``: the columns of task ``t`` and those before. ``[T, K]`` bool."""
        return self.task_of_column()[None, :] <= torch.arange(self.num_tasks)[:, None]
