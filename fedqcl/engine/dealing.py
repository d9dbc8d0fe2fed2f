"""Which rank hosts which clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Dealing is good enough when the ranks wait for each other no more than this share of the time.
SLACK = 0.01
PASSES = 3


def deal_clients(loads: Sequence[Sequence[int]] | np.ndarray, num_ranks: int) -> list[list[int]]:
    """Deal clients to ranks for the whole run, so that in every task the ranks finish at about the same time.

    A round lasts as long as its slowest rank: what is made small is the sum over tasks of the largest load of a rank.
    The client with most to do goes first, each to the rank, of those with the fewest clients, where it adds least to
    that sum. Then clients of different ranks change places where that helps. No rank hosts more than one client more
    than another, which matters where clients run side by side.

    Args:
        loads: ``[T, N]``, what each client has to do in each task, such as its number of samples.
        num_ranks: how many ranks, 1 or more.

    Returns:
        Client ids of every rank, sorted.

    Example:
        >>> deal_clients([[10, 40, 20, 30, 5]], num_ranks=2)
        [[0, 1, 4], [2, 3]]
        >>> deal_clients([[9, 9, 1, 1], [1, 1, 9, 9]], num_ranks=2)
        [[0, 2], [1, 3]]
    """
    loads = np.asarray(loads, np.int64)
    rank_of, sums = _one_by_one(loads, num_ranks)
    enough = (1 + SLACK) * loads.sum() / num_ranks
    for _ in range(PASSES):
        before = _duration(sums)
        for client in range(loads.shape[1]):
            if _duration(sums) <= enough:
                break
            _change_places(client, loads, rank_of, sums)
        if _duration(sums) == before:
            break
    return [np.flatnonzero(rank_of == rank).tolist() for rank in range(num_ranks)]


def _duration(sums: np.ndarray) -> int:
    """How long a round of each task takes all together, with ranks' loads ``[T, num_ranks]``."""
    return int(sums.max(1).sum())


def _one_by_one(loads: np.ndarray, num_ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Deal clients one after another: the rank of each, ``[N]``, and the ranks' loads, ``[T, num_ranks]``."""
    rank_of = np.zeros(loads.shape[1], np.int64)
    sums = np.zeros((len(loads), num_ranks), np.int64)
    hosted = np.zeros(num_ranks, np.int64)
    for client in np.argsort(-loads.sum(0), kind="stable"):
        after = sums + loads[:, [client]]
        durations = np.maximum(after, sums.max(1, keepdims=True)).sum(0)
        rank = min(range(num_ranks), key=lambda r: (hosted[r], durations[r], after[:, r].sum()))
        rank_of[client], sums[:, rank] = rank, after[:, rank]
        hosted[rank] += 1
    return rank_of, sums


def _change_places(client: int, loads: np.ndarray, rank_of: np.ndarray, sums: np.ndarray) -> None:
    """Swap a client with the one of another rank that helps most, if any does, in place."""
    here = rank_of[client]
    others = np.flatnonzero(rank_of != here)
    if not len(others):
        return
    there = rank_of[others]
    more = loads[:, others] - loads[:, [client]]
    rest = np.stack([np.delete(sums, [here, rank], 1).max(1, initial=0) for rank in range(sums.shape[1])], 1)
    durations = np.maximum(np.maximum(sums[:, [here]] + more, sums[:, there] - more), rest[:, there]).sum(0)
    best = durations.argmin()
    if durations[best] < _duration(sums):
        sums[:, here] += more[:, best]
        sums[:, there[best]] -= more[:, best]
        rank_of[client], rank_of[others[best]] = there[best], here
