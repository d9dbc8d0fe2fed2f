"""A convolution whose two gradients are worked out side by side where they leave each other room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedqcl.models.beside import beside_current

# Numbers of a result up to which two kernels share a GPU well; those of larger ones fill it by themselves.
FITS_BESIDE = 2**21


@dataclass
class Uses:
    """How often a forward pass has used weights whose gradient may stay under way when a backward pass goes on.

    Whoever marks weights with it waits for their gradients. Those of weights used twice are added up before that.
    """

    count: int = 0


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, uses: Uses, stride: tuple[int, ...], padding: tuple[int, ...]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.uses, ctx.stride, ctx.padding = uses, stride, padding
        uses.count += 1
        return torch.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors

        def gradients(of_x: bool, of_weight: bool) -> tuple[Tensor, Tensor]:
            grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
                grad, x, weight, None, ctx.stride, ctx.padding, (1, 1), False, (0, 0), 1, (of_x, of_weight, False)
            )
            return grads[:2]

        of_x, of_weight = ctx.needs_input_grad[:2]
        if not (of_weight and ctx.uses.count == 1 and grad.numel() <= FITS_BESIDE):
            return (*gradients(of_x, of_weight), None, None, None)
        with beside_current().work(grad, x):
            _, grad_weight = gradients(False, True)
        grad_x, _ = gradients(True, False) if of_x else (None, None)
        return grad_x, grad_weight, None, None, None


class Conv2d(nn.Conv2d):
    """A convolution that may leave the gradient of its weights under way, if they are marked with :class:`Uses`."""

    def forward(self, x: Tensor) -> Tensor:
        """``[n, inputs, H, W]`` to ``[n, outputs, H', W']``."""
        uses = getattr(self.weight, "uses", None)
        if uses is None or not self._is_plain():
            return super().forward(x)
        assert not isinstance(self.padding, str)
        y: Tensor = _Conv.apply(x.to(self.weight.dtype), self.weight, uses, self.stride, self.padding)
        return y

    def _is_plain(self) -> bool:
        """Whether there is nothing but weights, stride and padding with zeros in numbers."""
        zeros = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        return self.bias is None and self.groups == 1 and self.dilation == (1, 1) and zeros
