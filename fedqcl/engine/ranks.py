"""Clients dealt to ranks, and the work each rank does for its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fedqcl.data.module import ClientShard, FederatedData
from fedqcl.data.stream import Sampler
from fedqcl.engine.averaging import gather, sum_stats, take_from_first
from fedqcl.engine.dealing import deal_clients
from fedqcl.engine.eager import EagerExecutor
from fedqcl.engine.faults import Faults
from fedqcl.engine.graphed import GraphedExecutor, can_be_captured
from fedqcl.engine.pulse import PULSE
from fedqcl.engine.replica import Replica
from fedqcl.engine.rules import USUAL, Rules
from fedqcl.engine.server import Server, copy_entries, num_bytes, num_values, personal_entries
from fedqcl.engine.updates import Updates
from fedqcl.errors import InputError
from fedqcl.kernels import launch
from fedqcl.learner import Learner
from fedqcl.methods import ClientState, Stats
from fedqcl.parts import Shard
from fedqcl.parts.weights import Entries

# Bytes of clients' states that change ranks together: whole models of many clients would not fit at once, and each by
# itself would take a meeting of all ranks.
MOVED_AT_ONCE = 16 * 2**20

ClientHook = Callable[[nn.Module, Shard, ClientState, nn.Module], Stats]


class Engine:
    """Hosts this rank's share of the clients, dealt anew for every task.

    Attributes:
        clients: the states of those that this rank hosts, by client id, sorted; changed in place.
        num_shared: how many numbers of the model clients and server exchange in a round.
        num_reported: how many numbers each client reported for the last sum.

    Args:
        fabric: launched already.
        learner: what clients run.
        data: set up already.
        epochs: ``R``, local epochs of a round.
        executor: how local steps run; ``auto`` is ``graphed`` on CUDA, if optimizer and net can be captured, else
            ``eager``.
        concurrency: how many clients of a rank run at once, where the executor can.
        rules: how clients' models become the next global one.
        faults: what becomes of a client that fails; by default it ends the run.

    Raises:
        InputError: steps are to be captured, and the optimizer's or the net's cannot be.
    """

    def __init__(
        self,
        fabric: Fabric,
        learner: Learner,
        data: FederatedData,
        epochs: int,
        executor: Literal["auto", "eager", "graphed"] = "auto",
        concurrency: int = 5,
        rules: Rules = USUAL,
        faults: Faults | None = None,
    ) -> None:
        self.fabric = fabric
        self.learner = learner
        self.data = data
        self.faults = faults or Faults()
        self._cuda = fabric.device.type == "cuda"
        if self._cuda:
            launch.rehearse(fabric.device)
        self.pool = data.train_pool(fabric.device)
        labels = data.train.y if data.sampling == "balanced" else None
        self.sampler = Sampler(data.seed, data.batch_size, learner.method.replay_batch, epochs, data.augment, labels)
        self.server = self._make_server()
        self.rules = rules
        self.initial = copy.deepcopy(self.server) if rules.restart else None
        kept = num_values(personal_entries(self.server.net, rules.personal))
        self.num_shared = num_values(self.server.weights()) - kept
        self.num_reported = 0
        self.clients = {i: self._client_state(i) for i in self._own_clients(0)}
        # The buffers that clients had before the round, for those that may have to be left out of it.
        self._before: dict[int, dict[str, Tensor]] = {}
        graphed = self._captures(executor)
        self.executor = (GraphedExecutor if graphed else EagerExecutor)(learner, fabric.autocast)
        most = -(-data.num_clients // fabric.world_size)
        seats = min(concurrency, most) if graphed else 1
        blank = self._client_state(0)
        self.replicas = [Replica(self.server.net, blank, fabric.device) for _ in range(seats)]

    def _captures(self, executor: Literal["auto", "eager", "graphed"]) -> bool:
        """Whether steps are captured; found out on the rank, as a step of the optimizer may start CUDA."""
        if executor == "eager" or (executor == "auto" and not self._cuda):
            return False
        obstacle = self._obstacle()
        if executor == "graphed" and obstacle:
            raise InputError(f"trainer.executor: graphed cannot capture {obstacle}; choose auto or eager")
        return not obstacle

    def _obstacle(self) -> str:
        """What cannot be captured, if anything."""
        assert self.data.spec is not None
        if not can_be_captured(self.learner, self.fabric.device):
            return "model.optimizer"
        if self.learner.draws(self.data.spec):
            return "model.net, which draws random numbers, as dropout does"
        return ""

    def _make_server(self) -> Server:
        """The initial global model and the method's server state, on the rank's device."""
        assert self.data.spec is not None
        net = self.learner.make_net(self.data.spec, self.data.seed).to(self.fabric.device).eval()
        net = net.to(memory_format=torch.channels_last) if self._cuda else net
        PULSE.follow(net)
        return Server(net, self.learner.method.server_state(self.data.spec, net).to(self.fabric.device))

    def _own_clients(self, task: int) -> list[int]:
        """The clients of this rank in a task, so dealt out that all ranks have much the same to do."""
        loads = [len(shard) for shard in self.data.shards[task]]
        return deal_clients(loads, self.fabric.world_size)[self.fabric.global_rank]

    def _client_state(self, client: int) -> ClientState:
        """The state that a client starts with, on the CPU."""
        assert self.data.spec is not None
        state, net = self.learner.method.client_state(self.data.spec), self.server.net
        state.start(client, net)
        state.personal = Entries(personal_entries(net, self.rules.personal))
        return state.cpu()

    def start_task(self, task: int) -> None:
        """Host the task's clients; if every task is to start as the first did, set all back to how it was then."""
        if self.initial is not None:
            self.server.load(self.initial.weights())
            self.server.state.load_state_dict(self.initial.state.state_dict())
            self.host_afresh(task)
            return
        own = self._own_clients(task)
        hosted = {i: self.clients[i] if i in self.clients else self._client_state(i) for i in own}
        moving = sorted(gather([i for i in self.clients if i not in hosted]))
        bytes_each = num_bytes(self.replicas[0].state.state_dict().values())
        at_once = max(1, MOVED_AT_ONCE // max(1, bytes_each))
        for start in range(0, len(moving), at_once):
            part = moving[start : start + at_once]
            for i, state in gather([(i, self.clients[i].state_dict()) for i in part if i in self.clients]):
                if i in hosted:
                    hosted[i].load_state_dict(state)
        self._take_in(hosted)

    def host_afresh(self, task: int) -> None:
        """Host the task's clients, with the states that clients start with."""
        self._take_in({i: self._client_state(i) for i in self._own_clients(task)})

    def _take_in(self, clients: Mapping[int, ClientState]) -> None:
        self.clients.clear()
        self.clients.update(clients)

    def weight(self, shard: Shard) -> int:
        """``n_i``: what a client's model weighs in the round's average."""
        if self.rules.weighting == "uniform":
            return 1
        return len(self.data.shards[0][shard.client]) if self.rules.weighting == "first_task" else len(shard)

    def updates(self, task: int, round: int) -> Updates:
        """Nothing yet, to add what the round's clients bring."""
        return Updates(self.server.net, self.data.num_clients, task, round)

    def average(self, updates: Updates) -> dict[str, Tensor] | None:
        """Average the models of all ranks' clients; one whose update is not finite is left out, if not refused.

        Returns:
            The average of each entry, float64; None if there was no usable update.

        Raises:
            InputError: an update is not finite, and that is to end the run.
            ClientError: all of several clients raised.
        """
        average, diverged = updates.average.reduce()
        self.faults.diverged(diverged, updates.task, updates.round)
        self._note_skipped(nothing=average is None and not diverged)
        updates.remove(diverged)
        for client in self.clients.keys() & diverged:
            copy_entries(dict(self.clients[client].named_buffers()), self._before[client])
            self.clients[client].sit_out()
            self.faults.drop(client, updates.task, updates.round)
        self._before.clear()
        return average

    def _note_skipped(self, nothing: bool) -> None:
        """Clients were left out, or none; with ``nothing`` left, they may all have been."""
        skipped = self.faults.take_skipped()
        if nothing:
            self.faults.without_update(gather(skipped))

    def sum(self, stats: Sequence[Stats]) -> dict[str, Tensor]:
        """Add up what the method's client hooks returned, over all clients of all ranks.

        Raises:
            ClientError: there is nothing, as several clients raised.
        """
        if self.faults.skips:
            self._note_skipped(nothing=not any(gather([bool(stats)])))
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
        weights = self.server.weights()
        for start in range(0, len(mine), len(self.replicas)):
            wave = mine[start : start + len(self.replicas)]
            locals = self.replicas[: len(wave)]
            for client, local in zip(wave, locals, strict=True):
                local.seat(weights, self.clients[client], self._shard(client, task, last_round))
            yield locals
            for client, local in zip(wave, locals, strict=True):
                self._put_away(client, local)

    def _shard(self, client: int, task: int, last_round: bool) -> ClientShard:
        index, stored = self.data.shards[task][client], self.clients[client].num_stored()
        return ClientShard(client, task, index, self.pool, self.data.seed, last_round, stored)

    def _put_away(self, client: int, local: Replica) -> None:
        state = self.clients[client]
        if local.failed:
            if local.round is not None:
                state.sit_out()
            return
        if self.faults.drops:
            self._before[client] = {name: value.clone() for name, value in state.named_buffers()}
        local.leave(state)

    def local_steps(self, locals: Sequence[Replica], round: int) -> list[Replica]:
        """Draw the round's batches and take the local steps, the clients in parallel where the executor can.

        Returns:
            Those of the clients that did not fail.
        """
        for local in locals:
            local.round = round
            with self.faults.watching(local):
                self._draw(local, round)
        self.executor.run([local for local in locals if not local.failed], self.server.state, self.faults.watching)
        return [local for local in locals if not local.failed]

    def _draw(self, local: Replica, round: int) -> None:
        shard = local.shard
        groups = self.clients[shard.client].replay(shard.task)
        stream = self.sampler.draw(shard.client, shard.task, round, shard.index, groups)
        local.stream = stream.to(self.fabric.device)
        self.learner.arrange(local.net, stream.parts)

    def agree(self) -> None:
        """Take over the first rank's global model and server state: every rank has worked them out for itself."""
        take_from_first(self.server.net)
        take_from_first(self.server.state)

    def call(self, hook: ClientHook, local: Replica) -> Stats:
        """Run one of the method's client hooks on a seated client.

        Raises:
            TypeError: it returns something else than tensors by name.
        """
        with torch.no_grad(), self.fabric.autocast():
            stats = hook(local.net, local.shard, local.state, self.server.state)
        if not isinstance(stats, Mapping) or not all(isinstance(value, Tensor) for value in stats.values()):
            raise TypeError(f"{hook.__qualname__} must return tensors by name, {{}} if none")
        if local.round is None:  # at the end of a task they may be as large as the model, and wait for all clients'
            return {name: value.cpu() for name, value in stats.items()}
        return stats
