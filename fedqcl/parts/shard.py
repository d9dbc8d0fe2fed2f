"""A client's own data of one task, as a method may use it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from torch import Tensor


class Shard(Protocol):
    """The data one client holds of the current task, and access to what it stored of earlier ones."""

    @property
    def client(self) -> int:
        """Client id."""
        ...

    @property
    def task(self) -> int:
        """The current task."""
        ...

    @property
    def index(self) -> np.ndarray:
        """The client's samples of the task, ``[n]`` int64."""
        ...

    @property
    def last_round(self) -> bool:
        """Whether the task ends with this round."""
        ...

    @property
    def stored(self) -> int | None:
        """How many samples the client had stored when it took its seat, known without a wait; None if not known."""
        ...

    def __len__(self) -> int:
        """``n``, the number of samples."""
        ...

    def memory_generator(self) -> np.random.Generator:
        """The generator that decides what this client stores of this task."""
        ...

    def samples(self, index: Tensor, newest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Samples as they are, without augmentation.

        Args:
            index: ``[n]`` int64; a negative one stands for any image.
            newest: the newest task whose classes compete in the class-incremental scenario; the current one by
                default.

        Returns:
            Images ``[n, C, H, W]`` float32, class columns ``[n]`` int64, competing columns ``[n, K]`` bool.
        """
        ...
