"""Replay at a constant weight: what FedQCL is without its queues."""

from __future__ import annotations

from torch import nn

from fedqcl.methods.base import ClientState, Stats
from fedqcl.methods.fedqcl import FedQCL
from fedqcl.parts import Shard
from fedqcl.types import Count, NonNegative


class ConstantReplay(FedQCL):
    """FedQCL with ``V = 1`` and a number in the place of every queue, to show what the queues themselves are worth.

    Args:
        weight: of every past task beside the current one, ``Q / V``.
        memory: ``M``, samples a client may store.
        replay_batch: ``b``, replayed samples of every past task in a step.
        logit_matching: as in :class:`FedQCL`.
    """

    def __init__(
        self,
        weight: NonNegative = 0.5,
        memory: Count = 500,
        replay_batch: Count = 13,
        logit_matching: NonNegative = 0.5,
    ) -> None:
        super().__init__(
            V=1.0, memory=memory, replay_batch=replay_batch, logit_matching=logit_matching, initial_queue=weight
        )

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """Nothing is measured."""
        return {}
