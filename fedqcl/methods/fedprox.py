"""FedProx (Li et al., 2020): FedAvg with a proximal term that keeps clients near the global model."""

from __future__ import annotations

from typing import Literal, cast

from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method, Stats, Weights
from fedqcl.parts import Batch, Spec
from fedqcl.parts.losses import cross_entropy
from fedqcl.parts.weights import WeightBuffers, squared_distance
from fedqcl.types import NonNegative


class FedProx(Method):
    """A step minimises ``cross-entropy + mu / 2 * ||w - w_global||^2``, ``w_global`` the model the round started from.

    The distance is over the trained parameters. At ``mu = 0`` this is FedAvg.

    Args:
        mu: weight of the proximal term.
        ce_scope: in the class-incremental scenario, whether all classes ``seen`` compete in the cross-entropy or those
            of the ``current`` task alone.
    """

    def __init__(self, mu: NonNegative = 0.01, ce_scope: Literal["seen", "current"] = "current") -> None:
        self.mu = mu
        self.ce_scope = ce_scope

    def server_state(self, spec: Spec, net: nn.Module) -> WeightBuffers:
        """A copy of the global model's parameters, as clients receive them."""
        return WeightBuffers(net)

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples and the proximal term, ``[]``."""
        loss = cross_entropy(net(batch.x), batch.y, batch.competing(self.ce_scope)).mean()
        return loss + self.mu / 2 * squared_distance(net, cast(WeightBuffers, server))

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        """The average is the next global model, and what the next round's clients are kept near."""
        cast(WeightBuffers, server).load(average)
        return average
