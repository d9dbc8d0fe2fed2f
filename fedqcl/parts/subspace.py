"""The subspaces in which the inputs of a net's layers lie, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Subspace(nn.Module):
    """A growing subspace of ``R^d``, as the projection onto it.

    Args:
        d: the dimension of the whole space.

    Attributes:
        projection: ``P = U U^T`` of an orthonormal basis ``U``, ``[d, d]`` float32 buffer; its trace is the rank.
    """

    projection: Tensor

    def __init__(self, d: int) -> None:
        super().__init__()
        self.register_buffer("projection", torch.zeros(d, d))

    def part_inside(self, rows: Tensor) -> Tensor:
        """The projection of each row onto the subspace: ``rows P``, ``[n, d]``, in the type of ``rows``."""
        return rows @ self.projection.to(rows)

    def extend(self, gram: Tensor, epsilon: float, residual: Literal["norm", "energy"]) -> None:
        """Take in new vectors, the columns of ``A``, by as few directions as hold a share ``epsilon`` of them.

        Of the part of ``A`` outside the subspace, with the share ``rho`` of the whole, the leading principal
        directions are added until they hold ``1 - (1 - epsilon) / rho`` of its energy. If that is not above zero,
        none is.

        Args:
            gram: ``A A^T``, ``[d, d]`` float64.
            epsilon: above 0, at most 1.
            residual: what ``rho`` is a ratio of: Frobenius norms, which keeps more, or their squares.
        """
        outside = gram - self.part_inside(gram)
        outside = outside - self.part_inside(outside.T).T
        total = gram.trace()
        rho = (outside.trace() / total).clamp_min(0.0)
        needed = 1 - (1 - epsilon) / (rho.sqrt() if residual == "norm" else rho)
        values, vectors = torch.linalg.eigh(outside)
        # What float32 cannot tell from nothing is no direction.
        energy = values.flip(0).where(values.flip(0) > torch.finfo(torch.float32).eps * total, 0.0)
        reached = energy.cumsum(0)
        count = int((reached - energy < needed * reached[-1]).sum())
        basis = vectors.flip(1)[:, :count]
        self.projection += basis @ basis.T


def inner_layers(net: nn.Module) -> dict[str, nn.Conv2d | nn.Linear]:
    """A net's convolutions and linear layers, all but the layer ``head``, by name."""
    layers = {name: m for name, m in net.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    return {name: layer for name, layer in layers.items() if name != "head"}


def input_grams(net: nn.Module, batches: Iterable[Tensor]) -> dict[str, Tensor]:
    """``A A^T`` of the inputs of every inner layer, in float32.

    A column of ``A`` is what a row of the layer's weights, end to end, is multiplied with: for a convolution a patch.

    Args:
        net: in eval mode, if the images are not to influence each other.
        batches: images, ``[n, C, H, W]`` each.

    Returns:
        ``[d, d]`` for each layer, by name.
    """
    grams = {}
    handles = []

    def adding_to(gram: Tensor) -> Callable[[nn.Module, Any], None]:
        def add(layer: nn.Module, inputs: tuple[Tensor]) -> None:
            A = _columns(layer, inputs[0])
            gram.addmm_(A, A.T)

        return add

    for name, layer in inner_layers(net).items():
        d = layer.weight[0].numel()
        grams[name] = torch.zeros(d, d, device=layer.weight.device)
        handles.append(layer.register_forward_pre_hook(adding_to(grams[name])))
    try:
        with torch.no_grad(), torch.autocast(next(net.parameters()).device.type, enabled=False):
            for x in batches:
                net(x)
    finally:
        for handle in handles:
            handle.remove()
    return grams


def _columns(layer: nn.Module, x: Tensor) -> Tensor:
    """What a layer's weights are multiplied with, ``[d, n]``."""
    if isinstance(layer, nn.Conv2d):
        assert not isinstance(layer.padding, str)
        patches = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        return patches.transpose(0, 1).flatten(1)
    return x.flatten(0, -2).T
