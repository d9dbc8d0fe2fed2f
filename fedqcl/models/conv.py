"""A convolution whose two gradients are worked out side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedqcl.models.beside import beside_current


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return torch.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors

        def gradient(of_x: bool, of_weight: bool) -> tuple[Tensor, Tensor]:
            grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
                grad, x, weight, None, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, (of_x, of_weight, False)
            )
            return grads[:2]

        grad_x = grad_weight = None
        if ctx.needs_input_grad[1]:
            with beside_current().work(grad, x):
                _, grad_weight = gradient(False, True)
        if ctx.needs_input_grad[0]:
            grad_x, _ = gradient(True, False)
        return grad_x, grad_weight, None, None


class Conv2d(nn.Conv2d):
    """A convolution that may leave the gradient of its weights under way when its backward pass is done.

    It does so if its weights are ``cast_together``: whoever cast them waits for their gradients.
    """

    def forward(self, x: Tensor) -> Tensor:
        """``[n, inputs, H, W]`` to ``[n, outputs, H', W']``."""
        if getattr(self.weight, "cast_together", False):
            y: Tensor = _Conv.apply(x.to(self.weight.dtype), self.weight, self.stride, self.padding)
            return y
        return super().forward(x)
