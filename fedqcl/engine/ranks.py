"""Clients dealt to ranks, and the work each rank does for its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.data.pool import Pool
from fedqcl.data.stream import Sampler
from fedqcl.engine.averaging import WeightedAverage, sum_stats, take_from_first
from fedqcl.engine.dealing import deal_clients
from fedqcl.engine.eager import EagerExecutor
from fedqcl.engine.graphed import GraphedExecutor, starts_at_zero
from fedqcl.engine.memory import Footprint
from fedqcl.engine.replica import Replica
from fedqcl.engine.server import Server, num_values, personal_entries
from fedqcl.learner import Learner
from fedqcl.methods import ClientState, Stats
from fedqcl.parts import Shard
from fedqcl.parts.weights import Entries

Personal = Literal["nothing", "statistics", "model"]
Weighting = Literal["task", "first_task", "uniform"]
ClientHook = Callable[[nn.Module, Shard, ClientState, nn.Module], Stats]


class Engine:
    """Hosts this rank's share of the clients, the same ones for the whole run.

    Attributes:
        num_shared: how many numbers of the model clients and server exchange in a round.
        num_reported: how many numbers each client reported for the last sum.

    Args:
        fabric: launched already.
        learner: what clients run.
        data: set up already.
        epochs: ``R``, local epochs of a round.
        executor: how local steps run; ``auto`` is ``graphed`` on CUDA, if the optimizer can be restarted there, else
            ``eager``.
        concurrency: how many clients of a rank run at once, where the executor can.
        personal: what of the model clients keep to themselves from round to round.
        weighting: what a client's model weighs in the average: its images of the current task, those of the first, or
            the same as any other.
        restart: start every task from the initial model.
    """

    def __init__(
        self,
        fabric: Fabric,
        learner: Learner,
        data: FederatedData,
        epochs: int,
        executor: Literal["auto", "eager", "graphed"] = "auto",
        concurrency: int = 5,
        personal: Personal = "nothing",
        weighting: Weighting = "task",
        restart: bool = False,
    ) -> None:
        assert data.spec is not None
        self.fabric = fabric
        self.learner = learner
        self.data = data
        self.pool = data.train_pool(fabric.device)
        labels = data.train.y if data.sampling == "balanced" else None
        self.sampler = Sampler(data.seed, data.batch_size, learner.method.replay_batch, epochs, data.augment, labels)
        cuda = fabric.device.type == "cuda"
        net = learner.make_net(data.spec, data.seed).to(fabric.device).eval()
        net = net.to(memory_format=torch.channels_last) if cuda else net
        self.server = Server(net, learner.method.server_state(data.spec, net).to(fabric.device))
        self.initial = Entries(self.server.weights()) if restart else None
        self.weighting = weighting
        self.num_shared = num_values(self.server.weights()) - num_values(personal_entries(net, personal))
        self.num_reported = 0
        loads = [sum(len(shards[i]) for shards in data.shards) for i in range(data.num_clients)]
        mine = deal_clients(loads, fabric.world_size)[fabric.global_rank]
        self.clients = {i: self._client_state(i, personal) for i in mine}
        graphed = executor == "graphed" or (executor == "auto" and cuda and starts_at_zero(learner))
        self.executor = (GraphedExecutor if graphed else EagerExecutor)(learner, fabric.autocast)
        blank = self._client_state(0, personal)
        seats = min(concurrency, len(mine)) if graphed else 1
        self.replicas = [Replica(net, blank, fabric.device) for _ in range(max(1, seats))]

    def _client_state(self, client: int, personal: Personal) -> ClientState:
        """The state that a client starts with, on the CPU."""
        assert self.data.spec is not None
        state, net = self.learner.method.client_state(self.data.spec), self.server.net
        state.start(client, net)
        state.personal = Entries(personal_entries(net, personal))
        return state.cpu()

    def start_task(self) -> None:
        """Set the global model back to where the first task started, if every task is to start there."""
        if self.initial is not None:
            self.server.load(self.initial.by_name())

    def weight(self, shard: Shard) -> int:
        """``n_i``: what a client's model weighs in the round's average."""
        if self.weighting == "uniform":
            return 1
        return len(self.data.shards[0][shard.client]) if self.weighting == "first_task" else len(shard)

    def footprint(self, test: Pool, test_batch: int) -> Footprint:
        """What the run's memory follows from.

        Args:
            test: the images the global model is tested on.
            test_batch: how many of them at a time.
        """
        spec, blank = self.data.spec, next(iter(self.replicas)).state
        assert spec is not None
        groups = len(blank.replay(spec.num_tasks - 1))
        with self.fabric.autocast():
            mixed = torch.is_autocast_enabled(self.fabric.device.type)
        return Footprint.of(
            self.learner.make_net(spec, self.data.seed),
            blank,
            spec,
            [self.pool, test],
            step=self.sampler.batch_size + groups * self.sampler.replay_batch,
            test=test_batch,
            replicas=len(self.replicas),
            mixed=mixed,
            graphed=isinstance(self.executor, GraphedExecutor),
        )

    def average(self) -> WeightedAverage:
        """An empty average to add the round's models to."""
        return WeightedAverage(self.server.net)

    def sum(self, stats: Sequence[Stats]) -> dict[str, Tensor]:
        """Add up what the method's client hooks returned, over all clients of all ranks."""
        sums = sum_stats(stats, self.fabric.device)
        self.num_reported = num_values(sums)
        return sums

    def broadcast(
        self, active: Sequence[int], task: int, idle_too: bool = False, last_round: bool = True
    ) -> Iterator[list[Replica]]:
        """Seat this rank's active clients, as many at a time as run at once, each with the global model.

        When the caller asks for the next ones, those before are done and their states are put away.

        Args:
            active: client ids, sorted.
            task: the current task.
            idle_too: seat also the clients without samples of the task, who otherwise sit out.
            last_round: whether the task ends with this round.
        """
        mine = [i for i in active if i in self.clients and (idle_too or len(self.data.shards[task][i]))]
        for client in self.clients.keys() - mine:
            self.clients[client].sit_out()
        for start in range(0, len(mine), len(self.replicas)):
            wave = mine[start : start + len(self.replicas)]
            locals = self.replicas[: len(wave)]
            for client, local in zip(wave, locals, strict=True):
                shard = ClientShard(client, task, self.data.shards[task][client], self.pool, self.data.seed, last_round)
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
            self.learner.arrange(local.net, stream.parts)
        self.executor.run(locals, self.server.state)

    def agree(self) -> None:
        """Take over the first rank's global model and server state: every rank has worked them out for itself."""
        take_from_first(self.server.net)
        take_from_first(self.server.state)

    def call(self, hook: ClientHook, local: Replica) -> Stats:
        """Run one of the method's client hooks on a seated client."""
        with torch.no_grad(), self.fabric.autocast():
            return hook(local.net, local.shard, local.state, self.server.state)
