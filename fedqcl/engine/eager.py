"""Local steps one after another: the definition of correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import nn

from fedqcl.engine.descent import Descent
from fedqcl.engine.replica import Replica
from fedqcl.learner import Learner
from fedqcl.parts import Batch

Precision = Callable[[], AbstractContextManager[None]]
Watch = Callable[[Replica], AbstractContextManager[object]]


def take_step(
    learner: Learner, replica: Replica, batch: Batch, descend: Descent, server: nn.Module, precision: Precision
) -> None:
    """One local step of a client: the objective, and a step down its gradient.

    Args:
        learner: whose loss.
        replica: the client at work; its net moves, and its sum of losses grows.
        batch: the samples.
        descend: moves the replica's net.
        server: the server's state.
        precision: makes the context in which the forward pass runs.
    """
    with precision():
        loss = learner.loss(replica.net, batch, replica.state, server)
    descend(loss)
    replica.loss += loss.detach()


class EagerExecutor:
    """Runs each client's steps in plain PyTorch.

    Args:
        learner: whose loss and optimizer a step uses.
        precision: makes the context in which forward passes run.
    """

    def __init__(self, learner: Learner, precision: Precision) -> None:
        self.learner = learner
        self.precision = precision

    def run(self, replicas: Sequence[Replica], server: nn.Module, watch: Watch = nullcontext) -> None:
        """Take every step of the replicas' streams.

        Args:
            replicas: seated, with streams.
            server: the server's state.
            watch: makes the context in which one replica's steps run; it may hold back what they raise.
        """
        for replica in replicas:
            with watch(replica), replica.drawing():
                descend = Descent(self.learner.make_optimizer(replica.net))
                for step in range(len(replica.stream)):
                    batch = replica.stream.batch(replica.shard.pool, step)
                    take_step(self.learner, replica, batch, descend, server, self.precision)
