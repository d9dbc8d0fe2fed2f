"""Batch normalisation, the sum with a shortcut and ReLU, as one step, with statistics over parts of the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedqcl.errors import InputError


class BatchNormReLU(nn.BatchNorm2d):
    """``relu(bn(x) + shortcut)``.

    In training, the statistics are taken over each part of the batch by itself if :attr:`parts` says so, exactly as
    separate forward passes would, the running statistics being updated part by part. On CUDA the whole is one
    fused kernel each way, or two for large parts, if the number of channels is a power of 2 or a multiple of 64.

    Args:
        num_features: channels.
        relu: apply the ReLU.

    Attributes:
        parts: sizes of the parts that a training batch consists of, in order; empty for one whole. A batch of another
            total size is taken as one whole.
    """

    def __init__(self, num_features: int, relu: bool = True) -> None:
        super().__init__(num_features)
        self.relu = relu
        self.parts: tuple[int, ...] = ()
        self.arrived: Tensor | None = None

    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        """Normalise.

        Args:
            x: ``[n, C, H, W]``.
            shortcut: added before the ReLU, the same shape.

        Returns:
            ``[n, C, H, W]``, in the type of ``x``.

        Raises:
            InputError: in training, a part with a single value a channel.
        """
        parts = self.parts if self.training and sum(self.parts) == len(x) else (len(x),)
        if self.training and min(parts, default=0) * x.shape[2] * x.shape[3] == 1:
            raise InputError(
                "data.batch_size: BatchNorm cannot normalise a single image that has shrunk to one pixel; use batches "
                "of 2 or more (of replayed images too if they are normalised apart) or larger images"
            )
        if self.training and self._fusable(x):
            from fedqcl.models.norm_triton import fused_batch_norm

            return fused_batch_norm(self, x, shortcut, parts)
        y = torch.cat([self._normalise(part) for part in x.split(parts)]) if len(parts) > 1 else self._normalise(x)
        y = y if shortcut is None else y.add_(shortcut)
        return y.relu_() if self.relu else y

    def _fusable(self, x: Tensor) -> bool:
        """Whether the kernels can take it: images there are, channels in equal blocks, positions in 32 bits."""
        C = self.num_features
        return x.is_cuda and (C % 64 == 0 or C & (C - 1) == 0) and 0 < x.numel() < 2**31

    def _normalise(self, x: Tensor) -> Tensor:
        momentum = self.momentum if self.momentum is not None else 0.0
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, momentum, self.eps
        )


def twin(x: Tensor) -> Tensor:
    """The same images for a second use, if a fused kernel has made them: it adds up the two gradients by itself."""
    second: Tensor = getattr(x, "twin", x)
    return second


def set_parts(net: nn.Module, parts: tuple[int, ...]) -> None:
    """Tell every :class:`BatchNormReLU` of a net which parts its training batches consist of."""
    for module in net.modules():
        if isinstance(module, BatchNormReLU):
            module.parts = parts
