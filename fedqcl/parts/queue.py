"""Virtual queues: how much forgetting has built up, one queue per past task."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Queue(nn.Module):
    """The virtual queues of one client (paper, equation 4) and its Lyapunov function.

    Args:
        num_tasks: ``T``.

    Attributes:
        value: ``Q``, ``[T]`` float32 buffer, never below zero; zero for a task not yet past.
        reference: ``[T]`` float32 buffer, the replay loss of each past task under the model the task started from.
        drift: ``[]`` float32 buffer, how much the Lyapunov function grew in the last update.
        drift_bound: ``[]`` float32 buffer, Lemma 1's upper bound of that drift.

    Example:
        >>> queue, past = Queue(num_tasks=2), torch.tensor([True, False])
        >>> queue.reference.copy_(torch.tensor([0.5, 0.0]))
        tensor([0.5000, 0.0000])
        >>> queue.update(torch.tensor([2.0, 0.0]), delta=1.0, past=past)
        >>> queue.value  # 0 + 2 - 0.5 - 1
        tensor([0.5000, 0.0000])
        >>> queue.update(torch.tensor([1.0, 0.0]), delta=1.0, past=past)
        >>> queue.value  # 0.5 + 1 - 0.5 - 1
        tensor([0., 0.])
    """

    value: Tensor
    reference: Tensor
    drift: Tensor
    drift_bound: Tensor

    def __init__(self, num_tasks: int) -> None:
        super().__init__()
        for name, shape in (
            ("value", num_tasks),
            ("reference", num_tasks),
            ("drift", ()),
            ("drift_bound", ()),
        ):
            self.register_buffer(name, torch.zeros(shape))

    def lyapunov(self) -> Tensor:
        """``L = 1/2 sum_k Q_k^2``, ``[]``."""
        return 0.5 * self.value.square().sum()

    def update(self, loss: Tensor, delta: float, past: Tensor) -> None:
        """``Q_k <- max(Q_k + loss_k - reference_k - delta, 0)`` for every past task (equation 4).

        Args:
            loss: replay loss of each task under the model just trained, ``[T]``, in the units of ``reference``.
            delta: the rise that is tolerated in one round; negative asks for a fall.
            past: ``[T]`` bool, the tasks of which the client holds samples; the others' queues stay as they are.
        """
        rise = torch.where(past, loss - self.reference - delta, 0.0)
        before = self.lyapunov()
        # At an infinite delta the rise is -inf and so would the bound's square be; the queue is then simply empty.
        self.drift_bound.copy_((0.5 * rise.square() + torch.where(self.value > 0, self.value * rise, 0.0)).sum())
        self.value.copy_((self.value + rise).clamp_min(0.0))
        self.drift.copy_(self.lyapunov() - before)
