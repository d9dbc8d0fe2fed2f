"""Clients dealt to ranks, and the work each rank does for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from lightning.fabric import Fabric
from torch import nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.data.stream import Sampler
from fedqcl.engine.averaging import WeightedAverage
from fedqcl.engine.eager import EagerExecutor
from fedqcl.engine.replica import Replica
from fedqcl.engine.server import Server
from fedqcl.learner import Learner
from fedqcl.methods import ClientState, Stats
from fedqcl.parts import Shard

ClientHook = Callable[[nn.Module, Shard, ClientState, nn.Module], Stats]


class Engine:
    """Hosts client ``i`` on rank ``i mod world size`` for the whole run.

    Args:
        fabric: launched already.
        learner: what clients run.
        data: set up already.
        epochs: ``R``, local epochs of a round.
    """

    def __init__(self, fabric: Fabric, learner: Learner, data: FederatedData, epochs: int) -> None:
        assert data.spec is not None
        self.fabric = fabric
        self.data = data
        self.pool = data.train_pool(fabric.device)
        self.sampler = Sampler(data.seed, data.batch_size, learner.method.replay_batch, epochs, data.augment)
        net = learner.make_net(data.spec, data.seed).to(fabric.device).eval()
        self.server = Server(net, learner.method.server_state(data.spec, net).to(fabric.device))
        mine = range(fabric.global_rank, data.num_clients, fabric.world_size)
        self.clients = {i: learner.method.client_state(data.spec) for i in mine}
        self.executor = EagerExecutor(learner, fabric.autocast)
        blank = learner.method.client_state(data.spec)
        self.replicas = [Replica(net, blank, fabric.device) for _ in range(self.executor.concurrency)]

    def average(self) -> WeightedAverage:
        """An empty average to add the round's models to."""
        return WeightedAverage(self.server.net)

    def broadcast(self, active: Sequence[int], task: int) -> Iterator[list[Replica]]:
        """Seat this rank's active clients, as many at a time as run at once, each with the global model.

        A client without samples of the task sits out. When the caller asks for the next ones, those before are done
        and their states are put away.
        """
        mine = [i for i in active if i in self.clients and len(self.data.shards[task][i])]
        for start in range(0, len(mine), len(self.replicas)):
            wave = mine[start : start + len(self.replicas)]
            locals = self.replicas[: len(wave)]
            for client, local in zip(wave, locals, strict=True):
                shard = ClientShard(client, task, self.data.shards[task][client], self.pool, self.data.seed)
                local.seat(self.server, self.clients[client], shard)
            yield locals
            for client, local in zip(wave, locals, strict=True):
                local.leave(self.clients[client])

    def local_steps(self, locals: Sequence[Replica], round: int) -> None:
        """Draw the round's batches and take the local steps, the clients in parallel where the executor can."""
        for local in locals:
            shard = local.shard
            groups = self.clients[shard.client].replay(shard.task)
            stream = self.sampler.draw(shard.client, shard.task, round, shard.index, groups)
            local.stream = stream.to(self.fabric.device)
        self.executor.run(locals, self.server.state)

    def call(self, hook: ClientHook, local: Replica) -> Stats:
        """Run one of the method's client hooks on a seated client."""
        with torch.no_grad(), self.fabric.autocast():
            return hook(local.net, local.shard, local.state, self.server.state)
