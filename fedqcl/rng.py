"""Randomness by key: what is drawn depends on what it is for, never on who drew before.

Every draw of a run comes from a generator made here from (seed, purpose, client, task, round). So a result does not
change with the number of ranks, the order of clients, or a resumption in the middle. What a source draws once and for
all, its test images, belongs to the data instead: it is the same whatever the seed.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for. The numbers are part of every result: never reuse or renumber one."""

    CLASS_ORDER = 1
    VALIDATION = 2
    PARTITION = 3
    NET = 4
    PARTICIPATION = 5
    BATCHES = 6
    REPLAY = 7
    AUGMENT = 8
    MEMORY = 9
    SERVER = 10
    EVALUATION = 11
    STEPS = 12


def generator(seed: int, purpose: Purpose, *, client: int = -1, task: int = -1, round: int = -1) -> np.random.Generator:
    """Make the generator of one key.

    Args:
        seed: the run's seed, 0 or more.
        purpose: what will be drawn.
        client: client id from 0; -1 where no client is meant.
        task: task from 0, or -1.
        round: round within the task from 0, or -1.

    Returns:
        A fresh NumPy generator: the same key always starts the same sequence.

    Example:
        >>> first, again = (generator(0, Purpose.BATCHES, client=3, task=1, round=2) for _ in range(2))
        >>> bool((first.random(5) == again.random(5)).all())
        True
    """
    key = [seed, int(purpose), client + 1, task + 1, round + 1]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
