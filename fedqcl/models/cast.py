"""All weights cast to bfloat16 in one kernel, and their gradients back in another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedqcl.models.beside import beside_current
from fedqcl.models.conv import Uses


def _copies(tensors: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """All tensors in another type, by one kernel on CUDA."""
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if tensors[0].is_cuda and all(a.stride() == b.stride() for a, b in zip(tensors, copies, strict=True)):
        from fedqcl.models.copy_triton import copy_together

        copy_together(tensors, copies)
    else:
        torch._foreach_copy_(copies, list(tensors))
    return tuple(copies)


class _CastTogether(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        return _copies(weights, torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        if grads[0].is_cuda:
            beside_current().join()
        return _copies(grads, torch.float32)


def autocast_weights(module: nn.Module) -> dict[str, Tensor]:
    """What autocast would do to a module's weights layer by layer, done at once.

    Args:
        module: to be called by ``torch.func.functional_call`` with what this returns.

    Returns:
        bfloat16 copies of the matrices and convolution kernels, by parameter name, marked with :class:`Uses`: their
        gradients may come from the stream beside the current one. None outside of training under bfloat16 autocast on
        CUDA, where the layers are left to themselves.
    """
    autocast = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    if not (module.training and autocast and torch.is_grad_enabled()):
        return {}
    weights = {name: weight for name, weight in module.named_parameters() if weight.dim() > 1 and weight.is_cuda}
    copies = dict(zip(weights, _CastTogether.apply(*weights.values()), strict=True)) if weights else {}
    for copy in copies.values():
        copy.uses = Uses()
    return copies
