"""Losses over the output columns that compete for a sample."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, y: Tensor, columns: Tensor) -> Tensor:
    """Cross-entropy of each sample among its own columns.

    Hiding the other columns gives exactly the loss of a separate head, and a zero gradient to every other head.

    Args:
        logits: ``[n, K]``.
        y: class columns, ``[n]`` int64, each visible in its row.
        columns: ``[n, K]`` bool, the columns that compete.

    Returns:
        ``[n]``, in nats.

    Example:
        >>> import torch
        >>> logits, y = torch.zeros(1, 4), torch.tensor([0])
        >>> cross_entropy(logits, y, torch.tensor([[True, True, False, False]]))  # log 2
        tensor([0.6931])
    """
    return F.cross_entropy(logits.masked_fill(~columns, float("-inf")), y, reduction="none")
