"""A method is what differs from FedAvg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from torch import Tensor, nn

from fedqcl.parts import Batch, Shard, Spec
from fedqcl.parts.weights import Entries

Stats = Mapping[str, Tensor]
Weights = dict[str, Tensor]
Held = Mapping[Literal["round", "task", "never"], nn.Module]


class ClientState(nn.Module):
    """What one client carries from round to round: buffers of fixed shape, so it can be saved, moved and checked.

    Attributes:
        personal: the entries of the model that the client keeps to itself, where the trainer has it keep any.
    """

    def __init__(self) -> None:
        super().__init__()
        self.personal = Entries({})

    def start(self, client: int, net: nn.Module) -> None:
        """Become the state of one client, before the first round.

        Args:
            client: its id.
            net: the initial global model.
        """

    def replay(self, task: int) -> list[Tensor]:
        """The stored samples that task ``task``'s replay batches are drawn from: ``[n]`` int64, one tensor a group.

        The number of groups may depend on the task alone; a group may be empty.
        """
        return []

    def num_stored(self) -> int | None:
        """How many samples it has stored; None if it does not say. Looks at values, which waits for a GPU."""
        return None

    def sit_out(self) -> None:
        """A round passes without this client."""

    def diagnostics(self) -> Mapping[str, Tensor]:
        """What the run's files show of this client: ``[]`` or ``[T]`` tensors, NaN where there is nothing to show."""
        return {}


class Method:
    """A federated continual-learning method, told as its differences from FedAvg.

    ``loss`` is pure: tensors in, scalar out; no randomness, no ``.item()``, no shape that depends on values; it
    changes nothing but the net's own BatchNorm statistics. That is what lets an executor capture it.

    ``client_*`` hooks run on the client and may change its state. What they return for the server are SUMS over
    samples, never means, so that ranks combine them by addition. ``server_*`` hooks see these sums over all clients.

    Attributes:
        replay_batch: ``b``, how many samples of every group of :meth:`ClientState.replay` a step gets.
    """

    replay_batch: int = 0

    def check(self, spec: Spec, num_clients: int) -> None:
        """Refuse a problem in which the method has no meaning, before anything is written.

        Args:
            spec: the problem.
            num_clients: ``N``.

        Raises:
            InputError: the reason, naming the key to change.
        """

    def client_state(self, spec: Spec) -> ClientState:
        """The state a client starts with."""
        return ClientState()

    def server_state(self, spec: Spec, net: nn.Module) -> nn.Module:
        """The state the server starts with: a module of buffers."""
        return nn.Module()

    def clients_hold(self, server: nn.Module) -> Held:
        """What clients hold of the server's state, by when they are sent it; for the accounts alone.

        ``round``: in every round; ``task``: when a task ends; ``never``: it is a copy of a model they were sent anyway.
        """
        return {}

    def loss(self, net: nn.Module, batch: Batch, client: ClientState, server: nn.Module) -> Tensor:
        """The objective of one local step, ``[]``.

        Args:
            net: the client's model, in train mode.
            batch: the step's samples, current and replayed.
            client: the client's state.
            server: the server's state.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss: write one")

    def client_round(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """After the local steps of a round, on the client's own model ``w_i``.

        Args:
            net: the client's model, in train mode, without gradients.
            shard: the client's samples of the task.
            client: the client's state; may be changed in place.
            server: the server's state.

        Returns:
            What the client reports: sums over samples, by name, of the same shapes for every client.
        """
        return {}

    def server_round(self, weights: Weights, average: Weights, stats: Stats, server: nn.Module) -> Weights:
        """Turn the clients' average into the next global model.

        Args:
            weights: the global model before the round, by entry name.
            average: ``sum_i p_i w_i`` over the round's clients.
            stats: the sums of what :meth:`client_round` returned.
            server: the server's state.
        """
        return average

    def client_task(self, net: nn.Module, shard: Shard, client: ClientState, server: nn.Module) -> Stats:
        """At the end of a task, on the global model, for every client.

        Args:
            net: the global model, in train mode, without gradients.
            shard: the client's samples of the task; may be empty.
            client: the client's state; may be changed in place.
            server: the server's state.

        Returns:
            As of :meth:`client_round`.
        """
        return {}

    def server_task(self, net: nn.Module, stats: Stats, server: nn.Module, task: int, rng: np.random.Generator) -> None:
        """At the end of a task, after every :meth:`client_task`.

        Args:
            net: the global model; may be changed.
            stats: the sums of what :meth:`client_task` returned.
            server: the server's state, to be changed in place: captured steps keep reading the same tensors.
            task: the task that ended.
            rng: for what the server draws.
        """
