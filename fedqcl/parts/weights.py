"""Tensors shaped like a net's weights: where the weights were, and how much each of them matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


def trained_weights(net: nn.Module) -> dict[str, Tensor]:
    """The parameters of a net that are trained, by name: views without gradient."""
    return {name: weight.detach() for name, weight in net.named_parameters() if weight.requires_grad}


class Entries(nn.Module):
    """A buffer for each of a net's entries, of its shape, type and memory layout.

    Args:
        values: what to start as, by the entries' names.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._names = list(values)
        for name, value in values.items():
            self.register_buffer(name.replace(".", "/"), value.clone())  # a buffer's name may have no dot

    def by_name(self) -> dict[str, Tensor]:
        """The buffers by the entries' names."""
        return dict(zip(self._names, self.buffers(), strict=True))

    @torch.no_grad()
    def load(self, values: Mapping[str, Tensor]) -> None:
        """Copy values in place; entries of other names are passed over."""
        for name, buffer in self.by_name().items():
            buffer.copy_(values[name])


class WeightBuffers(Entries):
    """A buffer for every trained parameter of a net.

    Args:
        net: whose parameters to start as.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__(trained_weights(net))


def squared_distance(net: nn.Module, anchor: WeightBuffers, importance: WeightBuffers | None = None) -> Tensor:
    """``sum_j F_j (theta_j - theta*_j)^2`` over the trained parameters, ``[]``.

    Args:
        net: has the weights ``theta``, to which the gradient goes.
        anchor: ``theta*``.
        importance: ``F``, none of it negative; 1 everywhere if None.
    """
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    factors = None if importance is None else list(importance.buffers())
    distance: Tensor = _SquaredDistance.apply(list(anchor.buffers()), factors, *weights)
    return distance


class _SquaredDistance(torch.autograd.Function):
    """All tensors in a few kernels; autograd would launch several for each of them, in every step."""

    @staticmethod
    def forward(ctx: Any, anchor: list[Tensor], importance: list[Tensor] | None, *weights: Tensor) -> Tensor:
        moved = torch._foreach_sub(weights, anchor)
        ctx.pull = moved if importance is None else torch._foreach_mul(moved, importance)
        # No term is negative, so that the 1-norm is the sum.
        return torch.stack(torch._foreach_norm(torch._foreach_mul(moved, ctx.pull), 1)).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *torch._foreach_mul(ctx.pull, 2 * grad)
