"""Federated Orthogonal Training (Bakman et al., 2024; duygunuryldz/Federated_Orthogonal_Training)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from fedqcl.errors import InputError
from fedqcl.methods.base import ClientState, Method, Stats, Weights
from fedqcl.methods.replay import evaluating
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.subspace import Subspace, inner_layers, input_grams
from fedqcl.types import Fraction, Share

# Images whose patches are held at once.
IMAGES = 100


class Subspaces(nn.Module):
    """The subspace of past inputs of every inner layer of a net.

    Args:
        net: the net.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        layers = inner_layers(net)
        self.names = list(layers)
        self.spaces = nn.ModuleList(Subspace(layer.weight[0].numel()) for layer in layers.values())

    def items(self) -> Iterator[tuple[str, Subspace]]:
        """Pairs of a layer's name and its subspace."""
        for name, space in zip(self.names, self.spaces, strict=True):
            yield name, cast(Subspace, space)


class FOT(Method):
    """The server keeps the layers' updates orthogonal to the inputs that the layers had in past tasks.

    So a layer gives on past inputs what it gave when their task ended. Convolutions and linear layers are protected,
    all but the head and biases, which are averaged as they are. Clients train as in FedAvg. When a task ends they send
    ``A A^T`` of every layer's inputs under the global model, where the original sends a random sketch of ``A`` under
    the local one; so the share of the inputs that is new is one of all clients' inputs together.

    Args:
        epsilon: share of the inputs of the first task that its subspaces must hold: small favours plasticity.
        eps_inc: by how much ``epsilon`` grows from task to task, up to 1.
        residual: how the share of a task's inputs outside of the subspace is measured: by Frobenius norms, as the
            original does, or by their squares, in which ``epsilon`` itself is told; the former keeps more directions.
        bn: BatchNorm after the first task, which the original's nets do not have. ``freeze_after_first_task``: it
            normalises by its running statistics in training too, and nothing of it changes; ``free``: it is trained
            and averaged, and past tasks' outputs change with it.
    """

    def __init__(
        self,
        epsilon: Share = 0.9,
        eps_inc: Fraction = 0.001,
        residual: Literal["norm", "energy"] = "norm",
        bn: Literal["freeze_after_first_task", "free"] = "freeze_after_first_task",
    ) -> None:
        self.epsilon = epsilon
        self.eps_inc = eps_inc
        self.residual = residual
        self.bn = bn

    def check(self, spec: Spec, num_clients: int) -> None:
        """Refuse the class-incremental scenario, whose one head the projection cannot protect."""
        if spec.scenario == "class":
            raise InputError("model.method: FOT protects all layers but the heads; choose data.scenario task")

    def server_state(self, spec: Spec, net: nn.Module) -> Subspaces:
        """Empty subspaces.

        Raises:
            InputError: the net has convolutions whose inputs are not plain patches.
        """
        for name, layer in inner_layers(net).items():
            if isinstance(layer, nn.Conv2d) and (layer.groups > 1 or isinstance(layer.padding, str)):
                raise InputError(
                    f"model.net: FOT needs convolutions without groups and with padding in numbers; change {name}"
                )
        return Subspaces(net)

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples, ``[]``."""
        frozen = batch.task > 0 and self.bn == "freeze_after_first_task"
        logits = with_frozen_norms(net, batch.x) if frozen else net(batch.x)
        return cross_entropy(logits, batch.y, batch.columns).mean()

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        """Project every protected layer's update: ``w + D (I - P)`` for the averaged update ``D``."""
        projected = dict(average)
        for name, space in cast(Subspaces, server).items():
            entry = f"{name}.weight"
            update = (average[entry] - weights[entry]).flatten(1)
            projected[entry] = average[entry] - space.part_inside(update).view_as(average[entry])
        return projected

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """``A A^T`` of every protected layer's inputs, ``[d, d]``."""
        index = torch.from_numpy(shard.index).to(next(net.parameters()).device)
        with evaluating(net):
            return input_grams(net, (shard.samples(part)[0] for part in index.split(IMAGES) if len(part)))

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """Extend the subspaces by the inputs of the task that ended."""
        for name, space in cast(Subspaces, server).items():
            space.extend(stats[name], min(self.epsilon + task * self.eps_inc, 1.0), self.residual)


def with_frozen_norms(net: nn.Module, x: Tensor) -> Tensor:
    """Run a net whose BatchNorms use their running statistics, leave them alone and get no gradient: ``[n, K]``."""
    norms = {name: module for name, module in net.named_modules() if isinstance(module, _BatchNorm)}
    fixed = {f"{name}.{key}": p.detach() for name, norm in norms.items() for key, p in norm.named_parameters()}
    try:
        for norm in norms.values():
            norm.eval()
        logits: Tensor = functional_call(net, fixed, (x,))
    finally:
        for norm in norms.values():
            norm.train(net.training)
    return logits
