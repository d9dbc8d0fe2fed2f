"""Local steps one after another: the definition of correct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from torch import nn

from fedqcl.engine.replica import Replica
from fedqcl.learner import Learner


class EagerExecutor:
    """Runs each client's steps in plain PyTorch.

    Args:
        learner: whose loss and optimizer a step uses.
        precision: makes the context in which forward passes run.
    """

    def __init__(self, learner: Learner, precision: Callable[[], AbstractContextManager[None]]) -> None:
        self.learner = learner
        self.precision = precision

    def run(self, replicas: Sequence[Replica], server: nn.Module) -> None:
        """Take every step of the replicas' streams."""
        for replica in replicas:
            optimizer = self.learner.make_optimizer(replica.net)
            for step in range(len(replica.stream)):
                batch = replica.stream.batch(replica.shard.pool, step)
                optimizer.zero_grad()
                with self.precision():
                    loss = self.learner.loss(replica.net, batch, replica.state, server)
                loss.backward()
                optimizer.step()
                replica.loss += loss.detach()
