"""What the clients bring to the server in a round."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from fedqcl.engine.averaging import WeightedAverage
from fedqcl.engine.replica import Replica, Report
from fedqcl.methods import Stats


class Updates:
    """One round's models, statistics and reports of this rank's clients.

    Args:
        net: the global model that the clients started from.
        num_clients: ``N``.
        task: the current task.
        round: the round within the task.
    """

    def __init__(self, net: nn.Module, num_clients: int, task: int, round: int) -> None:
        self.average = WeightedAverage(net, num_clients)
        self.task = task
        self.round = round
        self._stats: dict[int, Stats] = {}
        self._reports: dict[int, Report] = {}

    def add(self, local: Replica, stats: Stats, weight: int) -> None:
        """Take a client's model with its weight ``n_i`` in the average, and what its hook returned."""
        client = local.shard.client
        self.average.add(client, local.net, weight, stats)
        self._stats[client] = stats
        self._reports[client] = local.report()

    def remove(self, clients: Sequence[int]) -> None:
        """Forget what clients reported; their models have no weight already."""
        for client in clients:
            self._stats.pop(client, None)
            self._reports.pop(client, None)

    @property
    def stats(self) -> list[Stats]:
        """What the clients' hooks returned."""
        return list(self._stats.values())

    @property
    def reports(self) -> list[Report]:
        """What the clients' local steps came to."""
        return list(self._reports.values())
