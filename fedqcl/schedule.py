"""Tasks, rounds and who takes part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedqcl.rng import Purpose, generator


@dataclass(frozen=True)
class Schedule:
    """The plan of a run.

    Attributes:
        num_tasks: ``T``.
        rounds: ``C``, communication rounds of a task.
        num_clients: ``N``.
        participation: share of the clients that take part in a round, above 0, at most 1.
        seed: the run's seed.
    """

    num_tasks: int
    rounds: int
    num_clients: int
    participation: float
    seed: int

    @property
    def everyone(self) -> list[int]:
        """All client ids."""
        return list(range(self.num_clients))

    def participants(self, task: int, round: int) -> list[int]:
        """The clients of one round, sorted: a fresh sample without replacement, at least one."""
        count = max(1, round_half_up(self.participation * self.num_clients))
        rng = generator(self.seed, Purpose.PARTICIPATION, task=task, round=round)
        return sorted(rng.choice(self.num_clients, count, replace=False).tolist())

    def is_last(self, round: int) -> bool:
        """Whether a task ends with this round."""
        return round == self.rounds - 1

    def server_generator(self, task: int) -> np.random.Generator:
        """For what the server draws at the end of a task."""
        return generator(self.seed, Purpose.SERVER, task=task)


def round_half_up(x: float) -> int:
    """Round to the nearest whole number, halves upwards."""
    return int(x + 0.5)
