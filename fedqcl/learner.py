"""What a client runs: a net, a method and an optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Literal

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer, SparseAdam

from fedqcl.errors import InputError
from fedqcl.methods import ClientState, Method
from fedqcl.models import Net, ResNet18
from fedqcl.models.norm import BatchNormReLU, set_parts
from fedqcl.parts import Batch, Spec
from fedqcl.rng import Purpose, generator

NetCallable = Callable[[int, int], Net]


class Learner(LightningModule):
    """Glues a method to a net and an optimizer; the only thing an engine runs.

    Args:
        method: the federated continual-learning method.
        net: makes the net from the number of image channels and the number of classes of all tasks.
        optimizer: makes a client's optimizer; it starts afresh in every round.
        replay_statistics: whether BatchNorm normalises the current and the replayed images of a step together, or each
            group of them by itself, as separate forward passes would. The forward pass is one either way, and takes as
            long; on Split-CIFAR-100 the latter is better by a point.

    Raises:
        InputError: ``net`` is a net, not what makes one; or ``optimizer`` makes none that can take a client's steps.
    """

    def __init__(
        self,
        method: Method,
        net: NetCallable = ResNet18,
        optimizer: OptimizerCallable = lambda parameters: torch.optim.SGD(parameters, lr=0.005),
        replay_statistics: Literal["joint", "per_task"] = "per_task",
    ) -> None:
        super().__init__()
        if isinstance(net, nn.Module):
            raise InputError(
                f"model.net: is a {type(net).__name__} already; give its class, or a function that makes it"
            )
        self.method = method
        self._make_net = net
        self._make_optimizer = optimizer
        self.replay_statistics = replay_statistics
        self._check_optimizer()

    def _check_optimizer(self) -> None:
        """Make an optimizer for nothing, so that one that will not do is refused before there is a run."""
        try:
            optimizer = self.sample_optimizer()
        except (TypeError, ValueError) as error:
            raise InputError(f"model.optimizer: {error}") from None
        why = _why_no_steps(optimizer)
        if why:
            name = type(optimizer).__name__
            raise InputError(f"model.optimizer: {name} {why}; choose another, such as SGD or AdamW")

    def make_net(self, spec: Spec, seed: int) -> Net:
        """Make the initial global model; the same for the same seed, whatever was drawn before."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(seed, Purpose.NET).integers(2**31)))
            return self._make_net(spec.channels, spec.num_classes)

    def draws(self, spec: Spec) -> bool:
        """Whether a net draws random numbers as it trains, as dropout does."""
        net = self.make_net(spec, seed=0).train()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            before = torch.get_rng_state()
            net(torch.zeros(2, spec.channels, *spec.size))
            return not torch.equal(before, torch.get_rng_state())

    def make_optimizer(self, net: nn.Module) -> Optimizer:
        """Make the optimizer of one client's round."""
        return self._make_optimizer(net.parameters())

    def sample_optimizer(self, device: torch.device | None = None) -> Optimizer:
        """Make an optimizer of a small matrix and a vector of zeros, to be looked at, or tried out on a device."""
        return self.make_optimizer(nn.ParameterList([torch.zeros(2, 2, device=device), torch.zeros(2, device=device)]))

    def cautions(self, net: nn.Module) -> list[str]:
        """What may not be as one thinks, a line each.

        Args:
            net: of those that :meth:`make_net` makes.
        """
        norms = [module for module in net.modules() if isinstance(module, _BatchNorm)]
        plain = not all(isinstance(norm, BatchNormReLU) for norm in norms)
        if self.method.replay_batch and self.replay_statistics == "per_task" and plain:
            return [
                "model.replay_statistics: per_task has no effect on this net's BatchNorms, only on "
                "fedqcl.models.norm.BatchNormReLU"
            ]
        return []

    def arrange(self, net: nn.Module, parts: tuple[int, ...]) -> None:
        """Tell a net's BatchNorms what its next training batches consist of.

        Args:
            net: a client's net.
            parts: sizes of the current batch and of each replay group.
        """
        set_parts(net, parts if self.replay_statistics == "per_task" else ())

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """The method's objective for one step, ``[]``.

        Args:
            net: the client's model, in train mode.
            batch: the step's samples.
            client: the client's state.
            server: the server's state.
        """
        return self.method.loss(net, batch, client, server)


def _why_no_steps(optimizer: Optimizer) -> str:
    """Why an optimizer cannot take a client's steps; blank if it can."""
    # It is not tried out: a step of Adam and others may start CUDA, after which no rank can be forked.
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure and closure.default is closure.empty:
        return "works out the loss several times a step, which a client does once"
    return "takes sparse gradients, and these are dense" if isinstance(optimizer, SparseAdam) else ""
