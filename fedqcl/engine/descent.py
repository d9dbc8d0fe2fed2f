"""A step down the gradient of a loss."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from fedqcl.models.cast import narrow_gradients


class Descent:
    """A backward pass and an optimizer's step.

    Args:
        optimizer: of the weights that the loss depends on.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def __call__(self, loss: Tensor) -> None:
        """Move the weights.

        Args:
            loss: ``[]``.
        """
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class PlainDescent(Descent):
    """The step of SGD without momentum, for which bfloat16 gradients need not be written in float32 first.

    Args:
        optimizer: for which :func:`is_plain`.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        super().__init__(optimizer)
        self.weights = frozenset(w for group in optimizer.param_groups for w in group["params"] if w.requires_grad)

    def __call__(self, loss: Tensor) -> None:
        """Move the weights."""
        self.optimizer.zero_grad()
        with narrow_gradients.kept(self.weights) as narrow:
            loss.backward()
        for group in self.optimizer.param_groups:
            weights = [weight for weight in group["params"] if weight in narrow]
            _add(weights, [narrow[weight] for weight in weights], -float(group["lr"]))
        self.optimizer.step()


def is_plain(optimizer: Optimizer) -> bool:
    """Whether a step is no more than ``w -= lr * gradient``."""
    if type(optimizer) is not SGD or optimizer._optimizer_step_pre_hooks:
        return False
    more = ("momentum", "weight_decay", "maximize", "differentiable")
    return not any(
        isinstance(group["lr"], Tensor) or any(group[key] for key in more) for group in optimizer.param_groups
    )


@torch.no_grad()
def _add(weights: list[Tensor], grads: list[Tensor], factor: float) -> None:
    if weights and weights[0].is_cuda:
        from fedqcl.models.foreach_triton import add_together

        add_together(weights, grads, factor)
    elif weights:
        torch._foreach_add_(weights, grads, alpha=factor)
