"""A method as a user may write one, with every hook there is, which is held to what all methods promise."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedqcl.methods import ClientState, Method, Stats
from fedqcl.methods.base import Held, Weights
from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.losses import cross_entropy


class Counted(nn.Module):
    """Class weights of the server: its classes' shares so far."""

    share: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("share", torch.zeros(num_classes))


class Rounds(ClientState):
    """A client that counts its rounds and keeps a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rounds", torch.zeros(()))
        self.register_buffer("own", torch.zeros(()))

    def start(self, client: int, net: nn.Module) -> None:
        self.own.fill_(1.0 + client)


class EveryHook(Method):
    """FedAvg with a weighted loss, and an average that is only gone three quarters of the way to."""

    def client_state(self, spec: Spec) -> Rounds:
        return Rounds()

    def server_state(self, spec: Spec, net: nn.Module) -> Counted:
        return Counted(spec.num_classes)

    def clients_hold(self, server: nn.Module) -> Held:
        return {"task": server}

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        loss = cross_entropy(net(batch.x), batch.y, batch.columns)
        return (loss * (1 + server.share[batch.y])).mean() + 0.01 * client.rounds * client.own * loss.mean()

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        client.rounds += 1
        return {"rounds": len(shard) * torch.ones(())}

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        assert stats["rounds"] > 0
        return {name: weights[name] + 0.75 * (average[name] - weights[name]) for name in average}

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        _, y, _ = shard.samples(torch.from_numpy(shard.index).to(server.share.device))
        return {"classes": torch.bincount(y, minlength=len(server.share)).float()}

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        server.share.copy_(stats["classes"] / stats["classes"].sum())
        net.head.bias.data += 0.01 * float(rng.random())
