"""Tasks, rounds and who takes part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedqcl.rng import Purpose, generator

Position: TypeAlias = tuple[int, int]  # a task, and a round within it


@dataclass(frozen=True)
class Schedule:
    """The plan of a run.

    Attributes:
        num_tasks: ``T``.
        rounds: ``C``, communication rounds of a task.
        num_clients: ``N``.
        participation: share of the clients that take part in a round, above 0, at most 1.
        seed: the run's seed.

    Example:
        >>> schedule = Schedule(num_tasks=2, rounds=3, num_clients=10, participation=0.3, seed=0)
        >>> list(schedule.rest((0, 2)))
        [(0, range(2, 3)), (1, range(0, 3))]
        >>> len(schedule.participants(task=1, round=0))
        3
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

    def rest(self, position: Position = (0, 0)) -> Iterator[tuple[int, range]]:
        """What is left of the plan from a round on: each task with its rounds."""
        first_task, first_round = position
        for task in range(first_task, self.num_tasks):
            yield task, range(first_round if task == first_task else 0, self.rounds)

    def rounds_before(self, position: Position) -> int:
        """How many rounds lie before a round."""
        task, round = position
        return task * self.rounds + round

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
    """Round to the nearest whole number, halves upwards.

    Example:
        >>> round_half_up(0.5), round_half_up(2.5)
        (1, 3)
    """
    return int(x + 0.5)
