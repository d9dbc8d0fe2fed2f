"""FedAvg (McMahan et al., 2017): local training on the current task, weighted averaging, nothing against forgetting."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method
from fedqcl.parts import Batch
from fedqcl.parts.losses import cross_entropy


class FedAvg(Method):
    """Fine-tuning in federation: the baseline that the other methods are told against.

    Args:
        ce_scope: in the class-incremental scenario, whether all classes ``seen`` compete in the cross-entropy or those
            of the ``current`` task alone.
    """

    ce_scope: Literal["seen", "current"] = "current"

    def __init__(self, ce_scope: Literal["seen", "current"] = "current") -> None:
        self.ce_scope = ce_scope

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples, ``[]``."""
        return cross_entropy(net(batch.x), batch.y, batch.competing(self.ce_scope)).mean()
