"""Which rank hosts which clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Dealing is good enough when the slowest rank has no more than this share above the mean to do.
SLACK = 0.01


def deal_clients(loads: Sequence[int], num_ranks: int) -> list[list[int]]:
    """Deal clients to ranks so that the ranks finish at about the same time.

    The client with most to do goes first, each to the rank, of those with the fewest clients, that has least to do.
    Then clients of the slowest rank change places with others where that helps. No rank hosts more than one client
    more than another, which matters where clients run side by side.

    Args:
        loads: ``[N]``, what each client has to do, such as its number of samples.
        num_ranks: how many ranks, 1 or more.

    Returns:
        Client ids of every rank, sorted.

    Example:
        >>> deal_clients([10, 40, 20, 30, 5], num_ranks=2)
        [[0, 1, 4], [2, 3]]
    """
    work = np.asarray(loads, np.int64)
    rank_of = _one_by_one(work, num_ranks)
    while _change_places(work, rank_of, num_ranks):
        pass
    return [np.flatnonzero(rank_of == rank).tolist() for rank in range(num_ranks)]


def _one_by_one(loads: np.ndarray, num_ranks: int) -> np.ndarray:
    """Deal clients one after another: the rank of each, ``[N]``."""
    rank_of = np.zeros(len(loads), np.int64)
    sums, hosted = np.zeros(num_ranks, np.int64), np.zeros(num_ranks, np.int64)
    for client in np.argsort(-loads, kind="stable"):
        rank = np.lexsort((sums, hosted))[0]
        rank_of[client] = rank
        sums[rank] += loads[client]
        hosted[rank] += 1
    return rank_of


def _change_places(loads: np.ndarray, rank_of: np.ndarray, num_ranks: int) -> bool:
    """Swap a client of the slowest rank with another rank's, in place, and say whether that was of use."""
    sums = np.bincount(rank_of, loads, num_ranks)
    slowest = sums.argmax()
    mine, others = np.flatnonzero(rank_of == slowest), np.flatnonzero(rank_of != slowest)
    if not len(mine) or not len(others) or sums[slowest] <= (1 + SLACK) * sums.mean():
        return False
    less = loads[mine, None] - loads[others]
    after = np.maximum(sums[slowest] - less, sums[rank_of[others]] + less)
    a, b = np.unravel_index(after.argmin(), after.shape)
    if after[a, b] >= sums[slowest]:
        return False
    rank_of[mine[a]], rank_of[others[b]] = rank_of[others[b]], slowest
    return True
