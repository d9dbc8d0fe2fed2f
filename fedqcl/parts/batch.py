"""One step's images: the current task's first, then the replayed ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """``n = B + G * b`` samples of one local step, replayed ones in ``G`` groups of ``b``.

    A method says by :meth:`ClientState.replay` what a group is: one past task (FedQCL) or the whole memory (ER).

    Attributes:
        x: normalised images, ``[n, C, H, W]`` float32.
        y: class columns, ``[n]`` int64.
        columns: the output columns that compete for each sample in the scenario, ``[n, K]`` bool.
        own: the columns of each sample's own task, ``[n, K]`` bool; in the task-incremental scenario the same.
        index: where each sample lies in the client's data, ``[n]`` int64, as :class:`Memory` stores it.
        task: the current task.
        size: ``B``, how many of the samples are the current task's.
        present: ``[G]`` float32, 1 where the client has samples of the group. A group of which it has none is filled
            with stand-ins of the current task, so that shapes stay fixed, and must get no weight.
    """

    x: Tensor
    y: Tensor
    columns: Tensor
    own: Tensor
    index: Tensor
    task: int
    size: int
    present: Tensor

    @property
    def groups(self) -> int:
        """``G``."""
        return self.present.shape[0]

    def competing(self, scope: Literal["seen", "current"]) -> Tensor:
        """The columns that compete for each sample, ``[n, K]`` bool.

        Args:
            scope: ``seen``: those of the scenario; ``current``: those of the sample's own task.
        """
        return self.columns if scope == "seen" else self.own

    def split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Part per-sample values ``[n, ...]`` into the current ``[B, ...]`` and the replayed ``[G, b, ...]``."""
        current, replayed = values[: self.size], values[self.size :]
        if self.groups == 0:
            return current, replayed.unsqueeze(1)
        return current, replayed.unflatten(0, (self.groups, -1))
