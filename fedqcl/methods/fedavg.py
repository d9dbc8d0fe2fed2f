"""FedAvg (McMahan et al., 2017): local training on the current task, weighted averaging, nothing against forgetting."""

from __future__ import annotations

from torch import Tensor, nn

from fedqcl.methods.base import ClientState, Method
from fedqcl.methods.replay import sample_losses
from fedqcl.parts import Batch


class FedAvg(Method):
    """Fine-tuning in federation: the baseline that the other methods are told against."""

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """Mean cross-entropy of the current samples, ``[]``."""
        current, _ = sample_losses(net, batch)
        return current.mean()
