"""What a client runs: a net, a method and an optimizer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.optim import Optimizer

from fedqcl.methods import ClientState, Method
from fedqcl.models import Net, ResNet18
from fedqcl.parts import Batch, Spec
from fedqcl.rng import Purpose, generator

NetCallable = Callable[[int, int], Net]


class Learner(LightningModule):
    """Glues a method to a net and an optimizer; the only thing an engine runs.

    Args:
        method: the federated continual-learning method.
        net: makes the net from the number of image channels and the number of classes of all tasks.
        optimizer: makes a client's optimizer; it starts afresh in every round.
    """

    def __init__(
        self,
        method: Method,
        net: NetCallable = ResNet18,
        optimizer: OptimizerCallable = lambda parameters: torch.optim.SGD(parameters, lr=0.005),
    ) -> None:
        super().__init__()
        self.method = method
        self._make_net = net
        self._make_optimizer = optimizer

    def make_net(self, spec: Spec, seed: int) -> Net:
        """Make the initial global model; the same for the same seed, whatever was drawn before."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(seed, Purpose.NET).integers(2**31)))
            return self._make_net(spec.channels, spec.num_classes)

    def make_optimizer(self, net: nn.Module) -> Optimizer:
        """Make the optimizer of one client's round."""
        return self._make_optimizer(net.parameters())

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """The method's objective for one step, ``[]``."""
        return self.method.loss(net, batch, client, server)
