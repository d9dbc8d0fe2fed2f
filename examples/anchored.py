"""FedAvg, held near the model that the task began with: EWC with all weights alike."""

from fedqcl.methods import FedAvg
from fedqcl.parts.weights import WeightBuffers, squared_distance
from fedqcl.types import NonNegative


class Anchored(FedAvg):
    def __init__(self, strength: NonNegative = 0.03) -> None:
        super().__init__()
        self.strength = strength

    def server_state(self, spec, net):
        return WeightBuffers(net)

    def loss(self, net, batch, client, server):
        pull = self.strength * squared_distance(net, server)
        return super().loss(net, batch, client, server) + pull

    def server_task(self, net, stats, server, task, rng):
        server.load(dict(net.named_parameters()))
