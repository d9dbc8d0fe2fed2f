"""Replay at a constant weight: what FedQCL is without its queues."""

from __future__ import annotations

from torch import nn

from fedqcl.methods.base import ClientState, Stats
from fedqcl.methods.fedqcl import FedQCL
from fedqcl.parts import Shard
from fedqcl.types import Count, NonNegative, Positive


class ConstantReplay(FedQCL):
    """FedQCL with a number in the place of every queue: the control that shows what the queues themselves are worth.

    Args:
        Q: weight of every past task.
        V: weight of the current task; a list gives every client its own.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples of every past task in a step.
        logit_matching: as in :class:`FedQCL`.
    """

    def __init__(
        self,
        Q: NonNegative = 100.0,
        V: Positive | list[Positive] = 200.0,
        memory: Count = 500,
        replay_batch: Count = 13,
        logit_matching: NonNegative = 0.5,
    ) -> None:
        super().__init__(V, memory=memory, replay_batch=replay_batch, logit_matching=logit_matching, initial_queue=Q)

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Nothing is measured."""
        return {}
