"""All weights cast to bfloat16 in one kernel, and their gradients back in another, or taken as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fedqcl.models.beside import beside_current
from fedqcl.models.conv import Uses


def _alike(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether the numbers of both lie in the same order."""

    def steps(tensor: Tensor) -> list[int]:
        return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1]

    return all(steps(a) == steps(b) for a, b in zip(tensors, others, strict=True))


def _copies(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """All tensors in another type, by one kernel on CUDA."""
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if tensors[0].is_cuda and _alike(tensors, copies):
        from fedqcl.models.foreach_triton import copy_together

        copy_together(tensors, copies)
    else:
        torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)


class NarrowGradients:
    """The place of gradients that are left in bfloat16, while there is one."""

    def __init__(self) -> None:
        self._welcome: Set[Tensor] = frozenset()
        self._by_weight: dict[Tensor, Tensor] = {}

    @contextmanager
    def kept(self, weights: Set[Tensor]) -> Iterator[dict[Tensor, Tensor]]:
        """A backward pass inside leaves the gradients of cast weights here, and adds nothing to the weights' ``grad``.

        But of a net that has run more than once, the gradients of only one run are left here. Others go the usual way,
        as does what else depends on the weights: a gradient is the sum of both.

        Args:
            weights: those whose gradients are wanted so: leaves, float32.

        Yields:
            The gradients by weight: bfloat16, of the weight's layout.
        """
        self._welcome, self._by_weight = weights, {}
        try:
            yield self._by_weight
        finally:
            self._welcome = frozenset()

    def keep(self, weights: Sequence[Tensor], grads: Sequence[Tensor]) -> bool:
        """Leave gradients here, if all are wanted; from every thread, as backward passes have their own."""
        if not all(weight in self._welcome and weight not in self._by_weight for weight in weights):
            return False
        if not _alike(weights, grads):
            return False
        self._by_weight.update(zip(weights, grads, strict=True))
        return True


narrow_gradients = NarrowGradients()


class _CastTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.weights = weights
        return _copies(weights, torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if grads[0].is_cuda:
            beside_current().join()
        if narrow_gradients.keep(ctx.weights, grads):
            return (None,) * len(grads)
        return _copies(grads, torch.float32)


def autocast_weights(module: nn.Module) -> dict[str, Tensor]:
    """What autocast would do to a module's weights layer by layer, done at once.

    Args:
        module: to be called by ``torch.func.functional_call`` with what this returns.

    Returns:
        bfloat16 copies of the float32 matrices and convolution kernels, by parameter name, marked with :class:`Uses`:
        their gradients may come from the stream beside the current one. None outside of training under bfloat16
        autocast on CUDA, where the layers are left to themselves.
    """
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    if not (module.training and autocast and torch.is_grad_enabled()):
        return {}
    weights = {
        name: weight
        for name, weight in module.named_parameters()
        if weight.dim() > 1 and weight.is_cuda and weight.dtype == torch.float32
    }
    copies = dict(zip(weights, _CastTogether.apply(*weights.values()), strict=True)) if weights else {}
    for copy in copies.values():
        copy.uses = Uses()
    return copies
